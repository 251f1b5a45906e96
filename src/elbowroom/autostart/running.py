"""Runs the system's own programs and returns what they say."""

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elbowroom.errors import ElbowroomError

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
