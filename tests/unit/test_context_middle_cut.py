"""The middle of the longest text is what is left out; everything else of a request stays as it was."""

from typing import Any

import pytest
from task_prompts import FOOT, HEAD, title_order, told

from elbowroom.context.middle_cut import BEGINNING_KEPT, END_KEPT, MARK, MiddleCut, longest_cut

SYSTEM = {"role": "system", "content": "Available Tools: [" + "{}, " * 5000 + "]"}


def user(content: Any) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": content}


def the_cut(*messages: dict[str, Any]) -> MiddleCut:
    """Return the longest cut, which there has to be."""
    cut = longest_cut(messages)
    assert cut is not None
    return cut


def shown_text(cut: MiddleCut, shown: int, message: int = -1) -> str:
    """Return the text of the last message with so many characters shown."""
    return str(cut.showing(shown)[message]["content"])


@pytest.mark.parametrize("shown", [0, 1, 2, 333])
def test_history_between_its_tags(shown: int) -> None:
    """The history shows its first and last characters, half and half; the order around it is whole."""
    history = told(20)
    text = shown_text(the_cut(user(title_order(history))), shown)
    assert text.startswith(HEAD)
    assert text.endswith(FOOT)
    first, last = text[len(HEAD) : len(text) - len(FOOT)].split(MARK)
    assert len(first) + len(last) == shown
    assert history.startswith(first)
    assert f"{history}\n".endswith(last)


def test_a_history_that_speaks_of_tags() -> None:
    """Only the outermost tags count: a history may hold some of its own."""
    order = title_order("\nUSER: What is </chat_history>?\n" + told(3) + "<chat_history>")
    assert shown_text(the_cut(user(order)), 0) == f"{HEAD}{MARK}{FOOT}"


@pytest.mark.parametrize("order", ["{}", "</chat_history>{}<chat_history>", "{}<chat_history>", "</chat_history>{}"])
def test_without_tags_both_ends_stay(order: str) -> None:
    """Where no pair of tags marks a history, the order may stand at the beginning or at the end."""
    text = order.format("".join(f"{number} " for number in range(2000)))
    assert shown_text(the_cut(user(text)), 0) == f"{text[:BEGINNING_KEPT]}{MARK}{text[-END_KEPT:]}"


@pytest.mark.parametrize(
    "messages",
    [
        [user("Query: the weather")],
        [SYSTEM, user("Query: the weather")],
        [user("x" * (BEGINNING_KEPT + END_KEPT + len(MARK)))],
        [user(title_order("\nUSER: Hi"))],
        [user([{"type": "image_url", "image_url": {"url": "data:" + "x" * 9999}}])],
        [user(None)],
    ],
    ids=["short", "system message", "as long as its ends", "short history", "picture", "nothing"],
)
def test_nothing_to_leave_out(messages: list[dict[str, Any]]) -> None:
    """System messages, pictures and short texts stay whole, whatever the size of the request."""
    assert longest_cut(messages) is None


def test_a_cut_text_is_not_cut_again() -> None:
    """A text that is as short as it can be has nothing more to give."""
    for text in (title_order(told(5)), "word " * 1000):
        assert longest_cut(the_cut(user(text)).showing(0)) is None


def test_the_longest_text_of_several() -> None:
    """One text is cut; the other messages are the very same objects, and what came in is not changed."""
    short, long = user("a" * 3000), user("b" * 4000)
    first, second, third = the_cut(SYSTEM, short, long).showing(10)
    assert first is SYSTEM
    assert second is short
    assert third["content"].count("b") == BEGINNING_KEPT + END_KEPT + 10
    assert long["content"] == "b" * 4000


@pytest.mark.parametrize("part", ["a" * 3000, {"type": "text", "text": "a" * 3000, "cache": True}])
def test_a_text_among_parts(part: Any) -> None:
    """A part of text is cut in its place, with whatever else it says."""
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    [message] = the_cut(user([picture, part])).showing(0)
    [same, cut] = message["content"]
    assert same is picture
    text = "a" * BEGINNING_KEPT + MARK + "a" * END_KEPT
    assert cut == (text if isinstance(part, str) else {**part, "text": text})
