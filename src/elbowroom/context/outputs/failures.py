"""Finds what failed in the output of a command: the lines that say so, with the lines around them, word for word.

Test runners, compilers, linters and package managers say it in some dozen general forms, which are known here; no
output is parsed. An exit code decides where there is one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MOST_AROUND: Final = 1500
"""Characters that are kept around one failure."""
MOST_KEPT: Final = 4 * MOST_AROUND
"""Characters that are kept of one output; of many failures the first ones stay, and the last."""
BEFORE, AFTER = 3, 8
"""Lines that are kept before and after the lines that tell of a failure."""
LONGEST_LINE: Final = 600
LEFT_OUT: Final = "[…]"
"""Stands for lines that are left out."""
REMEMBERED: Final = 512

SHORT: Final = 400
"""Characters up to which the output of a command that reads may be its own complaint."""

ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
EXIT: Final = re.compile(
    r"(?:\b(?:exit(?:ed)?(?: with)?[ _-]?(?:code|status)|return[ _-]?code|exited with)\b|^exit\b)[\"']?\s*[:=]?\s*"
    r"(?P<code>-?\d+)\b",
    re.IGNORECASE,
)
PASSED: Final = re.compile(
    r"\b[1-9]\d* (?:passed|passing)\b|\btest result: ok\b|^OK\b|\bBUILD SUCCESS|^# fail 0$|^ok\s+\S+\s+[\d.]+s"
)
COUNTED: Final = re.compile(r"\b[1-9]\d* (?:failed|failing|failures?|errors?)\b|\bFAILED\b|^(?:FAIL|not ok)\b")
"""A verdict that success elsewhere in the output does not take back."""
NOTHING_FAILED: Final = re.compile(
    r"\b(?:0|no|without(?: any)?|zero) (?:\w+ )?(?:errors?|failures?|failed|failing)\b"
    r"|\b(?:errors?|failures?|failed|failing)\s*[:=]\s*(?:0|none|false|null)\b|-W(?:no-)?error",
    re.IGNORECASE,
)
SAID: Final = (
    r"(?:command )?not found|no such file or directory|does not exist|cannot \w+|can't \w+|unable to \w+|could not \w+"
    r"|failed to \w+|(?:permission|access|operation) (?:was )?(?:denied|not permitted)|is not recognized"
    r"|undefined (?:reference|symbol)|connection (?:refused|reset|timed out)|timed out|out of memory|no rule to make"
    r"|missing script|syntax error|not a git repository|already exists|unexpected \w+|invalid \w+|aborted|requires \w+"
)
VERDICTS: Final = {
    "test runners": (
        r"^(?:FAILED|FAIL|ERROR|not ok|--- FAIL)\b|\.\.\. (?:FAILED|FAIL|ERROR)$|\bFAILED\b"
        r"|\b[1-9]\d* (?:failed|failing|failures?|errors?)\b|^(?:=+|_+|-+) (?:FAILURES|ERRORS)\b|^E\s{2,}\S"
        r"|^\s*[✕✗×✖❌●] |^\s+\d+\) \S"
    ),
    "traces": (
        r"^\s*Traceback \(most recent call last\)|^Caused by:|^Exception in thread\b|\bUncaught\b|\bpanicked at\b"
        r"|^panic: |\baborted due to\b|^Segmentation fault|^Killed$|^Aborted\b"
        r"|^\s*\w*(?:\.\w+)*(?:Error|Exception)\b(?:: |$| \[)"
    ),
    "compilers and linters": (
        r"(?:^|[\s:│])(?:fatal |internal |syntax )?error(?:\[\w+\]| TS\d+)?: |^\s*(?:\w+ )?Error: "
        r"|^\s*\d+:\d+\s+error\s|^\S+:\d+(?::\d+)?: [A-Z]+\d+\b|^[A-Z]{1,4}\d{3,4} \S"
        r"|^\S+\.go:\d+:\d+: |\berror generated\b"
    ),
    "builders and package managers": (
        r"\*\*\* |^\[ERROR\]|^ERROR:? |\bBUILD FAIL|^npm (?:ERR!|error)|\bERR_[A-Z]+|^\s*ERR |\bWhat went wrong:"
        r"|^(?:fatal|critical|abort): |^CONFLICT\b"
    ),
    "shells": rf"^(?!\S+:\d+[:-])(?:[^:\n]{{1,80}}+: )++[^\n]*?(?i:{SAID})|^(?i:{SAID})",
}
"""What a line has where something failed, by the kind of program that writes it."""
VERDICT: Final = re.compile("|".join(VERDICTS.values()))
IN_ANY_CASE: Final = re.compile(
    r"\berror\b\s*[:\[(]|\bfailed\b|\bfailure\b|\bfatal\b|\bexception\b\s*[:\[(]|\bnot found\b|\bdenied\b|\brefused\b",
    re.IGNORECASE,
)
"""Words that tell of a failure where it is known already that there is one."""


@dataclass(slots=True)
class _Part:
    """Lines `first` to `last`, of which those in between tell of one failure."""

    first: int
    last: int


@lru_cache(maxsize=REMEMBERED)
def failure_in(text: str, *, only_reads: bool = False) -> str | None:
    """Return the failing parts of a command's output, at most 6,000 characters of it; None where nothing failed.

    Each part has at most 1,500 characters; lines are whole, but for very long ones. Left out lines leave a mark. The
    output of a command that `only_reads` speaks of other things: without an exit code only a short one can have failed.
    """
    lines = text.splitlines()
    plain = [ESCAPES.sub("", line)[:LONGEST_LINE] for line in lines]
    code = _exit_code(plain)
    if code == 0 or (code is None and only_reads and len(text) > SHORT):
        return None
    told = _telling(plain, VERDICT)
    if code is None and (not told or _is_taken_back(plain, told)):
        return None
    if len(text) <= MOST_AROUND:
        return text
    told = told or _telling(plain, IN_ANY_CASE) or [len(lines) - 1]
    return _joined(lines, _chosen(lines, _parts(told, len(lines))))


def _exit_code(lines: Sequence[str]) -> int | None:
    """Return the exit code that the first or the last line names."""
    ends = [line for line in (*lines[:1], *lines[-2:]) if line]
    found = next((match for line in reversed(ends) if (match := EXIT.search(line))), None)
    return int(found["code"]) if found else None


def _telling(lines: Sequence[str], what: re.Pattern[str]) -> list[int]:
    return [at for at, line in enumerate(lines) if what.search(line) and not NOTHING_FAILED.search(line)]


def _is_taken_back(lines: Sequence[str], told: Sequence[int]) -> bool:
    """Tell whether an output reports success after all that sounds like a failure, and counts no failure."""
    has_passed = any(map(PASSED.search, lines[told[-1] + 1 :]))
    return has_passed and not any(COUNTED.search(lines[at]) for at in told)


def _parts(told: Sequence[int], count: int) -> Iterator[_Part]:
    """Yield the parts around the telling lines; lines that are near each other are in one."""
    part: _Part | None = None
    for at in told:
        first, last = max(0, at - BEFORE), min(count - 1, at + AFTER)
        if part is not None and first <= part.last + 1:
            part.last = last
            continue
        if part is not None:
            yield part
        part = _Part(first, last)
    if part is not None:
        yield part


def _chosen(lines: Sequence[str], parts: Iterator[_Part]) -> list[_Part]:
    """Return the parts that are kept: the last, which mostly sums up, and the first ones as far as there is room."""
    *before, last = [shorter for part in parts for shorter in _cut(lines, part)]
    left = MOST_KEPT - _length(lines, last)
    chosen = []
    for part in before:
        left -= _length(lines, part)
        if left < 0:
            break
        chosen.append(part)
    return [*chosen, last]


def _cut(lines: Sequence[str], part: _Part) -> Iterator[_Part]:
    """Yield a part in pieces of at most 1,500 characters."""
    first, length = part.first, 0
    for at in range(part.first, part.last + 1):
        length += min(len(lines[at]), LONGEST_LINE) + 1
        if length > MOST_AROUND and at > first:
            yield _Part(first, at - 1)
            first, length = at, min(len(lines[at]), LONGEST_LINE) + 1
    yield _Part(first, part.last)


def _length(lines: Sequence[str], part: _Part) -> int:
    return sum(min(len(line), LONGEST_LINE) + 1 for line in lines[part.first : part.last + 1])


def _joined(lines: Sequence[str], parts: Sequence[_Part]) -> str:
    """Return the parts as text, with a mark wherever lines are left out."""
    written: list[str] = []
    end = 0
    for part in parts:
        if part.first > end:
            written.append(LEFT_OUT)
        written += [_shortened(line) for line in lines[part.first : part.last + 1]]
        end = part.last + 1
    return "\n".join([*written, *([LEFT_OUT] if end < len(lines) else [])])


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
