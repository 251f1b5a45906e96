"""The table of a soak: what was measured, the targets, and whether they were met."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from report import number
from soak_server import MAY_TAKE, Found, Soaked

Verdict = Literal["pass", "MISSED", "-"]
WARM: Final = 1 / 6
"""Which share of the run is over when memory is looked at first: ten minutes of an hour."""
MOMENT: Final = 1 / 12
"""Over which share of the run memory and descriptors are averaged, before that moment and before the end."""
MILLISECONDS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; without `most` nothing is judged."""

    title: str
    value: float
    most: float | None = None

    @property
    def is_missed(self) -> bool:
        """Tell whether the value is above its target."""
        return self.most is not None and self.value > self.most

    @property
    def verdict(self) -> Verdict:
        """Say how the value compares with its target."""
        if self.most is None:
            return "-"
        return "MISSED" if self.is_missed else "pass"


def rows(steady: Soaked, killed: Soaked) -> list[Row]:
    """Return the lines of the table."""
    both = (steady, killed)
    founds = [soaked.found for soaked in both]
    refused = sum(count for soaked in both for key, count in soaked.people.statuses.items() if key.endswith(": 500"))
    return [
        Row("words received by clients", sum(found.received for found in founds)),
        Row("kills (SIGKILL)", len(killed.found.kills)),
        Row(f"words lost, received more than {MAY_TAKE:g} s before a kill, or before a normal end", lost(founds), 0),
        Row("oldest word that a kill has taken (ms)", killed.found.oldest_missing * MILLISECONDS, 500),
        *lags(founds),
        Row("prompts sent upstream", sum(soaked.studio.prompts for soaked in both)),
        Row("prompts over the window", sum(soaked.studio.too_long for soaked in both), 0),
        Row("answers with status 500", refused, 0),
        *holds(founds),
        *memory(steady.found),
        Row("time to the first word, p50 (ms)", percentile([*steady.people.waits, *killed.people.waits], 50)),
        Row("time to the first word, p99 (ms)", percentile([*steady.people.waits, *killed.people.waits], 99)),
        Row("start after a kill until /health answers, p50 (ms)", percentile(killed.found.restarts, 50)),
        Row("CPU of the server that was not killed (cores)", cores(steady.found)),
    ]


def kills(rounds: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Return the lines of the rounds of kills, by their conditions."""
    found = {name: some for name, some in rounds.items() if some}
    return [
        row
        for name, some in found.items()
        for row in (
            Row(
                f"{len(some)} kills of chats, {name}: words lost that were older",
                sum(one.lost.words for one in some),
                0,
            ),
            Row("the same: oldest word taken (ms)", max(one.lost.oldest for one in some) * MILLISECONDS, 500),
        )
    ]


def lost(founds: Sequence[Found]) -> int:
    """Return how many words are missing of those that had to be there."""
    return sum(found.lost for found in founds)


def lags(founds: Sequence[Found]) -> list[Row]:
    """Return how long changes waited until they were on the disk."""
    waited = [lag for found in founds for line in found.inside for lag in line["lags"]]
    return [
        Row("lag of writing, p50 (ms)", percentile(waited, 50)),
        Row("lag of writing, p99 (ms)", percentile(waited, 99), 250),
        Row("lag of writing, longest (ms)", max(waited, default=0.0) * MILLISECONDS, 500),
    ]


def holds(founds: Sequence[Found]) -> list[Row]:
    """Return how long one callback held the event loop, by CPU and by the clock, and which one."""
    lines = [line for found in founds for line in found.inside]
    held, by = max(((float(line["hold"]), str(line["by"])) for line in lines), default=(0.0, "nothing"))
    turned = max((float(line["wall"]) for line in lines), default=0.0)
    return [
        Row(f"longest hold of the event loop, CPU time (ms), by `{by}`", held * MILLISECONDS, 50),
        Row("longest hold of the event loop by the clock, other programs included (ms)", turned * MILLISECONDS),
    ]


def memory(found: Found) -> list[Row]:
    """Return memory, descriptors and tasks after a sixth of the run and at its end."""
    over = found.samples[-1].at if found.samples else 0.0
    looked = {share: moment(found, over * share, over * MOMENT) for share in (WARM, 1.0)}
    (early, early_open), (late, late_open) = looked[WARM], looked[1.0]
    tasks = [float(line["tasks"]) for line in found.inside]
    return [
        Row(f"memory after {over * WARM / 60:.3g} minutes (MiB)", early),
        Row("memory at the end (MiB)", late),
        Row("memory at the end, times that", late / early if early else 0.0, 1.05),
        Row("descriptors after the same time", early_open),
        Row("descriptors at the end", late_open, early_open + 20),
        Row("tasks, most", max(tasks, default=0.0)),
        Row("tasks at the end, when all is answered", tasks[-1] if tasks else 0.0, 30),
    ]


def moment(found: Found, until: float, span: float) -> tuple[float, float]:
    """Return the medians of memory and descriptors over a span that ends at a moment."""
    some = [sample for sample in found.samples if until - span <= sample.at <= until] or found.samples[-1:]
    return statistics.median(one.rss for one in some), statistics.median(one.descriptors for one in some)


def cores(found: Found) -> float:
    """Return how many cores a process has used on average."""
    if len(found.samples) < 2:
        return 0.0
    first, last = found.samples[0], found.samples[-1]
    return (last.cpu - first.cpu) / (last.at - first.at)


def percentile(seconds: Sequence[float], percent: int) -> float:
    """Return a percentile (1 to 99) in milliseconds; 0 where there is nothing."""
    if len(seconds) < 2:
        return sum(seconds) * MILLISECONDS
    return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1] * MILLISECONDS


def text(where: Mapping[str, str], table: Sequence[Row], steady: Soaked, killed: Soaked) -> str:
    """Return the whole report as Markdown."""
    facts = "\n".join(f"- {name}: {value}" for name, value in where.items())
    lines = ["| measure | value | target | verdict |", "| --- | --: | --- | --- |"]
    for row in table:
        target = "-" if row.most is None else f"at most {number(row.most)}"
        lines.append(f"| {row.title} | {number(row.value)} | {target} | {row.verdict} |")
    counted = {
        "visits": sum((soaked.people.done for soaked in (steady, killed)), Counter[str]()),
        "answers by their status, and what clients saw of kills and cuts": sum(
            (soaked.people.statuses for soaked in (steady, killed)), Counter[str]()
        ),
        "what the simulated LM Studios did": sum((soaked.studio.faults for soaked in (steady, killed)), Counter[str]()),
    }
    told = "\n".join(f"- {name}: {listed(counts)}" for name, counts in counted.items())
    judged = [row.verdict for row in table if row.verdict != "-"]
    total = f"{judged.count('pass')} of {len(judged)} targets met."
    return f"# elbowroom soak\n\n{facts}\n\n" + "\n".join(lines) + f"\n\n{told}\n\n{total}\n"


def listed(counts: Counter[str]) -> str:
    """Write counts in a line, the highest first."""
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def raw(where: Mapping[str, str], table: Sequence[Row], steady: Soaked, killed: Soaked) -> dict[str, Any]:
    """Return everything that was measured, for JSON."""
    servers = {soaked.label: asdict(soaked.found) for soaked in (steady, killed)}
    return {"environment": dict(where), "rows": [asdict(row) for row in table], "servers": servers}
