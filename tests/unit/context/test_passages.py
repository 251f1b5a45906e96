"""Passages of what was said, and the words by which they are found."""

from __future__ import annotations

import pytest

from elbowroom.context.passages import LONGEST, asked_words, asks, in_pieces, passages_of, words_of


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("", []),
        ("  \n ", []),
        ("One. Two? Three!", ["One. Two? Three!"]),
        ("a" * LONGEST + " b", ["a" * LONGEST, " b"]),
        (f"{'words ' * 70}end", ["words " * 66, "words " * 4 + "end"]),
        (f"{'One word. ' * 50}", [("One word. " * 40).rstrip(), ("One word. " * 10).rstrip()]),
        (f"{'東京は雨。' * 100}", ["東京は雨。" * 80, "東京は雨。" * 20]),
        ("first line\n\nsecond line", ["first line\n\nsecond line"]),
    ],
)
def test_passages_are_whole_sentences_word_for_word(text: str, passages: list[str]) -> None:
    """A text is divided where sentences or lines end, and in the middle only where one alone is too long."""
    assert [text[each.begin : each.end] for each in passages_of(text)] == passages


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("And what was the name of that hotel?", True),
        ("¿Cómo se llama", False),
        ("¿Cómo se llama?", True),
        ("会議はいつですか？", True),
        ("متى الاجتماع؟", True),
        ("Ինչպե՞ս", True),
        ("Πού είναι το κλειδί;", True),
        ("Look at the code; then go.", False),
        ("See https://example.org/?q=1 for more.", False),
        ("Thanks, that will do.", False),
        ("", False),
    ],
)
def test_what_asks(text: str, *, is_asked: bool) -> None:
    """A question mark of any script asks; one within an address does not."""
    assert asks(text) is is_asked


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Café, the CAFE!", ["the", "cafe"]),
        ("K-4417-QX", ["k", "4417", "qx"]),
        ("東京の会議", ["東京", "京の", "の会", "会議"]),
        ("예산은", ["예산", "산은"]),
        ("पानी", ["पानी"]),
        ("?!", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    """Case and accents do not matter; scripts without spaces are looked for in pieces."""
    assert words_of(text) == words


def test_pieces_of_a_text_meet_those_of_a_question() -> None:
    """What is put in the index has the words that are looked for."""
    assert set(words_of("会議")) <= set(in_pieces("東京での会議は金曜日です。").split())


def test_a_long_message_is_searched_by_what_it_asks() -> None:
    """Of a pasted text with a question only the sentences that ask count."""
    pasted = " ".join(f"word{number}." for number in range(80))
    assert asked_words(f"{pasted} Where is the spare key? {pasted}") == ["where", "is", "the", "spare", "key"]
