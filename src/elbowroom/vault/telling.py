"""Writes what was found in the vault as text for a model, of bounded length, with a hint how to read on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.vault.files import MAX_NOTE_BYTES, LineRange, read_lines, read_whole
from elbowroom.vault.folder import Folder
from elbowroom.vault.frontmatter import read_frontmatter
from elbowroom.vault.names import Parts, VaultError, path_text, split_path
from elbowroom.vault.note import Note
from elbowroom.vault.search import Found, matching, parse_query, search
from elbowroom.vault.vault import Listing, Vault

MOST_CHARACTERS: Final = 48_000
"""The longest result of a tool."""
LONGEST_LINE: Final = 2_000
MOST_LINES: Final = 400
MOST_NAMES: Final = 200
MOST_HITS: Final = 30
NO_LINES: Final = "The note is empty."


@dataclass(frozen=True, slots=True)
class Told:
    """Rows about something in the vault; `written` makes a text of the first of them, which says how to read on."""

    rows: Sequence[str]
    written: Callable[[Sequence[str]], str]

    def within(self, most: int = MOST_CHARACTERS) -> str:
        """Return the text with as many rows as so many characters hold, at least one where there is any."""
        return self.written(_first(self.rows, most) or self.rows[:1])


def _first(rows: Sequence[str], most: int) -> Sequence[str]:
    """Return as many rows as so many characters hold."""
    for shown, row in enumerate(rows):
        most -= len(row) + 1
        if most < 0:
            return rows[:shown]
    return rows


def tell_folder(vault: Vault, folder: str, offset: int) -> Told | str:
    """Return the content of a folder: folders with their number of notes, notes, other files."""
    listing = vault.listing(folder)
    rows = _rows(listing)
    where = f"The folder {path_text(listing.parts)}" if listing.parts else "The vault"
    if not rows:
        return f"{where} has nothing in it that is open to you."
    head = f"{where}: {len(listing.folders)} folders, {len(listing.notes)} notes, {len(listing.others)} other files."
    return _listed(head, rows[offset : offset + MOST_NAMES], rest=len(rows) - offset, first=offset)


def _rows(listing: Listing) -> list[str]:
    inside = f"{path_text(listing.parts)}/" if listing.parts else ""
    return [
        *(f"{inside}{name}/ ({count} notes)" for name, count in listing.folders),
        *(f"{inside}{name}" for name, _ in listing.notes),
        *(f"{inside}{name} (not a note)" for name in listing.others),
    ]


def _listed(head: str, rows: Sequence[str], *, rest: int, first: int) -> Told:
    """Return a head and rows, which begin with the number `first`; from there on there are `rest` rows in all."""

    def written(shown: Sequence[str]) -> str:
        left = rest - len(shown)
        more = [f"{left} more: call again with offset={first + len(shown)}."] if left > 0 else []
        return "\n".join([head, *shown, *more])

    return Told(rows, written)


def _bounded(head: str, rows: Sequence[str], *, rest: int) -> str:
    """Return a head and rows, as many as fit, and how many of the `rest` in all are not shown."""
    shown = _first(rows, MOST_CHARACTERS - len(head))
    left = [f"{rest - len(shown)} are not shown."] if len(shown) < rest else []
    return "\n".join([head, *shown, *left])


def tell_note(vault: Vault, path: str, first: int, count: int, heading: str, *, frontmatter_only: bool) -> Told | str:
    """Return a note, a range of its lines, a section of it, or its frontmatter, with line numbers and its version."""
    with vault.file(path, anywhere=True) as (folder, name):
        if folder.status(name).st_size > MAX_NOTE_BYTES:
            if heading or frontmatter_only:
                raise VaultError(f"{name} is too large for that. Read ranges of its lines with offset and limit.")
            return _tell_large(folder, name, max(first, 1), min(count or MOST_LINES, MOST_LINES))
        content = read_whole(folder, name)
    note = Note(content.text())
    start, end = max(first, 1) - 1, len(note.lines)
    if frontmatter_only:
        return _tell_frontmatter(note, content.parts, content.version)
    if heading:
        section = note.heading(heading)
        start, end = max(start, section.start), section.end
    if start >= len(note.lines) > 0:
        raise VaultError(f"{path_text(content.parts)} has only {len(note.lines)} lines.")
    name = path_text(content.parts)
    if not note.lines:
        return f"{name}: version {content.version}\n{NO_LINES}"

    def written(shown: Sequence[str]) -> str:
        last = start + len(shown)
        head = f"{name}: lines {start + 1}-{last} of {len(note.lines)}, version {content.version}"
        more = [f"Lines {last + 1}-{end} are left: call again with offset={last + 1}."] if last < end else []
        return "\n".join([head, *shown, *more])

    return Told(numbered(note.bare[start : min(end, start + (count or MOST_LINES))], start + 1), written)


def _tell_large(folder: Folder, name: str, first: int, count: int) -> Told:
    found: LineRange = read_lines(folder, name, first, count, LONGEST_LINE * 4)
    parts = (*folder.parts, name)
    if not found.lines:
        raise VaultError(f"{path_text(parts)} has fewer than {first} lines.")

    def written(shown: Sequence[str]) -> str:
        last = first + len(shown) - 1
        head = f"{path_text(parts)}: lines {first}-{last} of a large file ({found.size:,} bytes)"
        has_more = found.has_more or len(shown) < len(found.lines)
        return "\n".join([head, *shown, *([f"There is more: call again with offset={last + 1}."] if has_more else [])])

    return Told(numbered([_line_text(line, parts) for line in found.lines], first), written)


def _line_text(line: bytes, parts: Parts) -> str:
    """Return a line of a large file as text; bytes that are no UTF-8 are shown escaped, since a cut may leave some."""
    if b"\0" in line:
        raise VaultError(f"{path_text(parts)} is not text. Only text can be read here.")
    return line.decode(errors="replace")


def numbered(lines: Sequence[str], first: int) -> list[str]:
    """Return lines with their numbers; long lines are cut, with a note."""
    return [f"{number:>4}  {_cut(line)}" if line else f"{number:>4}" for number, line in enumerate(lines, first)]


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} [line cut after {LONGEST_LINE} characters]"


def _tell_frontmatter(note: Note, parts: Parts, version: str) -> str:
    head = f"{path_text(parts)}: frontmatter, version {version}"
    found = read_frontmatter(note)
    rows = [f"{key}: {', '.join(value) if isinstance(value, list) else value}" for key, value in found.items()]
    return _bounded(head, [_cut(row) for row in rows or ["There is none."]], rest=len(rows))


def tell_outline(vault: Vault, path: str) -> str:
    """Return the headings of a note with their lines."""
    content = vault.read(path, anywhere=True)
    note = Note(content.text())
    head = f"{path_text(content.parts)}: {len(note.lines)} lines, version {content.version}"
    rows = [f"{h.start + 1:>4}  {'#' * h.level} {h.text} ({h.end - h.start} lines)" for h in note.headings]
    if keys := list(read_frontmatter(note)):
        head += f", frontmatter: {', '.join(keys)[:300]}"
    shown = [row[:300] for row in rows[:MOST_NAMES]]
    return _bounded(head, shown or ["There are no headings."], rest=len(rows))


def tell_search(
    vault: Vault, query: str, tag: str, frontmatter: str, folder: str, limit: int, offset: int
) -> Told | str:
    """Return the notes that fit, best first, with the lines that show why."""
    wanted = parse_query(query, tag, frontmatter, folder)
    found = search(vault, wanted, limit=min(max(limit, 1), MOST_HITS), offset=max(offset, 0))
    if not found.total:
        return f"Nothing found.{_unsearched(found)} Try fewer or other words."
    rows = ["\n".join([path_text(hit.parts), *(f"  {n}: {line}" for n, line in hit.lines)]) for hit in found.hits]
    head = f"{found.total} notes found, best first.{_unsearched(found)}"
    return _listed(head, rows, rest=found.total - found.offset, first=found.offset)


def _unsearched(found: Found) -> str:
    return f" {found.unsearched} notes are too large or no text and were not searched." if found.unsearched else ""


def tell_count(vault: Vault, query: str, tag: str, frontmatter: str, folder: str) -> str:
    """Return the number of notes that fit, in total and for each folder."""
    notes, unsearched = matching(vault, parse_query(query, tag, frontmatter, folder))
    depth = len(split_path(folder))
    counts: dict[str, int] = {}
    for _, _, parts in notes:
        below = f"{parts[depth]}/" if len(parts) > depth + 1 else "directly here"
        counts[below] = counts.get(below, 0) + 1
    head = f"{len(notes)} notes.{f' {unsearched} could not be searched.' if unsearched else ''}"
    rows = [f"{name}: {count}" for name, count in sorted(counts.items(), key=lambda row: (-row[1], row[0]))]
    return _bounded(head, rows[:MOST_NAMES], rest=len(rows))
