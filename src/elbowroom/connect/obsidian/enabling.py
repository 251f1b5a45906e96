"""Adds a plugin to the list of those that Obsidian begins with, `community-plugins.json`, and takes it out."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from elbowroom.connect.json_text import with_item, without_item
from elbowroom.connect.obsidian.plugin import ID, Change
from elbowroom.elsewhere import read_plain
from elbowroom.errors import Conflict
from elbowroom.settings.files import give_to_owner_of, not_saved, put_in_place, take_over

FILE: Final = "community-plugins.json"
ATTEMPTS: Final = 5
READABLE: Final = 0o644
Edit = Callable[[str], str]


class _Changed(OSError):
    """Obsidian has written the file meanwhile."""


def is_enabled(config: Path) -> bool:
    """Tell whether Obsidian begins with the plugin in a vault. Raises Conflict and SettingsNotSaved."""
    return ID in _listed(config / FILE, _read(config / FILE))


def enabling(config: Path) -> list[Change]:
    """Return what adds the plugin to the list. Raises Conflict where the list is not understood."""
    if is_enabled(config):
        return []
    sign = "~" if os.path.exists(config / FILE) else "+"
    line = f'{sign} {Path(config.name, FILE)}: + "{ID}"'
    return [Change([line], partial(_change, config / FILE, partial(with_item, item=ID)))]


def disabling(config: Path) -> list[Change]:
    """Return what takes the plugin out of the list. Raises Conflict where the list is not understood."""
    if not is_enabled(config):
        return []
    line = f'~ {Path(config.name, FILE)}: - "{ID}"'
    return [Change([line], partial(_change, config / FILE, partial(without_item, item=ID)))]


def _change(file: Path, edit: Edit) -> None:
    """Replace the file, with its form and whatever Obsidian writes into it meanwhile."""
    for _ in range(ATTEMPTS):
        before = _read(file)
        _listed(file, before)
        new = edit((before or b"[]").decode("utf-8-sig")).encode()
        try:
            _replace(file, before, new)
        except _Changed:
            continue
        except OSError as error:
            raise not_saved(file, error) from error
        return
    raise Conflict(f"{file} is being changed by another program. Try again.", code="plugin_list_changing")


def _replace(file: Path, before: bytes | None, new: bytes) -> None:
    """Put a content in place of another one. Raises OSError, _Changed where the file has another one by now."""
    target = Path(os.path.realpath(file))

    def make_ready(fresh: Path) -> None:
        fresh.chmod(READABLE)
        give_to_owner_of(target.parent, fresh)
        take_over(fresh, like=target)
        if _read(file) != before:
            raise _Changed

    put_in_place(target, new, make_ready)


def _read(file: Path) -> bytes | None:
    try:
        return read_plain(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise not_saved(file, error) from error


def _listed(file: Path, content: bytes | None) -> list[Any]:
    """Return the list that a file holds. Raises Conflict."""
    if content is None:
        return []
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise Conflict(
            f"{file} is left as it is, since it is no list in JSON. Switch a plugin on or off in Obsidian, which "
            "writes the file anew, and run this again.",
            code="plugin_list_broken",
        )
    return value
