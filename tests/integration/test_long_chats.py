"""People who chat for long with an engine as slow as that of a home computer hardly wait for compactions."""

from pathlib import Path

import pytest
from long_chats import TALKS, Talk, chat_run
from simulated_time import run_in_simulated_time

LONGEST = 1.5
"""How many times as long as in a window without a bottom a person waits at most."""


@pytest.mark.parametrize("talk", [talk for talk in TALKS if talk.window == 8192], ids=lambda talk: talk.name)
def test_nobody_waits_for_compactions(tmp_path: Path, talk: Talk) -> None:
    """Of the plans nine in ten are there when the person writes again, and no prompt is over the window."""
    run = run_in_simulated_time(chat_run(tmp_path, talk, turns=40))
    bottomless = run_in_simulated_time(chat_run(tmp_path, talk, directly=True, turns=40))
    assert run.plans >= 3
    assert run.early >= 0.9 * run.plans
    assert run.waiting <= LONGEST * bottomless.waiting
    assert run.over == 0
