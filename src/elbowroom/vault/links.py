"""Links between notes and to other files: finds their targets, and updates them after a renaming. Pure."""

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
REFERENCE: Final = re.compile(r"([ ]{0,3}(?:>[ \t]?)*\[(?!\^)[^\[\]\n]+\]:[ \t]*)(<[^<>\n]*>|[^\s<>]\S*)")
"""What a link `[text][label]` leads to: `[label]: path "title"`, on a line of its own."""
CODE: Final = re.compile(r"(?<!`)(`{1,9})(?!`)[^`\n]*\1(?!`)")
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
TO_ESCAPE: Final = {"%": "%25", " ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E"}


@dataclass(frozen=True, slots=True)
class Renaming:
    """A note or another file with its path before and after; `files` are the paths of all files before the renaming."""

    old: Parts
    new: Parts
    files: Collection[Parts]

    def link_targets(self) -> "Meanings":
        """Return the targets of links before and after the renaming."""
        return Meanings(LinkTargets(self.files), LinkTargets([self.moved(parts) for parts in self.files]))

    def moved(self, parts: Parts) -> Parts:
        """Return the path of a file after the renaming."""
        return self.new if parts == self.old else parts


class LinkTargets:
    """Finds the targets of links by Obsidian's rules: a path from the root, from the note's folder, or a name."""

    def __init__(self, files: Collection[Parts]) -> None:
        self._by_path = {fold_parts(parts): parts for parts in files}
        self._by_name: dict[str, list[Parts]] = {}
        for parts in files:
            self._by_name.setdefault(fold(parts[-1]), []).append(parts)

    def named(self, target: str) -> list[Parts]:
        """Return the files with a name."""
        return next((found for name in _names(target) if (found := self._by_name.get(fold(name)))), [])

    def by_name(self, target: str, source: Parts) -> Parts | None:
        """Return the file that a name means in a note: the one in the same folder, else the one nearest the root."""
        found = self.named(target)
        same = [parts for parts in found if parts[:-1] == source[:-1]]
        return min(same or found, key=lambda parts: (len(parts), path_text(parts)), default=None)

    def by_path(self, target: str) -> Parts | None:
        """Return the file at a path from the root."""
        paths = (self._by_path.get(fold_parts(tuple(name.split("/")))) for name in _names(target))
        return next(filter(None, paths), None)

    def by_end_of_path(self, target: str) -> Parts | None:
        """Return the only file whose path ends with a written path: `B/Plan` may mean `A/B/Plan`."""
        for written in _names(target):
            names = fold_parts(tuple(written.split("/")))
            found = [parts for parts in self._by_name.get(names[-1], []) if fold_parts(parts)[-len(names) :] == names]
            if found:
                return found[0] if len(found) == 1 else None
        return None

    def by_relative_path(self, target: str, source: Parts) -> Parts | None:
        """Return the file at a path from the folder of a note."""
        path = os.path.normpath("/".join([*source[:-1], target])).replace(os.sep, "/")
        return None if path.startswith("..") else self.by_path(path)

    def by_wikilink(self, target: str, source: Parts) -> Parts | None:
        """Return the file that a wikilink means in a note."""
        if "/" not in target:
            return self.by_name(target, source)
        meant = self.by_path(target.lstrip("/")) or self.by_relative_path(target, source)
        return meant or self.by_end_of_path(target)


@dataclass(frozen=True, slots=True)
class Meanings:
    """The targets of links before and after a renaming."""

    before: LinkTargets
    after: LinkTargets


def with_links_updated(text: str, source: Parts, renaming: Renaming, targets: Meanings) -> tuple[str, int]:
    """Return a note's text with its links put right, and how many they were: those to the renamed file, and those that
    would come to mean another file than before.

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

    def reference(match: re.Match[str]) -> str:
        nonlocal count
        new = _new_markdown(match[2], source, renaming, targets)
        count += new is not None
        return match[0] if new is None else f"{match[1]}{new}"

    note = Note(text)
    lines = list(note.lines)
    for number, line in enumerate(lines):
        if ("[[" in line or "](" in line) and (note.is_prose(number) or number < note.frontmatter):
            lines[number] = _replaced(_replaced(line, WIKI, wiki), MARKDOWN, markdown)
        elif "]:" in line and note.is_prose(number) and (match := REFERENCE.match(line)):
            lines[number] = reference(match) + line[match.end() :]
    return "".join(lines), count


def _replaced(line: str, pattern: re.Pattern[str], new: Callable[[re.Match[str]], str]) -> str:
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


def _new_wiki(written: str, source: Parts, renaming: Renaming, targets: Meanings) -> str | None:
    target = written.strip()
    meant = targets.before.by_wikilink(target, source)
    if meant is None:
        return None
    now = renaming.moved(meant)
    if meant != renaming.old and targets.after.by_wikilink(target, renaming.moved(source)) == now:
        return None
    is_alone = "/" not in target and len(targets.after.named(now[-1])) == 1
    new = now[-1] if is_alone else path_text(now)
    new = new if is_note(target) else bare_name(new)
    return None if new == target else new


def _new_markdown(written: str, source: Parts, renaming: Renaming, targets: Meanings) -> str | None:
    is_bracketed = written.startswith("<")
    url, hash_sign, fragment = written.strip("<>").partition("#")
    if not url or SCHEME.match(url) or url.startswith("//"):
        return None
    target = unquote(url)
    path = _new_path(target, source, renaming, targets)
    if path is None:
        return None
    path = path if is_note(target) else bare_name(path)
    path = path if is_bracketed else "".join(TO_ESCAPE.get(character, character) for character in path)
    new = f"<{path}{hash_sign}{fragment}>" if is_bracketed else f"{path}{hash_sign}{fragment}"
    return None if unquote(new) == unquote(written) else new


def _new_path(target: str, source: Parts, renaming: Renaming, targets: Meanings) -> str | None:
    """Return the new path of a Markdown link, of the same kind as before, None if it may stay."""
    before, after, where = targets.before, targets.after, renaming.moved(source)
    if (meant := before.by_relative_path(target, source)) is not None:
        now = renaming.moved(meant)
        stays = meant != renaming.old and after.by_relative_path(target, where) == now
        return None if stays else _relative(now, where)
    if (meant := before.by_path(target.lstrip("/"))) is not None:
        beginning = "/" if target.startswith("/") else ""
        return f"{beginning}{path_text(renaming.new)}" if meant == renaming.old else None
    if "/" in target or (meant := before.by_name(target, source)) is None:
        return None
    now = renaming.moved(meant)
    if meant != renaming.old and after.by_name(target, where) == now:
        return None
    return now[-1] if len(after.named(now[-1])) == 1 else path_text(now)


def _relative(target: Parts, source: Parts) -> str:
    path = os.path.relpath(path_text(target), path_text(source[:-1]) or ".")
    return path.replace(os.sep, "/")


def _names(target: str) -> tuple[str, ...]:
    """Return the paths that a written path may mean, the likeliest first, since links leave out `.md`."""
    if is_note(target):
        return (target,)
    return (target, f"{target}.md") if "." in target.rsplit("/", 1)[-1] else (f"{target}.md",)
