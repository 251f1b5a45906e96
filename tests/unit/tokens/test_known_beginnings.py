"""A long prompt that begins as one before is counted from where it differs, and exactly."""

import random
from collections.abc import Sequence

import pytest
from cases import case

from elbowroom.tokens.files.segments import LONG, Beginning, KnownBeginnings, PartlyRead, SegmentCounter
from elbowroom.tokens.files.tokenizer import Tokenizer

SPECIALS = frozenset({"<s>", "<s><s>", "<end>", "<s><end>x"})


class Letters:
    """An engine to which each special token is one token, the longest first, and everything else letters."""

    bytes_held = 0

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, text: str) -> list[int]:
        """Cut one text."""
        self.asked.append(text)
        ids = []
        while text:
            special = max((token for token in SPECIALS if text.startswith(token)), key=len, default=text[0])
            ids.append(len(special))
            text = text[len(special) :]
        return ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut several."""
        return [self.encode(text) for text in texts]


class Watched(SegmentCounter):
    """A counter that notes what it cuts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.cut: list[str] = []

    def spans(self, text: str, start: int = 0) -> list[tuple[int, int]]:
        """Note the text."""
        self.cut.append(text[start:])
        return super().spans(text, start)


def tokenizer() -> Tokenizer:
    """Return a tokenizer over letters."""
    return Tokenizer("letters", "byte-level", Letters(), SPECIALS, SPECIALS)


def prompt(chance: random.Random, messages: int) -> str:
    """Return a long prompt."""
    return "".join(
        chance.choice(sorted(SPECIALS)) + chance.choice("abc äß\n") * chance.randint(0, 300) for _ in range(messages)
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [10, pytest.param(30, marks=pytest.mark.long)])
def test_prompts_that_begin_alike_are_counted_as_new_ones(seeds: int) -> None:
    """Whatever stands behind a known beginning, even half a special token, the count is the tokenizer's own."""
    for seed in range(seeds):
        with case(seed):
            chance = random.Random(seed)
            letters = tokenizer()
            counter = SegmentCounter(letters)
            text = prompt(chance, 80)
            for _ in range(12):
                assert counter.count(text) == letters.count(text)
                kept = chance.choice([len(text), len(text) - chance.randint(0, 40), chance.randint(0, len(text))])
                text = (
                    text[:kept] + chance.choice(["", "<end>", "<s>", "x", "d"]) + prompt(chance, chance.randint(0, 4))
                )


def test_a_special_token_that_only_the_next_prompt_has_is_found() -> None:
    """Where what follows makes a longer token of the one that a beginning was cut at, it is counted as that."""
    letters = tokenizer()
    counter = SegmentCounter(letters)
    text = "<end>" + "a" * LONG + "<s>b" * 20 + "<s>"
    for end in ("", "<end>", "<end>x", "<s>"):
        assert counter.count(text + end) == letters.count(text + end)


def test_known_text_is_not_cut_again() -> None:
    """Of a prompt that goes on only the new pieces are looked at."""
    counter = Watched(tokenizer())
    text = "".join(f"<s>message {number}<end>" for number in range(500))
    counter.count(text)
    counter.count(f"{text}<s>one more<end>")
    first, second = counter.cut
    assert first == text
    assert len(second) < 100


def test_memory_is_bounded_and_holds_no_text() -> None:
    """The last beginnings are remembered, by their hashes."""
    known = KnownBeginnings(capacity=10)
    for number in range(50):
        known.remember(PartlyRead(f"secret {number}" * 100), [Beginning(100, 120, 7), Beginning(200, 220, 9)])
    assert len(known) == 10
    assert known.last_in("secret 49" * 100)[0] == Beginning(200, 220, 9)
    assert known.last_in("secret 4" * 100)[0].length == 0
    assert "secret" not in repr(vars(known))


def test_the_longest_beginning_is_found_among_lookalikes() -> None:
    """Prompts of the same length that end alike are told apart by all that comes before."""
    known = KnownBeginnings()
    texts = [f"{letter}{'same ' * 200}" for letter in "abc"]
    for tokens, text in enumerate(texts):
        known.remember(PartlyRead(text), [Beginning(300, 310, tokens), Beginning(500, 510, 100 + tokens)])
    for tokens, text in enumerate(texts):
        assert known.last_in(text)[0] == Beginning(500, 510, 100 + tokens)
        assert known.last_in(text[:400])[0] == Beginning(300, 310, tokens)
