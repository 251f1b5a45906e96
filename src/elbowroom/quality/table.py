"""Makes of the results of a study a table, the best pruning agent first, and one sentence of advice."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from elbowroom.quality.grading import Grade
from elbowroom.quality.trial import Result
from elbowroom.settings.references import SAME_AGENT

KEPT: Final = ("identifiers", "constraints", "newest")
ALIKE: Final = 3.0
"""Points within which two pruning agents are as good as each other."""
QUICKER: Final = 0.67
"""The share of the best one's seconds in which another one has to be done to be called quicker."""
POOR: Final = 60.0
WEIGHTS: Final[Mapping[str, float]] = {"kept": 0.3, "answered": 0.4, "told": 0.2, "called": 0.1}
"""How much the parts of a score count: what the prompt has, the answers, what summaries tell themselves, and calls."""
MOST_TAKEN: Final = 10.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. Shares are per cent, None where there was nothing to keep or nothing was asked.

    `told` is the share of the facts that the summaries tell in the pruning agent's own words: what code quotes besides
    hides how much that is. `seconds` and `tokens` are those of one compaction: the time that it takes, and the prompt
    that is left.
    """

    pruner: str
    identifiers: float | None
    constraints: float | None
    newest: float | None
    told: float | None = None
    answered: float | None = None
    called: float | None = None
    made_up: int = 0
    by_code: int = 0
    compactions: int = 0
    conversations: int = 0
    seconds: float | None = None
    tokens: int | None = None
    is_control: bool = False

    @property
    def score(self) -> float:
        """Return how good it is, of 100; each made-up identifier of a conversation takes one point, ten at most."""
        kept = [share for share in (self.identifiers, self.constraints, self.newest) if share is not None]
        parts: dict[str, float | None] = {name: getattr(self, name) for name in WEIGHTS if name != "kept"}
        parts["kept"] = sum(kept) / len(kept) if kept else None
        known = {name: share for name, share in parts.items() if share is not None}
        if not known:
            return 0.0
        mean = sum(WEIGHTS[name] * share for name, share in known.items()) / sum(WEIGHTS[name] for name in known)
        return mean - min(MOST_TAKEN, self.made_up / max(1, self.conversations))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "score": round(self.score, 1)}


def lines_of(results: Mapping[str, Result], controls: Mapping[str, Grade]) -> list[Line]:
    """Return the lines of the table, the best first, the controls last."""
    pruners = [_line(pruner, result) for pruner, result in results.items() if result.compactions]
    pruners.sort(key=lambda line: (-round(line.score), line.seconds or 0.0))
    return [*pruners, *(_control(name, grade) for name, grade in controls.items())]


def advice_on(lines: Sequence[Line], ways: Mapping[str, str]) -> str:
    """Return in a few words which pruning agent to choose, and how it is set; empty where nothing was asked yet."""
    asked = [line for line in lines if line.answered is not None]
    if not asked:
        return ""
    best, others = asked[0], asked[1:]
    if best.score < POOR:
        return (
            f"None of them keeps enough: with {best.pruner}, the best, the model answers {best.answered:.0f} % right. "
            "Try a larger model as the pruning agent."
        )
    own = ", the model of the chat itself" if best.pruner == SAME_AGENT else ""
    told = f"Choose {best.pruner}{own}: after it the model answers {best.answered:.0f} % of the questions right"
    told += f", and a compaction takes {best.seconds:.0f} s." if best.seconds is not None else "."
    told += f" It is set by {ways[best.pruner]}." if best.pruner in ways else ""
    for other in others:
        is_quicker = (other.seconds or 0.0) < QUICKER * (best.seconds or 0.0)
        if best.score - other.score <= ALIKE and is_quicker and round(best.seconds or 0):
            return f"{told} {other.pruner} is as good within {ALIKE:.0f} points, and takes {other.seconds:.0f} s."
    return told


def _line(pruner: str, result: Result) -> Line:
    grade, count = result.grade, result.compactions
    return Line(
        pruner,
        *_kept(grade),
        _share(grade.tallies["own"].inside, grade.tallies["own"].total),
        _share(result.answered.inside, result.answered.total),
        _share(result.called.inside, result.called.total),
        grade.made_up + grade.by_code,
        result.by_code,
        count,
        grade.prompts,
        round(result.seconds / count, 1),
        result.tokens // count,
    )


def _control(name: str, grade: Grade) -> Line:
    return Line(name, *_kept(grade), is_control=True)


def _kept(grade: Grade) -> tuple[float | None, float | None, float | None]:
    first, second, third = (_share(grade.tallies[name].inside, grade.tallies[name].total) for name in KEPT)
    return first, second, third


def _share(right: int, of: int) -> float | None:
    return round(100 * right / of, 1) if of else None
