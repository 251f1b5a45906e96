"""Prints a run: where it was made, the table, and what a reader has to know to trust it."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from aged import KINDS, AgedRound
from aged_rows import A_YEAR, rows_of_aged, rows_of_growth, title_of, wrong_answers
from compaction import Compactions
from figures import IDLE_TITLE, JUDGED_WAY, Row, rows_of, rows_of_compactions, rows_of_turns, title_of_turn
from growth import Growth
from processes import Cores
from rounds import STEADY, Round, Run, Spread
from scale import ScaleRound
from scale_rows import rows_of_scale
from servers import FORGETFUL, NAMES, OTHER
from start_up import Start
from turn_cost import SHORT, Turns

BUSY = 0.5
PACKAGES = ("elbowroom", "aiohttp", "openai-agents", "pydantic", "psutil", "uvloop")
READING = """\
How to read it: a value is the median of the rounds [smallest..largest]. "compared" is elbowroom against
another server *of the same round*: divided by the control (x), or its value taken away (+): the direct
one, the control's, or what a long history adds to the control's turn. CPU is user and system time of the
server's processes until 0.5 s after the last answer. The control is an aiohttp relay that copies bytes, one
write per read. Every answer was parsed after the clock had stopped, and counts only if each token came once,
in order, and was followed by finish_reason and [DONE]."""
READING_DIFFERENCES = """
"difference" is elbowroom minus "other" of the same round, in the row's unit, and in brackets as a share of
other's median. Where the span [smallest..largest] holds 0, the rounds did not agree which of them is the larger."""
FELT = (
    "What a person notices: the first word comes {first} ms later than without elbowroom, also after a year of "
    "conversations; a turn costs {turn} ms of CPU; the server takes {memory} MiB of memory.\n\n"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """All that a run has measured, round by round; empty where it was not asked to."""

    runs: Mapping[str, Run]
    starts: Sequence[Start]
    turns: Sequence[Sequence[Turns]]
    aged: Sequence[AgedRound]
    growths: Sequence[Growth]
    compactions: Mapping[str, Sequence[Compactions]]
    scale: Sequence[ScaleRound] = ()

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        return [
            *rows_of(self.runs, self.starts),
            *rows_of_turns(self.turns),
            *rows_of_aged(self.aged),
            *rows_of_growth(self.growths),
            *rows_of_compactions(self.compactions),
            *rows_of_scale(self.scale),
        ]


def environment(cores: Cores) -> dict[str, str]:
    """Describe the machine, the versions and the pinning."""
    pinned = "not pinned (the system cannot, or has one core)"
    if cores.server is not None:
        pinned = f"server on core {cores.server}, upstream and client on core {cores.client}"
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {processor()}, {platform.platform()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "pinning": pinned,
    }


def processor() -> str:
    """Name the processor as well as the system can."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide about the numbers, of those that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def load_average() -> tuple[float, ...]:
    """Return the system's load average over 1, 5 and 15 minutes; empty where it has none."""
    return os.getloadavg() if hasattr(os, "getloadavg") else ()


def load_averages(before: tuple[float, ...], after: tuple[float, ...]) -> str:
    """Say how busy the machine was, and whether others must have been at work before the run began."""
    if not before:
        return "unknown"
    first, last = (" ".join(f"{value:.2f}" for value in of) for of in (before, after))
    warning = "; THE MACHINE WAS BUSY, repeat this on a quiet one" if before[0] > BUSY else ""
    return f"{first} before, {last} after{warning}"


def number(value: float) -> str:
    """Write a number with three digits that mean something."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cell(spread: Spread | None, sign: str = "{}") -> str:
    """Write a spread as `median [low..high]`."""
    if spread is None:
        return "-"
    return f"{sign.format(number(spread.median))} [{number(spread.low)}..{number(spread.high)}]"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table, with two columns more where another checkout was measured."""
    has_other = any(row.difference for row in rows)
    servers = [*NAMES, *([OTHER] if has_other else [])]
    numbers = [*servers, *(["difference"] if has_other else []), "compared"]
    lines = [["measure", *numbers, "target", "verdict"], ["---", *["--:"] * len(numbers), "---", "---"]]
    for row in rows:
        cells = [cell(row.spreads.get(name)) for name in servers]
        if has_other:
            cells.append(difference(row))
        cells.append(cell(row.compared, "{} x" if row.against in ("control", FORGETFUL) else "+{}"))
        lines.append([row.title, *cells, row.target, row.verdict])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def difference(row: Row) -> str:
    """Write what elbowroom needs more than another checkout: `+1.2 [0.3..1.9] (+4 %)`."""
    if row.difference is None:
        return "-"
    base = row.spreads[OTHER].median
    share = f" ({row.difference.median / base:+.0%})" if base > 0 else ""
    sign = "+" if row.difference.median > 0 else ""
    return f"{cell(row.difference, sign + '{}')}{share}".replace("%", " %")


def notes(measured: Measured) -> list[str]:
    """Say what went wrong or was different: wrong answers, rounds thrown away, merged chunks."""
    found = []
    for name, run in measured.runs.items():
        found += [f"{name}: WRONG ANSWER from {reason}" for reason in run.broken()[:3]]
        if run.discarded:
            found.append(f"{name}: {len(run.discarded)} set(s) of rounds thrown away, the machine was unsteady")
        if run.is_void:
            found.append(f"{name}: void, the control's own cost differed by {run.unsteadiness():.2f} (over {STEADY})")
        found += [f"{name}: {reason}" for reason in merged(run)]
    turns = [seen for visits in measured.turns for seen in visits if seen.broken]
    found += sorted({f"turns: WRONG ANSWER from {seen.server}: {seen.broken[0]}" for seen in turns})[:3]
    found += wrong_answers(measured.aged, measured.growths)
    starts = [start for start in measured.starts if start.broken]
    return found + [f"start of {start.server}: WRONG ANSWER {start.broken[0]}" for start in starts]


def merged(run: Run) -> list[str]:
    """Name the servers that put several tokens into one chunk: that makes a frame look cheaper than it is."""
    sent = run.load.answers * run.load.reply.tokens * len(run.rounds)
    received = {name: sum(round_[name].deltas for round_ in run.rounds) for name in run.rounds[0]}
    return [
        f"{name} delivered {count} content chunks for {sent} tokens"
        for name, count in received.items()
        if count != sent and not run.broken()
    ]


def felt(rows: Sequence[Row]) -> str:
    """Say in a sentence what a person notices; nothing where one of its three numbers was not measured."""
    named = {row.title: row for row in rows}
    next_turn = named.get(title_of(KINDS[1], "p50", A_YEAR))
    turn, idle = named.get(title_of_turn(JUDGED_WAY, SHORT)), named.get(IDLE_TITLE)
    first = next_turn and next_turn.compared
    cpu, memory = (row and row.spreads.get("elbowroom") for row in (turn, idle))
    if not (first and cpu and memory):
        return ""
    return FELT.format(first=number(first.median), turn=number(cpu.median), memory=number(memory.median))


def text(where: Mapping[str, str], rows: Sequence[Row], measured: Measured) -> str:
    """Return the whole report as Markdown."""
    facts = "\n".join(f"- {name}: {value}" for name, value in where.items())
    listed = "\n".join(f"- {note}" for note in notes(measured)) or "- no wrong answer, no rounds thrown away"
    judged = [row.verdict for row in rows if row.target != "-" and row.verdict != "-"]
    total = f"{judged.count('pass')} of {len(judged)} targets met." if judged else "No target was measured."
    reading = READING + (READING_DIFFERENCES if OTHER in where else "")
    head = f"# elbowroom bench\n\n{felt(rows)}{facts}"
    return f"{head}\n\n{table(rows)}\n\n{reading}\n\nNotes:\n\n{listed}\n\n{total}\n"


def raw(where: Mapping[str, str], rows: Sequence[Row], measured: Measured) -> dict[str, object]:
    """Return everything that was measured, round by round, for JSON."""

    def plain(rounds: Sequence[Round]) -> list[dict[str, object]]:
        return [{name: asdict(seen) for name, seen in round_.items()} for round_ in rounds]

    loads = {
        name: {
            "load": asdict(run.load),
            "rounds": plain(run.rounds),
            "discarded": [plain(rounds) for rounds in run.discarded],
        }
        for name, run in measured.runs.items()
    }
    return {
        "environment": dict(where),
        "rows": [asdict(row) for row in rows],
        "loads": loads,
        "starts": [asdict(start) for start in measured.starts],
        "turns": [[asdict(seen) for seen in visits] for visits in measured.turns],
        "aged": [asdict(round_) for round_ in measured.aged],
        "growths": [asdict(growth) for growth in measured.growths],
        "scale": [asdict(round_) for round_ in measured.scale],
    }
