"""The exchange that a person has just read stays, wherever the next turn has room beside it."""

import pytest
from compacting import FORGETFUL, ScriptedPruner, ladder, said, size

from elbowroom.context.budget import Budget
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.transcript import Message, Transcript

WINDOW = 8192
LINE = "The ferry left at noon and came back in the evening. "
NEXT = said("user", "And tomorrow?")


def talk(*lines: int) -> list[Message]:
    """Return exchanges whose answers have so many lines, and the next question."""
    messages: list[Message] = [said("system", "You keep the log.")]
    for number, count in enumerate(lines):
        messages += [said("user", f"Tell me of day {number}."), said("assistant", f"Day {number}. {LINE * count}")]
    return [*messages, NEXT]


async def climbed(messages: list[Message], pruner: ScriptedPruner, *, foresees: bool = False) -> Compaction:
    """Return the compaction of a conversation, with the target that a turn would set for it."""
    done = await ladder(WINDOW, pruner, messages, foresees=foresees).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert Budget(WINDOW).occupied(done.after) < Budget(WINDOW).trigger
    return done


@pytest.mark.parametrize("foresees", [False, True], ids=["for a turn", "before it"])
@pytest.mark.parametrize("lines", [150, 300, 350])
async def test_last_exchange_stays_word_for_word(lines: int, *, foresees: bool) -> None:
    """Its answer takes up to half of the window: a plan stands for what was before, at the first order."""
    messages = talk(300, 20, lines)
    assert Budget(WINDOW).occupied(size(messages)) > Budget(WINDOW).trigger
    pruner = ScriptedPruner(FORGETFUL)
    done = await climbed(messages, pruner, foresees=foresees)
    assert (done.rung, len(pruner.asked)) == ("plan", 1)
    assert list(done.messages[-2:]) == (messages[-3:-1] if foresees else messages[-2:])
    assert messages[-2] in done.messages
    assert done.tail >= (2 if foresees else 3)
    assert NEXT not in pruner.asked[0]


@pytest.mark.parametrize("foresees", [False, True], ids=["for a turn", "before it"])
async def test_what_the_engine_reads_while_the_person_does(*, foresees: bool) -> None:
    """Before the person writes again it reads the result too, but for the system message that it has read."""
    messages = talk(300, 20, 150)
    pruner = ScriptedPruner(FORGETFUL)
    done = await climbed(messages, pruner, foresees=foresees)
    [read] = pruner.results
    most = done.after - size(messages[:1])
    assert (most <= read < WINDOW) if foresees else read == 0


@pytest.mark.parametrize("foresees", [False, True], ids=["for a turn", "before it"])
async def test_exchange_that_leaves_no_room_goes(*, foresees: bool) -> None:
    """Nothing else helps where it takes nearly all of the window: a plan stands for it too."""
    messages = talk(20, 20, 500)
    done = await climbed(messages, ScriptedPruner(FORGETFUL), foresees=foresees)
    assert done.rung == "plan"
    assert messages[-2] not in done.messages
    assert (done.messages[-1] == NEXT) is not foresees


async def test_person_who_wants_fewer_turns_gets_fewer() -> None:
    """With `retain_last_turns = 0` the current request alone stays."""
    messages = talk(300, 20, 300)
    done = await ladder(WINDOW, ScriptedPruner(FORGETFUL), messages, turns=0).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert messages[-2] not in done.messages
