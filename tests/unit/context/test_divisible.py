"""What stays of a message that does not fit: its end, of a user's its beginning too, word for word."""

import pytest
from compacting import qwen
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.divisible import LEAST, beginning_and_end, divided, ends, within
from elbowroom.context.transcript import Message, text_of

LINE = "The boat left the harbour at noon, day {}. "
TEXT = "".join(map(LINE.format, range(400)))
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def spoken(role: str, content: object = TEXT) -> Message:
    """Return a message."""
    return {"role": role, "content": content}


@pytest.mark.parametrize("room", [60, 500, 3000])
def test_as_much_of_an_answer_stays_as_has_room(room: int) -> None:
    """Its end stays, from the beginning of a sentence on, and nearly all of the room is used."""
    parts = within(spoken("assistant"), room, qwen().count_text)
    assert parts is not None
    end = text_of(parts.shown)
    assert text_of(parts.rest) + end == TEXT
    assert end.startswith("The boat")
    assert 0.9 * room - 20 < qwen().count_text(end) <= room


HEX = "".join(f"0x{at * 2654435761 % 65536:04x},{at * 40503 % 65536:04x};" for at in range(150))
MINUTES = "会议记录：渡船晚点，海面有风，码头工人罢工，下一班船改到第九码头。"


@pytest.mark.parametrize("room", [500, 1000, 2000, 4000])
@pytest.mark.parametrize("dense", [HEX[:520], HEX, MINUTES * 10, MINUTES * 80])
def test_ends_that_are_denser_than_the_middle_are_shown(dense: str, room: int) -> None:
    """Nearly all of the room is used also where characters take more tokens at the ends than between them."""
    size = qwen().count_text
    for middle in (TEXT, TEXT * 4):
        text = f"{dense}{middle}{dense}"
        shown = beginning_and_end(text, room, size, "[{} characters]".format)
        assert shown == text or 0.5 * room < size(shown) <= room


def test_beginning_of_a_users_message_stays_too() -> None:
    """A note between its beginning and its end says how much is left out."""
    parts = within(spoken("user"), 500, qwen().count_text)
    assert parts is not None
    head, note, tail = text_of(parts.shown).split("\n")
    assert head + text_of(parts.rest) + tail == TEXT
    assert note == f"[{len(text_of(parts.rest)):,} characters are left out here.]"
    assert 450 < qwen().count_text(text_of(parts.shown)) <= 500


@pytest.mark.parametrize(
    "message",
    [
        spoken("assistant", "Short."),
        spoken("assistant", None),
        {**spoken("assistant"), "tool_calls": [{"id": "a"}]},
        spoken("system"),
    ],
)
def test_other_messages_stay_whole_or_go(message: Message) -> None:
    """Calls and what the system says are not divided, nor is what has so much room."""
    assert divided(message, LEAST) is None


def test_pictures_stay_with_what_stays() -> None:
    """Parts that are no text are not lost."""
    parts = divided(spoken("user", [{"type": "text", "text": TEXT}, PICTURE]), 400)
    assert parts is not None
    assert PICTURE in parts.shown["content"]


@given(st.text(max_size=600), st.integers(0, 700), st.integers(0, 700))
def test_beginning_and_end_are_the_texts_own(text: str, head: int, tail: int) -> None:
    """They never overlap, and are never longer than asked for."""
    first, last = ends(text, head, tail)
    assert text.startswith(first)
    assert text.endswith(last)
    assert len(first) + len(last) <= len(text)
    assert len(first) <= head
    assert len(last) <= tail
