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


def expanded(written: str) -> Path:
    """Return the path that a person wrote, with a leading `~` or `~user` in full.

    Raises SettingsError where there is no such user.
    """
    try:
        return Path(written).expanduser()
    except RuntimeError:
        raise SettingsError(f"The path {written} begins with a home folder that is not known.") from None
