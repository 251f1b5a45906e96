"""Downloads of models: how far each is, by the clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from elbowroom.demo.models import SimulatedModel


@dataclass(frozen=True, slots=True)
class Download:
    """One download that takes `seconds`; `began` is by `clock`, `started_at` by the calendar."""

    id: str
    model: SimulatedModel
    seconds: float
    clock: Callable[[], float]
    began: float
    started_at: datetime

    @property
    def is_complete(self) -> bool:
        """Tell whether all of it is there."""
        return self._elapsed >= self.seconds

    def as_json(self) -> dict[str, Any]:
        """Return it as LM Studio tells of it."""
        size = self.model.size_bytes
        told: dict[str, Any] = {
            "job_id": self.id,
            "status": "completed" if self.is_complete else "downloading",
            "total_size_bytes": size,
            "downloaded_bytes": size if self.is_complete else int(size * self._elapsed / self.seconds),
            "started_at": self.started_at.isoformat(),
        }
        return told if self.is_complete else {**told, "bytes_per_second": int(size / self.seconds)}

    @property
    def _elapsed(self) -> float:
        return self.clock() - self.began


@dataclass(slots=True)
class Downloads:
    """The downloads so far, by their ids; each takes `seconds`."""

    clock: Callable[[], float]
    seconds: float = 0.0
    jobs: dict[str, Download] = field(default_factory=dict)

    def begin(self, model: SimulatedModel) -> Download:
        """Begin another one."""
        name = f"job_{len(self.jobs) + 1:010x}"
        job = Download(name, model, self.seconds, self.clock, self.clock(), datetime.now(UTC))
        self.jobs[name] = job
        return job
