"""Where elbowroom keeps its files on this platform."""

from collections.abc import Mapping
from pathlib import Path

import platformdirs

APPLICATION = "elbowroom"


def settings_path(environ: Mapping[str, str]) -> Path:
    """Return the settings file: `ELBOWROOM_CONFIG`, else `settings.toml` in the platform's config folder."""
    if named := environ.get("ELBOWROOM_CONFIG"):
        return Path(named).expanduser()
    return platformdirs.user_config_path(APPLICATION, appauthor=False) / "settings.toml"
