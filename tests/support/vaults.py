"""Vaults for tests: a folder with notes in it, and what works on it."""

from collections.abc import Mapping
from pathlib import Path

from elbowroom.vault.changes import Changes
from elbowroom.vault.folder import HAS_DESCRIPTORS
from elbowroom.vault.journal import Journal
from elbowroom.vault.names import Scope
from elbowroom.vault.telling import Told
from elbowroom.vault.vault import Vault

WAYS = [True, False] if HAS_DESCRIPTORS else [False]
"""By descriptors of folders and by paths; the second is the only way on Windows and works elsewhere too."""


def write_notes(root: Path, notes: Mapping[str, str | bytes]) -> Path:
    """Write notes by their paths and return the vault's folder."""
    for path, content in notes.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    root.mkdir(exist_ok=True)
    return root


def vault_of(
    folder: Path,
    notes: Mapping[str, str | bytes],
    *,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    by_descriptor: bool = HAS_DESCRIPTORS,
) -> Vault:
    """Return a vault with these notes, in a folder named `vault`."""
    root = write_notes(folder / "vault", notes)
    return Vault(str(root), Scope.of(include, exclude), by_descriptor=by_descriptor)


def changes_of(
    folder: Path,
    notes: Mapping[str, str | bytes],
    *,
    agent: str = "writer",
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    by_descriptor: bool = HAS_DESCRIPTORS,
) -> Changes:
    """Return what an agent may do to a vault with these notes; its journal is in a folder named `undo`."""
    vault = vault_of(folder, notes, include=include, exclude=exclude, by_descriptor=by_descriptor)
    return Changes(vault, Journal(folder / "undo"), agent)


def files_in(root: Path) -> dict[str, bytes]:
    """Return all files below a folder with what they hold."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def told(result: Told | str) -> str:
    """Return what a tool of the vault tells at most."""
    return result if isinstance(result, str) else result.within()
