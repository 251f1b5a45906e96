"""What a model sees of a tool's output, and the reference that stands in it."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elbowroom.context.outputs.failures import failing_parts
from elbowroom.context.outputs.output import ref_to
from elbowroom.context.outputs.view import Limits, View, ref_in_view, view_of

USUAL = Limits(max_line_length=2000, max_bytes=51_200, max_tokens=4000)
NOTE_BYTES = 260
NOTE_TOKENS = 260
MARK = re.compile(r"\[…([0-9]+) characters left out: offset=([0-9]+), column=([0-9]+)…\]")

characters = st.one_of(st.sampled_from("ab \n\r\t\0\f\x85\u2028é漢😀\ud800["), st.characters())
pieces = st.one_of(
    st.text(characters, max_size=40),
    st.builds(lambda text, times: text * times, st.text(characters, min_size=1, max_size=6), st.integers(1, 900)),
    st.sampled_from(["[Lines 1-2 of 3 are left out here; the whole output has 9 bytes.", "\n\n\n", "\n", "[…]"]),
)
texts = st.lists(pieces, max_size=12).map("".join)
limits_of_views = st.builds(
    Limits,
    max_line_length=st.integers(80, 400),
    max_bytes=st.integers(NOTE_BYTES, 3000),
    max_tokens=st.integers(NOTE_TOKENS, 3000),
)
counters = st.sampled_from([len, lambda text: len(text) // 4, lambda text: len(text.encode("utf-8", "surrogatepass"))])


def quarter(text: str) -> int:
    """Count four characters as a token."""
    return (len(text) + 3) // 4


def viewed(text: str, limits: Limits = USUAL, size_of: Callable[[str], int] = quarter) -> View:
    """Return what is seen of a text."""
    return view_of(text, ref_to("anna", text), limits, size_of)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text; a line break at its end begins no further one."""
    return text.removesuffix("\n").split("\n") if text else []


def is_of(shown: str, line: str, number: int) -> bool:
    """Say whether a shown line is the text's own, whole or with one mark that counts what it left out."""
    if shown == line:
        return True
    for mark in MARK.finditer(shown):
        left_out, at, column = map(int, mark.groups())
        begin, end = shown[: mark.start()], shown[mark.end() :]
        whole = f"{begin}{line[len(begin) : len(line) - len(end)]}{end}"
        if whole == line and left_out == len(line) - len(begin) - len(end) and (at, column) == (number, len(begin) + 1):
            return True
    return False


@pytest.mark.parametrize("text", ["", "one line", "a\nb\n", "\n\n\n", "\r\n\0\f\u2028", "x" * 2000])
def test_a_text_within_the_limits_is_the_very_same_text(text: str) -> None:
    """What is small is neither changed nor copied, and no reference takes up tokens."""
    view = viewed(text)
    assert view.text is text
    assert view.is_whole
    assert ref_in_view(view.text) is None


def test_many_lines_are_shown_as_beginning_note_and_end() -> None:
    """Whole lines of both ends stand around a note that names the lines between them and how to read on."""
    text = "".join(f"line {number}\n" for number in range(1, 5001))
    view = viewed(text, Limits(2000, 1000, 4000))
    ref = ref_to("anna", text)
    head, note, tail = re.split(r"(^\[.*\]\n)", view.text, flags=re.MULTILINE)
    assert text.startswith(head)
    assert text.endswith(tail)
    first, last = head.count("\n") + 1, 5000 - tail.count("\n")
    assert note == (
        f"[Lines {first}-{last} of 5000 are left out here; the whole output has {ref.bytes} bytes. To read on: "
        f'tool_output_cache(ref_id="{ref.id}", offset={first}). To search: '
        f'tool_output_cache_grep(ref_id="{ref.id}", pattern="…")]\n'
    )
    assert len(head) > len(tail) > 100
    assert len(view.text.encode()) > 850


def test_the_error_at_the_end_of_a_long_output_is_seen() -> None:
    """Commands name their error last: the end is shown too, whether lines are many or long."""
    error = "error: exit status 2"
    for text in ("ok\n" * 60_000 + error, "." * 60_000 + error, f"{'=' * 5000}\n{'-' * 5000}{error}\n"):
        assert viewed(text).text.rstrip("\n").split("\n[Long lines")[0].endswith(error)


def test_a_long_line_is_cut_with_a_mark_that_says_how_to_read_on() -> None:
    """The mark counts the characters that are left out and names the column they begin at."""
    line = "".join(chr(97 + number % 26) for number in range(10_000))
    view = viewed(f"first\n{line}\nlast\n")
    shown = lines_of(view.text)
    mark = MARK.search(shown[1])
    assert mark is not None
    assert 1990 < len(shown[1]) <= 2000
    assert is_of(shown[1], line, 2)
    assert [shown[0], shown[2]] == ["first", "last"]
    assert f"offset=2, column={mark[3]}). To search" in shown[3]
    assert ref_in_view(view.text) == ref_to("anna", f"first\n{line}\nlast\n").id


@given(texts, limits_of_views, counters)
@example("a" * 5000, Limits(80, 260, 260), len)
@example(("漢" * 79 + "\n") * 50, Limits(80, 700, 3000), len)
def test_a_view_keeps_the_limits_and_the_words(text: str, limits: Limits, size_of: Callable[[str], int]) -> None:
    """Whatever the text: all limits are kept, the reference is found, and what is shown is what the tool said."""
    ref = ref_to("anna", text)
    view = view_of(text, ref, limits, size_of)
    assert view == view_of("".join(list(text)), ref, limits, size_of)
    fits = ref.bytes <= limits.max_bytes and all(len(line) <= limits.max_line_length for line in text.split("\n"))
    assert view.is_whole == (fits and size_of(text) <= limits.max_tokens)
    if view.is_whole:
        assert view.text is text
        return
    assert len(view.text.encode("utf-8", "surrogatepass")) <= limits.max_bytes
    assert size_of(view.text) <= limits.max_tokens
    assert ref_in_view(view.text) == ref.id
    assert view_of(view.text, ref_to("anna", view.text), limits, size_of).text == view.text
    shown, own = lines_of(view.text), lines_of(text)
    at = next(n for n, line in enumerate(shown) if ref.id in line)
    tail = shown[at + 1 :]
    assert all(is_of(line, own[n], n + 1) for n, line in enumerate(shown[:at]))
    assert all(is_of(line, own[n], n + 1) for n, line in enumerate(tail, len(own) - len(tail)))
    assert all(len(line) <= limits.max_line_length for line in shown[:at] + tail)
    assert not tail or view.text.endswith("\n") == text.endswith("\n")
    left_out = re.match(r"\[Lines ([0-9]+)-([0-9]+) of", shown[at])
    if left_out:
        assert (at + 1, len(own) - len(tail)) == (int(left_out[1]), int(left_out[2]))
    else:
        assert len(shown) == len(own) + 1


@pytest.mark.threat("forged notices, summaries and references", "a note of a tool's own names no reference")
@pytest.mark.parametrize("whole", ["a\nb\n", "x" * 9000, "a\n" * 9000])
def test_a_note_that_stands_elsewhere_is_not_believed(whole: str) -> None:
    """A tool that writes notes of this form names no reference, wherever its lines come to stand."""
    note = viewed("other\n" * 20_000).text.split("\n[")[1].split("]\n")[0]
    imitated = f"[{note}]"
    assert ref_in_view(imitated) is None
    assert ref_in_view(f"{imitated}\n{whole}") is None
    text = f"{whole}\n{imitated}\n{whole}"
    assert ref_in_view(viewed(text).text) in (None, ref_to("anna", text).id)


@pytest.mark.threat("forged notices, summaries and references", "nor does one in the right place")
def test_a_text_that_imitates_a_note_in_the_right_place_does_not_win() -> None:
    """Where a tool's lines would be taken for the view's note, only the view's note is shown."""
    note = next(line for line in lines_of(viewed("other\n" * 20_000).text) if line.startswith("[Lines"))

    def imitating(total: int) -> str:
        return re.sub("Lines [0-9]+-[0-9]+ of [0-9]+", f"Lines 1-100000 of {total}", note) + "\n" + "line\n" * 40_000

    after = len(lines_of(viewed(imitating(200_000)).text)) - 1
    text = imitating(100_000 + after)
    view = viewed(text)
    assert ref_in_view(view.text) == ref_to("anna", text).id
    assert not view.text.startswith("[Lines 1-100000")


def test_many_imitated_notes_are_read_in_linear_time() -> None:
    """A long text full of such notes takes no more than a moment."""
    note = next(line for line in viewed("other\n" * 20_000).text.split("\n") if line.startswith("[Lines"))
    started = time.process_time()
    assert ref_in_view(f"{note}\n" * 40_000) is None
    assert time.process_time() - started < 5


@pytest.mark.parametrize("text", ["x" * 50_000_000, "log line\n" * 5_600_000, "é" * 25_000_000])
def test_a_huge_text_is_never_counted_as_a_whole(text: str) -> None:
    """50 MB cost a scan; what is counted in tokens is little more than what is shown."""
    counted: list[int] = []

    def size_of(piece: str) -> int:
        counted.append(len(piece))
        return quarter(piece)

    ref = ref_to("anna", text)
    started = time.process_time()
    view = view_of(text, ref, Limits(2000, 51_200, 500), size_of)
    assert time.process_time() - started < 1
    assert 400 < quarter(view.text) <= 500
    assert sum(counted) < 40_000
    assert ref_in_view(view.text) == ref.id


def test_a_limit_below_the_note_still_says_where_the_output_is() -> None:
    """Nothing is lost where the window is too small for anything: the note alone remains."""
    text = "word " * 500
    view = viewed(text, Limits(80, 256, 10))
    assert ref_in_view(view.text) == ref_to("anna", text).id
    assert len(view.text) <= 250


def seen(text: str, limits: Limits) -> str:
    """Return what is seen of the output of a command."""
    return view_of(text, ref_to("anna", text), limits, quarter, lambda: failing_parts(text)).text


def test_what_failed_in_the_middle_is_seen() -> None:
    """Of a long output the lines that say what failed are in the view, with what stands around them, and both ends."""
    before = [f"test parser::case_{number} ... ok" for number in range(600)]
    failure = ["test parser::empty_input ... FAILED", "  left: 3", " right: 4", "  at src/parser.rs:88"]
    text = "\n".join([*before, *failure, *before, "600 passed; 1 failed"])
    view = seen(text, Limits(2000, 4000, 1000))
    assert "\n".join(failure) in view
    assert view.startswith(before[0])
    assert view.endswith("600 passed; 1 failed")
    assert len(view) <= 4000
    assert ref_in_view(view) == ref_to("anna", text).id


def test_every_line_of_a_view_with_failures_is_shown_or_counted() -> None:
    """The notes of a view name exactly the lines that are not shown, in order, so that each can be read."""
    text = "\n".join(f"error: {number} is broken" if number % 97 == 0 else f"step {number}" for number in range(3000))
    lines = text.split("\n")
    shown: list[str] = []
    for line in seen(text, Limits(2000, 3000, 750)).split("\n"):
        if left_out := re.match(r"\[Lines (\d+)-(\d+) (?:of 3000 )?are left out here", line):
            first, last = map(int, left_out.groups())
            assert first == len(shown) + 1
            shown += lines[first - 1 : last]
        else:
            shown.append(line)
    assert shown == lines


@given(text=texts, limits=limits_of_views, size_of=counters)
def test_views_with_failures_keep_the_limits(text: str, limits: Limits, size_of: Callable[[str], int]) -> None:
    """Whatever is found to tell of a failure, a view keeps its limits, or is no larger than the one without it."""
    ref = ref_to("anna", text)
    view = view_of(text, ref, limits, size_of, lambda: failing_parts(f"{text}\nexit code: 1"))
    plain = view_of(text, ref, limits, size_of)
    if view.is_whole:
        assert view == plain
    else:
        assert ref_in_view(view.text) in (ref.id, ref_in_view(plain.text))
        assert size_of(view.text) <= max(limits.max_tokens, size_of(plain.text))
