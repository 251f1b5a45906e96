"""Two hundred kills while twenty chats are answered, half on new stores and half beside programs that take the CPU."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from kill_rounds import busy, kill_rounds

CHATS = 20
ROUNDS = 50
MAY_TAKE = 0.5
"""Seconds after which a word that a client has received is on the disk."""


@pytest.mark.fault("kill -9 under load", "streaming", "nothing older than half a second is missing")
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_busy", [True, False], ids=["beside spinners", "alone"])
@pytest.mark.parametrize("is_fresh", [True, False], ids=["new stores", "one store"])
async def test_two_hundred_kills(tmp_path: Path, *, is_fresh: bool, is_busy: bool) -> None:
    """Nothing that a client received half a second before a SIGKILL is missing, from the first commit of a file on."""
    with busy(os.cpu_count() or 1) if is_busy else nullcontext():
        rounds = await kill_rounds(tmp_path, ROUNDS, chats=CHATS, may_take=MAY_TAKE, seed=1, is_fresh=is_fresh)
    assert sum(each.received for each in rounds) > ROUNDS * CHATS
    assert [each.lost.words for each in rounds] == [0] * ROUNDS, max(each.lost.oldest for each in rounds)
