"""What a turn takes out of the ledger: never a summary in place of what is to be answered."""

from collections.abc import Sequence

import pytest
from ledger_chats import ANSWER, ASK, THANKS
from memory_stores import MemoryLedgerRows

from elbowroom.agents.request import Caller
from elbowroom.agents.turn.recall import Recall
from elbowroom.agents.turn.state import CompactionNotes
from elbowroom.context.budget import Budget
from elbowroom.context.ledger import Chain, Entry
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message

SUMMARY: Message = {"role": "user", "content": "A summary."}
WHOLE: Sequence[Message] = [ASK, ANSWER, THANKS, {"role": "assistant", "content": "Gladly."}, ASK]


async def size(messages: Sequence[Message]) -> int:
    """Return a size that fills any window."""
    return 4000


@pytest.mark.parametrize("covered", [1, 2, 3, 4])
@pytest.mark.parametrize("sent", [1, 2, 3, 4, 5])
async def test_where_the_entry_ends(covered: int, sent: int) -> None:
    """It is used as soon as a question comes behind it; who goes back to its very end gets the words themselves."""
    key = Chain.of("ada", "coder", WHOLE).keys[covered - 1]
    rows = MemoryLedgerRows()
    await rows.save(Entry(key, (SUMMARY,), window=4096, before=4000, after=900, rung="plan", created=0.0), [])
    messages = WHOLE[:sent]
    recall = Recall(rows, CompactionNotes(), Caller("ada"), "coder", messages)
    prompt, is_found = await recall.recall(Prompt.of(messages), Budget(4096), size)
    asks_behind_it = sent > covered and any(message["role"] == "user" for message in messages[covered:])
    assert is_found is asks_behind_it
    assert prompt.messages == ([SUMMARY, *messages[covered:]] if asks_behind_it else list(messages))
    assert [item.is_as_sent for item in prompt.items].count(True) == (sent - covered if asks_behind_it else sent)
