"""What is read out of the rounds, and the targets it is held to."""

import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from compaction import Compactions
from rounds import Measure, Run, Spread
from servers import FORGETFUL, NAMES, OTHER
from start_up import Start
from turn_cost import LONG, SHORT, WAYS, Turns
from visit import Visit

Verdict = Literal["pass", "MISSED", "void", "broken", "-"]
Against = Literal["control", "direct", "control's own", "added to control", "forgetful"]
SHOWN = (*NAMES, OTHER)
MICRO, MILLI = 1e6, 1e3


@dataclass(frozen=True, slots=True)
class Figure:
    """One row about one load.

    `against` names the server whose value of the same round is divided by ("control", "forgetful") or taken
    away ("direct"), before the median of the rounds is taken; with None the value stands for itself.
    `worst` holds the target against the worst round instead of the median.
    """

    load: str
    title: str
    measure: Measure
    scale: float = 1.0
    against: Literal["control", "direct", "forgetful"] | None = None
    target: float | None = None
    worst: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the spread of each server's values, elbowroom against another, a verdict.

    `difference` is elbowroom minus the one of another checkout, within the rounds and in the row's unit.
    """

    title: str
    spreads: Mapping[str, Spread]
    compared: Spread | None = None
    against: Against | None = None
    target: str = "-"
    verdict: Verdict = "-"
    difference: Spread | None = None

    @property
    def is_missed(self) -> bool:
        """Tell whether a check has to fail: a target is not met, cannot be judged, or answers were wrong."""
        return self.verdict == "broken" or (self.target != "-" and self.verdict in ("MISSED", "void"))


def cpu(seen: Visit) -> float | None:
    """CPU seconds per frame or request."""
    return seen.cpu_per_unit


def first_token_p50(seen: Visit) -> float | None:
    """Median seconds to the first token."""
    return seen.first_token(50)


def first_token_p99(seen: Visit) -> float | None:
    """99th percentile of seconds to the first token."""
    return seen.first_token(99)


FIGURES = (
    Figure("paced", "CPU per frame, 20 streams of 50 tokens/s (µs)", cpu, MICRO, "control", target=1.6),
    Figure("flood", "CPU per frame, flood of 20,000 frames (µs)", cpu, MICRO, "control", target=4),
    Figure(
        "paced",
        "the same 20 streams, against elbowroom keeping no conversations (µs)",
        cpu,
        MICRO,
        FORGETFUL,
        target=1.1,
    ),
    Figure("flood", "the same flood, against elbowroom keeping no conversations (µs)", cpu, MICRO, FORGETFUL),
    Figure("frame_flood", "CPU per frame, flood with one frame per write (µs)", cpu, MICRO, "control"),
    Figure("flood", "frames per second in the flood (thousands)", lambda seen: seen.units / seen.wall, 1e-3),
    Figure("first_token", "time to first token, p50 (ms)", first_token_p50, MILLI, "direct", target=4),
    Figure("first_token", "time to first token, p99 (ms)", first_token_p99, MILLI, "direct"),
    Figure("first_token", "CPU per small request (ms)", cpu, MILLI, "control"),
    Figure("next_turn", "CPU per 400 KB body, next turn of a known history (ms)", cpu, MILLI, target=8),
    Figure("next_turn", "the same, against the control (ms)", cpu, MILLI, "control"),
    Figure("next_turn", "time to first token, the same, p50 (ms)", first_token_p50, MILLI, "direct"),
    Figure("new_body", "CPU per 400 KB body, never seen before (ms)", cpu, MILLI, target=60),
    Figure("new_body", "the same body, against the control (ms)", cpu, MILLI, "control"),
    Figure("new_body", "time to first token, the same, p50 (ms)", first_token_p50, MILLI, "direct"),
    Figure(
        "stall",
        "longest wait for /health while 400 KB bodies arrive (ms)",
        lambda seen: seen.longest_wait,
        MILLI,
        target=200,
        worst=True,
    ),
    Figure(
        "hold_new",
        "longest hold of the event loop, one 400 KB body after another, never seen before (ms)",
        lambda seen: seen.longest_hold,
        MILLI,
        target=30,
        worst=True,
    ),
    Figure(
        "hold_known",
        "longest hold of the event loop, one 400 KB body after another, a known history (ms)",
        lambda seen: seen.longest_hold,
        MILLI,
        target=30,
        worst=True,
    ),
)
IDLE_TITLE = "RSS idle (MiB)"
START_FIGURES: tuple[tuple[str, str, Callable[[Start], float], float | None], ...] = (
    ("elbowroom", "process start to listening (s)", lambda start: start.seconds, 1.0),
    ("scripts/run", "second start of scripts/run to listening (s)", lambda start: start.seconds, 2.0),
    ("elbowroom", "RSS when listening (MiB)", lambda start: start.rss_listening, 60),
    ("elbowroom", IDLE_TITLE, lambda start: start.rss_idle, 80),
    (
        "elbowroom",
        "RSS after 20 chats, without the tokenizer's own size (MiB)",
        lambda start: start.rss_after_chats - start.tokenizer,
        110,
    ),
    ("elbowroom", "RSS after 20 chats, all of it (MiB)", lambda start: start.rss_after_chats, None),
)
COMPACTION_FIGURES: tuple[tuple[str, Callable[[Compactions], Sequence[float]], float, bool], ...] = (
    ("compaction machinery without the model call, 32k-token history, p50 (ms)", lambda seen: seen.seconds, 15, False),
    ("longest block of the event loop by a compaction (ms)", lambda seen: seen.longest_blocks, 50, True),
    ("CPU to find what comes back unasked in 10,000 messages (ms)", lambda seen: seen.reminders, 3, False),
    ("CPU to find what comes back unasked in 50,000 messages (ms)", lambda seen: seen.long_reminders, 3, False),
)

TURN_FIGURES: tuple[tuple[str, Callable[[Turns], float]], ...] = (
    ("CPU", lambda seen: seen.cpu),
    ("time to first token", lambda seen: seen.first_token),
)
JUDGED_WAY = next(iter(WAYS))
"""The way that most models are counted; the stricter targets are its own."""
MOST_FOR_TURN = 5.0  # ms of CPU for a turn of 5 messages
MOST_ADDED = {"CPU": 4.0}  # ms, where it is counted that way
MOST_ADDED_ELSE = 5.0
MOST_START = 2.5  # times the control's


def rows_of(runs: Mapping[str, Run], starts: Sequence[Start]) -> list[Row]:
    """Return every row for which something was measured."""
    rows = [row_of(figure, runs[figure.load]) for figure in FIGURES if is_measured(figure, runs)]
    if "many_streams" in runs:
        rows.append(row_of_complete(runs["many_streams"]))
    return rows + rows_of_starts(starts)


def is_measured(figure: Figure, runs: Mapping[str, Run]) -> bool:
    """Tell whether the figure's load was run, with every server that it compares."""
    run = runs.get(figure.load)
    return run is not None and (figure.against != FORGETFUL or any(FORGETFUL in seen for seen in run.rounds))


def row_of(figure: Figure, run: Run) -> Row:
    """Read one figure out of a load's rounds and hold it against its target."""
    values = {name: [value * figure.scale for value in run.values(name, figure.measure)] for name in SHOWN}
    spreads = spreads_of(values)
    compared = None
    if figure.against in ("control", FORGETFUL):
        compared = Spread.of(run.paired("elbowroom", figure.against, figure.measure, operator.truediv))
    elif figure.against == "direct":
        added = run.paired("elbowroom", "direct", figure.measure, operator.sub)
        compared = Spread.of([value * figure.scale for value in added])
    held = compared if figure.against else spreads.get("elbowroom")
    value = None if held is None else held.high if figure.worst else held.median
    return Row(
        figure.title,
        spreads,
        compared,
        figure.against,
        target_text(figure),
        verdict_of(run, value, figure.target),
        difference_of(values),
    )


def spreads_of(values: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """Return the spread of the values of each server that has any."""
    return {name: spread for name, of in values.items() if (spread := Spread.of(of))}


def difference_of(values: Mapping[str, Sequence[float]]) -> Spread | None:
    """Return elbowroom's values minus those of another checkout in the same rounds; None where there is no other."""
    return Spread.of(list(map(operator.sub, values.get("elbowroom", ()), values.get(OTHER, ()))))


def target_text(figure: Figure) -> str:
    """Say a figure's target in the table's words."""
    if figure.target is None:
        return "-"
    unit = {"control": " x control", FORGETFUL: " x without", "direct": " added", None: ""}[figure.against]
    return f"at most {figure.target:g}{unit}{', every round' if figure.worst else ''}"


def verdict_of(run: Run, value: float | None, target: float | None) -> Verdict:
    """Judge a value; rounds with wrong answers, or from an unsteady machine, are judged as that."""
    if run.broken():
        return "broken"
    if run.is_void:
        return "void"
    if value is None or target is None:
        return "-"
    return "pass" if value <= target else "MISSED"


def row_of_complete(run: Run) -> Row:
    """Count the streams that came whole, and hold the worst round against all of them."""
    values = {name: run.values(name, lambda seen: len(seen.first_tokens)) for name in SHOWN}
    spreads = spreads_of(values)
    held = spreads.get("elbowroom")
    verdict: Verdict = "-" if held is None else "pass" if held.low == run.load.answers else "MISSED"
    title = f"complete answers of {run.load.streams} concurrent streams"
    target = f"{run.load.answers}, every round"
    return Row(title, spreads, target=target, verdict=verdict, difference=difference_of(values))


def rows_of_starts(starts: Sequence[Start]) -> list[Row]:
    """Return the rows about starting up; the median of the starts is held against the target."""
    rows = []
    for subject, title, measure, target in START_FIGURES:
        shown = {"control": "control", "elbowroom": subject, OTHER: OTHER}
        values = {name: [measure(start) for start in starts if start.server == of] for name, of in shown.items()}
        if subject == "scripts/run":
            del values["control"], values[OTHER]
        spreads = spreads_of(values)
        held = spreads.get("elbowroom")
        verdict: Verdict = "-"
        if any(start.broken for start in starts):
            verdict = "broken"
        elif held and target is not None:
            verdict = "pass" if held.median <= target else "MISSED"
        if spreads:
            held_to = "-" if target is None else f"at most {target:g}"
            rows.append(Row(title, spreads, target=held_to, verdict=verdict, difference=difference_of(values)))
    return rows + row_of_start(starts)


def row_of_start(starts: Sequence[Start]) -> list[Row]:
    """Compare the seconds to listening with the control's of the same round; both have one core."""
    values = {name: [start.seconds for start in starts if start.server == name] for name in SHOWN}
    ratio = Spread.of(list(map(operator.truediv, values["elbowroom"], values["control"])))
    if ratio is None:
        return []
    is_broken = any(start.broken for start in starts)
    verdict = judged(ratio.median, MOST_START, is_broken=is_broken)
    target = most_text(MOST_START, " x control")
    title = "process start to listening on one core, against the control (s)"
    return [Row(title, spreads_of(values), ratio, "control", target, verdict, difference_of(values))]


def rows_of_compactions(rounds: Mapping[str, Sequence[Compactions]]) -> list[Row]:
    """Return the rows about compacting: of each round the median, or the worst where that is held to the target."""
    rows: list[Row] = []
    for title, measure, target, worst in COMPACTION_FIGURES if rounds else ():
        pick = max if worst else statistics.median
        values = {name: [pick(measure(seen)) * MILLI for seen in all_seen] for name, all_seen in rounds.items()}
        spreads = spreads_of(values)
        held = spreads["elbowroom"].high if worst else spreads["elbowroom"].median
        text = f"at most {target:g}{', every round' if worst else ''}"
        verdict: Verdict = "pass" if held <= target else "MISSED"
        rows.append(Row(title, spreads, target=text, verdict=verdict, difference=difference_of(values)))
    return rows


def rows_of_turns(rounds: Sequence[Sequence[Turns]]) -> list[Row]:
    """Return the rows about turns that need nothing: what one costs, and what a long history adds to that."""
    return [row for way in WAYS for row in rows_of_way(way, rounds)] if rounds else []


def rows_of_way(way: str, rounds: Sequence[Sequence[Turns]]) -> list[Row]:
    """Return the rows about turns that are counted one way; differences are taken within a round."""

    def values(server: str, messages: int, measure: Callable[[Turns], float]) -> list[float]:
        found = [seen for visits in rounds for seen in visits if seen.server == server and seen.messages == messages]
        return [measure(seen) * MILLI for seen in found if seen.way in (way, "")]

    rows = []
    is_broken = any(seen.broken for visits in rounds for seen in visits)
    for messages in (SHORT, LONG):
        costs = {name: values(name, messages, lambda seen: seen.cpu) for name in SHOWN}
        most = MOST_FOR_TURN if (messages, way) == (SHORT, JUDGED_WAY) else None
        rows.append(row_of_most(title_of_turn(way, messages), costs, most, is_broken=is_broken))
    for name_of_figure, measure in TURN_FIGURES:
        added = {
            name: list(map(operator.sub, values(name, LONG, measure), values(name, SHORT, measure))) for name in SHOWN
        }
        beyond = Spread.of(list(map(operator.sub, added["elbowroom"], added["control"])))
        title = (
            f"what {LONG} messages add to {SHORT}: {name_of_figure} per turn that needs nothing, counted by {way} (ms)"
        )
        most = MOST_ADDED.get(name_of_figure, MOST_ADDED_ELSE) if way == JUDGED_WAY else MOST_ADDED_ELSE
        rows.append(row_of_most(title, added, most, beyond, is_broken=is_broken))
    return rows


def title_of_turn(way: str, messages: int) -> str:
    """Return the title of the row about one turn's CPU."""
    return f"CPU per turn that needs nothing, counted by {way}, {messages} messages (ms)"


def row_of_most(
    title: str,
    values: Mapping[str, Sequence[float]],
    most: float | None,
    beyond: Spread | None = None,
    *,
    is_broken: bool,
) -> Row:
    """Hold the median of elbowroom's own values against a target; `beyond` is what they are more than the control's."""
    against: Against | None = "control's own" if beyond else None
    verdict = judged(median_of(values["elbowroom"]), most, is_broken=is_broken)
    return Row(title, spreads_of(values), beyond, against, most_text(most), verdict, difference_of(values))


def median_of(values: Sequence[float]) -> float | None:
    """Return the median of values; None where there are none."""
    return statistics.median(values) if values else None


def most_text(most: float | None, unit: str = "") -> str:
    """Say a target in the table's words."""
    return "-" if most is None else f"at most {most:g}{unit}"


def judged(value: float | None, most: float | None, *, is_broken: bool) -> Verdict:
    """Judge a value that needs no steady control."""
    if is_broken:
        return "broken"
    if value is None or most is None:
        return "-"
    return "pass" if value <= most else "MISSED"
