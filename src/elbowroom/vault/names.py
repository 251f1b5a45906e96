"""Names and paths in the vault: which are closed, which cannot be given, which folders an agent may see; its errors."""

import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.errors import ElbowroomError

Parts = tuple[str, ...]
"""A path from the vault's root, name by name; empty for the root."""
LONGEST_PATH: Final = 1000
LONGEST_NAME: Final = 200
NOTE_ENDING: Final = ".md"
EMBEDDED: Final = frozenset(
    {"avif", "bmp", "gif", "jpeg", "jpg", "png", "svg", "webp"}
    | {"flac", "m4a", "mp3", "ogg", "wav", "webm", "3gp", "mkv", "mov", "mp4", "ogv"}
    | {"pdf", "canvas", "base"}
)
"""The endings of files that notes show inside of them."""
DOTS: Final = ".\u2024\ufe52\uff0e"
"""The full stop and those that some file systems take for one."""
NOT_PORTABLE: Final = frozenset('*"<>:|?/\\#^[]')
"""What Windows does not allow in names, and what links in notes cannot hold."""
RESERVED: Final = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?", re.IGNORECASE)
DRIVE: Final = re.compile(r"[A-Za-z]:")
REORDERING: Final = frozenset("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
HOW_PATHS_LOOK: Final = 'Paths are written as seen from the vault, with "/" between names, such as "Projects/Plan.md".'
IGNORES_CASE: Final = sys.platform in ("darwin", "win32")


def split_path(written: str) -> Parts:
    """Return the names in a path that a model wrote, without looking anything up.

    Raises VaultError, or Closed for a path that leads out of the vault or to hidden files.
    """
    if len(written) > LONGEST_PATH:
        raise VaultError(f"The path is too long ({len(written)} characters). {HOW_PATHS_LOOK}")
    if not is_printable(written):
        raise VaultError(f"The path {written!r} holds characters that no path has. {HOW_PATHS_LOOK}")
    stripped = written.strip()
    if stripped in ("", ".", "/", "./"):
        return ()
    if stripped.startswith(("/", "\\", "~/")) or stripped == "~" or DRIVE.match(stripped):
        raise Closed(f"{written!r} is not a path inside the vault. {HOW_PATHS_LOOK}")
    if "\\" in stripped:
        raise VaultError(f'{written!r} cannot be a path: "\\" is not allowed. {HOW_PATHS_LOOK}')
    parts = tuple(stripped.removeprefix("./").removesuffix("/").split("/"))
    for name in parts:
        _check_name(name, written)
    return parts


def _check_name(name: str, written: str) -> None:
    alike = unicodedata.normalize("NFKC", name)
    if not name.strip() or not alike.strip(". ") or "/" in alike or "\\" in alike:
        raise Closed(f"{written!r} is not a path inside the vault. {HOW_PATHS_LOOK}")
    if is_hidden(name):
        raise Closed(f"{written!r} is closed: names that begin with a dot are not for notes.")


def is_printable(name: str) -> bool:
    """Tell whether a name has no control characters, none that reorder text, and no bytes that are no text."""
    if name.isprintable():
        return True
    # Python calls blanks other than the usual one, and what joins the parts of an emoji, not printable.
    return REORDERING.isdisjoint(name) and not any(
        ord(c) < 32 or 0x7F <= ord(c) <= 0x9F or 0xD800 <= ord(c) <= 0xDFFF for c in name
    )


def is_hidden(name: str) -> bool:
    """Tell whether a name is closed to agents: it begins with a dot, perhaps after invisible characters."""
    if name.isascii():
        return name.startswith(".")
    seen = "".join(c for c in name if unicodedata.category(c) != "Cf")
    return seen.startswith(tuple(DOTS))


def is_open(name: str) -> bool:
    """Tell whether agents may see a name on disk."""
    return not is_hidden(name) and is_printable(name)


def fold(name: str) -> str:
    """Return a name in the form for comparing, without regard to case and to the form of accents."""
    return name.casefold() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def fold_parts(parts: Parts) -> Parts:
    """Return a path in the form for comparing."""
    return tuple(map(fold, parts))


def check_new(parts: Parts) -> None:
    """Raise VaultError for names that some system or link could not hold."""
    for name in parts:
        if bad := sorted(NOT_PORTABLE.intersection(name)):
            raise VaultError(f"{name!r} cannot be a name: {' '.join(bad)} is not allowed in new names.")
        if name != name.strip() or name.endswith(".") or RESERVED.fullmatch(name):
            raise VaultError(f"{name!r} cannot be a name: it does not work on every system. Choose another.")
        if len(name.encode()) > LONGEST_NAME:
            raise VaultError(f"{name[:40]!r}... is too long for a name. Choose a shorter one.")


def note_parts(written: str) -> Parts:
    """Return the names of a note's path, with `.md` added where it is missing; raises VaultError."""
    parts = split_path(written)
    if not parts:
        raise VaultError(f"The path of a note is missing. {HOW_PATHS_LOOK}")
    return parts if is_note(parts[-1]) else (*parts[:-1], parts[-1] + NOTE_ENDING)


def is_note(name: str) -> bool:
    """Tell whether a file of this name is a note."""
    return name[-3:].lower() == NOTE_ENDING


def ending(name: str) -> str:
    """Return the ending of a name, after its last dot, in small letters; empty if there is none."""
    return name.rpartition(".")[2].lower() if "." in name else ""


def is_embedded(name: str) -> bool:
    """Tell whether notes can show a file of this name: a picture, a recording, a document."""
    return ending(name) in EMBEDDED


def path_text(parts: Parts) -> str:
    """Return a path as text."""
    return "/".join(parts)


def bare_name(name: str) -> str:
    """Return a note's name without its ending, as links write it."""
    return name[:-3] if is_note(name) else name


@dataclass(frozen=True, slots=True)
class Scope:
    """The folders that an agent may see: all below `include`, or all if that is empty, except those in `exclude`.

    `exclude` ignores case; `include` does so only where the file system does.
    """

    include: tuple[Parts, ...] = ()
    exclude: tuple[Parts, ...] = ()
    outer: "Scope | None" = None
    """The scope that this one narrows: what is not in both is closed."""

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str], outer: "Scope | None" = None) -> "Scope":
        """Return the scope of folders written as in the settings: `Work/Clients`."""
        return cls(
            tuple(_as_included(tuple(folder.split("/"))) for folder in include),
            tuple(fold_parts(tuple(folder.split("/"))) for folder in exclude),
            outer,
        )

    @property
    def is_all(self) -> bool:
        """Tell whether everything may be seen."""
        return not (self.include or self.exclude) and (self.outer is None or self.outer.is_all)

    def allows(self, parts: Parts) -> bool:
        """Tell whether a note or folder may be seen, with all its content except excluded folders."""
        if self._excludes(parts) or (self.outer and not self.outer.allows(parts)):
            return False
        return not self.include or any(_begins(_as_included(parts), folder) for folder in self.include)

    def leads_on(self, parts: Parts) -> bool:
        """Tell whether a folder may be entered, because it or a folder in it may be seen."""
        if self._excludes(parts) or (self.outer and not self.outer.leads_on(parts)):
            return False
        names = _as_included(parts)
        return not self.include or any(_begins(names, folder) or _begins(folder, names) for folder in self.include)

    def _excludes(self, parts: Parts) -> bool:
        return bool(self.exclude) and any(_begins(fold_parts(parts), folder) for folder in self.exclude)


def _begins(parts: Parts, beginning: Parts) -> bool:
    return parts[: len(beginning)] == beginning


def _as_included(parts: Parts) -> Parts:
    return fold_parts(parts) if IGNORES_CASE else tuple(unicodedata.normalize("NFC", name) for name in parts)


class VaultError(ElbowroomError):
    """A request for the vault cannot be fulfilled; the message tells the model why."""

    code = "vault_error"


class NoSuchChange(VaultError):
    """The journal does not have a change any more."""

    status = 404
    code = "no_such_change"


class NoSuchNote(VaultError):
    """The note does not exist, or is closed to the agent."""

    code = "no_such_note"


class NoSuchFolder(VaultError):
    """The folder does not exist, or is closed to the agent."""

    code = "no_such_folder"


class Closed(VaultError):
    """The path is closed to agents."""

    code = "vault_closed"


class Moved(VaultError):
    """The note has changed since it was read."""

    status = 409
    code = "note_changed"
