"""What holds in a server when its metrics are read: who is answered, who waits, whether the store works."""

import collections
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from prometheus_client.metrics_core import GaugeMetricFamily

from elbowroom.agents.running_turns import Phase
from elbowroom.agents.shared import Shared


@dataclass(frozen=True, slots=True)
class StateNow:
    """Reads it from what the requests share; `started` is in Unix seconds."""

    shared: Shared
    started: float

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        phases = collections.Counter(self.shared.running.phases())
        yield _gauge(
            "running_answers",
            "Turns that are being answered.",
            "phase",
            {name: phases[name] for name in get_args(Phase)},
        )
        waiting = {"/".join(key): count for key, count in self.shared.admission.waiting_for_all().items()}
        yield _gauge("waiting_requests", "Requests that wait for room in a model's window.", "model", waiting)
        yield _single("queued_messages", "Messages that wait in the queues of conversations.", self.shared.queue.length)
        yield _single("store_failing", "1 while the store does not work.", float(self.shared.store.is_failing))
        yield _single("start_time_seconds", "When the server began, in Unix seconds.", self.started)


def _gauge(name: str, told: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"elbowroom_{name}", told, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _single(name: str, told: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"elbowroom_{name}", told, value=value)
