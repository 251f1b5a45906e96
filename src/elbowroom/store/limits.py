"""How much is kept, and for how long."""

from dataclasses import dataclass
from typing import Final

from elbowroom.settings.model import StoreSettings

SECONDS_A_DAY: Final = 86_400.0
TOUCH_SECONDS: Final = 3600.0
"""When something was last used is written down again after this time, not with every request."""
BYTES_A_GIGABYTE: Final = 10**9


@dataclass(frozen=True, slots=True)
class Limits:
    """What nobody came back to for `retention_days` goes, 0 for never; `max_gb` is for all that is kept."""

    retention_days: int = 0
    max_gb: float = float("inf")

    @classmethod
    def of(cls, settings: StoreSettings) -> "Limits":
        """Return the limits that the settings name."""
        return cls(settings.retention_days, settings.max_gb)

    @property
    def most_bytes(self) -> float:
        """Return how many bytes may be kept."""
        return self.max_gb * BYTES_A_GIGABYTE

    def oldest(self, now: float) -> float:
        """Return since when something has to have been used to stay."""
        return now - self.retention_days * SECONDS_A_DAY if self.retention_days else float("-inf")
