"""A large text is read, hashed, written down and sent without copies of the whole that live at the same time."""

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from elbowroom.context.ledger import Chain
from elbowroom.providers.upstream import in_parts
from elbowroom.server.request.json_text import parsed
from elbowroom.store import message_parts
from elbowroom.store.message_parts import joined, split
from elbowroom.store.sql.search.texts import LONGEST_TEXT, SIGNS_A_CHARACTER, TOO_LONG, indexed_text
from elbowroom.store.sql.writing import title_of
from elbowroom.tokens.anchoring import conversation_keys

SIZE: Final = 16_000_000
TEXT: Final = "x" * SIZE
MESSAGE: Final = {"role": "user", "content": TEXT}
BODY: Final = bytearray(json.dumps({"messages": [MESSAGE]}).encode())
WORK: Final[dict[str, tuple[float, Callable[[], Any]]]] = {
    "the key of a conversation": (0.2, lambda: Chain.of("", "writer", [MESSAGE])),
    "the key of a count": (0.2, lambda: conversation_keys("big", [MESSAGE])),
    "the rows of the store": (1.2, lambda: split(MESSAGE)),
    "a title": (0.2, lambda: title_of({"role": "user", "content": [{"type": "text", "text": TEXT}] * 2})),
    "the body for the engine": (1.2, lambda: asyncio.run(in_parts({"messages": [MESSAGE]}))),
    "the text of a body": (2.2, lambda: parsed(BODY)),
}
"""How many times the text may be in memory besides, the result included."""


@pytest.mark.parametrize("name", WORK)
def test_no_copy_lives_besides_what_is_made(name: str) -> None:
    """What is only looked at takes a piece at a time, and what is made is there once, or in parsing twice."""
    most, work = WORK[name]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        taken = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert taken < most * SIZE


class Row(NamedTuple):
    """A part of a message, as the store reads it."""

    kind: str
    content: str
    status: str = "complete"


def test_the_index_reads_no_more_of_a_text_than_it_would_take() -> None:
    """The rest of a text that is too long for the index is not read."""
    piece = "x" * LONGEST_TEXT
    rows = iter([Row("text", piece)] * 100)
    assert indexed_text(rows) == TOO_LONG
    assert 100 - len(list(rows)) == SIGNS_A_CHARACTER + 1


@pytest.mark.parametrize(
    "text", ["", "abc", "abcdefgh", "ab\U0001f600\U0001f600c", 'a"\\\n\\\\"', "\ud83d\ude00\ud83d", "é中" * 9]
)
def test_a_text_in_parts_is_the_text(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A long text is several parts of one message, whatever stands where it is cut."""
    whole = joined(*split({"role": "user", "content": text}))
    monkeypatch.setattr(message_parts, "MOST_AT_ONCE", 3)
    for message in ({"role": "user", "content": text}, {"role": "user", "content": text, "name": "Ann"}):
        fields, parts = split(message)
        assert len(parts) == max(1, -(-len(text) // 3))
        assert {part.kind for part in parts} == {"text"}
        assert joined(fields, parts)[0]["content"] == whole[0]["content"]
