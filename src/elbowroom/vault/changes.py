"""Changes notes: each change is atomic, noted down beforehand, refused where the note has moved on, and undoable."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from elbowroom.vault.edits import Operation, TargetKind, appended, patched
from elbowroom.vault.errors import Moved, VaultError
from elbowroom.vault.files import MAX_NOTE_BYTES, Content, version_of
from elbowroom.vault.index import folded_text
from elbowroom.vault.journal import Journal, Relocated, Step, Written
from elbowroom.vault.links import LinkTargets, Renaming, with_links_updated
from elbowroom.vault.names import bare_name, check_new, is_note, note_parts, path_text
from elbowroom.vault.note import Note, split_lines
from elbowroom.vault.steps import Steps
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
        """Write a new note; folders that are missing are made."""
        parts = note_parts(path)
        check_new(parts)
        if not self.vault.scope.allows(parts):
            raise VaultError(f"{path_text(parts)} is not open to you. Choose another folder.")
        data = _encoded(_new_text(text))
        with self._steps() as steps:
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
        """Rename or move a note and put right the links to it in all notes that are open to the agent."""
        new = note_parts(new_path)
        check_new(new)
        if not self.vault.scope.allows(new):
            raise VaultError(f"{path_text(new)} is not open to you. Choose another folder.")
        with self._steps() as steps:
            content = self._matching(path, if_match)
            if not is_note(content.parts[-1]):
                raise VaultError(f"{path_text(content.parts)} is not a note. Only notes can be renamed.")
            if (there := steps.find(new)) is not None and there != content.parts:
                raise VaultError(f"There is already a note {path_text(there)}.")
            renaming = Renaming(content.parts, new, self._all_notes())
            writes, texts, links = self._links_to(renaming)
            moved = texts[index] if (index := _index_of(content, writes)) is not None else content.data
            move = Relocated(path_text(content.parts), path_text(new), version_of(moved))
            self._apply(steps, f"renamed {path_text(content.parts)} to {path_text(new)}", [*writes, move], texts)
        done = f"Renamed {path_text(content.parts)} to {path_text(new)}"
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
        """Take back this agent's last change that was not undone yet; nothing where a note has changed since."""
        with self._steps() as steps:
            if (entry := self.journal.last(self.agent)) is None:
                raise VaultError("There is no change of yours to undo.")
            steps.take_back(entry.steps)
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

    def _matching(self, path: str, if_match: str) -> Content:
        content = self.vault.read(path)
        if if_match.strip() and if_match.strip() != content.version:
            raise Moved(
                f"{path_text(content.parts)} has changed since you read it: it is version {content.version} now, not "
                f"{if_match.strip()}. Read it again and decide anew."
            )
        return content

    def _links_to(self, renaming: Renaming) -> tuple[list[Written], list[bytes], int]:
        """Return the writes that put links right, the notes' new contents, and how many links they are."""
        targets = renaming.link_targets()
        name = bare_name(renaming.old[-1])
        spellings = {folded_text(name), folded_text(name.replace(" ", "%20")), folded_text(quote(name))}
        writes: list[Written] = []
        texts: list[bytes] = []
        links = 0
        for parts, note in self.vault.index.notes.items():
            text = note.folded
            may = text is None or parts == renaming.old or any(spelling in text for spelling in spellings)
            if may and self.vault.scope.allows(parts):
                count, change = self._relinked(path_text(parts), renaming, targets)
                if change is not None:
                    writes.append(change[0])
                    texts.append(change[1])
                    links += count
        return writes, texts, links

    def _relinked(
        self, path: str, renaming: Renaming, targets: LinkTargets
    ) -> tuple[int, tuple[Written, bytes] | None]:
        try:
            content = self.vault.read(path)
            text = content.text()
        except VaultError:  # no text, or gone meanwhile: no links to put right
            return 0, None
        new, count = with_links_updated(text, content.parts, renaming, targets)
        return count, (_written(content, new.encode()), new.encode()) if new != text else None

    def _all_notes(self) -> list[tuple[str, ...]]:
        self.vault.refresh()
        return list(self.vault.index.notes)

    @contextmanager
    def _steps(self) -> Iterator[Steps]:
        with self.journal.lock, self.vault.opened() as root:
            yield Steps(root, self.vault.scope)

    def _apply(self, steps: Steps, what: str, todo: Sequence[Step], contents: Sequence[bytes]) -> None:
        """Do the steps, all or none; `contents` are what the writes among them write, in order."""
        entry = self.journal.begin(self.agent, what, todo)
        done: list[Step] = []
        waiting = iter(contents)
        try:
            for step in todo:
                steps.do(step, next(waiting) if isinstance(step, Written) else b"")
                done.append(step)
        except BaseException:
            with suppress(VaultError, OSError):  # where it cannot be taken back now, the entry stays for `undo`
                steps.take_back(done)
                self.journal.forget(entry)
            raise


def _written(content: Content, data: bytes) -> Written:
    before = content.data.decode("utf-8", errors="surrogateescape")
    return Written(path_text(content.parts), before, version_of(data))


def _index_of(content: Content, writes: Sequence[Written]) -> int | None:
    path = path_text(content.parts)
    return next((index for index, step in enumerate(writes) if step.path == path), None)


def _new_text(text: str) -> str:
    return "".join(line.rstrip("\r\n") + "\n" for line in split_lines(text))


def _encoded(text: str) -> bytes:
    """Return a note's text as it is written; raises VaultError for what no note can hold."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise VaultError("The text holds characters that no note can hold.") from None
    if b"\0" in data:
        raise VaultError("The text holds characters that no note can hold.")
    if len(data) > MAX_NOTE_BYTES:
        raise VaultError(f"The note would be too long ({len(data):,} bytes). Divide it into several notes.")
    return data
