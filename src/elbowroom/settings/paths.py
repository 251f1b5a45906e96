"""Where elbowroom keeps its files on this platform."""

from collections.abc import Mapping
from pathlib import Path

import platformdirs

from elbowroom.errors import SettingsError

APPLICATION = "elbowroom"


def settings_path(environ: Mapping[str, str]) -> Path:
    """Return the settings file: `ELBOWROOM_CONFIG`, else `settings.toml` in the platform's config folder."""
    if named := environ.get("ELBOWROOM_CONFIG"):
        return expanded(named)
    return platformdirs.user_config_path(APPLICATION, appauthor=False) / "settings.toml"


def data_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of the store: `ELBOWROOM_DATA_DIR`, else the platform's folder for data of programs.

    Raises SettingsError where the variable holds a relative path: it would mean another folder with every start.
    """
    if not (named := environ.get("ELBOWROOM_DATA_DIR")):
        return platformdirs.user_data_path(APPLICATION, appauthor=False)
    folder = expanded(named)
    if not folder.is_absolute():
        raise SettingsError(
            f"environment variable ELBOWROOM_DATA_DIR = {named!r} is not accepted; it takes the full path of a folder."
        )
    return folder


def expanded(written: str) -> Path:
    """Return the path that a person wrote, with a leading `~` or `~user` in full.

    Raises SettingsError where there is no such user.
    """
    try:
        return Path(written).expanduser()
    except RuntimeError:
        raise SettingsError(f"The path {written} begins with a home folder that is not known.") from None
