"""The plugin for Obsidian: where its files are, and the packages that its checks and tests need, installed once."""

import hashlib
import shutil
from pathlib import Path
from typing import Final

import platformdirs
from client_libraries import install_npm

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "obsidian"
PLUGIN: Final = ROOT / "src" / "elbowroom" / "connect" / "plugin"


def packages() -> Path:
    """Install the packages of the plugin's lock file where that is not done yet; return their `node_modules`.

    Raises LibraryUnavailableError.
    """
    lock = (SOURCES / "package-lock.json").read_bytes()
    cache = platformdirs.user_cache_path("elbowroom-tests", appauthor=False)
    home = cache / f"obsidian-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        install_npm(SOURCES, home)
        (home / "ready").touch()
    return home / "node_modules"
