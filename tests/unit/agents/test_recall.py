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


@pytest.mark.parametrize(
    ("window", "windows", "sent_with", "tokens", "taken"),
    [
        (4096, (4096, 4096), None, 3000, 3),
        (16_384, (16_384, 4096), None, 10_000, 1),
        (16_384, (16_384, 4096), None, 15_000, 3),
        (4096, (4096, 16_384), None, 2500, 1),
        (4096, (4096, 16_384), None, 4000, 3),
        (16_384, (4096, 4096), None, 6000, None),
        (16_384, (4096, 4096), None, 10_000, 3),
        (16_384, (4096, 4096), 0, 10_000, None),  # it had the whole
        (16_384, (4096, 4096), 0, 15_000, 3),
        (16_384, (4096, 4096), 1, 10_000, 1),
        (16_384, (4096, 4096), 1, 15_000, 3),
        (4096, (16_384, 16_384), None, 1000, 3),
    ],
)
async def test_which_window_it_was_made_for(
    window: int, windows: tuple[int, int], sent_with: int | None, tokens: int, taken: int | None
) -> None:
    """A model goes on with what was made for such a window or what it had, until that is full; then with the newest."""
    keys, rows = Chain.of("ada", "coder", WHOLE).keys, MemoryLedgerRows()
    for covered, made_for in zip((1, 3), windows, strict=True):
        summary: Message = {"role": "user", "content": f"A summary of {covered}."}
        entry = Entry(keys[covered - 1], (summary,), made_for, before=4000, after=900, rung="plan", created=0.0)
        await rows.save(entry, [])

    async def measured(messages: Sequence[Message]) -> int:
        return tokens

    recall = Recall(rows, CompactionNotes(), Caller("ada"), "coder", WHOLE)
    recall.sent_with = ("", *keys)[sent_with] if sent_with is not None else None
    prompt, _ = await recall.recall(Prompt.of(WHOLE), Budget(window), measured)
    summaries = [message["content"] for message in prompt.messages if message["content"].startswith("A summary")]
    assert summaries == ([f"A summary of {taken}."] if taken is not None else [])
