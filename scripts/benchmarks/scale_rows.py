"""The rows of the table about servers that share a database."""

import operator
import statistics
from collections.abc import Callable, Sequence
from typing import Final

from figures import MILLI, Row, Verdict, most_text
from rounds import Spread
from scale import POSTGRESQL, SIZES, SQLITE, UNSHARED, ScaleRound, Share
from visit import Visit

LEAST_GAIN: Final = 1.7
MOST_ADDED: Final = 2.0
MOST_TIMES: Final = 1.25


def rows_of_scale(rounds: Sequence[ScaleRound]) -> list[Row]:
    """Return what servers cost together, what more of them bring, and what PostgreSQL adds to the first word."""
    if not rounds:
        return []
    visits = [seen for each in rounds for visits in each.first.values() for seen in visits]
    is_broken = any(seen.broken for seen in visits) or any(seen.broken for each in rounds for seen in each.shares)
    rows = [
        _row(f"{_servers(size)} on one PostgreSQL: {title}", _values(rounds, size, measure))
        for size in SIZES
        for title, measure in (
            ("CPU of a server per turn (ms)", lambda seen: seen.cpu * MILLI),
            ("CPU of the database per turn (ms)", lambda seen: seen.database * MILLI),
            ("turns per second on this machine", lambda seen: seen.rate),
        )
    ]
    one = _values(rounds, 1, lambda seen: seen.capacity)
    for size in SIZES[1:]:
        gains = list(map(operator.truediv, _values(rounds, size, lambda seen: seen.capacity), one))
        least = LEAST_GAIN if size == 2 else None
        title = f"{_servers(size)} with a core each: turns per second, times those of one"
        rows.append(_judged(title, gains, least, is_broken=is_broken))
    more = (
        ("time to first content, p50, with PostgreSQL more than with SQLite (ms)", _first, SQLITE),
        ("time to first content, p50, with shared windows of models more than without (ms)", _first, UNSHARED),
        ("CPU of a server per turn with shared windows of models more than without (ms)", _cpu, UNSHARED),
    )
    return [*rows, _times(rounds, is_broken=is_broken), *(_added(rounds, *each, is_broken=is_broken) for each in more)]


def _servers(count: int) -> str:
    return "1 server" if count == 1 else f"{count} servers"


def _values(rounds: Sequence[ScaleRound], size: int, measure: Callable[[Share], float]) -> list[float]:
    return [measure(seen) for each in rounds for seen in each.shares if seen.servers == size]


def _row(title: str, values: Sequence[float]) -> Row:
    spread = Spread.of(values)
    return Row(title, {"elbowroom": spread} if spread else {})


def _judged(title: str, gains: Sequence[float], least: float | None, *, is_broken: bool) -> Row:
    spread = Spread.of(gains)
    verdict: Verdict = "-"
    if is_broken:
        verdict = "broken"
    elif spread and least is not None:
        verdict = "pass" if spread.median >= least else "MISSED"
    target = "-" if least is None else f"at least {least:g}"
    return Row(title, {"elbowroom": spread} if spread else {}, target=target, verdict=verdict)


def _times(rounds: Sequence[ScaleRound], *, is_broken: bool) -> Row:
    """Return how many times as long the first word takes with PostgreSQL as with SQLite, in the same round."""
    times = Spread.of([_first(each.first[POSTGRESQL]) / (_first(each.first[SQLITE]) or 1.0) for each in rounds])
    assert times is not None
    verdict: Verdict = "broken" if is_broken else "pass" if times.median <= MOST_TIMES else "MISSED"
    title = "time to first content, p50, with PostgreSQL, times that with SQLite"
    return Row(title, {"elbowroom": times}, target=most_text(MOST_TIMES), verdict=verdict)


def _added(
    rounds: Sequence[ScaleRound],
    title: str,
    measure: Callable[[Sequence[Visit]], float],
    without: str,
    *,
    is_broken: bool,
) -> Row:
    """Return what a server with PostgreSQL that shares all takes more than another one, in the same round."""
    added = Spread.of([(measure(each.first[POSTGRESQL]) - measure(each.first[without])) * MILLI for each in rounds])
    assert added is not None
    verdict: Verdict = "broken" if is_broken else "pass" if added.median <= MOST_ADDED else "MISSED"
    return Row(title, {"elbowroom": added}, target=most_text(MOST_ADDED), verdict=verdict)


def _first(visits: Sequence[Visit]) -> float:
    words = [word for seen in visits for word in seen.first_tokens]
    return statistics.median(words) if words else 0.0


def _cpu(visits: Sequence[Visit]) -> float:
    return statistics.mean(seen.cpu_per_unit or 0.0 for seen in visits)
