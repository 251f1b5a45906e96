"""The plugin's folder in a vault: what is installed there, and how its files get there and away."""

import contextlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Final

from elbowroom.elsewhere import read_plain
from elbowroom.errors import Conflict, ElbowroomError, what_failed
from elbowroom.settings.files import give_to_owner_of, not_saved, take_over, write_new

ID: Final = "elbowroom"
MANIFEST: Final = "manifest.json"
FILES: Final = ("main.js", "styles.css", MANIFEST)
"""What is installed. The manifest takes its place last: its version is told only when the rest is there."""
DATA: Final = "data.json"
"""The plugin's own settings, which elbowroom writes once and never again."""
NUMBER: Final = re.compile(r"\d{1,9}")
FRESH: Final = ".new"
READABLE: Final = 0o644
OWN: Final = b"// The plugin of elbowroom"
"""How every main.js of ours begins."""
KEPT: Final = "elbowroom-kept"
"""Where another plugin of the same id is put, beside `plugins`: Obsidian runs what lies in there."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is done in a vault: the lines that tell of it, and what does it."""

    lines: Sequence[str]
    make: Callable[[], object]


def packaged() -> Mapping[str, bytes]:
    """Return the files of the plugin that elbowroom brings. Raises ElbowroomError."""
    folder = files("elbowroom.connect") / "plugin"
    try:
        return {name: (folder / name).read_bytes() for name in FILES}
    except OSError as error:
        raise ElbowroomError(
            f"This elbowroom was installed without the plugin ({what_failed(error)}). Install elbowroom again."
        ) from error


def version_of(manifest: bytes) -> str:
    """Return the version that a manifest tells, empty where it tells none."""
    return _told_by(manifest, "version")


def _told_by(content: bytes, key: str) -> str:
    """Return a text that an object in JSON has under a key, empty where it has none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    told = value.get(key) if isinstance(value, dict) else None
    return told if isinstance(told, str) and told.isprintable() else ""


@dataclass(frozen=True, slots=True)
class PluginFolder:
    """`plugins/elbowroom` in the folder `config`, in which Obsidian keeps the settings of a vault."""

    config: Path

    @property
    def path(self) -> Path:
        """Return the folder."""
        return self.config / "plugins" / ID

    @property
    def is_linked(self) -> bool:
        """Tell whether the folder or a file in it is a link, as those make it who develop the plugin."""
        real = os.path.join(os.path.realpath(self.path.parent), ID)
        return os.path.normcase(os.path.realpath(self.path)) != os.path.normcase(real) or any(
            os.path.islink(self.path / name) for name in FILES
        )

    def version(self) -> str | None:
        """Return the installed version, empty where it is not told, None where nothing is installed."""
        content = self._read(MANIFEST)
        if content is None:
            return "" if os.path.exists(self.path / FILES[0]) else None
        return version_of(content)

    def is_up_to_date(self, new: Mapping[str, bytes]) -> bool:
        """Tell whether all files are these."""
        return all(self._read(name) == content for name, content in new.items())

    def installing(self, new: Mapping[str, bytes], *, force: bool) -> list[Change]:
        """Return what puts these files there.

        Raises Conflict where a newer version or somebody else's plugin is, unless `force` is given; the latter is kept.
        """
        if self.is_linked or self.is_up_to_date(new):
            return []
        if self._is_foreign(new):
            return self._replacing(new, force=force)
        version, newest = self.version(), version_of(new[MANIFEST])
        if version and _ordered(version) > _ordered(newest) and not force:
            raise Conflict(
                f"{self.path} has version {version}, which is newer than {newest}, the one that this elbowroom brings. "
                "It is kept; elbowroom obsidian install --force replaces it.",
                code="newer_plugin",
            )
        lines = [self.told("~" if os.path.exists(self.path / name) else "+", name) for name in new]
        return [Change(lines, partial(self._put, new))]

    def _is_foreign(self, new: Mapping[str, bytes]) -> bool:
        """Tell whether what is there is another plugin of the same id: neither its code nor its author is ours."""
        code, manifest = self._read(FILES[0]) or b"", self._read(MANIFEST) or b""
        author = _told_by(manifest, "author")
        return not code.startswith(OWN) and (bool(code) or bool(author)) and author != _told_by(new[MANIFEST], "author")

    def _replacing(self, new: Mapping[str, bytes], *, force: bool) -> list[Change]:
        """Return what puts these files in the place of another plugin, whose folder is kept. Raises Conflict."""
        kept = next(path for path in self._kept_names() if not os.path.lexists(path))
        if not force:
            raise Conflict(
                f"{self.path} has another plugin with the id {ID}, which is not elbowroom's. It is left as it is; "
                f"elbowroom obsidian install --force moves it to {kept} and installs this one.",
                code="other_plugin",
            )

        def replace() -> None:
            try:
                self.path.rename(kept)
            except OSError as error:
                raise not_saved(kept, error) from error
            self._put(new)

        moved = (
            f"~ {Path(self.config.name, 'plugins', ID)}: another plugin, moved to {Path(self.config.name, kept.name)}"
        )
        return [Change([moved, *(self.told("+", name) for name in new)], replace)]

    def _kept_names(self) -> Iterator[Path]:
        yield self.config / KEPT
        yield from (self.config / f"{KEPT}-{number}" for number in count(2))

    def setting_address(self, address: str) -> list[Change]:
        """Return what tells the plugin where elbowroom is, if it has no settings yet."""
        if self.is_linked or (os.path.lexists(self.path / DATA) and not self._is_foreign(packaged())):
            return []
        content = json.dumps({"address": address}, indent=2).encode()
        return [Change([f"{self.told('+', DATA)}: address {address}"], partial(self._create, content))]

    def address(self) -> str | None:
        """Return the address in the plugin's settings; None where they have none."""
        return _told_by(self._read(DATA) or b"", "address") or None

    def removing(self, *, with_data: bool) -> list[Change]:
        """Return what takes the files away; the plugin's settings only if that is wanted."""
        names = [*reversed(FILES), *([DATA] if with_data else [])]
        there = [name for name in names if os.path.lexists(self.path / name)]
        if self.is_linked or not there:
            return []
        return [Change([self.told("-", name) for name in there], partial(self._take_away, there))]

    def told(self, sign: str, name: str) -> str:
        """Return the line that tells of a change of a file."""
        return f"{sign} {Path(self.config.name, 'plugins', ID, name)}"

    def _read(self, name: str) -> bytes | None:
        try:
            return read_plain(self.path / name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ElbowroomError(f"{self.path / name} cannot be read: {error.strerror or error}.") from error

    def _put(self, new: Mapping[str, bytes]) -> None:
        """Write all files beside the old ones, and only then replace those; two may do so at the same time."""
        mark = secrets.token_hex(4)
        fresh = {name: self.path / f".{name}.{mark}{FRESH}" for name in new}
        try:
            self._make_folder()
            for name, content in new.items():
                write_new(fresh[name], content)
                fresh[name].chmod(READABLE)
                give_to_owner_of(self.config, fresh[name])
                take_over(fresh[name], like=self.path / name)
            for name, file in fresh.items():
                file.replace(self.path / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                for file in fresh.values():
                    file.unlink(missing_ok=True)
                self.path.rmdir()  # where it is new, and so empty
            raise not_saved(self.path / MANIFEST, error) from error

    def _make_folder(self) -> None:
        """Make the folder, whose owner is the vault's, also where root installs."""
        for folder in (self.path.parent, self.path):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                give_to_owner_of(self.config, folder)

    def _create(self, content: bytes) -> None:
        """Write the plugin's settings, unless Obsidian has done so meanwhile."""
        try:
            with contextlib.suppress(FileExistsError):
                write_new(self.path / DATA, content)
                give_to_owner_of(self.config, self.path / DATA)
        except OSError as error:
            raise not_saved(self.path / DATA, error) from error

    def _take_away(self, names: Sequence[str]) -> None:
        left = [file.name for file in self.path.glob(f".*{FRESH}")]  # by an attempt that was killed
        for name in [*names, *left]:
            try:
                (self.path / name).unlink(missing_ok=True)
            except OSError as error:
                raise ElbowroomError(
                    f"{self.path / name} cannot be deleted: {error.strerror or error}. Let the user that runs "
                    f"elbowroom write in the folder {self.path}, and run this again."
                ) from error
        with contextlib.suppress(OSError):  # other files in it stay
            self.path.rmdir()


def _ordered(version: str) -> list[int]:
    return [int(number) for number in NUMBER.findall(version)]
