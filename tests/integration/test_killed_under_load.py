"""A hundred kills while twenty chats are answered and the CPU has no time left: words that clients had are kept."""

import os
from pathlib import Path

import pytest
from kill_rounds import busy, kill_rounds

CHATS = 20
MAY_TAKE = 0.5
"""Seconds after which a word that a client has received is on the disk."""


@pytest.mark.fault("kill -9 under load", "streaming", "nothing older than half a second is missing")
@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_hundred_kills_under_full_load(tmp_path: Path) -> None:
    """Nothing that a client received half a second before a SIGKILL is missing, while other programs take the CPU."""
    with busy(os.cpu_count() or 1):
        rounds = await kill_rounds(tmp_path, 100, chats=CHATS, may_take=MAY_TAKE, seed=1)
    assert sum(each.received for each in rounds) > 100 * CHATS
    assert [each.lost.words for each in rounds] == [0] * 100, max(each.lost.oldest for each in rounds)
