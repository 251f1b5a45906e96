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
        """Tell whether a note or folder may be seen, with all that is in it but for excluded folders."""
        if self._excludes(parts) or (self.outer and not self.outer.allows(parts)):
            return False
        return not self.include or any(_begins(_as_included(parts), folder) for folder in self.include)

    def leads_on(self, parts: Parts) -> bool:
        """Tell whether a folder may be walked through, because it or something in it may be seen."""
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
