"""Changes notes: each change is atomic, in the journal before it is made, refused if the note changed, and undoable."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from elbowroom.vault.edits import Operation, TargetKind, appended, patched
from elbowroom.vault.files import MAX_NOTE_BYTES, Content, file_version, version_of
from elbowroom.vault.journal import Entry, Journal, Relocated, Step, Steps, Written
from elbowroom.vault.links import Meanings, Renaming, with_links_updated
from elbowroom.vault.names import (
    Moved,
    NoSuchChange,
    Parts,
    VaultError,
    bare_name,
    check_new,
    ending,
    is_embedded,
    is_note,
    note_parts,
    path_text,
    split_path,
)
from elbowroom.vault.note import Note, split_lines
from elbowroom.vault.vault import Vault

MOST_SHOWN: Final = 80
"""How much of what a model wrote is repeated to it."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What an agent may do to a vault. Every method does blocking work, says in a sentence what it has done, and
    raises VaultError where nothing was changed.
    """

    vault: Vault
    journal: Journal
    agent: str

    def create(self, path: str, text: str) -> str:
        """Write a new note; missing folders are created."""
        parts = note_parts(path)
        if not self.vault.scope.allows(parts):
            raise VaultError(f"{path_text(parts)} is not open to you. Choose another folder.")
        data = _encoded(_new_text(text))
        with self._steps() as steps:
            _check_new(steps, parts)
            if (there := steps.find(parts)) is not None:
                raise VaultError(
                    f"There is already a note {path_text(there)}. Append to it, patch it, or choose a name."
                )
            self._apply(
                steps, f"created {path_text(parts)}", [Written(path_text(parts), None, version_of(data))], [data]
            )
        return f"Created {path_text(parts)}, version {version_of(data)}."

    def append(self, path: str, text: str, heading: str, if_match: str) -> str:
        """Add text at the end of a note, or of one of its sections."""
        if not text.strip():
            raise VaultError("There is no text to append.")

        def edit(note: Note) -> str:
            return patched(note, "heading", heading, "append", text) if heading else appended(note, text)

        return self._edit(path, if_match, edit, "appended to", f" ({heading[:MOST_SHOWN]})" if heading else "")

    def patch(self, path: str, kind: TargetKind, target: str, operation: Operation, text: str, if_match: str) -> str:
        """Change one section, block or key of a note. `if_match` is the version that was read."""
        if not if_match.strip():
            raise VaultError("if_match is missing. Read the note first and give the version that is shown there.")

        def edit(note: Note) -> str:
            return patched(note, kind, target, operation, text)

        return self._edit(path, if_match, edit, "changed", f" ({operation} {kind} {target[:MOST_SHOWN]})")

    def rename(self, path: str, new_path: str, if_match: str) -> str:
        """Rename or move a note, or a file that notes embed, and put right the links in all notes that are open to the
        agent: those to it, and those that would come to mean another file.
        """
        with self._steps() as steps:
            old, version = self._to_rename(path, if_match)
            new = _new_path(old, new_path)
            _check_new(steps, new)
            if not self.vault.scope.allows(new):
                raise VaultError(f"{path_text(new)} is not open to you. Choose another folder.")
            if (there := steps.find(new)) is not None and there != old:
                raise VaultError(f"There is already a file {path_text(there)}.")
            writes, texts, links = self._links_to(Renaming(old, new, self._all_files()))
            own = next((index for index, step in enumerate(writes) if step.path == path_text(old)), None)
            move = Relocated(path_text(old), path_text(new), version if own is None else writes[own].after)
            self._apply(steps, f"renamed {path_text(old)} to {path_text(new)}", [*writes, move], texts)
        done = f"Renamed {path_text(old)} to {path_text(new)}"
        return f"{done}; {links} links in {len(writes)} notes were updated."

    def delete(self, path: str, if_match: str) -> str:
        """Move a note to the vault's `.trash`."""
        with self._steps() as steps:
            content = self._matching(path, if_match)
            if not is_note(content.parts[-1]):
                raise VaultError(f"{path_text(content.parts)} is not a note. Only notes can be deleted.")
            trash = steps.free_in_trash(content.parts[-1])
            step = Relocated(path_text(content.parts), trash, content.version)
            self._apply(steps, f"deleted {path_text(content.parts)}", [step], [])
        return f"Moved {path_text(content.parts)} to the vault's trash ({trash})."

    def undo(self) -> str:
        """Undo this agent's last change that is not undone yet, unless a note has changed since."""
        return self._undo(lambda: self.journal.last(self.agent), VaultError("There is no change of yours to undo."))

    def undo_change(self, entry_id: str) -> str:
        """Undo one change of any agent, by its id in the journal, unless a note has changed since.

        Raises NoSuchChange where it is undone already, or too old.
        """
        return self._undo(
            lambda: self.journal.find(entry_id), NoSuchChange("This change is undone already, or too old.")
        )

    def _undo(self, find: Callable[[], Entry | None], missing: VaultError) -> str:
        with self._steps() as steps:
            if (entry := find()) is None:
                raise missing
            steps.undo(entry.steps)
            self.journal.forget(entry)
        return f"Undone: {entry.what}."

    def _edit(self, path: str, if_match: str, edit: Callable[[Note], str], verb: str, where: str) -> str:
        with self._steps() as steps:
            content = self._matching(path, if_match)
            shown = path_text(content.parts)
            if not is_note(content.parts[-1]):
                raise VaultError(f"{shown} is not a note. Only notes can be changed.")
            before = content.text()
            after = edit(Note(before))
            if after == before:
                return f"Nothing to change: {shown} says so already, version {content.version}."
            data = _encoded(after)
            self._apply(steps, f"{verb} {shown}{where}", [_written(content, data)], [data])
        lines = len(split_lines(after)) - len(split_lines(before))
        return f"{verb.capitalize()} {shown}{where}: {lines:+d} lines, version {version_of(data)} now."

    def _to_rename(self, path: str, if_match: str) -> tuple[Parts, str]:
        with self.vault.file(path) as (folder, name):
            if is_note(name):
                content = self._matching(path, if_match)
                return content.parts, content.version
            if not is_embedded(name):
                shown = path_text((*folder.parts, name))
                raise VaultError(f"{shown} is not a note. Only notes, and files that they embed, can be renamed.")
            return (*folder.parts, name), file_version(folder, name)

    def _matching(self, path: str, if_match: str) -> Content:
        content = self.vault.read(path)
        if if_match.strip() and if_match.strip() != content.version:
            raise Moved(
                f"{path_text(content.parts)} has changed since you read it: it is version {content.version} now, not "
                f"{if_match.strip()}. Read it again and decide anew."
            )
        return content

    def _links_to(self, renaming: Renaming) -> tuple[list[Written], list[bytes], int]:
        """Return the writes that update links, the new contents of the notes, and the number of links."""
        targets = renaming.link_targets()
        pieces = [_piece(parts[-1]) for parts in (renaming.old, renaming.new)]
        writes: list[Written] = []
        texts: list[bytes] = []
        links = 0
        for parts, note in self.vault.index.notes.items():
            text = note.folded
            may = text is None or parts == renaming.old or any(piece in text for piece in pieces)
            if may and self.vault.scope.allows(parts):
                count, change = self._relinked(parts, renaming, targets)
                if change is not None:
                    writes.append(change[0])
                    texts.append(change[1])
                    links += count
        return writes, texts, links

    def _relinked(
        self, parts: Parts, renaming: Renaming, targets: Meanings
    ) -> tuple[int, tuple[Written, bytes] | None]:
        try:
            content = self.vault.read_at(parts)
            text = content.text()
        except VaultError:  # no text, or gone meanwhile: no links to put right
            return 0, None
        new, count = with_links_updated(text, content.parts, renaming, targets)
        return count, (_written(content, new.encode()), new.encode()) if new != text else None

    def _all_files(self) -> list[Parts]:
        self.vault.refresh()
        return self.vault.files()

    @contextmanager
    def _steps(self) -> Iterator[Steps]:
        with self.journal.lock, self.vault.opened() as root:
            yield Steps(root, self.vault.scope)

    def _apply(self, steps: Steps, what: str, todo: Sequence[Step], contents: Sequence[bytes]) -> None:
        """Do all steps or none; `contents` are the contents of the writes among them, in order."""
        entry = self.journal.begin(self.agent, what, todo)
        done: list[Step] = []
        waiting = iter(contents)
        try:
            for step in todo:
                steps.do(step, next(waiting) if isinstance(step, Written) else b"")
                done.append(step)
        except BaseException:
            with suppress(VaultError, OSError):  # where it cannot be taken back now, the entry stays for `undo`
                steps.undo(done)
                self.journal.forget(entry)
            raise


def _written(content: Content, data: bytes) -> Written:
    before = content.data.decode("utf-8", errors="surrogateescape")
    return Written(path_text(content.parts), before, version_of(data))


def _new_path(old: Parts, written: str) -> Parts:
    """Return the path that a model wants a file to have; raises VaultError where it cannot be."""
    new = note_parts(written) if is_note(old[-1]) else split_path(written)
    if not is_note(old[-1]) and (not new or ending(new[-1]) != ending(old[-1])):
        raise VaultError(
            f"{path_text(old)} has to keep its ending .{ending(old[-1])}: write the whole new path with it."
        )
    return new


def _check_new(steps: Steps, parts: Parts) -> None:
    """Refuse names that some system or link could not hold, except in the names of existing folders."""
    there = 0
    while there < len(parts) - 1 and steps.find(parts[: there + 1]) is not None:
        there += 1
    check_new(parts[there:])


def _piece(name: str) -> str:
    """Return a part of a name, folded, that every link to it contains, however the rest is encoded."""
    ascii_runs = re.findall(r"[A-Za-z0-9]+", unicodedata.normalize("NFC", bare_name(name)))
    return max(ascii_runs, key=len, default="").lower()


def _new_text(text: str) -> str:
    return "".join(line.rstrip("\r\n") + "\n" for line in split_lines(text))


def _encoded(text: str) -> bytes:
    """Return a note's text as bytes; raises VaultError for text that a note cannot hold."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise VaultError("The text holds characters that no note can hold.") from None
    if b"\0" in data:
        raise VaultError("The text holds characters that no note can hold.")
    if len(data) > MAX_NOTE_BYTES:
        raise VaultError(f"The note would be too long ({len(data):,} bytes). Divide it into several notes.")
    return data
