"""Finds what failed in an output: the lines that say so, with the lines around them, word for word.

No program is known here, and no output is parsed. An exit code decides whether something failed, where there is one; a
few general words tell it where there is none. What else counts, rarity tells: what a program says again and again
with other names ("test a ... ok", "Compiling b") is one form, however many lines have it, and a line that departs from
it stands out, whatever words it has.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from math import log
from typing import Final

MOST_AROUND: Final = 1500
"""Characters that are kept around one failure."""
MOST_KEPT: Final = 4 * MOST_AROUND
"""Characters that are kept of one output."""
BEFORE, AFTER = 3, 8
"""Lines that are kept before and after the lines that tell of a failure."""
MOST_BESIDE: Final = 60
"""Lines before and after that are looked at."""
LONGEST_LINE: Final = 600
LEFT_OUT: Final = "[…]"
"""Stands for lines that are left out."""
REMEMBERED: Final = 512
MOST_READ: Final = 1_000_000
"""Characters that are read of one output: of a longer one half of them at each end."""
SHORT: Final = 400
"""Characters up to which the output of a command that reads may be its own complaint."""
LONGEST_ENDS: Final = 3000
"""Characters at either end among whose lines an exit code is looked for."""
AT_ENDS: Final = 5
"""Lines at the beginning and at the end among which an exit code, or a program's last complaint, stands."""
ONE_IN: Final = 20
"""A line stands out where at most one in so many lines is as rare in its form."""
STANDS_OUT: Final = log(ONE_IN)
FEW: Final = 4
"""A word that at most one in so many lines has at its place is a name there, and no part of the form."""

WORDS: Final = re.compile(r"\w")
ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
DIGITS: Final = re.compile(r"\d+")
EXIT: Final = re.compile(
    r"(?:\b(?:exit(?:ed)?(?: with)?[ _-]?(?:code|status)|return[ _-]?code|exited with)\b|^exit\b)[\"']?\s*[:=]?\s*"
    r"(?P<code>-?\d+)\b",
    re.IGNORECASE,
)
FAILED: Final = re.compile(
    r"(?<![\w/])(?<!\w[.-])(?i:errors?|failed|failures?|failing|fails?|fatal|panic(?:ked)?|exception|traceback|abort(?:ed|ing)?"
    r"|err!|not ok|uncaught|killed|segmentation fault|core dumped|unsuccessful(?:ly)?)(?!\w|[-./]\w)"
    r"|(?i:\b(?:did not|didn't|not) (?:\w+ )?(?:complete|succeed|successful|pass)\w*)"
    r"|\b[A-Z]\w*(?:Error|Exception)\b|\bERR_\w+|^\s*[×●] |(?:^|\s)[✕✗✘✖❌]\s"
)
"""Words that say by themselves that something failed."""
AT_PLACE: Final = re.compile(r"^\s*[\w./\\@-]+\.\w+:\d+:\d+:? (?!\s*(?i:warn|note|info|hint|help|remark))")
"""A diagnosis: a file, a line and a column before the words."""
COMPLAINT: Final = re.compile(
    r"(?i)\b(?:not found|no such|does not exist|doesn't exist|cannot|can't|can not|could(?: not|n't)|unable to|denied"
    r"|refused|rejected|forbidden|unauthorized|not permitted|not allowed|not recognized|unrecognized|unknown|undefined"
    r"|unresolved|unexpected|invalid|illegal|unsupported|missing|mismatch\w*|conflicts?|violat\w+|already exists"
    r"|timed[ -]?out|timeout|out of memory|no space left|unreachable|broken|corrupt\w*|incompatible|no rule|requires?"
    r"|required|expected|exceeded|expired|unsatisfi\w+|not a \w+|is not|problems?|warn(?:ing)?)\b"
)
"""Words that tell of a failure where it is known that there is one, or where they are a program's last ones."""
WARNING: Final = re.compile(r"^\W*(?:\w+ )?(?i:warn(?:ing)?|deprecated)\b")
NOTHING_FAILED: Final = re.compile(
    r"\b(?:0|no|without(?: any)?|zero) (?:\w+ )?(?:errors?|failures?|failed|failing|problems?|conflicts?)\b"
    r"|\b(?:errors?|failures?|failed|failing|fail|problems?)(?:\(s\))?\s*[:=]?\s*(?:0|none|false|null)\b"
    r"|\bif \w+ fails\b",
    re.IGNORECASE,
)
PASSED: Final = re.compile(
    r"\b[1-9]\d* (?:passed|passing|succeeded|successful)\b|\bok\. \d|^OK\b|^ok\s+\S+\s+[\d.]+s"
    r"|(?i:\bsuccess(?:ful(?:ly)?)?\b)"
)
"""What an output says at its end after all that sounds like a failure, where nothing failed."""
COUNTED: Final = re.compile(
    r"\b[1-9]\d* (?:failed|failing|failures?|errors?)\b|\b(?i:failed|failures?|errors?)\s*[:=]\s*[1-9]|\bFAILED\b"
    r"|^\W*(?:FAIL|not ok)\b"
)
"""A verdict that success elsewhere in the output does not take back."""


@dataclass(frozen=True, slots=True)
class Part:
    """Lines `first` to `last` of an output, both from 0; the greater the weight, the more they stand out.

    `core` is the line that says most.
    """

    first: int
    last: int
    weight: float
    core: int

    def moved(self, by: int) -> "Part":
        """Return the part so many lines further down."""
        return Part(self.first + by, self.last + by, self.weight, self.core + by)

    def cut_at(self, line: int) -> "Part":
        """Return the part without this line and those below it."""
        return Part(self.first, min(self.last, line - 1), self.weight, min(self.core, line - 1))


@lru_cache(maxsize=REMEMBERED)
def failure_in(text: str, *, only_reads: bool = False) -> str | None:
    """Return the failing parts of a command's output, at most 6,000 characters of it; None where nothing failed.

    Each part has at most 1,500 characters; lines are whole, but for very long ones. Left out lines leave a mark. The
    output of a command that `only_reads` speaks of other things: without an exit code only a short one can have failed.
    """
    parts = failing_parts(text, only_reads=only_reads)
    if not parts:
        return None
    if len(text) <= MOST_AROUND:
        return text
    lines = text.split("\n")
    return _joined(lines, sorted(_chosen(lines, parts), key=lambda part: part.first))


def failing_parts(text: str, *, only_reads: bool = False) -> list[Part]:
    """Return the parts of an output that tell what failed, in their order; none where nothing failed."""
    return _parts_of(text, partial(_failing, only_reads=only_reads and len(text) > SHORT))


def parts_to_show(text: str, *, only_reads: bool = False) -> list[Part]:
    """Return the same where something failed, else the parts whose lines stand out among all."""
    fails = partial(_failing, only_reads=only_reads and len(text) > SHORT)
    return _parts_of(text, lambda lines: fails(lines) or lines.standing_out())


@lru_cache(maxsize=REMEMBERED)
def lines_standing_out(text: str) -> Sequence[str]:
    """Return the lines of an output that stand out among all; none where an exit code says that all is well."""
    lines = _Lines.of(text[:MOST_READ].split("\n"))
    if _exit_code(lines.plain) == 0:
        return ()
    return tuple(lines.plain[at] for at in lines.standing_out())


@lru_cache(maxsize=REMEMBERED)
def lines_that_fail(text: str) -> Sequence[str]:
    """Return the lines that say what failed, those that stand out most first; none where nothing failed."""
    lines = _Lines.of(text[:MOST_READ].split("\n"))
    told = _failing(lines, only_reads=False)
    return tuple(lines.plain[at] for at in sorted(told, key=lambda at: -lines.weights[at]))


def _parts_of(text: str, telling: Callable[["_Lines"], Iterable[int]]) -> list[Part]:
    """Return the parts around the lines that tell, of a very long text those in its beginning and its end."""
    if len(text) > MOST_READ:
        head, tail = text[: MOST_READ // 2].split("\n"), text[-MOST_READ // 2 :].split("\n")
        before, after = len(head), text.count("\n") + 1 - len(tail)
        lines = _Lines.of([*head, *tail])
        found = _parts(telling(lines), lines)
        return [part.moved(after - before) if part.first >= before else part.cut_at(before) for part in found]
    lines = _Lines.of(text.split("\n"))
    return list(_parts(telling(lines), lines))


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of an output without the marks of a terminal, and how much each stands out among all."""

    plain: Sequence[str]
    weights: Sequence[float]

    @classmethod
    def of(cls, lines: Iterable[str]) -> "_Lines":
        plain = [ESCAPES.sub("", line)[:LONGEST_LINE] for line in lines]
        return cls(plain, _weights(plain))

    def stands_out(self, at: int) -> bool:
        """Tell whether hardly any line has a form as rare as this one's."""
        return self.weights[at] > STANDS_OUT

    def standing_out(self) -> list[int]:
        """Return the places of the lines that stand out."""
        return [at for at, weight in enumerate(self.weights) if weight > STANDS_OUT]


def _failing(lines: _Lines, *, only_reads: bool) -> list[int]:
    """Return the places of the lines that say what failed; where something did, those that stand out say so too."""
    plain = lines.plain
    code = _exit_code(plain)
    if code == 0 or (code is None and only_reads):
        return []
    told = [at for at, line in enumerate(plain) if _says_failed(line)]
    if code is None and told and _is_taken_back(plain, told):
        return []
    if not told:
        told = [at for at, line in enumerate(plain) if COMPLAINT.search(line) and not NOTHING_FAILED.search(line)]
        if code is None:
            last = [at for at, line in enumerate(plain) if line.strip()][-AT_ENDS:]
            told = [at for at in told if (at in last or lines.stands_out(at)) and not WARNING.match(plain[at])]
    if not told and code is not None:
        told = [max(0, len(plain) - 1)]
    return sorted({*told, *lines.standing_out()}) if told else []


def _says_failed(line: str) -> bool:
    found = FAILED.search(line) or AT_PLACE.search(line)
    return found is not None and not NOTHING_FAILED.search(line) and not WARNING.match(line)


def exit_code_in(text: str) -> int | None:
    """Return the exit code that ends one of the first or last five lines of a text, in words or in JSON."""
    lines = [*text[:LONGEST_ENDS].split("\n")[:AT_ENDS], *text[-LONGEST_ENDS:].rstrip().split("\n")[-AT_ENDS:]]
    return _exit_code([line for line in lines if (found := EXIT.search(line)) and not WORDS.search(line, found.end())])


def _exit_code(lines: Sequence[str]) -> int | None:
    """Return the exit code that one of the first or last lines names."""
    ends = [line for line in (*lines[:AT_ENDS], *lines[-AT_ENDS:]) if line]
    found = next((match for line in reversed(ends) if (match := EXIT.search(line))), None)
    return int(found["code"]) if found else None


def _is_taken_back(lines: Sequence[str], told: Sequence[int]) -> bool:
    """Tell whether an output reports success after all that sounds like a failure, and counts no failure.

    What most lines say of themselves is no verdict.
    """
    passed = [at for at, line in enumerate(lines) if PASSED.search(line)]
    is_verdict = len(passed) <= max(AT_ENDS, len(lines) // ONE_IN)
    return is_verdict and passed[-1:] > [told[-1]] and not any(COUNTED.search(lines[at]) for at in told)


def _weights(lines: Sequence[str]) -> list[float]:
    """Return how much each line stands out: the fewer lines have forms as rare as its own or rarer, the more.

    Where all lines differ, none stands out; a line that says that something failed does so twice as much.
    """
    forms = _forms([DIGITS.sub("0", line).split() for line in lines])
    common = Counter(forms)
    lines_by_count = Counter(common[form] for form in forms)
    counts = sorted(lines_by_count)
    as_rare = dict(zip(counts, accumulate(lines_by_count[count] for count in counts), strict=True))
    weights = [log(len(lines) / as_rare[common[form]]) if form else 0.0 for form in forms]
    return [
        2 * weight if weight and _says_failed(line) else weight for line, weight in zip(lines, weights, strict=True)
    ]


def _forms(bags: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the forms of lines given as words: what many lines with as many words have in the same place, else a gap.

    Words that tell of a failure belong to a form, too.
    """
    alike = Counter(map(len, bags))
    places = Counter((len(bag), place, word) for bag in bags for place, word in enumerate(bag))
    return [
        tuple(
            word if places[len(bag), place, word] * FEW > alike[len(bag)] or FAILED.search(word) else ""
            for place, word in enumerate(bag)
        )
        for bag in bags
    ]


def _parts(told: Iterable[int], lines: _Lines) -> Iterator[Part]:
    """Yield the parts around the telling lines, each of at most 1,500 characters; neighbouring lines share one."""
    by_place = {at: lines.weights[at] for at in told}
    around = sorted({near for at in by_place for near in _around(at, lines)})
    first = length = 0
    for place, at in enumerate(around):
        length += min(len(lines.plain[at]), LONGEST_LINE) + 1
        follows = place > first and around[place - 1] == at - 1
        if place and (not follows or length > MOST_AROUND):
            yield _part(around[first:place], by_place)
            first, length = place, min(len(lines.plain[at]), LONGEST_LINE) + 1
    if around:
        yield _part(around[first:], by_place)


def _around(at: int, lines: _Lines) -> range:
    """Return the places of the lines around a telling one: a few, and all that stand out beside it."""
    end = len(lines.weights) - 1
    first, last = max(0, at - BEFORE), min(end, at + AFTER)
    while first > max(0, at - MOST_BESIDE) and lines.stands_out(first - 1):
        first -= 1
    while last < min(end, at + MOST_BESIDE) and lines.stands_out(last + 1):
        last += 1
    return range(first, last + 1)


def _part(places: Sequence[int], weights: Mapping[int, float]) -> Part:
    core = max(places, key=lambda at: weights.get(at, 0.0))
    return Part(places[0], places[-1], weights.get(core, 0.0), core)


def _chosen(lines: Sequence[str], parts: Sequence[Part]) -> list[Part]:
    """Return the parts that are kept: the last, which mostly sums up, and those that stand out most of the others."""
    *before, last = parts
    left = MOST_KEPT - _length(lines, last)
    chosen = [last]
    for part in sorted(before, key=lambda part: -part.weight):
        left -= _length(lines, part)
        if left < 0:
            break
        chosen.append(part)
    return chosen


def _length(lines: Sequence[str], part: Part) -> int:
    return sum(min(len(line), LONGEST_LINE) + 1 for line in lines[part.first : part.last + 1])


def _joined(lines: Sequence[str], parts: Sequence[Part]) -> str:
    """Return the parts as text, with a mark wherever lines are left out."""
    written: list[str] = []
    end = 0
    for part in parts:
        if part.first > end:
            written.append(LEFT_OUT)
        inside = lines[part.first : part.last + 1]
        written += [line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…" for line in inside]
        end = part.last + 1
    return "\n".join([*written, *([LEFT_OUT] if end < len(lines) else [])])
