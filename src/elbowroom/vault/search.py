"""Finds notes by words, phrases, tags and frontmatter, and ranks them."""

import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from elbowroom.vault.index import IndexedNote, folded_text, searchable
from elbowroom.vault.names import Parts, VaultError, split_path
from elbowroom.vault.note import Note
from elbowroom.vault.vault import Vault

MOST_TERMS: Final = 32
MOST_LINES: Final = 3
LONGEST_QUERY: Final = 1000
HEADING: Final = re.compile(r" {0,3}#{1,6}[ \t]")
Match = tuple[float, int, Parts]
"""How well a note fits, when it was changed, in nanoseconds, and its path."""


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions that a note must all fulfil; `terms` are folded words and phrases."""

    terms: tuple[str, ...] = ()
    tag: str = ""
    key: str = ""
    value: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A note that was found, and its matching lines as they are on disk, counted from 1."""

    parts: Parts
    lines: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The notes found from `offset` on, best first; `total` counts all, `unsearched` those that could not be read."""

    hits: tuple[Hit, ...]
    total: int
    offset: int
    unsearched: int


def parse_query(text: str = "", tag: str = "", frontmatter: str = "", folder: str = "") -> Query:
    """Return the query that a model wrote: words, "phrases in quotes", a tag, `key=value`.

    Raises VaultError if the query is empty.
    """
    if len(text) > LONGEST_QUERY:
        raise VaultError(f"The query is too long ({len(text)} characters). Use a few words.")
    terms = tuple(dict.fromkeys(term for term in _terms(folded_text(text)) if term))
    if len(terms) > MOST_TERMS:
        raise VaultError(f"The query has {len(terms)} words. Use at most {MOST_TERMS}.")
    key, _, value = frontmatter.partition("=" if "=" in frontmatter else ":")
    return Query(
        terms,
        folded_text(tag).strip().removeprefix("#").strip("/"),
        folded_text(key).strip(),
        folded_text(value).strip().strip("\"'"),
        folder,
    )


def _terms(text: str) -> Sequence[str]:
    terms: list[str] = []
    for number, part in enumerate(text.split('"')):
        terms += [part.strip()] if number % 2 else part.split()
    return terms


def search(vault: Vault, query: Query, *, limit: int, offset: int = 0) -> Found:
    """Return the notes that fit a query, best first: by name, by heading, by how often, then the newest."""
    if not (query.terms or query.tag or query.key):
        raise VaultError("There is nothing to search for: give words, a tag, or a key of the frontmatter.")
    notes, unsearched = matching(vault, query)
    ranked = heapq.nlargest(offset + limit, notes)[offset:]
    hits = tuple(Hit(parts, _lines_of(vault, parts, query)) for _, _, parts in ranked)
    return Found(hits, len(notes), offset, unsearched)


def matching(vault: Vault, query: Query) -> tuple[list[Match], int]:
    """Return the notes that fit a query, in no order, and the number of notes that could not be read."""
    vault.refresh()
    below = _folder(vault, query.folder)
    scope, depth = vault.scope, len(below)
    is_all = scope.is_all
    found, unsearched = list[Match](), 0
    for parts, known in vault.index.notes.items():
        if (depth and parts[:depth] != below) or not (is_all or scope.allows(parts)):
            continue
        note = known if known.folded is not None or not known.is_text else _read_again(vault, known)
        unsearched += not note.is_text
        if _fits(note, query):
            found.append((_rank(note, query), note.changed, parts))
    return found, unsearched


def _read_again(vault: Vault, note: IndexedNote) -> IndexedNote:
    """Return a note that is not kept in memory with its text."""
    try:
        folded = searchable(vault.read_at(note.parts).data)
    except VaultError:
        folded = None
    return replace(note, folded=folded, is_text=folded is not None)


def _folder(vault: Vault, written: str) -> Parts:
    if not (parts := split_path(written)):
        return ()
    with vault.folder(parts) as folder:
        return folder.parts


def _fits(note: IndexedNote, query: Query) -> bool:
    text, name = note.folded or "", note.name
    for term in query.terms:
        if term not in text and term not in name:
            return False
    if not (query.tag or query.key):
        return True
    if note.folded is None:
        return False
    tags, frontmatter = note.facts() if _may_have_facts(text, query) else (frozenset[str](), {})
    if query.tag and query.tag not in tags and not any(tag.startswith(f"{query.tag}/") for tag in tags):
        return False
    if not query.key:
        return True
    if query.key not in frontmatter:
        return False
    value = frontmatter[query.key]
    return not query.value or query.value in (value if isinstance(value, list) else [value, *value.split(", ")])


def _may_have_facts(text: str, query: Query) -> bool:
    """Return False if a quick look shows that a note cannot have the tag or key."""
    return query.tag in text and query.key in text


def _rank(note: IndexedNote, query: Query) -> float:
    score, text = 0.0, note.folded or ""
    for term in query.terms:
        if term == note.name:
            score += 100
        elif term in note.name:
            score += 60 if note.name.startswith(term) or f" {term}" in note.name else 40
        if count := text.count(term):
            score += 4 * math.log1p(count) + _in_headings(text, term)
    return score


def _in_headings(text: str, term: str) -> float:
    """Return the score for a heading among the first places of a term."""
    at = -1
    for _ in range(5):
        if (at := text.find(term, at + 1)) < 0:
            return 0.0
        if HEADING.match(text, text.rfind("\n", 0, at) + 1, at):
            return 15.0
    return 0.0


def _lines_of(vault: Vault, parts: Parts, query: Query) -> tuple[tuple[int, str], ...]:
    """Return the first lines that contain terms; of several terms, the lines with the most."""
    try:
        text = vault.read_at(parts).text()
    except VaultError:  # gone, or no text: found by its name
        return ()
    wanted = query.terms or tuple(term for term in (query.tag, query.value or query.key) if term)
    scored: list[tuple[int, int, str]] = []
    for number, line in enumerate(Note(text).bare, 1):
        folded = folded_text(line)
        if count := sum(term in folded for term in wanted):
            scored.append((-count, number, line))
    best = heapq.nsmallest(MOST_LINES, scored)
    return tuple(sorted((number, _around(line, wanted)) for _, number, line in best))


def _around(line: str, terms: Sequence[str], longest: int = 160) -> str:
    """Return the part of a line around the first term in it."""
    line = line.strip()
    if len(line) <= longest:
        return line
    folded = folded_text(line)
    at = min((found for term in terms if (found := folded.find(term)) >= 0), default=0)
    start = max(0, min(at - longest // 3, len(line) - longest))
    return ("..." if start else "") + line[start : start + longest] + ("..." if start + longest < len(line) else "")
