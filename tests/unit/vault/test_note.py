"""The parts of a note: what is a heading, a block, a section, a property, and what only looks like one."""

import time
from contextlib import suppress

import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.vault.edits import TargetKind, patched
from elbowroom.vault.frontmatter import parsed_value, read_frontmatter
from elbowroom.vault.index import IndexedNote
from elbowroom.vault.links import Renaming, with_links_updated
from elbowroom.vault.names import VaultError
from elbowroom.vault.note import Note, split_lines

NOTE = """\
---
title: "A plan"
tags: [home, 'garden, large']
aliases:
  - The plan
  - "Plan: B"
done: false # for now
# comment: none
up: "[[Home]]"
---
Before.

# Plan ##

Text #tag

```python
# no heading
```

- item
  ~~~
  # no heading
  ~~~

## Tasks
- [ ] one ^one
- [ ] two
  more of two ^two

Under
line
----

    # code

A paragraph
of two lines ^para

> quote

^quote

## Tasks
# Last
"""


def test_headings() -> None:
    """Headings of both forms, not those in frontmatter or code; a section goes on to the next of its level."""
    note = Note(NOTE)
    found = [(h.level, h.text, h.start + 1, h.end) for h in note.headings]
    assert found == [
        (1, "Plan", 13, 44),
        (2, "Tasks", 26, 30),
        (2, "Under line", 31, 43),
        (2, "Tasks", 44, 44),
        (1, "Last", 45, 45),
    ]
    assert note.headings[1].path == ("Plan", "Tasks")


def test_code_in_a_quote_ends_with_it() -> None:
    """What comes after a quote is no code, though the block of code in the quote was never closed."""
    note = Note("> ```\n> # code\n\n# One\n> ~~~\n> # code\n> ~~~\n# Two\n```\n# code\n> ```\n# code\n```\n# Three\n")
    assert [heading.text for heading in note.headings] == ["One", "Two", "Three"]


def test_a_heading_is_found_as_it_is_meant() -> None:
    """By its text in any case, with its signs, or with those above it; what is not clear is asked back."""
    note = Note("# A\n## Tasks\n# B\n## Tasks\n### x > y\n## tasks\n")
    assert note.heading("x > y").start == 4
    assert note.heading("a > tasks").start == 1
    assert note.heading("## A").start == 0
    assert note.heading("A#Tasks").start == 1
    with pytest.raises(VaultError, match=r"2 headings 'Tasks': A > Tasks \(line 2\); B > Tasks \(line 4\)"):
        note.heading("Tasks")
    with pytest.raises(VaultError, match=r"There is no heading 'C'. The headings are: 'A', 'Tasks', 'B'"):
        note.heading("C")


@pytest.mark.parametrize(
    ("name", "lines"), [("one", (26, 27)), ("two", (27, 29)), ("para", (36, 38)), ("quote", (39, 40))]
)
def test_blocks(name: str, lines: tuple[int, int]) -> None:
    """A block is a list item, a paragraph, or what stands above an id on a line of its own."""
    block = Note(NOTE).block(f"^{name}")
    assert (block.start, block.end) == lines


def test_frontmatter() -> None:
    """Texts, lists in both forms and comments, as Obsidian writes them."""
    assert read_frontmatter(Note(NOTE)) == {
        "title": "A plan",
        "tags": ["home", "garden, large"],
        "aliases": ["The plan", "Plan: B"],
        "done": "false",
        "up": "[[Home]]",
    }
    assert read_frontmatter(Note("---\nnever: closed\n")) == {}
    assert read_frontmatter(Note("\ufeff---\nkey: value\n---\n")) == {"key": "value"}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("done", "done"),
        ('["a", "b"]', ["a", "b"]),
        ("[a, b]", ["a", "b"]),
        ("- a\n- b", ["a", "b"]),
        ("[[Home]]", "[[Home]]"),
    ],
)
def test_values_that_models_write(written: str, value: object) -> None:
    """A list may be JSON, YAML or lines; a link is no list."""
    assert parsed_value(written) == value


@given(st.text(alphabet=st.sampled_from("#`~-=^*> \t\r\nab:[]\"'1.|\ufeff"), max_size=200))
def test_any_text_is_a_note(text: str) -> None:
    """Whatever stands in a file, its lines are the text again, and sections lie within it."""
    note = Note(text)
    assert "".join(note.lines) == text
    assert split_lines(text) == note.lines
    for heading in note.headings:
        assert note.frontmatter <= heading.start < heading.body <= heading.end <= len(note.lines)
    read_frontmatter(note)


@pytest.mark.slow
@cases(
    "piece",
    [
        "#",
        "# ",
        "`",
        "```",
        "~",
        "[[",
        "](",
        "](a ",
        "^a ",
        " ^",
        "- ",
        "1. ",
        "---\n",
        "a:",
        "<",
        "#a/",
        '"',
        "[",
        "`a",
        "\t",
        "# a\n",
        "a\n===\n",
        "- a ^b\n",
        "[a]: b\n",
        "> ```\n",
        "- - ",
        "1.  ",
        "](<a",
        "](a(b)",
        "[[Old#^",
        " ^a  ",
        "'",
        "\r",
    ],
)
def test_hostile_notes_take_linear_time(piece: str) -> None:
    """A long note made of one piece, over and over, is understood at once: no pattern backtracks.

    So it is as the text of a note, as its frontmatter, and as the value of a key.
    """
    text = piece * ((1 << 16) // len(piece))
    renaming = Renaming(("Old.md",), ("New.md",), [("Old.md",)])
    began = time.process_time()
    for start, end in (("", ""), ("---\n", "\n---\n"), ("---\nk: [ a", "]\n---\n")):
        IndexedNote(("a.md",), (0, 0, 0, 0), "a", start + text + end).facts()
        with_links_updated(start + text + end, ("a.md",), renaming, renaming.link_targets())
    assert time.process_time() - began < 5  # quadratic work would take minutes


@pytest.mark.slow
@cases("piece", ["# a\n", "- a ^b\n", "a: b\n", "  - a\n", "```\n", "x ^a ", "\n"])
def test_hostile_notes_are_changed_in_linear_time(piece: str) -> None:
    """A section, a block and a key of a long note are found and changed, or refused, at once."""
    text = f"---\nlist:\n{piece * 5_000}---\n# Last\n{piece * 5_000}\nend ^end\n"
    began = time.process_time()
    targets: list[tuple[TargetKind, str]] = [
        ("heading", "Last"), ("heading", "a > a > none"), ("block", "end"), ("block", "none"), ("frontmatter", "list")
    ]  # fmt: skip
    for kind, target in targets:
        with suppress(VaultError):
            patched(Note(text), kind, target, "append", "new")
    assert time.process_time() - began < 10  # quadratic work would take minutes
