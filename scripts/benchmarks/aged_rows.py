"""What is read out of the rounds with a store that is a year old, and of memory that grows, and their targets."""

import operator
from collections.abc import Mapping, Sequence
from typing import TypeVar

from aged import KINDS, AgedRound, Chats, Kind, Pages
from figures import MILLI, SHOWN, Row, difference_of, judged, median_of, most_text, spreads_of
from growth import Growth
from rounds import Spread
from servers import AGED, EMPTY, OTHER

PERCENTS = ((50, "p50"), (99, "p99"))
MOST_TIMES = 1.3
"""How many times what a request adds with an empty store it may add with one that is a year old."""
NOISE = 0.5
"""Milliseconds by which the two may differ whatever their ratio: rounds of the same server differ as much."""
LEAST = 0.1
"""Milliseconds that count for a smaller addition where it is divided by."""
MOST_PAGE = 300.0  # ms
MOST_GROWTH = 15.0  # MiB
GROWTH = "RSS after 10,000 requests in 1,000 chats, more than after 1,000 (MiB)"
MOST_TOLD = 6
A_YEAR, NOTHING = "a year of conversations", "empty store"
PAGE = "first page of a conversation of 50,000 messages over HTTP (ms)"

Values = Mapping[str, Sequence[float]]
Visited = TypeVar("Visited", Chats, Pages, Growth)


def title_of(kind: Kind, percent: str, store: str) -> str:
    """Return the title of a row about the time to the first content."""
    return f"{store}, {kind.name}: time to first content, {percent} (ms)"


def rows_of_aged(rounds: Sequence[AgedRound]) -> list[Row]:
    """Return the rows of each kind of request, and that of the first page; none where nothing was measured."""
    if not any(seen.server != "control" for round_ in rounds for seen in round_.chats):
        return []
    return [row for kind in KINDS for row in rows_of_kind(kind, rounds)] + [row_of_page(rounds)]


def rows_of_kind(kind: Kind, rounds: Sequence[AgedRound]) -> list[Row]:
    """Return what a request adds to the control's time, with both stores, and how the two compare."""
    is_broken = any(seen.broken for seen in own(seen_in(rounds)) if seen.kind == kind.name)
    rows = []
    for (percent, name), most in zip(PERCENTS, kind.most, strict=True):
        values = values_of(kind, rounds, percent, AGED)
        rows.append(row_of_added(title_of(kind, name, A_YEAR), values, most, is_broken=is_broken))
    if kind.with_empty:
        for percent, name in PERCENTS:
            values = values_of(kind, rounds, percent, EMPTY)
            rows.append(row_of_added(title_of(kind, name, NOTHING), values, None, is_broken=is_broken))
        rows.append(row_of_times(kind, rounds, is_broken=is_broken))
    return rows


def values_of(kind: Kind, rounds: Sequence[AgedRound], percent: int, store: str) -> dict[str, list[float]]:
    """Return each server's milliseconds in every round, under the names of the table's columns."""

    def of(server: str) -> list[float]:
        found = [seen for round_ in rounds for seen in round_.chats if (seen.server, seen.kind) == (server, kind.name)]
        return [seen.first_content(percent) * MILLI for seen in found]

    return {name: of(name if name == "control" else f"{name}{store}") for name in SHOWN}


def row_of_added(title: str, values: Values, most: float | None, *, is_broken: bool) -> Row:
    """Hold what elbowroom adds to the control's time of the same round against a target."""
    added = added_by("elbowroom", values)
    verdict = judged(median_of(added), most, is_broken=is_broken)
    target = most_text(most, " added")
    return Row(title, spreads_of(values), Spread.of(added), "added to control", target, verdict, difference_of(values))


def added_by(name: str, values: Values) -> list[float]:
    """Return what a server's values are more than the control's of the same rounds."""
    return list(map(operator.sub, values[name], values["control"]))


def row_of_times(kind: Kind, rounds: Sequence[AgedRound], *, is_broken: bool) -> Row:
    """Compare what a request adds with a year of conversations with what it adds with none, in the same rounds."""
    aged, empty = (values_of(kind, rounds, 50, store) for store in (AGED, EMPTY))
    times = {
        name: [year / max(none, LEAST) for year, none in zip(added_by(name, aged), added_by(name, empty), strict=True)]
        for name in SHOWN
        if name != "control"
    }
    more = median_of(list(map(operator.sub, aged["elbowroom"], empty["elbowroom"])))
    is_noise = more is not None and more <= NOISE
    verdict = judged(0.0 if is_noise else median_of(times["elbowroom"]), MOST_TIMES, is_broken=is_broken)
    title = f"{kind.name}: what a year of conversations adds, times that of an empty store, p50"
    target = f"{most_text(MOST_TIMES)}, or {NOISE:g} ms more"
    return Row(title, spreads_of(times), target=target, verdict=verdict, difference=difference_of(times))


def row_of_page(rounds: Sequence[AgedRound]) -> Row:
    """Hold the time to the first page of the long conversation against its target."""
    pages = [page for round_ in rounds for page in round_.pages]
    return row_of_values(
        PAGE,
        {name: [page.seconds * MILLI for page in pages if page.server == f"{name}{AGED}"] for name in SHOWN},
        MOST_PAGE,
        is_broken=any(page.broken for page in own(pages)),
    )


def rows_of_growth(seen: Sequence[Growth]) -> list[Row]:
    """Return the row about memory that grows with requests."""
    if not seen:
        return []
    values = {name: [growth.last - growth.first for growth in seen if growth.server == name] for name in SHOWN}
    return [row_of_values(GROWTH, values, MOST_GROWTH, is_broken=any(growth.broken for growth in own(seen)))]


def row_of_values(title: str, values: Values, most: float, *, is_broken: bool) -> Row:
    """Hold the median of elbowroom's own values against a target."""
    verdict = judged(median_of(values["elbowroom"]), most, is_broken=is_broken)
    return Row(title, spreads_of(values), target=most_text(most), verdict=verdict, difference=difference_of(values))


def own(seen: Sequence[Visited]) -> list[Visited]:
    """Return what the rows are judged by: another checkout that does not work says nothing of this one."""
    return [visited for visited in seen if not visited.server.startswith(OTHER)]


def wrong_answers(rounds: Sequence[AgedRound], growths: Sequence[Growth]) -> list[str]:
    """Say what was wrong with answers, each reason once."""
    chats = [
        f"aged, {seen.kind}: WRONG ANSWER from {seen.server}: {why}" for seen in seen_in(rounds) for why in seen.broken
    ]
    pages = [f"aged: {page.server}: {why}" for round_ in rounds for page in round_.pages for why in page.broken]
    grown = [f"growth: WRONG ANSWER from {growth.server}: {why}" for growth in growths for why in growth.broken]
    return list(dict.fromkeys([*chats, *pages, *grown]))[:MOST_TOLD]


def seen_in(rounds: Sequence[AgedRound]) -> list[Chats]:
    """Return all visits of all rounds."""
    return [seen for round_ in rounds for seen in round_.chats]
