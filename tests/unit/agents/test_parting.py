"""What stands in the text of a reply besides words: thoughts at its beginning, and a stop sequence at its end."""

from collections.abc import Iterator

import pytest

from elbowroom.agents.turn.parting import StopSequences, ThoughtsInText

REPLIES = {
    "<think>Hm.</think>Yes.": ("Hm.", "Yes."),
    "\n<think>\nHm, <b>.\n</think>\n\nYes. </think> No.": ("Hm, <b>.", "Yes. </think> No."),
    "<think></think>Yes.": ("", "Yes."),
    "<think>Hm.": ("Hm.", ""),
    "<think>Hm.</thi": ("Hm.</thi", ""),
    "Yes. <think>Hm.</think>": ("", "Yes. <think>Hm.</think>"),
    "<thinking>Yes.": ("", "<thinking>Yes."),
    "<thi": ("", "<thi"),
    " \n": ("", " \n"),
    "": ("", ""),
}
ENDS = {
    "One END two": ("One ", "END"),
    "One END": ("One ", "END"),
    "ENDING": ("", "END"),
    "One EN two": ("One EN two", None),
    "One EN": ("One EN", None),
    "One\n\ntwo\n\nEND": ("One", "\n\n"),
    "aaab": ("a", "aab"),
    "": ("", None),
}


def cut(text: str) -> Iterator[list[str]]:
    """Yield a text in pieces of several sizes."""
    for size in (1, 2, 3, 7, max(1, len(text))):
        yield [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("text", REPLIES)
def test_thoughts_are_told_from_words(text: str) -> None:
    """However a reply is cut, thoughts at its beginning are thoughts, without their signs, and the rest is words."""
    for pieces in cut(text):
        parted = ThoughtsInText()
        parts = [*map(parted.feed, pieces), parted.end()]
        thoughts, words = ("".join(part) for part in zip(*parts, strict=True))
        assert (thoughts, words) == REPLIES[text]
        assert parted.is_over


@pytest.mark.parametrize("text", ENDS)
def test_the_first_stop_sequence_is_found(text: str) -> None:
    """However a reply is cut, its text ends before the first stop sequence, which is told."""
    for pieces in cut(text):
        until, shown = StopSequences(["END", "\n\n", "aab"]), ""
        for piece in pieces:
            shown += until.feed(piece)
            if until.found is not None:
                break
        assert (shown + until.end(), until.found) == ENDS[text]


def test_words_are_not_held_back() -> None:
    """What cannot be thoughts or begin a stop sequence is shown at once."""
    parted, until = ThoughtsInText(), StopSequences(["END"])
    assert [parted.feed(piece) for piece in ("One", " <", "think>")] == [("", "One"), ("", " <"), ("", "think>")]
    assert [until.feed(piece) for piece in ("One", " E", "x")] == ["One", " ", "Ex"]
