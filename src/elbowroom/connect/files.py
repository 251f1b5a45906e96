"""Changes the settings file of another program, keeps the file as it was beside it, and puts that back."""

import hashlib
import itertools
import json
import os
import re
import tomllib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from elbowroom.connect.client import Part
from elbowroom.connect.json_text import with_values
from elbowroom.elsewhere import read_plain
from elbowroom.errors import ElbowroomError, what_failed
from elbowroom.settings.fields import expanded
from elbowroom.settings.files import not_saved, put_in_place, take_over, write_new

BYTE_ORDER_MARK: Final = "\ufeff"
BACKUP: Final = ".before-elbowroom"
OURS: Final = "elbowroom"


@dataclass(frozen=True, slots=True)
class Records:
    """What was changed, for `--undo`: rows of JSON by their names, in one file that its owner alone can read."""

    file: Path

    def rows(self) -> dict[str, Any]:
        """Return all of them. Raises ElbowroomError."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ElbowroomError(
                f"What was set up before cannot be read from {self.file}: {what_failed(error)}."
            ) from error
        return found if isinstance(found, dict) else {}

    def put(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a row or replace it."""
        self._write({**self.rows(), name: dict(row)})

    def forget(self, name: str) -> None:
        """Take a row out."""
        self._write({known: row for known, row in self.rows().items() if known != name})

    def _write(self, rows: Mapping[str, Any]) -> None:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.touch(mode=0o600)  # it may hold the key of a connection
            self.file.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        except OSError as error:
            raise ElbowroomError(
                f"{self.file} cannot be written: {what_failed(error)}. Without it --undo does not know what was here "
                "before: check its folder, and run this again."
            ) from error


@dataclass(frozen=True, slots=True)
class ClientFile:
    """One file of a program; a symbolic link stays, and the file that it leads to is changed."""

    path: Path
    records: Records

    @classmethod
    def of(cls, part: Part, environ: Mapping[str, str], records: Records) -> "ClientFile":
        """Return the file that a part of a program's settings stands in."""
        folder = expanded(environ.get(part.variable) or part.folder)
        there = [folder / name for name in part.names if (folder / name).exists()]
        return cls((there or [folder / part.names[0]])[0], records)

    def content(self) -> bytes | None:
        """Return what the file holds, None where there is none. Raises ElbowroomError."""
        try:
            return read_plain(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ElbowroomError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def merged(self, kind: str, text: str) -> bytes:
        """Return the file's content with the settings of a text in it. Raises ElbowroomError, which names the line."""
        try:
            whole = (self.content() or b"").decode()
            before = whole.removeprefix(BYTE_ORDER_MARK)
            new = with_values(before, json.loads(text)) if kind == "json" else _with_toml(before, text)
        except (ValueError, RecursionError) as error:
            raise ElbowroomError(
                f"{self.path} is left as it is, since it is not understood ({error}). "
                "Mend it, or put this into it by hand."
            ) from error
        return (BYTE_ORDER_MARK if before != whole else "").encode() + new.encode()

    def write(self, content: bytes) -> Path | None:
        """Write the file; return where it is kept as it was before the first time, None where there was none.

        What somebody has changed since the last time is no longer ours to take back: the record stays as it is, so
        that `check_unchanged` refuses. Raises SettingsNotSaved.
        """
        before = self.content()
        row = self._row() or {"written": None, "backup": self._backed_up(before)}
        is_ours = row["written"] in (None, _digest(before))
        self._replace(content)
        if is_ours:
            self.records.put(str(self.path), {**row, "written": _digest(content)})
        return Path(row["backup"]) if row["backup"] else None

    @property
    def was_written(self) -> bool:
        """Tell whether there is something to take back."""
        return self._row() is not None

    def check_unchanged(self) -> None:
        """Raise ElbowroomError where somebody has changed the file since it was written."""
        row = self._row() or {}
        if _digest(self.content()) != row["written"]:
            before = f"As it was before, it is in {row['backup']}:" if row["backup"] else "It was not there before:"
            raise ElbowroomError(
                f"{self.path} has been changed since elbowroom wrote it, so it is left as it is. {before} put back "
                "what you want of it by hand, or take out what names elbowroom."
            )

    def put_back(self) -> None:
        """Make the file what it was before the first time. Raises SettingsNotSaved."""
        row = self._row() or {}
        try:
            if row["backup"]:
                backup = Path(row["backup"])
                self._replace(backup.read_bytes())
                backup.unlink()
            else:
                self._target.unlink()
        except OSError as error:
            raise not_saved(self.path, error) from error
        self.records.forget(str(self.path))

    @property
    def _target(self) -> Path:
        return Path(os.path.realpath(self.path))

    def _row(self) -> dict[str, Any] | None:
        return self.records.rows().get(str(self.path))

    def _backed_up(self, content: bytes | None) -> str | None:
        """Keep this content beside the file, in a file of its own, and return that file's path."""
        if content is None:
            return None
        for number in itertools.count(1):
            backup = self._target.with_name(f"{self._target.name}{BACKUP}{f'.{number}' if number > 1 else ''}")
            try:
                write_new(backup, content)
                take_over(backup, like=self._target)
            except FileExistsError:
                continue
            except OSError as error:
                raise not_saved(backup, error) from error
            return str(backup)
        return None

    def _replace(self, content: bytes) -> None:
        try:
            self._target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            put_in_place(self._target, content, partial(take_over, like=self._target))
        except OSError as error:
            raise not_saved(self.path, error) from error


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _with_toml(text: str, new: str) -> str:
    """Return a TOML text with the settings of another one in it; the rest keeps its form. Raises ValueError."""
    import tomlkit

    document = tomlkit.parse(text)
    _merge(document, tomlkit.parse(f"{new}\n\n"))  # a blank line before the table that may follow
    changed = document.as_string().rstrip("\r\n") + "\n"
    if tomllib.loads(changed) != _merge(tomllib.loads(text), tomllib.loads(new)):
        raise ValueError("its tables are in an order in which nothing can be added safely")
    return re.sub(r"(?<!\r)\n", "\r\n", changed) if "\r\n" in text else changed


def _merge(old: MutableMapping[str, Any], new: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """Put the values of a table into another one, table by table, and return that; a table of ours is replaced whole.

    Codex refuses a provider that has two ways to a token.
    """
    for key, value in new.items():
        known = old.get(key)
        if key != OURS and isinstance(known, MutableMapping) and isinstance(value, Mapping):
            _merge(known, value)
        else:
            old[key] = value
    return old
