"""What each system's way to start a program at log-in can do, and the file that two of them keep it in."""

from pathlib import Path
from typing import Protocol

from elbowroom.autostart.marker import is_as_written
from elbowroom.errors import ElbowroomError
from elbowroom.settings.durable_files import put_in_place


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
