"""What is to be started at log-in: this very elbowroom, with the files that it uses now."""

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


class Starter(Protocol):
    """One system's way; `text` is what it is told, `where` names the place of it, `advice` is said once it is on."""

    text: str

    @property
    def where(self) -> str:
        """Return where the text is kept, for a person."""

    @property
    def advice(self) -> str:
        """Return what a person should know once it is on."""

    def check(self) -> None:
        """Raise ElbowroomError where the system cannot do it here."""

    def installed(self) -> str | None:
        """Return the text that is in force, None where there is none."""

    def is_ours(self, installed: str) -> bool:
        """Tell whether an installed text is as it was written here."""

    def is_same(self, installed: str) -> bool:
        """Tell whether an installed text says what would be written now."""

    def install(self) -> None:
        """Put the text in the place of whatever is there, and start the program now. Twice is the same as once."""

    def remove(self) -> None:
        """End the program and take away what `install` has made."""

    def is_running(self) -> bool:
        """Tell whether the program runs now."""


class TextFile:
    """A text in a file of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str | None:
        """Return what it holds, None where it is not there. Raises ElbowroomError."""
        try:
            return self.path.read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ElbowroomError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def is_ours(self, installed: str) -> bool:
        """Tell whether nobody has changed it since it was written."""
        return is_as_written(installed)

    def write(self, text: str) -> None:
        """Write it whole or not at all. Raises ElbowroomError."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            put_in_place(self.path, text.encode(), lambda fresh: fresh.chmod(0o644))
        except OSError as error:
            raise ElbowroomError(f"{self.path} cannot be written: {error.strerror or error}.") from error

    def delete(self) -> None:
        """Delete it; that it is gone already is as good. Raises ElbowroomError."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ElbowroomError(f"{self.path} cannot be deleted: {error.strerror or error}.") from error


WORDS: Final = "Written by `elbowroom autostart on`, and removed by `off` unless it is changed;"
SUM: Final = re.compile(rf"^.*{re.escape(WORDS)} sum (?P<sum>[0-9a-f]{{32}}).*\n", re.MULTILINE)


def marked(head: str, body: str, comment: str = "# {}") -> str:
    """Return the text with a marker line between its head and its body; `comment` is the form of one in the format."""
    return f"{head}{comment.format(f'{WORDS} sum {_sum_of(head + body)}')}\n{body}"


def is_as_written(text: str) -> bool:
    """Tell whether a text has the marker line and is otherwise, to the letter, what was marked."""
    found = SUM.search(text)
    return found is not None and _sum_of(text[: found.start()] + text[found.end() :]) == found["sum"]


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


PATIENCE_SECONDS = 120.0
"""A service that is stopped may need half a minute, and one that is started as long as its imports."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a program said, and whether it did what it was asked to."""

    is_done: bool
    out: str
    errors: str

    @property
    def reason(self) -> str:
        """Return why it did not, in its own words."""
        words = self.errors.strip() or self.out.strip()
        return words.splitlines()[-1].strip() if words else "it gives no reason"


Run = Callable[[Sequence[str]], Said]


def run(command: Sequence[str]) -> Said:
    """Run a program to its end. Raises ElbowroomError where it is not there, or does not end."""
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


def insist(run: Run, command: Sequence[str], otherwise: str) -> None:
    """Run a program that has to do what it is asked to. Raises ElbowroomError with `otherwise` and its own words."""
    if not (said := run(command)).is_done:
        raise ElbowroomError(f"{otherwise} (`{' '.join(command)}`: {said.reason})")
