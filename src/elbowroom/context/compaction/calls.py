"""Sums up calls of tools without asking a model: what was read, changed, run and looked for, and which errors came."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from elbowroom.context.compaction.division import is_summary_message
from elbowroom.context.outputs import (
    ToolOutputRef,
    brief_failure,
    error_below,
    failure_of,
    is_stub,
    kind_of,
    one_line,
    outcome_of_tests,
    standing_out,
    stub,
    target_of,
)
from elbowroom.context.outputs import ref_of as ref_of_stub
from elbowroom.context.transcript import Group, Message, Use, text_of, uses_in
from elbowroom.settings.model import ToolKind

MOST_TOKENS: Final = 500
LISTED: Final = (12, 6, 3, 1, 0)
"""How many of a kind are named, from much room to little."""

LONGEST_NAMED: Final = 60
INDENT: Final = "    "
FAILED_TEST: Final = re.compile(r"^FAILED (\S+)", re.MULTILINE)
MOST_FAILED: Final = 5
NOUNS: Final[dict[ToolKind, tuple[str, str]]] = {
    "read": ("read 1 file", "read {} files"),
    "write": ("1 edit", "{} edits"),
    "execute": ("ran 1 command", "ran {} commands"),
    "query": ("1 search", "{} searches"),
    "other": ("1 other call", "{} other calls"),
}

NOTE: Final = re.compile(
    r'[\d,]+ results of earlier calls are listed, each with its id, by tool_output_cache\(ref_id="(?P<ref>\w+)"\)\.'
)


@dataclass(frozen=True, slots=True)
class RemovedCalls:
    """What a summary tells of removed calls: `results` says where their results can be read, if anywhere.

    Where no pruning agent sums up what they did, the code does, in at most `most_tokens`, and with `keeps_errors` the
    words of those that failed beside. `kinds` are the declared kinds of tools.
    """

    results: str = ""
    most_tokens: int = MOST_TOKENS
    kinds: Mapping[str, ToolKind] = field(default_factory=dict)
    keeps_errors: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """One call: its kind, its tool, its target, the error that it ended in, if any, and its outcome.

    That is what its tests came to, or what stands out in its output. `brief` is the error in one line.
    """

    kind: ToolKind
    tool: str
    target: str
    outcome: str
    error: str | None
    brief: str = ""


def summary_of_calls(
    groups: Sequence[Group],
    size: Callable[[str], int],
    room: int,
    kinds: Mapping[str, ToolKind] | None = None,
    *,
    keeps_errors: bool = True,
) -> str:
    """Return in one line what the calls of these groups did, within `room` as `size` counts; empty if nothing fits.

    With `keeps_errors` errors follow below, one a paragraph and word for word, the newest ones as far as they fit.
    `kinds` are the declared kinds of tools.
    """
    calls = [_done(use, kinds or {}) for group in groups for use in uses_in(group.messages)]
    if not calls:
        return ""
    errors = [call for call in calls if call.error is not None]
    for listed in LISTED:
        told = _told(calls, listed)
        if size(told) <= room:
            return _with_errors(told, errors, size, room) if keeps_errors else told
    return ""


def _done(use: Use, kinds: Mapping[str, ToolKind]) -> Done:
    """Return what a call has done."""
    kind, text = kind_of(use.name, kinds), use.text
    below = error_below(text)
    error = failure_of(kind, use.arguments, text) if below is None else below
    outcome = _outcome(kind, text) or (standing_out(kind, text) if error is None else "")
    brief = brief_failure(text if below is None else below) if error is not None else ""
    return Done(kind, use.name, target_of(kind, use.arguments), outcome, error, brief)


def _outcome(kind: ToolKind, text: str) -> str:
    """Return the outcome of the tests that a command ran, with the names of those that failed."""
    counts = outcome_of_tests(text) if kind == "execute" else ""
    failed = FAILED_TEST.findall(text)[:MOST_FAILED] if counts else []
    return f"{counts} ({', '.join(one_line(name, LONGEST_NAMED) for name in failed)})" if failed else counts


def _told(calls: Sequence[Done], listed: int) -> str:
    parts = [_of_kind(kind, [call for call in calls if call.kind == kind], listed) for kind in NOUNS]
    failed = sum(call.error is not None for call in calls)
    return "; ".join(filter(None, [*parts, f"{failed} of these failed" if failed else ""]))


def _of_kind(kind: ToolKind, calls: Sequence[Done], listed: int) -> str:
    names = list(dict.fromkeys(filter(None, map(_named, calls))))
    number = len(names) if kind == "read" and names else len(calls)
    if not number:
        return ""
    one, many = NOUNS[kind]
    told = one if number == 1 else many.format(number)
    if not names or not listed:
        return told
    failed = list(dict.fromkeys(_named(call) for call in calls if call.error is not None))[-listed:]
    newest = [*(name for name in names if name not in failed), *failed][-listed:]
    return f"{told}: {', '.join(name for name in names if name in newest)}{', …' if len(names) > listed else ''}"


def _named(call: Done) -> str:
    what = one_line(call.target, LONGEST_NAMED)
    if call.kind == "other":
        what = " ".join(filter(None, (one_line(call.tool, LONGEST_NAMED), what)))
    has_failed = bool(what) and call.kind == "execute" and call.error is not None
    outcome = call.outcome or ("failed" if has_failed else "")
    return ": ".join(filter(None, (what, outcome)))


def _with_errors(told: str, failed: Sequence[Done], size: Callable[[str], int], room: int) -> str:
    """Return the line with the errors below it, in the order in which they came: each in one line, the newest first.

    Where there is room left then, errors stand there word for word, the newest first again. Lines are indented, so that
    no tool writes a line of the summary's own.
    """
    times = Counter((call.tool, call.error) for call in failed)
    each = {(call.tool, call.error): call for call in failed}
    below: dict[tuple[str, str | None], str] = {}
    for is_brief in (True, False):
        for key, call in reversed(each.items()):
            words = call.brief if is_brief else f"\n{INDENT}".join((call.error or "").splitlines())
            often = f" ({times[key]} times)" if times[key] > 1 else ""
            wanted = {**below, key: f"{INDENT}{one_line(call.tool, LONGEST_NAMED)} failed{often}: {words}"}
            if size("\n".join([told, *(wanted[key] for key in each if key in wanted)])) <= room:
                below = wanted
    return "\n".join([told, *(below[key] for key in each if key in below)])


def results_in(messages: Sequence[Message]) -> Iterator[tuple[Message, str, str]]:
    """Yield each message with name and arguments of the call that it answers; both are empty for other messages."""
    answered = {use.result: use for use in uses_in(messages)}
    for place, message in enumerate(messages):
        use = answered.get(place)
        yield message, use.name if use else "", use.arguments if use else ""


def index_of(
    messages: Sequence[Message], kinds: Mapping[str, ToolKind], ref_of: Callable[[Message], str | None]
) -> tuple[str, int]:
    """Return one line for each result that can be read again, oldest first, and how many results these are.

    Lists that earlier compactions have left are named first. A history without new results has no index of its own.
    """
    lines = [f"[an earlier list; ref={ref}]" for ref in lists_named_in(messages)]
    count = 0
    for message, name, arguments in results_in(messages):
        text = text_of(message)
        if message.get("role") != "tool" or (ref := ref_of(message)) is None:
            continue
        is_ours = is_stub(text) and ref_of_stub(text) == ref
        line = text if is_ours else stub(kind_of(name, kinds), name or "a tool", arguments, text, ref)
        lines.append(line.partition("\n")[0])
        count += 1
    return ("\n".join(lines), count) if count else ("", 0)


def note_on(ref: ToolOutputRef, count: int) -> str:
    """Return the summary's note on where the list of removed results can be read."""
    return f'{count:,} results of earlier calls are listed, each with its id, by tool_output_cache(ref_id="{ref.id}").'


def lists_named_in(messages: Sequence[Message]) -> list[str]:
    """Return the ids of the lists that earlier compactions have left, oldest first."""
    summaries = map(text_of, filter(is_summary_message, messages))
    return [found["ref"] for text in summaries for found in NOTE.finditer(text)]
