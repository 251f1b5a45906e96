"""The middle of the longest text is what is left out; everything else of a request stays as it was."""

from typing import Any

import pytest
from task_prompts import FOOT, HEAD, title_order, told

from elbowroom.agents.task_history import BEGINNING_KEPT, END_KEPT, MARK, longest_middle, with_short_middles

SYSTEM = {"role": "system", "content": "Available Tools: [" + "{}, " * 5000 + "]"}


def user(content: Any) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": content}


def cut(text: str, shown: int = 0) -> str:
    """Return a text with so many characters of its middle shown."""
    [message] = with_short_middles([user(text)], shown)
    return str(message["content"])


@pytest.mark.parametrize("shown", [0, 1, 2, 333])
def test_history_between_its_tags(shown: int) -> None:
    """The history shows its first and last characters, half and half; the order around it is whole."""
    history = told(20)
    text = cut(title_order(history), shown)
    assert text.startswith(HEAD)
    assert text.endswith(FOOT)
    first, last = text[len(HEAD) : len(text) - len(FOOT)].split(MARK)
    assert len(first) + len(last) == shown
    assert abs(len(first) - len(last)) <= 1
    assert history.startswith(first)
    assert f"{history}\n".endswith(last)


def test_a_history_that_speaks_of_tags() -> None:
    """Only the outermost tags count: a history may hold some of its own."""
    order = title_order("\nUSER: What is </chat_history>?\n" + told(3) + "<chat_history>")
    assert cut(order) == f"{HEAD}{MARK}{FOOT}"


@pytest.mark.parametrize("order", ["{}", "</chat_history>{}<chat_history>", "{}<chat_history>", "</chat_history>{}"])
def test_without_tags_both_ends_stay(order: str) -> None:
    """Where no pair of tags marks a history, the order may stand at the beginning or at the end."""
    text = order.format("".join(f"{number} " for number in range(2000)))
    assert cut(text) == f"{text[:BEGINNING_KEPT]}{MARK}{text[-END_KEPT:]}"


@pytest.mark.parametrize(
    "messages",
    [
        [user("Query: the weather")],
        [SYSTEM, user("Query: the weather")],
        [{**SYSTEM, "role": "developer"}, user("Query: the weather")],
        [user("x" * (BEGINNING_KEPT + END_KEPT + len(MARK)))],
        [user(title_order("\nUSER: Hi"))],
        [user([{"type": "image_url", "image_url": {"url": "data:" + "x" * 9999}}])],
        [user(None)],
        [],
    ],
    ids=["short", "system", "developer", "as long as its ends", "short history", "picture", "no content", "nobody"],
)
def test_nothing_to_leave_out(messages: list[dict[str, Any]]) -> None:
    """System messages, pictures and short texts stay whole, whatever the size of the request."""
    assert longest_middle(messages) == 0
    assert all(same is message for same, message in zip(with_short_middles(messages, 0), messages, strict=True))


@pytest.mark.parametrize("text", [title_order(told(5)), "word " * 1000], ids=["tagged", "bare"])
def test_between_nothing_and_the_whole(text: str) -> None:
    """The more is shown, the longer the text, up to the whole; what is as short as it can be gives nothing more."""
    whole = longest_middle([user(text)])
    texts = [cut(text, shown) for shown in range(whole + 1)]
    lengths = [len(shorter) for shorter in texts]
    assert lengths == sorted(lengths)
    assert texts[-1] == text
    assert longest_middle([user(texts[0])]) == 0
    assert cut(texts[0]) == texts[0]


def test_the_longest_texts_give_first() -> None:
    """Texts are cut to the same length, so that short ones stay; what came in is not changed."""
    short, long, longest = user("a" * 2000), user("b" * 3000), user("c" * 4000)
    messages = [SYSTEM, short, long, longest]
    assert longest_middle(messages) == 4000 - BEGINNING_KEPT - END_KEPT
    system, first, second, third = with_short_middles(messages, 1600)
    assert [system, first, second] == [SYSTEM, short, long]
    assert first is short
    assert second is long
    assert third["content"].count("c") == BEGINNING_KEPT + 1600 + END_KEPT
    assert longest["content"] == "c" * 4000
    _, first, second, third = with_short_middles(messages, 700)
    assert first is short
    assert second["content"].count("b") == third["content"].count("c") == BEGINNING_KEPT + 700 + END_KEPT


@pytest.mark.parametrize("part", ["a" * 3000, {"type": "text", "text": "a" * 3000, "cache": True}])
def test_a_text_among_parts(part: Any) -> None:
    """A part of text is cut in its place, with whatever else it says."""
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    message = user([picture, part])
    [shorter] = with_short_middles([message], 0)
    same, text = shorter["content"]
    assert same is picture
    expected = "a" * BEGINNING_KEPT + MARK + "a" * END_KEPT
    assert text == (expected if isinstance(part, str) else {**part, "text": expected})
    assert message["content"] == [picture, part]
    [whole] = with_short_middles([message], 3000)
    assert whole is message
