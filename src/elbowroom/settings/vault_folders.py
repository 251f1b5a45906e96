"""Folders of the vault that the settings name and that are not there: a misspelt `exclude` would close nothing."""

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from elbowroom.settings.model import Settings
from elbowroom.settings.paths import expanded


def missing_folders(settings: Settings) -> Iterator[str]:
    """Yield a sentence for the vault, or else for each folder in it, where the settings name one that is not there."""
    if not settings.vault.path:
        return
    root = expanded(settings.vault.path)
    if not os.path.isdir(root):
        yield f"vault.path: there is no folder {settings.vault.path}; agents cannot use their vault tools."
        return
    named = {"vault": settings.vault} | {f"agents[{n}].vault": agent.vault for n, agent in enumerate(settings.agents)}
    for key, section in named.items():
        for field, folders in (("include", section.include), ("exclude", section.exclude)):
            for folder in folders:
                if not _is_there(root, folder):
                    yield f"{key}.{field}: there is no folder {folder!r} in the vault."


def _is_there(root: Path, folder: str) -> bool:
    """Tell whether there is such a folder, in whatever case it is written."""
    here = [root]
    for name in folder.split("/"):
        here = [found for parent in here for found in _folders_in(parent) if _folded(found.name) == _folded(name)]
    return bool(here)


def _folders_in(parent: Path) -> list[Path]:
    try:
        return [path for path in parent.iterdir() if path.is_dir()]
    except OSError:
        return []


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
