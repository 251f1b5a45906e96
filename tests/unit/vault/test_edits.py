"""Edits change what is addressed and nothing else, byte for byte."""

import pytest
from cases import cases
from hypothesis import assume, given
from hypothesis import strategies as st

from elbowroom.vault.edits import Operation, TargetKind, appended, patched
from elbowroom.vault.frontmatter import read_frontmatter
from elbowroom.vault.names import VaultError
from elbowroom.vault.note import Note

LINES = st.sampled_from(
    [
        "# A", "## B", "## C", "### D", "# E", "", "", "text", "text #tag", "- item", "- item ^i", "  more", "```",
        "~~~", "> quote", "| a | b |", "---", "===", "^own", "a paragraph ^p", "    code", "[[Link]]", "1. one",
    ]
)  # fmt: skip
TEXT = ["long: |", "  one", "", "  two: three", "", "# another comment"]
ENDS = st.sampled_from(["\n", "\r\n"])
OPERATIONS: list[Operation] = ["replace", "append", "prepend", "delete"]


@st.composite
def notes(draw: st.DrawFn) -> str:
    """Return a note of usual and unusual lines, with or without frontmatter and a last line end."""
    end, has_frontmatter, has_end = draw(st.tuples(ENDS, st.booleans(), st.booleans()))
    lines: list[str] = draw(st.lists(LINES, max_size=25))
    if has_frontmatter:
        lines = ["---", "key: value", "tags:", "  - a", "# comment", *TEXT, "other: [x, y]", "---", *lines]
    text = end.join(lines)
    return text + end if lines and has_end else text


def outside_of(text: str, new: str, start: int, end: int) -> bool:
    """Tell whether two texts have the same lines before `start` and after `end` of the first one."""
    lines = Note(text).lines
    before, after = "".join(lines[:start]), "".join(lines[end:])
    if end < len(lines):
        return new.startswith(before) and new.endswith(after)
    return new.startswith(before.rstrip("\r\n"))


@given(notes(), st.data(), st.sampled_from(OPERATIONS), st.lists(LINES, min_size=1, max_size=5))
def test_only_the_section_changes(text: str, data: st.DataObject, operation: Operation, new: list[str]) -> None:
    """All bytes before and after a section stay, the other headings stay, and so does how the file ends."""
    note = Note(text)
    assume(note.headings)
    section = data.draw(st.sampled_from(note.headings))
    target = " > ".join(section.path)
    try:
        found = note.heading(target)
        result = patched(note, "heading", target, operation, "\n".join(new))
    except VaultError:
        return
    assert outside_of(text, result, found.start, found.end)
    after = Note(result)
    assert [h.text for h in after.headings if h.start < found.start] == [
        h.text for h in note.headings if h.start < found.start
    ]
    rest = [h.text for h in note.headings if h.start >= found.end]
    assert [h.text for h in after.headings][len(after.headings) - len(rest) :] == rest
    if found.end < len(note.lines) or operation != "delete":
        assert result.endswith(("\n", "\r")) == text.endswith(("\n", "\r"))
    if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
        assert "\n" not in result.replace("\r\n", "")
    if operation != "delete":
        assert result.startswith("".join(note.lines[: found.body]).rstrip("\r\n"))
    if operation in ("append", "prepend"):
        kept = [line.strip() for line in note.bare[found.body : found.end] if line.strip()]
        now = [line.strip() for line in after.bare if line.strip()]
        assert all(now.count(line) >= kept.count(line) for line in kept)


@given(
    notes(), st.sampled_from(["i", "p", "own"]), st.sampled_from(OPERATIONS), st.lists(LINES, min_size=1, max_size=3)
)
def test_only_the_block_changes(text: str, name: str, operation: Operation, new: list[str]) -> None:
    """All bytes before and after a block stay, and after a replacement the block is still found."""
    note = Note(text)
    try:
        block = note.block(name)
        result = patched(note, "block", name, operation, "\n".join(new))
    except VaultError:
        return
    end = max(block.end, block.id_line + 1)
    assert outside_of(text, result, block.start, end)
    if operation == "replace" and "```" not in new and "~~~" not in new:
        Note(result).block(name)


@given(
    notes(),
    st.sampled_from(["key", "Tags", "long", "other", "new key"]),
    st.sampled_from(OPERATIONS),
    st.text(max_size=20),
)
def test_only_the_key_changes(text: str, key: str, operation: Operation, value: str) -> None:
    """The body and all other keys stay byte for byte, comments too."""
    note = Note(text)
    try:
        result = patched(note, "frontmatter", key, operation, value)
    except VaultError:
        return
    after = Note(result)
    assert "".join(after.lines[after.frontmatter :]) == "".join(note.lines[note.frontmatter :])
    others = {k: v for k, v in read_frontmatter(note).items() if k.lower() != key.lower()}
    assert {k: v for k, v in read_frontmatter(after).items() if k.lower() != key.lower()} == others
    for comment in ("# comment", "# another comment"):
        assert (comment in after.bare[: after.frontmatter]) == (comment in note.bare[: note.frontmatter])
    if key == "long" and operation == "delete":
        assert "  two: three" not in after.bare[: after.frontmatter]


@given(notes(), st.lists(LINES, min_size=1, max_size=4))
def test_appending_keeps_the_note(text: str, new: list[str]) -> None:
    """What was there stands in front of what is added, and how the file ends stays."""
    assume(any(line.strip() for line in new))
    result = appended(Note(text), "\n".join(new))
    assert result.startswith(text)
    if text:
        assert result.endswith(("\n", "\r")) == text.endswith(("\n", "\r"))


NOTE = "# Plan\n\nIntro.\n\n## Tasks\n\n- one\n- two ^two\n\n## Log\nText\n"


@cases(
    ("kind", "target", "operation", "text", "expected"),
    [
        ("heading", "Tasks", "append", "- three", NOTE.replace("^two\n", "^two\n- three\n")),
        ("heading", "Tasks", "prepend", "- zero", NOTE.replace("- one", "- zero\n- one")),
        ("heading", "Tasks", "replace", "Done.\n", NOTE.replace("- one\n- two ^two", "Done.")),
        ("heading", "Tasks", "replace", "## Tasks\n\nDone.", NOTE.replace("- one\n- two ^two", "Done.")),
        ("heading", "Tasks", "delete", "", NOTE.replace("## Tasks\n\n- one\n- two ^two\n\n", "")),
        ("heading", "Log", "append", "More\n", NOTE + "More\n"),
        ("block", "two", "replace", "zwei", NOTE.replace("- two ^two", "- zwei ^two")),
        ("block", "^two", "append", "- three", NOTE.replace("^two\n", "^two\n- three\n")),
        ("block", "two", "delete", "", NOTE.replace("- two ^two\n", "")),
        ("frontmatter", "status", "replace", "done", f"---\nstatus: done\n---\n{NOTE}"),
        ("frontmatter", "tags", "append", "home", f"---\ntags:\n  - home\n---\n{NOTE}"),
    ],
)
def test_patches(kind: TargetKind, target: str, operation: Operation, text: str, expected: str) -> None:
    """What each operation makes of a usual note."""
    assert patched(Note(NOTE), kind, target, operation, text) == expected


@pytest.mark.parametrize("text", ["```\nnever closed", "~~~"])
def test_what_would_swallow_the_rest_is_refused(text: str) -> None:
    """A code block that is not closed would take the headings after it with it."""
    with pytest.raises(VaultError, match="code block"):
        patched(Note(NOTE), "heading", "Tasks", "replace", text)


def test_frontmatter_values_stay_valid() -> None:
    """Values that YAML would read as something else are put in quotes; numbers and dates are not."""
    note = Note("---\na: 1\n---\n")
    assert patched(note, "frontmatter", "a", "replace", "x: y # z") == '---\na: "x: y # z"\n---\n'
    assert patched(note, "frontmatter", "a", "replace", "2026-01-02") == "---\na: 2026-01-02\n---\n"
    assert patched(note, "frontmatter", "A", "replace", '["yes", "b"]') == '---\na:\n  - "yes"\n  - b\n---\n'
    assert patched(note, "frontmatter", "up", "replace", "[[Home]]") == '---\na: 1\nup: "[[Home]]"\n---\n'
    with pytest.raises(VaultError, match="cannot be a key"):
        patched(note, "frontmatter", "a: b\nc", "replace", "x")


@cases(
    ("before", "after"),
    [
        ("k:\n- 1  # one\n- 'it''s'\nx: y\n", "k:\n- 1  # one\n- 'it''s'\n- new\nx: y\n"),
        ("k:\n    - a\n\nx: y\n", "k:\n    - a\n    - new\n\nx: y\n"),
        ("k: []\n", "k:\n  - new\n"),
        ("k:\n", "k:\n  - new\n"),
        ("k: [a, '1']\n", 'k:\n  - a\n  - "1"\n  - new\n'),
        ("k: 2026-01-02\n", "k:\n  - 2026-01-02\n  - new\n"),
        ("'k': a\n", "'k':\n  - a\n  - new\n"),
        ("k:\n  - new\n", "k:\n  - new\n"),
    ],
)
def test_items_are_added_to_what_is_there(before: str, after: str) -> None:
    """The items that a list has stay as they are written, with their comments, quotes and types."""
    note = Note(f"---\n{before}---\n")
    assert patched(note, "frontmatter", "k", "append", "new") == f"---\n{after}---\n"


@cases("written", ["k: |\n  a text\n  of lines\n", "k: >-\n  a\n", "k:\n  a: 1\n  b: 2\n", "k: {a: 1}\n", "k: &x [a]\n",
     "k: *x\n", "k: [a,\n  b]\n", "k: !!set\n", "k:\n  - a: 1\n    b: 2\n", "k: one\n  two\n"])  # fmt: skip
def test_items_are_added_to_nothing_else(written: str) -> None:
    """A block of text, a mapping, an anchor or what goes on in the next line would be lost: it is refused."""
    with pytest.raises(VaultError, match="not a plain list or text"):
        patched(Note(f"---\n{written}---\n"), "frontmatter", "k", "append", "new")
