"""Links between notes: which note one means, and the same link after that note was renamed. Pure."""

import os.path
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from elbowroom.vault.names import Parts, bare_name, fold, fold_parts, is_note, path_text
from elbowroom.vault.note import Note

WIKI: Final = re.compile(r"\[\[([^\[\]|#^\\\n]+)((?:[#^][^\[\]|\\\n]*)?(?:\\?\|[^\[\]\n]*)?)\]\]")
MARKDOWN: Final = re.compile(
    r"\]\((<[^<>\n]*>|[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)((?:[ \t]+\"[^\"\n]*\"|[ \t]+'[^'\n]*')?\))"
)
CODE: Final = re.compile(r"(?<!`)(`{1,9})(?!`)[^`\n]*\1(?!`)")
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
TO_ESCAPE: Final = {"%": "%25", " ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E"}


@dataclass(frozen=True, slots=True)
class Renaming:
    """A note that changes its path; `notes` are the paths of all notes before it."""

    old: Parts
    new: Parts
    notes: Collection[Parts]

    def link_targets(self) -> "LinkTargets":
        """Return what links mean before the renaming."""
        return LinkTargets(self.notes)

    @property
    def bare(self) -> str:
        """Return how a link may name the note from now on: by its name alone, where no other has it."""
        others = (parts for parts in self.notes if parts != self.old)
        name = fold(self.new[-1])
        is_taken = any(fold(parts[-1]) == name for parts in others)
        return path_text((*self.new[:-1], bare_name(self.new[-1]))) if is_taken else bare_name(self.new[-1])


class LinkTargets:
    """What links mean, by Obsidian's rules: a path from the root, from the note's folder, or a name."""

    def __init__(self, notes: Collection[Parts]) -> None:
        self._by_path = {fold_parts(parts): parts for parts in notes}
        self._by_name: dict[str, list[Parts]] = {}
        for parts in notes:
            self._by_name.setdefault(fold(parts[-1]), []).append(parts)

    def by_name(self, target: str, source: Parts) -> Parts | None:
        """Return the note that a name means in a note: the one in the same folder, else the one nearest the root."""
        found = self._by_name.get(fold(_with_ending(target)), [])
        same = [parts for parts in found if parts[:-1] == source[:-1]]
        return min(same or found, key=lambda parts: (len(parts), path_text(parts)), default=None)

    def by_path(self, target: str) -> Parts | None:
        """Return the note at a path from the root."""
        return self._by_path.get(fold_parts(tuple(_with_ending(target).split("/"))))

    def by_end_of_path(self, target: str) -> Parts | None:
        """Return the only note whose path ends in a written one: `B/Plan` may mean `A/B/Plan`."""
        names = fold_parts(tuple(_with_ending(target).split("/")))
        found = [parts for parts in self._by_name.get(names[-1], []) if fold_parts(parts)[-len(names) :] == names]
        return found[0] if len(found) == 1 else None

    def by_relative_path(self, target: str, source: Parts) -> Parts | None:
        """Return the note at a path from the folder of a note."""
        path = os.path.normpath("/".join([*source[:-1], _with_ending(target)])).replace(os.sep, "/")
        return None if path.startswith("..") else self.by_path(path)


def with_links_updated(text: str, source: Parts, renaming: Renaming, targets: LinkTargets) -> tuple[str, int]:
    """Return a note's text with its links to the renamed note put right, and how many they were.

    `source` is the path that the note has before. Aliases, headings, block ids and code stay as they are.
    """
    count = 0

    def wiki(match: re.Match[str]) -> str:
        nonlocal count
        new = _new_wiki(match[1], source, renaming, targets)
        count += new is not None
        return match[0] if new is None else f"[[{new}{match[2]}]]"

    def markdown(match: re.Match[str]) -> str:
        nonlocal count
        new = _new_markdown(match[1], source, renaming, targets)
        count += new is not None
        return match[0] if new is None else f"]({new}{match[2]}"

    note = Note(text)
    lines = list(note.lines)
    for number, line in enumerate(lines):
        if ("[[" in line or "](" in line) and (note.is_prose(number) or number < note.frontmatter):
            lines[number] = _replaced(_replaced(line, WIKI, wiki), MARKDOWN, markdown)
    return "".join(lines), count


def _replaced(line: str, pattern: re.Pattern[str], new: Callable[[re.Match[str]], str]) -> str:
    """Return a line with each match outside of code replaced."""
    if "`" not in line:
        return pattern.sub(new, line)
    return "".join(part if is_code else pattern.sub(new, part) for part, is_code in _with_code(line))


def _with_code(line: str) -> Iterator[tuple[str, bool]]:
    end = 0
    for match in CODE.finditer(line):
        yield line[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield line[end:], False


def _new_wiki(written: str, source: Parts, renaming: Renaming, targets: LinkTargets) -> str | None:
    target = written.strip()
    if "/" not in target:
        if targets.by_name(target, source) != renaming.old:
            return None
        return renaming.bare + (renaming.new[-1][-3:] if is_note(target) else "")
    meant = targets.by_path(target.lstrip("/")) or targets.by_relative_path(target, source)
    if (meant or targets.by_end_of_path(target)) != renaming.old:
        return None
    return path_text(renaming.new) if is_note(target) else path_text((*renaming.new[:-1], bare_name(renaming.new[-1])))


def _new_markdown(written: str, source: Parts, renaming: Renaming, targets: LinkTargets) -> str | None:
    is_bracketed = written.startswith("<")
    url, hash_sign, fragment = written.strip("<>").partition("#")
    if not url or SCHEME.match(url) or url.startswith("//"):
        return None
    target = unquote(url)
    is_own = source == renaming.old
    now = renaming.new if is_own else source
    relative = targets.by_relative_path(target, source)
    if relative is not None and (relative == renaming.old or is_own):
        path = _relative(renaming.new if relative == renaming.old else relative, now)
    elif relative is None and targets.by_path(target.lstrip("/")) == renaming.old:
        path = path_text(renaming.new)
    elif relative is None and "/" not in target and targets.by_name(target, source) == renaming.old:
        path = renaming.new[-1]
    else:
        return None
    path = path if is_note(target) else bare_name(path)
    path = path if is_bracketed else "".join(TO_ESCAPE.get(character, character) for character in path)
    new = f"<{path}{hash_sign}{fragment}>" if is_bracketed else f"{path}{hash_sign}{fragment}"
    return None if new == written else new


def _relative(target: Parts, source: Parts) -> str:
    path = os.path.relpath(path_text(target), path_text(source[:-1]) or ".")
    return path.replace(os.sep, "/")


def _with_ending(target: str) -> str:
    return target if is_note(target) else f"{target}.md"
