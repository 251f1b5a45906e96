"""Which folders of the vault an agent may see."""

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.vault.names import Parts, fold_parts

IGNORES_CASE: Final = sys.platform in ("darwin", "win32")


@dataclass(frozen=True, slots=True)
class Scope:
    """Folders by their names from the root: all below `include`, or everything where it is empty, but not `exclude`.

    What is excluded is so in whatever case it is written; what is included only where the system ignores case too.
    """

    include: tuple[Parts, ...] = ()
    exclude: tuple[Parts, ...] = ()

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> "Scope":
        """Return the scope of folders written as in the settings: `Work/Clients`."""
        return cls(
            tuple(_as_included(tuple(folder.split("/"))) for folder in include),
            tuple(fold_parts(tuple(folder.split("/"))) for folder in exclude),
        )

    def allows(self, parts: Parts) -> bool:
        """Tell whether a note or folder may be seen, with all that is in it but for excluded folders."""
        if self.exclude and any(_begins(fold_parts(parts), folder) for folder in self.exclude):
            return False
        return not self.include or any(_begins(_as_included(parts), folder) for folder in self.include)

    def leads_on(self, parts: Parts) -> bool:
        """Tell whether a folder may be walked through, because it or something in it may be seen."""
        if self.exclude and any(_begins(fold_parts(parts), folder) for folder in self.exclude):
            return False
        names = _as_included(parts)
        return not self.include or any(_begins(names, folder) or _begins(folder, names) for folder in self.include)


def _begins(parts: Parts, beginning: Parts) -> bool:
    return parts[: len(beginning)] == beginning


def _as_included(parts: Parts) -> Parts:
    return fold_parts(parts) if IGNORES_CASE else tuple(unicodedata.normalize("NFC", name) for name in parts)
