"""Metrics in Prometheus' format: numbers only, with labels that have few values; and the route to read them."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from elbowroom import __version__
from elbowroom.agents.running import Phase
from elbowroom.agents.turn import Shared
from elbowroom.caches import cache_sizes
from elbowroom.context.conversation import ContextFill, StepUsage
from elbowroom.context.observations import Observations
from elbowroom.providers.machines import Machine
from elbowroom.server.guard import for_roles
from elbowroom.server.state import PROVIDERS, SHARED, STARTED

SHARES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
RATIOS: Final = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0, 1.005, 1.01, 1.02, 1.05, 1.1, 1.25, 2.0)
ANSWERS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
COMMITS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
KINDS: Final = ("input", "output", "cache_read", "cache_creation")
"""The kinds of tokens in a StepUsage."""
METRICS: Final = "/metrics"
TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class StateNow(Collector):
    """Collects gauges from the state that all requests share; `started` is in Unix seconds.

    `machines` are those of providers that have several.
    """

    shared: Shared
    started: float
    machines: Sequence[Machine] = ()

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
        yield from self._of_machines()
        yield _single("queued_messages", "Messages that wait in the queues of conversations.", self.shared.queue.length)
        store = self.shared.store
        index = store.conversations.index
        yield _single("index_conversations", "Conversations that are known from memory.", index.conversations)
        yield _single("index_keys", "Keys of messages by which they are found.", index.keys)
        yield _single("index_bytes", "About how much memory that takes.", index.bytes)
        found_by = {"memory": index.hits, "store": index.misses}
        yield _gauge("looked_up_conversations", "Requests whose conversation was looked up, by where.", "in", found_by)
        yield _single("store_failing", "1 while the store does not work.", float(store.is_failing))
        yield _gauge("cache_entries", "Entries of each cache.", "cache", cache_sizes())
        lag = "Age of the oldest word that is not in the database yet."
        yield _single("store_lag_seconds", lag, store.lag)
        yield _single("start_time_seconds", "When the server began, in Unix seconds.", self.started)

    def _of_machines(self) -> Iterator[GaugeMetricFamily]:
        up = {machine.id: float(machine.trouble() is None) for machine in self.machines}
        yield _gauge("machine_up", "1 while the machine answers.", "machine", up)
        held = {
            f"{machine.id}/{info.id}": self.shared.admission.load((machine.id, info.id)).held
            for machine in self.machines
            for info in machine.listed
            if info.loaded_context
        }
        yield _gauge("machine_held_tokens", "Tokens of the window that requests hold now.", "model", held)


def _gauge(name: str, told: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"elbowroom_{name}", told, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _single(name: str, told: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"elbowroom_{name}", told, value=value)


class Metrics(Observations):
    """All metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._about_answers()
        self._about_windows()
        self._about_compactions()
        self._about_the_store()
        build = self._gauge("build_info", "Which version runs; always 1.", "version")
        build.labels(__version__).set(1)

    def text(self, now: StateNow) -> bytes:
        """Return all metrics as text, with the gauges of this moment."""
        return generate_latest(_Both(self.registry, now))

    def requested(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an HTTP request; `route` is the pattern of its path, empty where no route fits."""
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def step_used(self, model: str, used: StepUsage, fill: ContextFill | None) -> None:
        """Count the tokens of a step, and observe how full the window was."""
        for kind in KINDS:
            self._tokens.labels(model, kind).inc(getattr(used, kind))
        if fill is not None and fill.window:
            self._fill.labels(model).observe(fill.tokens / fill.window)
            self._window.labels(model).set(fill.window)

    def pruner_used(self, model: str, used: StepUsage) -> None:
        """Count the tokens of a call of the pruning agent."""
        for kind in KINDS:
            self._pruning_tokens.labels(model, kind).inc(getattr(used, kind))

    def prompt_counted(self, model: str, ours: int, reported: int) -> None:
        """Observe our count of a prompt as a share of the upstream's."""
        if reported:
            self._ratio.labels(model).observe(ours / reported)

    def cache_lost(self, model: str, reason: str, tokens: int, seconds: float | None) -> None:
        """Count what was read again."""
        self._lost.labels(model, reason).inc(tokens)
        self._lost_seconds.labels(model, reason).inc(seconds or 0)

    def compacted(self, rung: str, seconds: float, freed: int, verdict: str) -> None:
        """Count a compaction, with its seconds, the tokens that it freed, and the verdict on it."""
        self._verdicts.labels(verdict).inc()
        self._compactions.labels(rung).inc()
        self._compaction_seconds.labels(rung).observe(seconds)
        self._freed.inc(max(0, freed))

    def recalled(self, passages: int, tokens: int) -> None:
        """Count what came back unasked."""
        self._recalled.inc(passages)
        self._recalled_tokens.inc(tokens)

    def room_chosen(self, way: str) -> None:
        """Count a choice between ways to make room."""
        self._ways.labels(way).inc()

    def not_compacted(self) -> None:
        """Count a compaction that could not shorten its conversation."""
        self._not_compacted.inc()

    def restarted(self, times: int) -> None:
        """Count model calls that were sent again."""
        self._restarts.inc(times)

    def overflowed(self, model: str) -> None:
        """Count an alarm."""
        self._overflows.labels(model).inc()

    def refused_again(self, model: str) -> None:
        """Count a refusal that was remembered."""
        self._refused_again.labels(model).inc()

    def truncated(self, model: str) -> None:
        """Count an alarm."""
        self._truncations.labels(model).inc()

    def tool_called(self, *, has_failed: bool) -> None:
        """Count a call."""
        self._tools.labels("error" if has_failed else "ok").inc()

    def upstream_failed(self, provider: str, error: str) -> None:
        """Count an error."""
        self._upstream_errors.labels(provider, error).inc()

    def machine_left(self, machine: str, why: str) -> None:
        """Count a request that went to another machine."""
        self._moves.labels(machine, why).inc()

    def answered(self, agent: str, kind: str, outcome: str, seconds: float, first_token: float | None) -> None:
        """Count an answer with its times."""
        self._answers.labels(agent, kind, outcome).inc()
        self._answer_seconds.labels(kind).observe(seconds)
        if first_token is not None:
            self._first_token.labels(kind).observe(first_token)

    def committed(self, seconds: float) -> None:
        """Observe the seconds of a commit."""
        self._commit_seconds.observe(seconds)

    def store_failed(self) -> None:
        """Count a failure."""
        self._store_failures.inc()

    def _about_answers(self) -> None:
        self._requests = self._counter(
            "http_requests", "HTTP requests that were answered.", "route", "method", "status"
        )
        self._request_seconds = self._histogram(
            "http_request_duration_seconds", "Time from a request's head to the end of its answer.", ANSWERS, "route"
        )
        self._answers = self._counter(
            "answers",
            "Answers that have ended, by who gave them and how: whole, stopped, left by the client, or an HTTP status.",
            "agent",
            "kind",
            "outcome",
        )
        self._answer_seconds = self._histogram(
            "answer_duration_seconds",
            "Time that answering a chat took, from when its conversation was known.",
            ANSWERS,
            "kind",
        )
        self._first_token = self._histogram(
            "time_to_first_token_seconds",
            "Time to the first word or thought of an answer, counted as its duration is.",
            ANSWERS,
            "kind",
        )
        self._tools = self._counter("tool_calls", "Calls of tools that the server runs: ok or error.", "outcome")
        self._upstream_errors = self._counter(
            "upstream_errors", "Model calls that ended with an error, those that were made good included.",
            "provider", "error",
        )  # fmt: skip
        self._moves = self._counter(
            "machine_moves",
            "Requests that left a machine for another one, by why: full, or an error.",
            "machine",
            "why",
        )

    def _about_windows(self) -> None:
        self._fill = self._histogram(
            "window_fill_ratio", "Share of the model's window that a step has filled.", SHARES, "model"
        )
        self._window = self._gauge("window_tokens", "The window by which the model's last step was planned.", "model")
        self._tokens = self._counter("tokens", "Tokens that model calls have used.", "model", "kind")
        self._pruning_tokens = self._counter("pruning_tokens", "Tokens of the pruning agent's calls.", "model", "kind")
        self._ratio = self._histogram(
            "prompt_count_ratio", "Our count of a prompt divided by the upstream's own.", RATIOS, "model"
        )
        self._lost = self._counter(
            "cache_lost_tokens", "Tokens that engines had to read again, by why.", "model", "reason"
        )
        self._lost_seconds = self._counter(
            "cache_lost_seconds", "About how long engines have read them.", "model", "reason"
        )
        self._overflows = self._counter(
            "overflow_alarms", "Prompts that fit by our count and for which the engine had no room.", "model"
        )
        self._refused_again = self._counter(
            "remembered_refusals", "Prompts that cannot fit and were refused at once, since they came again.", "model"
        )
        self._truncations = self._counter("truncation_alarms", "Prompts that the engine has silently cut.", "model")

    def _about_compactions(self) -> None:
        self._compactions = self._counter("compactions", "Compactions, by the rung of the ladder that did it.", "rung")
        self._compaction_seconds = self._histogram(
            "compaction_duration_seconds", "Time that a compaction took.", ANSWERS, "rung"
        )
        self._freed = self._counter("compaction_freed_tokens", "Tokens by which compactions have shortened prompts.")
        self._verdicts = self._counter(
            "compaction_verdicts", "Compactions, by what the code finds that they have kept.", "verdict"
        )
        self._recalled = self._counter("recalled_passages", "Passages that came back unasked with a message.")
        self._recalled_tokens = self._counter("recalled_tokens", "Tokens of what came back unasked with messages.")
        self._ways = self._counter("room_choices", "Choices between ways to make room, by what they cost.", "way")
        self._not_compacted = self._counter("compaction_failures", "Conversations that could not be made shorter.")
        self._restarts = self._counter("restarts", "Model calls that were cut or blocked and sent again.")

    def _about_the_store(self) -> None:
        self._commit_seconds = self._histogram(
            "store_commit_duration_seconds", "Time until the disk had what was to be kept.", COMMITS
        )
        self._store_failures = self._counter("store_failures", "Times that the store could not be opened or written.")

    def _counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(f"elbowroom_{name}", told, labels, registry=self.registry)

    def _gauge(self, name: str, told: str, *labels: str) -> Gauge:
        return Gauge(f"elbowroom_{name}", told, labels, registry=self.registry)

    def _histogram(self, name: str, told: str, buckets: Iterable[float], *labels: str) -> Histogram:
        return Histogram(f"elbowroom_{name}", told, labels, registry=self.registry, buckets=tuple(buckets))


class _Both:
    """The counted metrics together with the gauges of this moment."""

    def __init__(self, counted: CollectorRegistry, now: StateNow) -> None:
        self._counted = counted
        self._now = now

    def collect(self) -> Iterable[Metric]:
        """Return all metrics without the times at which counters began, which the text format does not have."""
        for metric in self._counted.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        yield from self._now.collect()


COUNTED: web.AppKey[Metrics] = web.AppKey("COUNTED", Metrics)


def add_metrics_route(router: web.UrlDispatcher) -> None:
    """Add the route."""
    router.add_get(METRICS, for_roles(show_metrics, "owner"))


async def show_metrics(request: web.Request) -> web.Response:
    """Answer with all metrics as they are now."""
    now = StateNow(request.app[SHARED], request.app[STARTED], request.app[PROVIDERS].machines())
    headers = {hdrs.CONTENT_TYPE: TEXT_FORMAT, hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(body=request.app[COUNTED].text(now), headers=headers)
