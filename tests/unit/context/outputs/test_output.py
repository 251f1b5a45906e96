"""References to kept outputs, the kinds of tools, and the search for how much fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.outputs.output import ALPHABET, ID_LENGTH, kind_of, largest_fit, ref_to, words_in


@pytest.mark.parametrize(
    ("text", "size", "lines"),
    [("", 0, 0), ("a", 1, 1), ("a\n", 2, 1), ("a\n\n", 3, 2), ("ä\nb", 4, 2), ("\n", 1, 1), ("\udc80", 3, 1)],
)
def test_sizes_are_bytes_and_lines(text: str, size: int, lines: int) -> None:
    """The size is that in UTF-8; a line break at the end begins no line."""
    ref = ref_to("", text)
    assert (ref.bytes, ref.lines) == (size, lines)
    assert len(ref.id) == ID_LENGTH
    assert set(ref.id) <= set(ALPHABET)


def test_the_id_depends_on_owner_and_text_alone() -> None:
    """The same text of one owner has the same id; another owner's or another text has another."""
    assert ref_to("me", "text") == ref_to("me", "text")
    assert len({ref_to(owner, text).id for owner in ("", "me", "you") for text in ("text", "text\n")}) == 6


GUESSES = [
    ("read_file", "read"),
    ("files/getContents", "read"),
    ("WebFetch", "read"),
    ("openURL", "read"),
    ("vault.write", "write"),
    ("append-note", "write"),
    ("MoveFile", "write"),
    ("find_and_replace", "write"),
    ("run_tests", "execute"),
    ("execute-tool", "execute"),
    ("server2__bash", "execute"),
    ("execute_query", "execute"),
    ("tool_output_cache_grep", "query"),
    ("listDirectory", "query"),
    ("HTTPSearch", "query"),
    ("research_notes", "other"),
    ("thread", "other"),
    ("spreadsheet", "other"),
    ("runner", "other"),
    ("route", "other"),
    ("", "other"),
    ("工具", "other"),
]


def test_guess_by_whole_words() -> None:
    """The first word that says something decides; parts of words say nothing."""
    for name, kind in GUESSES:
        assert kind_of(name, {}) == kind, name


def test_what_is_declared_holds() -> None:
    """A declaration comes before every guess, for the tool of exactly that name."""
    assert kind_of("read_file", {"read_file": "execute"}) == "execute"
    assert kind_of("read_files", {"read_file": "execute"}) == "read"


def test_words() -> None:
    """Signs, digits and capitals part words; a row of capitals is one."""
    assert words_in("MCP2.getHTTPResponse_v2-now") == ["mcp", "get", "http", "response", "v", "now"]


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 100))
def test_almost_all_that_fits_is_found_in_few_tries(most: int, room: int, weight: int) -> None:
    """What is found fits, no more than a sixteenth is missed, and trying is not done often."""
    tried: list[int] = []

    def share_at(number: int) -> float:
        assert 0 < number <= most
        tried.append(number)
        return number * weight / room if room else 2.0

    found = largest_fit(most, share_at)
    largest = min(most, room // weight)
    assert largest * 15 // 16 - 1 <= found <= largest
    assert len(tried) <= 20


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.integers(1, 2000))
def test_uneven_pieces_are_found_too(sizes: list[int], room: int) -> None:
    """Sizes may jump: as long as the first piece fits, something is found, and it fits."""
    found = largest_fit(len(sizes), lambda count: sum(sizes[:count]) / room)
    assert sum(sizes[:found]) <= room
    assert found or sizes[0] > room
