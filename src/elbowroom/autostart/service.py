"""What is to be started at log-in: this very elbowroom, with the files that it uses now."""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elbowroom.errors import ElbowroomError
from elbowroom.settings.access import secrets_of
from elbowroom.settings.environment import variables_of
from elbowroom.settings.keys import key_text
from elbowroom.settings.layers import LoadedSettings

CARRIED: Final = ("PATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables that are written down: where programs of MCP servers are found, and where files are looked for."""
CACHES: Final = frozenset({"archive-v0", "builds-v0", ".cache"})
"""Folders in the path of a Python that `uvx` and `pipx run` have made for one use."""
NO_TEXT: Final = ("Cc", "Cs")
"""Characters that not every format can hold: line breaks and other controls, and bytes that are no text."""


@dataclass(frozen=True, slots=True)
class Service:
    """A command, its program with the full path, and the environment that it needs besides the usual one.

    Raises ElbowroomError where a part holds characters that cannot be written down.
    """

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for part in (*self.command, *(value for _, value in self.environment)):
            if any(unicodedata.category(character) in NO_TEXT for character in part):
                raise ElbowroomError(
                    f"{part!r} holds a line break or another character that cannot be written down for the system. "
                    "Rename the file or folder, and try again."
                )


def service_of(
    python: str, environ: Mapping[str, str], *, config: Path | None = None, data: Path | None = None
) -> Service:
    """Return the service that serves with this Python; `config` and `data` are the files that a person has named."""
    # -P: a folder of the same name in the home folder must not be taken for the program
    command = [python, "-P", "-m", "elbowroom", "serve"]
    if config is not None:
        command += ["--config", str(config.absolute())]
    if data is not None:
        command += ["--data-dir", str(data)]
    return Service(tuple(command), tuple((name, environ[name]) for name in CARRIED if environ.get(name)))


def doubts(loaded: LoadedSettings, environ: Mapping[str, str], python: str) -> Iterator[str]:
    """Yield a sentence for each thing that works in this terminal and may not after the next log-in."""
    for key, secret in secrets_of(loaded.settings).items():
        name = str(secret).removeprefix("env:")
        if str(secret).startswith("env:") and environ.get(name):
            yield (
                f"{key_text(key)} is read from the variable {name}, which is not written down here: it would lie "
                "open. Put the secret into a file that only you can read, and write "
                f'{key_text(key)} = "file:FULL PATH OF THE FILE" in {loaded.path}.'
            )
    for _, name in variables_of(environ).values():
        yield f"The variable {name} counts in this terminal only; write it into {loaded.path} to have it kept."
    if not CACHES.isdisjoint(Path(python).parts):
        yield (
            f"{python} lies in a cache, which may be emptied. Install elbowroom first, as with `uv tool install` or "
            "`pipx install`, and run this again."
        )
