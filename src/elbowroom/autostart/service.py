"""What all systems share: the command to start at log-in, the marker in its text, and running the system's programs."""

import hashlib
import os
import re
import subprocess
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from elbowroom.errors import ElbowroomError
from elbowroom.settings.doubts import secrets_of
from elbowroom.settings.files import put_in_place
from elbowroom.settings.keys import key_text, variables_of
from elbowroom.settings.load import LoadedSettings

CARRIED: Final = ("PATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables that are copied into the text: they locate the programs of MCP servers, and files."""
CACHES: Final = frozenset({"archive-v0", "builds-v0", ".cache"})
"""Folders in the path of a Python that `uvx` and `pipx run` create for one use."""
NO_TEXT: Final = ("Cc", "Cs")
"""Categories of characters that not every format can hold: controls such as line breaks, and surrogates."""
WORDS: Final = "Written by `elbowroom autostart on`, and removed by `off` unless it is changed;"
SUM: Final = re.compile(rf"^.*{re.escape(WORDS)} sum (?P<sum>[0-9a-f]{{32}}).*\n", re.MULTILINE)
PATIENCE_SECONDS = 120.0
"""Stopping a service may take half a minute, and starting one as long as its imports."""


@dataclass(frozen=True, slots=True)
class Service:
    """The command, with the full path of its program, and the variables that it needs.

    Raises ElbowroomError for characters that the formats cannot hold.
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
    """Return the service that runs the server with this Python; `config` and `data` are paths that a person named."""
    # -P: a folder of the same name in the home folder must not be taken for the program
    command = [python, "-P", "-m", "elbowroom", "serve"]
    if config is not None:
        command += ["--config", str(config.absolute())]
    if data is not None:
        command += ["--data-dir", str(data)]
    return Service(tuple(command), tuple((name, environ[name]) for name in CARRIED if environ.get(name)))


def doubts(loaded: LoadedSettings, environ: Mapping[str, str], python: str) -> Iterator[str]:
    """Yield a sentence for each thing that works in this terminal and may fail after the next log-in."""
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


class Starter(Protocol):
    """Starts the program at log-in on one system; `text` is the file or task that tells the system so."""

    text: str

    @property
    def where(self) -> str:
        """Return where the text is, for a person."""

    @property
    def advice(self) -> str:
        """Return what a person should know after `install`."""

    def check(self) -> None:
        """Raise ElbowroomError where the system cannot start programs at log-in."""

    def installed(self) -> str | None:
        """Return the installed text, None if there is none."""

    def is_ours(self, installed: str) -> bool:
        """Tell whether elbowroom wrote the installed text, and nobody changed it since."""

    def is_same(self, installed: str) -> bool:
        """Tell whether the installed text equals the one that `install` would write."""

    def install(self) -> None:
        """Write the text, replacing an installed one, and start the program; idempotent."""

    def remove(self) -> None:
        """Stop the program and remove the text."""

    def is_running(self) -> bool:
        """Tell whether the program runs now."""


class TextFile:
    """The file with the `text`, of systems that use one."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    @property
    def where(self) -> str:
        """Return its path."""
        return str(self.path)

    def installed(self) -> str | None:
        """Return its content, None if it does not exist. Raises ElbowroomError."""
        try:
            return self.path.read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ElbowroomError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def is_ours(self, installed: str) -> bool:
        """Tell whether elbowroom wrote the text, and nobody changed it since."""
        return is_as_written(installed)

    def is_same(self, installed: str) -> bool:
        """Tell whether the installed text equals the one to write."""
        return installed == self.text

    def write(self) -> None:
        """Write the file atomically. Raises ElbowroomError."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            put_in_place(self.path, self.text.encode(), lambda fresh: fresh.chmod(0o644))
        except OSError as error:
            raise ElbowroomError(f"{self.path} cannot be written: {error.strerror or error}.") from error

    def delete(self) -> None:
        """Delete the file if it exists. Raises ElbowroomError."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ElbowroomError(f"{self.path} cannot be deleted: {error.strerror or error}.") from error


def marked(head: str, body: str, comment: str = "# {}") -> str:
    """Return the text with a marker line between head and body; `comment` is the format's form of a comment."""
    return f"{head}{comment.format(f'{WORDS} sum {_sum_of(head + body)}')}\n{body}"


def is_as_written(text: str) -> bool:
    """Tell whether a text has a marker line whose checksum fits the rest."""
    found = SUM.search(text)
    return found is not None and _sum_of(text[: found.start()] + text[found.end() :]) == found["sum"]


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Said:
    """The output of a program, and whether it succeeded."""

    is_done: bool
    out: str
    errors: str

    @property
    def reason(self) -> str:
        """Return the last line of its output, which tells why it failed."""
        words = self.errors.strip() or self.out.strip()
        return words.splitlines()[-1].strip() if words else "it gives no reason"


Run = Callable[[Sequence[str]], Said]


def run(command: Sequence[str]) -> Said:
    """Run a program to its end. Raises ElbowroomError if it is missing or does not end."""
    try:
        done = subprocess.run(  # noqa: S603  # our own commands, without a shell
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise ElbowroomError(f"{command[0]} cannot be run: {error.strerror or error}.") from error
    except subprocess.TimeoutExpired:
        raise ElbowroomError(f"`{' '.join(command)}` did not end within {PATIENCE_SECONDS:.0f} seconds.") from None
    return Said(done.returncode == 0, done.stdout, done.stderr)


def run_or_fail(run: Run, command: Sequence[str], otherwise: str) -> None:
    """Run a program that has to succeed. Raises ElbowroomError with `otherwise` and the program's own words."""
    if not (said := run(command)).is_done:
        raise ElbowroomError(f"{otherwise} (`{' '.join(command)}`: {said.reason})")
