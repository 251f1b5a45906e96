"""Searching tool outputs block by block finds what searching each line at once finds."""

import random
import re
from collections.abc import Iterator

import pytest
from examples import MANY
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.agents.tools.outputs.search import EXCERPT, LONGEST_MATCH, WINDOW, Hit, LinearPattern, Search
from elbowroom.context.outputs.output import Block
from elbowroom.errors import RequestError

PATTERNS = ["ab", "a.b", "^b", "a$", "^$", r"\bb", "é|漢", "b[^a]a", r"a\s?b", "(ab){2}", "^a|b$", r"\x00", "[^a-z ]"]
characters = st.sampled_from("aaabbb  \n\r\0é漢😀\ud800\u2028")
texts = st.lists(
    st.one_of(
        st.text(characters, max_size=30),
        st.builds(lambda text, times: text * times, st.text(characters, min_size=1, max_size=4), st.integers(1, 99)),
    ),
    max_size=8,
).map("".join)


def blocks_of(text: str, size: int, line: int = 1, column: int = 1) -> Iterator[Block]:
    """Yield a text in blocks, of which the first begins at a place."""
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        yield Block(line, column, piece)
        line_break = piece.rfind("\n")
        column = len(piece) - line_break if line_break >= 0 else column + len(piece)
        line += piece.count("\n")


def searched(text: str, pattern: str, size: int = 65_536, width: int = 2000, limit: int = 10**6) -> Search:
    """Return a search that is through with a text."""
    search = Search(LinearPattern(pattern), width, limit)
    for block in blocks_of(text, size):
        search.feed(block)
    search.finish()
    return search


def expected(text: str, pattern: str, width: int) -> list[Hit]:
    """Return the hits that Python's own engine finds in each line."""
    hits: list[Hit] = []
    compiled = re.compile(pattern, re.ASCII)
    most, most_before = min(EXCERPT, width), min(100, width // 4)
    for number, with_return in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        line = with_return.removesuffix("\r") if number <= text.count("\n") else with_return
        at = 0
        while match := compiled.search(line, at):
            if len(line) <= width:
                hits.append(Hit(number, 1, line, 1, is_part=False))
                break
            begin = max(0, match.start() - most_before)
            end = match.start() + most - most_before
            hits.append(Hit(number, begin + 1, line[begin:end], match.start() + 1, is_part=True))
            if end >= len(line):
                break
            at = end
    return hits


@given(texts, st.sampled_from(PATTERNS), st.integers(1, 60), st.sampled_from([16, 40, 2000]))
@MANY
def test_blocks_are_searched_as_lines_are(text: str, pattern: str, size: int, width: int) -> None:
    """Wherever blocks begin: the same lines, the same places in long lines, none twice, none left out."""
    search = searched(text, pattern, size, width)
    assert search.hits == expected(text, pattern, width)
    assert search.count == len(search.hits)


@given(texts, st.sampled_from(PATTERNS), st.integers(0, 5), st.sampled_from([16, 2000]))
@MANY
def test_a_search_goes_on_where_it_is_told_to(text: str, pattern: str, limit: int, width: int) -> None:
    """What is not kept is counted, and found from the place that is named on."""
    everything = searched(text, pattern, 7, width)
    first = searched(text, pattern, 7, width, limit)
    assert first.count == everything.count
    assert first.hits == everything.hits[:limit]
    if first.next is None:
        assert everything.count <= limit
        return
    line, column = first.next
    rest = Search(LinearPattern(pattern), width, 10**6, (line, column))
    from_column = max(1, column - 100)
    lines = text.split("\n")
    from_here = "\n".join(lines[line - 1 :])[from_column - 1 :]
    for block in blocks_of(from_here, 7, line, from_column):
        rest.feed(block)
    rest.finish()
    assert [(hit.line, hit.at) for hit in rest.hits] == [(hit.line, hit.at) for hit in everything.hits[limit:]]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_column_behind_a_line_begins_with_the_next_line(size: int) -> None:
    """Nothing of the next line is passed over."""
    search = Search(LinearPattern("ab"), 2000, 10, (1, 99))
    for block in blocks_of("ab\nab\nab", size):
        search.feed(block)
    search.finish()
    assert [hit.line for hit in search.hits] == [2, 3]


@pytest.mark.parametrize("size", [65_536, 10_007, 1000])
@pytest.mark.parametrize("filler", ["x", "é", "😀"])
def test_one_huge_line_is_searched_across_its_blocks(size: int, filler: str) -> None:
    """A match is found once wherever blocks and windows meet in it, with its column and what is around it."""
    chance = random.Random(size)
    columns = {n * 65_536 + shift for n in range(1, 6) for shift in (-500, -3, 400)}
    columns |= {chance.randrange(400_000) // 500 * 500 + 7 for _ in range(50)}
    line = list(filler * 400_000)
    for column in columns:
        line[column : column + 6] = "NEEDLE"
    text = "before\n" + "".join(line) + "\nNEEDLE behind"
    search = searched(text, "NEEDLE", size)
    found = [hit.at - 1 for hit in search.hits if hit.line == 2]
    whole = text.split("\n")[1]
    assert all(whole.startswith("NEEDLE", at) for at in found)
    assert found == [hit.at - 1 for hit in expected(text, "NEEDLE", 2000) if hit.line == 2]
    assert all(whole.startswith(hit.text, hit.column - 1) for hit in search.hits if hit.line == 2)
    assert search.hits[-1] == Hit(3, 1, "NEEDLE behind", 1, is_part=False)
    assert search.has_windows


def test_the_longest_match_in_a_huge_line() -> None:
    """A match of as many bytes as is promised is found wherever it stands."""
    middle = "b" * (LONGEST_MATCH - 2)
    for before in (WINDOW - LONGEST_MATCH // 2, 3 * LONGEST_MATCH - 1, 10):
        line = "x" * before + f"a{middle}c" + "x" * WINDOW * 2
        assert [hit.at for hit in searched(line, "ab*c", 65_536).hits] == [before + 1]


def test_the_ends_of_a_huge_line_are_its_ends_only() -> None:
    """A window's border is no end of a line, and no end of a word."""
    line = "word" * 200_000
    for pattern in ("^word", r"\bword", "word$", r"word\b", r"\Aword", r"word\z"):
        assert len(searched(line, pattern).hits) == 1, pattern


@pytest.mark.parametrize("pattern", [r"(a)\1", "a(?=b)", "(?<=a)b", "a(?!b)", "a++", "[a", "(", "*a", "a{2000}"])
def test_what_the_engine_cannot_do_is_said(pattern: str) -> None:
    """The refusal is a sentence for the model, on what is wrong and what to do."""
    with pytest.raises(RequestError, match=r"cannot be searched for: .*Search for a simpler pattern"):
        LinearPattern(pattern)


@pytest.mark.threat("patterns", "RE2, within bounds")
@pytest.mark.parametrize("pattern", ["", "a" * 100_000, r"\pL{500}"])
def test_patterns_that_are_none_or_too_large_are_refused(pattern: str) -> None:
    """Neither time nor memory goes into them."""
    with pytest.raises(RequestError, match=r"empty|too large|at most|more than the 1000"):
        LinearPattern(pattern)


def test_case_matters_unless_it_is_said_not_to() -> None:
    """`ignore_case` is for letters of every script."""
    text = "Grüße".encode()
    assert LinearPattern("GRÜSSE|GRÜßE", ignore_case=True).search(text, 0, len(text)) == (0, len(text))
    assert LinearPattern("GRÜßE").search(text, 0, len(text)) is None


def test_nothing_is_written_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """The engine would log what it refuses, and what it runs out of memory for."""
    with pytest.raises(RequestError):
        LinearPattern("(")
    searched("ab" * 200_000 + "\n", "(.{0,30}a.{0,30}b){8}Z")
    assert capfd.readouterr() == ("", "")
