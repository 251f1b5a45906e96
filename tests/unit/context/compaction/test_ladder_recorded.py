"""Real agents' conversations, compacted when they fill four fifths of the window."""

import json
import os
import statistics
from pathlib import Path
from typing import Final

import pytest
from compacting import FORGETFUL, ScriptedPruner, ladder, size

from elbowroom.context.budget import Budget
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.templates.repair import repair
from elbowroom.context.transcript import Message, Transcript

BESIDE: Final = Path(__file__).parents[4] / "shared" / "data"
RECORDED: Final = Path(os.environ.get("ELBOWROOM_TEST_DATA", BESIDE)) / "transcripts"
TRANSCRIPTS: Final = sorted(path for path in RECORDED.glob("*.json") if not path.name.endswith(".usage.json"))

pytestmark = pytest.mark.skipif(not TRANSCRIPTS, reason="the recorded conversations are not part of the repository")


def messages_in(path: Path) -> list[Message]:
    """Return a recorded conversation."""
    return repair(json.loads(path.read_text(encoding="utf-8"))["messages"])


@pytest.mark.parametrize("asks_pruner", [True, False], ids=["plan", "digest"])
async def test_reduction(asks_pruner: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Each one ends below its target; at the median 40 to 60 % are gone, with code alone little more."""
    reductions = []
    for path in TRANSCRIPTS:
        messages = messages_in(path)
        window = size(messages) * 5 // 4
        pruner = ScriptedPruner(FORGETFUL, window=window)
        means = ladder(window, pruner, messages, asks_pruner=asks_pruner)
        done = await means.climb(Transcript.of(messages))
        assert isinstance(done, Compaction)
        assert done.rung == ("plan" if asks_pruner else "digest")
        assert Budget(window).occupied(done.after) <= means.target
        assert repair(done.messages) == [*done.messages]
        assert pruner.overflows == 0
        reductions.append(1 - done.after / done.before)
    median = statistics.median(reductions)
    with capsys.disabled():
        print(f"\nreduction: median {median:.1%} of {[f'{each:.0%}' for each in sorted(reductions)]}")  # noqa: T201
    assert 0.4 <= median <= (0.6 if asks_pruner else 0.65)
