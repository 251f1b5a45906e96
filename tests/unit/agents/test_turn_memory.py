"""What a turn begins with and leaves: a memory that fails costs nothing, and nothing is remembered for nothing."""

from collections.abc import Sequence

from memory_stores import MemoryLedgerRows

from elbowroom.agents.request import Caller
from elbowroom.agents.turn.history import History
from elbowroom.agents.turn.recall import Ledger, TurnMemory, Written
from elbowroom.context.budget import Budget
from elbowroom.context.ledger import Chain
from elbowroom.context.transcript import Message

ADA = Caller("ada")
HISTORY: list[Message] = [
    {"role": "user", "content": "Which pier?"},
    {"role": "assistant", "content": "The ninth."},
    {"role": "user", "content": "And tomorrow?"},
]
SHORT: list[Message] = [{"role": "user", "content": "Summary."}, HISTORY[-1]]
SMALL = Written(window=1000, before=900, after=300, rung="plan")


async def no_size(messages: Sequence[Message]) -> int:
    """Fail to count."""
    raise ValueError("this template refuses it")


def memory_of(ledger: Ledger) -> TurnMemory:
    """Return the memory of a turn of the one conversation."""
    return TurnMemory(ledger, ADA, "agent", HISTORY)


async def test_a_count_that_fails_costs_no_answer() -> None:
    """Where nobody can tell whether the whole fits a larger window, what was compacted for a smaller one is taken."""
    ledger = Ledger(MemoryLedgerRows())
    history = History(HISTORY)
    history.replace(SHORT, 1)
    memory_of(ledger).keep(history, SMALL)
    again = History(HISTORY)
    assert await memory_of(ledger).recall(again, Budget(8000), no_size)
    assert again.messages == SHORT


async def test_what_stands_for_itself_is_not_kept() -> None:
    """A result of the server's own tool was shortened: of what the client has sent nothing is another."""
    ledger = Ledger(MemoryLedgerRows())
    memory = memory_of(ledger)
    memory.keep(History(HISTORY), SMALL)
    await ledger.aclose()
    assert [place async for place, _ in ledger.recalled(Chain.of(ADA.owner, "agent", HISTORY))] == []


async def test_a_model_is_never_asked_with_nothing() -> None:
    """All but the last question was dropped; a client that has the answer before it continued gets the whole of it."""
    ledger = Ledger(MemoryLedgerRows())
    history = History(HISTORY)
    history.replace(HISTORY[-1:], 1)
    memory_of(ledger).keep(history, SMALL)
    await ledger.aclose()
    again = History(HISTORY[:-1])
    assert not await TurnMemory(ledger, ADA, "agent", HISTORY[:-1]).recall(again, Budget(1000), no_size)
    assert again.messages == HISTORY[:-1]
