"""People who chat for long with an engine as slow as that of a home computer hardly wait for compactions."""

from pathlib import Path

import pytest
from long_chats import SIZED_FOR, TALKS, TURNS, Talk, chat_run
from simulated_time import run_in_simulated_time

SHORT = 40
LONGEST = 1.5
"""How many times as long as in a window without a bottom a person waits at most."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("talk", "turns"),
    [
        pytest.param(talk, turns, id=talk.name, marks=() if talk == TALKS[0] else pytest.mark.long)
        for talk in TALKS
        for turns in [SHORT if talk.window == SIZED_FOR else TURNS]
    ],
)
def test_nobody_waits_for_compactions(tmp_path: Path, talk: Talk, turns: int) -> None:
    """Of the plans nine in ten are there when the person writes again, and no prompt is over the window."""
    run = run_in_simulated_time(chat_run(tmp_path, talk, turns=turns))
    bottomless = run_in_simulated_time(chat_run(tmp_path, talk, directly=True, turns=turns))
    assert run.plans >= 3
    assert run.early >= 0.9 * run.plans
    assert run.waiting <= LONGEST * bottomless.waiting
    assert run.over == 0
