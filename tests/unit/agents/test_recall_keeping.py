"""What a turn begins with and leaves: a memory that fails costs nothing, and nothing is remembered for nothing."""

from collections.abc import Sequence

from memory_stores import MemoryLedgerRows

from elbowroom.agents.request import Caller
from elbowroom.agents.turn.recall import Recall
from elbowroom.agents.turn.state import CompactionNotes
from elbowroom.context.budget import Budget
from elbowroom.context.conversation import StepUsage
from elbowroom.context.ledger import Chain, Written
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message

ADA = Caller("ada")
HISTORY: list[Message] = [
    {"role": "user", "content": "Which pier?"},
    {"role": "assistant", "content": "The ninth."},
    {"role": "user", "content": "And tomorrow?"},
]
SHORT: list[Message] = [{"role": "user", "content": "Summary."}, HISTORY[-1]]
SMALL = Written(window=1000, before=900, after=300, rung="plan")


def prompt_of(messages: Sequence[Message]) -> Prompt:
    """Return the prompt of ada's messages."""
    return Prompt.of(messages, Chain.of("ada", "agent", messages))


async def no_size(messages: Sequence[Message]) -> int:
    """Fail to count."""
    raise ValueError("this template refuses it")


def recall_of(rows: MemoryLedgerRows, notes: CompactionNotes, messages: Sequence[Message] = HISTORY) -> Recall:
    """Return what a turn of the one conversation recalls, which has been said up to some message."""
    return Recall(rows, notes, ADA, "agent", messages)


async def test_a_count_that_fails_costs_no_answer() -> None:
    """Where nobody can tell whether the whole fits a larger window, what was compacted for a smaller one is taken."""
    rows, notes = MemoryLedgerRows(), CompactionNotes()
    history = prompt_of(HISTORY).summarised(SHORT, 1)
    recall_of(rows, notes).keeping.keep(history, SMALL)
    again, is_found = await recall_of(rows, notes).recall(Prompt.of(HISTORY), Budget(8000), no_size)
    assert is_found
    assert again.messages == SHORT


async def test_what_stands_for_itself_is_not_kept() -> None:
    """A result of the server's own tool was shortened: of what the client has sent nothing is another."""
    rows, notes = MemoryLedgerRows(), CompactionNotes()
    recall_of(rows, notes).keeping.keep(prompt_of(HISTORY), SMALL)
    await notes.saved()
    recall = recall_of(rows, notes)
    assert [place async for place, _ in recall.entries.of(recall.chain)] == []


async def test_a_model_is_never_asked_with_nothing() -> None:
    """All but the last question was dropped; a client that has the answer before it continued gets the whole of it."""
    rows, notes = MemoryLedgerRows(), CompactionNotes()
    history = prompt_of(HISTORY).summarised(HISTORY[-1:], 1)
    recall_of(rows, notes).keeping.keep(history, SMALL)
    await notes.saved()
    recall = recall_of(rows, notes, HISTORY[:-1])
    again, is_found = await recall.recall(Prompt.of(HISTORY[:-1]), Budget(1000), no_size)
    assert not is_found
    assert again.messages == HISTORY[:-1]


async def test_what_is_handed_out_says_how_it_was_made() -> None:
    """What the client gets of a recalled compaction is kept and told with the sizes and the rung of that."""
    rows, notes = MemoryLedgerRows(), CompactionNotes()
    made = Written(window=1000, before=900, after=300, rung="digest")
    history = prompt_of(HISTORY).summarised(SHORT, 1)
    recall_of(rows, notes).keeping.keep(history, made)
    recall = recall_of(rows, notes)
    again, is_found = await recall.recall(Prompt.of(HISTORY), Budget(1000), no_size)
    assert is_found
    begun = recall.begun_with()
    assert begun == made
    handed = recall.keeping.handed_out(again, begun, StepUsage())
    await notes.saved()
    (kept,) = await rows.find([handed.key])
    assert (kept.window, kept.before, kept.after, kept.rung) == (1000, 900, 300, "digest")
    assert (handed.messages, handed.before, handed.after, handed.summary) == (tuple(SHORT), 900, 300, "")
