"""Edits a note's text: only the addressed part changes; line ends and the end of the file stay. Pure."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from elbowroom.vault.frontmatter import Value, parsed_value, with_items, with_key, without_key
from elbowroom.vault.names import VaultError, fold
from elbowroom.vault.note import HEADING, LIST_ITEM, Heading, Note, split_lines

Operation = Literal["replace", "append", "prepend", "delete"]
TargetKind = Literal["heading", "block", "frontmatter"]
OTHERS_CHANGE: Final = (
    "This text would change what stands around it: a code block is not closed, or a line turns others into a heading."
)


def appended(note: Note, text: str) -> str:
    """Return the note's text with a text added at its end."""
    return _spliced(note, len(note.lines), len(note.lines), _as_lines(note, text))


def patched(note: Note, kind: TargetKind, target: str, operation: Operation, text: str) -> str:
    """Return the note's text with one heading's section, one block or one key of the frontmatter changed.

    Raises VaultError where there is no such part, or where the text would change others.
    """
    if operation != "delete" and not text.strip() and operation != "replace":
        raise VaultError(f"There is no text to {operation}.")
    change: Callable[[Note, str, Operation, str], str] = {
        "heading": _patched_section,
        "block": _patched_block,
        "frontmatter": _patched_key,
    }[kind]
    return change(note, target, operation, text)


def _patched_section(note: Note, target: str, operation: Operation, text: str) -> str:
    section = note.heading(target)
    if operation == "delete":
        return _checked(note, _without(note, section.start, section.end), section.start, section.end)
    first, last = _filled(note, section.body, section.end)
    new = _as_lines(note, _without_own_heading(text, section))
    if operation == "append":
        first = last
    elif operation == "prepend":
        last = first
    is_followed = last < len(note.lines) and bool(note.bare[last].strip())
    if new and is_followed and (last == section.end or operation == "prepend") and not _is_list(new, note, last):
        new.append(note.line_end)
    result = _spliced(note, first, last, new)
    return _checked(note, result, section.start, section.end)


def _is_list(new: Sequence[str], note: Note, line: int) -> bool:
    """Tell whether a list is added next to another list, so that no blank line is needed between them."""
    return bool(LIST_ITEM.match(new[-1]) and LIST_ITEM.match(note.bare[line]))


def _filled(note: Note, start: int, end: int) -> tuple[int, int]:
    """Return the lines between `start` and `end` without blank ones around them."""
    first, last = start, end
    while last > first and not note.bare[last - 1].strip():
        last -= 1
    while first < last and not note.bare[first].strip():
        first += 1
    return first, last


def _without_own_heading(text: str, section: Heading) -> str:
    """Return a text without the section's own heading, which stays in the note and which models tend to repeat."""
    lines = split_lines(text.lstrip("\r\n"))
    match = HEADING.match(lines[0].rstrip("\r\n")) if lines else None
    if match and len(match[1]) == section.level and fold((match[2] or "").strip()) == fold(section.text):
        return "".join(lines[1:]).lstrip("\r\n")
    return text


def _patched_block(note: Note, target: str, operation: Operation, text: str) -> str:
    block = note.block(target)
    has_own_line = block.id_line >= block.end
    after = max(block.end, block.id_line + 1)
    if operation == "delete":
        return _checked(note, _without(note, block.start, after), block.start, after)
    new = _as_lines(note, text)
    marker = LIST_ITEM.match(note.bare[block.start])
    between = [] if marker else [note.line_end]
    if operation == "prepend":
        return _checked(note, _spliced(note, block.start, block.start, [*new, *between]), block.start, block.start)
    if operation == "append":
        rest = between if after < len(note.lines) and note.bare[after].strip() else []
        return _checked(note, _spliced(note, after, after, [*between, *new, *rest]), after, after)
    if not new:
        raise VaultError("There is no text to put in the block's place. Use the operation delete to remove it.")
    if marker and not LIST_ITEM.match(new[0]):
        new[0] = marker[0] + new[0]
    if not has_own_line and not new[-1].rstrip().endswith(f"^{block.id}"):
        new[-1] = f"{new[-1].rstrip()} ^{block.id}{note.line_end}"
    return _checked(note, _spliced(note, block.start, block.end, new), block.start, block.end)


def _patched_key(note: Note, target: str, operation: Operation, text: str) -> str:
    match operation:
        case "replace":
            return with_key(note, target.strip(), parsed_value(text))
        case "append" | "prepend":
            added: Value = parsed_value(text)
            return with_items(note, target.strip(), added if isinstance(added, list) else [added])
        case "delete":
            return without_key(note, target.strip())


def _as_lines(note: Note, text: str) -> list[str]:
    lines = [line.rstrip("\r\n") for line in split_lines(text)]
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    return [line + note.line_end for line in lines]


def _spliced(note: Note, start: int, end: int, new: Sequence[str]) -> str:
    """Return the text with lines replaced; a missing line end at its end stays missing."""
    before, after = list(note.lines[:start]), note.lines[end:]
    has_end = not note.lines or note.lines[-1] != note.bare[-1]
    if before and new and not before[-1].endswith(("\n", "\r")):
        before[-1] += note.line_end
    text = "".join([*before, *new, *after])
    if not has_end and not after:
        return text.rstrip("\r\n")
    return text


def _without(note: Note, start: int, end: int) -> str:
    """Return the text without some lines; a blank line stays if the paragraphs around them would become one."""
    is_between = start > note.frontmatter and end < len(note.lines)
    joins = is_between and bool(note.bare[start - 1].strip()) and bool(note.bare[end].strip())
    is_in_list = joins and LIST_ITEM.match(note.bare[start - 1]) and LIST_ITEM.match(note.bare[end])
    return _spliced(note, start, end, [note.line_end] if joins and not is_in_list else [])


def _checked(note: Note, result: str, start: int, end: int) -> str:
    """Raise VaultError if a change of the lines from `start` to `end` adds or removes headings outside them."""
    after = Note(result)
    shift = len(after.lines) - len(note.lines)
    others = [(h.level, h.text) for h in note.headings if h.start < start or h.start >= end]
    outside = [h for h in after.headings if h.start < start or h.start >= end + shift]
    if [(h.level, h.text) for h in outside] != others or after.frontmatter != note.frontmatter:
        raise VaultError(OTHERS_CHANGE)
    return result
