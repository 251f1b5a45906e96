"""Interleaved rounds: every server once per round, in shuffled order, compared within the round only."""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from load import Load
from processes import Program
from servers import FORGETFUL, Server
from visit import Visit, visit

STEADY = 1.5  # the control's cost per unit may differ by this factor over the rounds of a valid run
ATTEMPTS = 3

Round = dict[str, Visit]
Measure = Callable[[Visit], float | None]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some values, with the smallest and the largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """Return the spread of the values, None where there are none."""
        return cls(statistics.median(values), min(values), max(values)) if values else None

    def times(self, factor: float) -> "Spread":
        """Return the same spread in another unit."""
        return Spread(self.median * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Run:
    """The rounds of one load; `discarded` holds the rounds before them that were void."""

    load: Load
    rounds: tuple[Round, ...]
    discarded: tuple[tuple[Round, ...], ...] = ()

    def values(self, server: str, measure: Measure) -> list[float]:
        """Return one server's value in every round; empty where the server or the value is missing."""
        seen = [measure(round_[server]) for round_ in self.rounds if server in round_]
        return [value for value in seen if value is not None]

    def paired(self, server: str, base: str, measure: Measure, combine: Callable[[float, float], float]) -> list[float]:
        """Return one server's value combined with another's of the same round, for every round."""
        values, others = self.values(server, measure), self.values(base, measure)
        return list(map(combine, values, others))

    def broken(self) -> list[str]:
        """Return what was wrong with answers, as `server: reason`, each reason once."""
        visits = [seen for round_ in self.rounds for seen in round_.values()]
        return list(dict.fromkeys(f"{seen.server}: {reason}" for seen in visits for reason in seen.broken))

    def unsteadiness(self) -> float:
        """Return by what factor the control's own CPU cost differed over the rounds; 1 if it is missing."""
        costs = self.values("control", lambda seen: seen.cpu_per_unit)
        return max(costs) / min(costs) if costs else 1.0

    @property
    def is_void(self) -> bool:
        """Tell whether the machine was too unsteady for these rounds to mean anything."""
        return self.load.needs_steady_control and self.unsteadiness() > STEADY


async def run(
    load: Load,
    warm_up: Load | None,
    servers: Sequence[Server],
    upstream: Program,
    count: int,
    rng: random.Random,
) -> Run:
    """Warm up, then go through the rounds; a void run is thrown away and repeated, at most twice."""
    if warm_up:
        await one_round(warm_up, servers, upstream, f"{load.name}-warm", rng)
    discarded: list[tuple[Round, ...]] = []
    while True:
        rounds = []
        for number in range(count):
            nonce = f"{load.name}-{len(discarded)}-{number}"
            rounds.append(await one_round(load, servers, upstream, nonce, rng))
        done = Run(load, tuple(rounds), tuple(discarded))
        if not done.is_void or len(discarded) == ATTEMPTS - 1:
            return done
        discarded.append(done.rounds)


async def one_round(load: Load, servers: Sequence[Server], upstream: Program, nonce: str, rng: random.Random) -> Round:
    """Visit every server that the load is for once, in an order that chance decides."""
    chosen = [
        server
        for server in servers
        if (load.with_direct or not server.is_direct) and (load.with_forgetful or server.name != FORGETFUL)
    ]
    order = rng.sample(chosen, k=len(chosen))
    return {server.name: await visit(load, server, upstream, nonce) for server in order}
