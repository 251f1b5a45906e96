"""Finds the vaults of Obsidian on this computer, and the one that a person names."""

import json
import os
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from elbowroom.elsewhere import LOOK_SECONDS, NotAnswering, glance, read_plain
from elbowroom.errors import ElbowroomError, RequestError
from elbowroom.settings.doubts import folded
from elbowroom.settings.fields import expanded

USUAL: Final = ".obsidian"
SIGNS: Final = ("app.json", "workspace.json", "core-plugins.json", "community-plugins.json")
"""Files of Obsidian by which its folder in a vault is known under another name."""
MOST_BYTES: Final = 1024 * 1024
MOST_VAULTS: Final = 200
UNPRINTED: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Kinds of characters that would change what a terminal shows."""


@dataclass(frozen=True, slots=True)
class Vault:
    """A folder of notes. `id` is its name in Obsidian's list, empty for a folder that is not on it."""

    folder: Path
    id: str = ""
    is_open: bool = False
    opened_at: float = 0.0

    @property
    def name(self) -> str:
        """Return the name that Obsidian shows."""
        return self.folder.name or str(self.folder)


@dataclass(frozen=True, slots=True)
class KnownVaults:
    """The vaults on Obsidian's lists whose folders are there, open ones first, then the last opened.

    `problems` are sentences about lists that cannot be read, and about folders that do not answer.
    """

    vaults: Sequence[Vault] = ()
    problems: Sequence[str] = field(default=())


def known_vaults(environ: Mapping[str, str], platform: str = sys.platform) -> KnownVaults:
    """Read the lists of all ways to install Obsidian, and see which of the folders are there, and which hang."""
    listed = listed_vaults(environ, platform)
    found: dict[str, Vault] = {}
    problems = [*listed.problems]
    for vault in listed.vaults:
        try:
            if real := _real(vault.folder):
                found.setdefault(real, vault)
        except NotAnswering as error:
            problems.append(error.message)
    return KnownVaults([*found.values()], problems)


def _real(folder: Path) -> str | None:
    """Return a folder without links, None where it is not there. Raises NotAnswering."""
    return glance(folder, lambda: os.path.realpath(folder) if os.path.isdir(folder) else None, LOOK_SECONDS)


def listed_vaults(environ: Mapping[str, str], platform: str = sys.platform) -> KnownVaults:
    """Read the lists of all ways to install Obsidian; whether the folders are there is not seen, for one may hang."""
    found: dict[Path, Vault] = {}
    problems = []
    for file in _lists(environ, platform):
        try:
            for vault in _vaults_of(_parsed(file)):
                known = found.setdefault(vault.folder, vault)
                if (vault.is_open, vault.opened_at) > (known.is_open, known.opened_at):
                    found[vault.folder] = vault
        except (OSError, ValueError, RecursionError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "it is not in the form that is known"
            problems.append(f"Obsidian's list of vaults in {file} cannot be read: {reason}.")
    ordered = sorted(found.values(), key=lambda vault: (not vault.is_open, -vault.opened_at, vault.name))
    return KnownVaults(ordered, problems)


def _lists(environ: Mapping[str, str], platform: str) -> list[Path]:
    """Return the lists that there are."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or os.devnull)
    if platform == "win32":
        folders = [Path(environ.get("APPDATA") or home / "AppData" / "Roaming") / "obsidian"]
    elif platform == "darwin":
        folders = [home / "Library" / "Application Support" / "obsidian"]
    else:
        folders = [
            Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "obsidian",
            home / ".config" / "obsidian",
            home / ".var" / "app" / "md.obsidian.Obsidian" / "config" / "obsidian",
            home / "snap" / "obsidian" / "current" / ".config" / "obsidian",
        ]
    return [file for folder in dict.fromkeys(folders) if os.path.isfile(file := folder / "obsidian.json")]


def _parsed(file: Path) -> Mapping[str, Any]:
    """Return the table of vaults in a list. Raises OSError, ValueError and RecursionError."""
    match json.loads(read_plain(file, MOST_BYTES)):
        case {"vaults": dict(rows)}:
            return rows
        case {**others} if "vaults" not in others:  # a fresh Obsidian
            return {}
        case _:
            raise ValueError("it has no table of vaults")


def _vaults_of(rows: Mapping[str, Any]) -> Iterator[Vault]:
    """Yield the vaults of a list; rows in another form are passed over."""
    for name, row in list(rows.items())[:MOST_VAULTS]:
        path = row.get("path") if isinstance(row, dict) else None
        if isinstance(path, str) and _is_printed(path) and Path(path).is_absolute():
            at = row.get("ts")
            is_number = isinstance(at, int | float) and not isinstance(at, bool) and abs(at) < 1e18
            yield Vault(Path(path), name, row.get("open") is True, float(at) if is_number else 0.0)


def _is_printed(text: str) -> bool:
    return not any(unicodedata.category(character) in UNPRINTED for character in text)


def chosen_vault(known: KnownVaults, named: str) -> Vault:
    """Return the vault with this name or path; without a name the only one. Raises ElbowroomError."""
    if named:
        return _by_name(known, named) or _by_path(known, named)
    if len(known.vaults) == 1:
        return known.vaults[0]
    if not known.vaults:
        raise ElbowroomError(
            " ".join([*known.problems, "No vault of Obsidian was found. Name its folder, such as ~/Notes."])
        )
    raise ElbowroomError("There are several vaults. Name one, by its name or its folder:" + _listed(known.vaults))


def _by_name(known: KnownVaults, named: str) -> Vault | None:
    for same in (str, folded):
        found = [vault for vault in known.vaults if same(vault.name) == same(named)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ElbowroomError(f"Several vaults are called {named}. Name one by its folder:" + _listed(found))
    return None


def _by_path(known: KnownVaults, named: str) -> Vault:
    folder = Path(os.path.abspath(expanded(named)))
    if folder.name == USUAL:
        folder = folder.parent
    if (real := _real(folder)) is None:
        there = f" Obsidian knows these:{_listed(known.vaults)}" if known.vaults else ""
        raise ElbowroomError(" ".join([*known.problems, f"There is no vault and no folder {named}."]) + there)
    return next((vault for vault in known.vaults if os.path.realpath(vault.folder) == real), Vault(folder))


def _listed(vaults: Sequence[Vault]) -> str:
    return "".join(f"\n  {vault.name}  ({vault.folder}{', open' if vault.is_open else ''})" for vault in vaults)


def config_folder(vault: Vault, named: str = "") -> Path:
    """Return the folder in which Obsidian keeps the settings of a vault. Raises ElbowroomError; RequestError for none.

    A person may have given it another name, which only Obsidian knows: without `named`, it is known by its files.
    """
    if named:
        return _named_config(vault, named)
    if os.path.isdir(vault.folder / USUAL):
        return vault.folder / USUAL
    found = _config_folders(vault.folder)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(folder.name for folder in found)
        raise RequestError(f"{vault.folder} has several folders of settings. Name one with --config-folder: {names}.")
    raise RequestError(_no_vault(vault.folder), param="vault", code="no_vault")


def _named_config(vault: Vault, named: str) -> Path:
    folder = vault.folder / named
    if Path(named).name != named or not named.startswith(".") or named == "..":
        raise ElbowroomError(f"--config-folder takes the name of a folder that begins with a dot, not {named}.")
    if not os.path.isdir(folder):
        raise ElbowroomError(f"{vault.folder} has no folder {named}.")
    return folder


def _config_folders(folder: Path) -> list[Path]:
    try:
        hidden = sorted(inner for inner in folder.iterdir() if inner.name.startswith(".") and inner.is_dir())
        return [inner for inner in hidden if any((inner / name).is_file() for name in SIGNS)]
    except OSError as error:
        raise ElbowroomError(f"{folder} cannot be read: {error.strerror or error}.") from error


def _no_vault(folder: Path) -> str:
    inside = next((outer for outer in folder.parents if os.path.isdir(outer / USUAL)), None)
    if inside:
        return f"{folder} is a folder inside of the vault {inside}. Name the vault."
    return (
        f"{folder} is no vault of Obsidian: it has no folder {USUAL}. Open it in Obsidian once (Open folder as vault), "
        "and run this again."
    )
