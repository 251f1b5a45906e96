"""Judges a compaction by code alone: what of the conversation the shorter one still holds."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from elbowroom.context.compaction.answer import Plan
from elbowroom.context.compaction.coverage import Coverage, sentences_of
from elbowroom.context.compaction.division import QUOTING, Division, carried_by, is_summary, said_in
from elbowroom.context.compaction.identifiers import find_identifiers, stands_in
from elbowroom.context.compaction.outcome import Verdict
from elbowroom.context.transcript import Group, Message, called, calls_of, object_in, text_of, uses_in

OWN_FIGURES: Final = re.compile(
    r"tool_output_cache(?:_grep)?|recall_conversation|\(\d+ steps? (?:is|are) not listed\.\)|"
    r"[\d,]+ characters|[\d,]+ results of earlier calls|\bref(?:_id)?=\"?\w+\"?|"
    r"(?:read|ran) \d+ \w+|\d+ (?:edits?|searches|search|other calls?|of these failed)|\(\d+ times\)|[\d,]+ bytes"
)
"""What elbowroom itself names and counts in a summary."""

RANGE: Final = re.compile(r"\d+-\d+")
MOST_EXAMPLES: Final = 2
MOST_SEARCHED: Final = 2_000_000
"""Characters in which the identifiers of a summary are looked for; in a longer history none counts as made up."""


def judge(division: Division, coverage: Coverage, plan: Plan, after: Sequence[Message]) -> Verdict:
    """Judge the messages after a compaction, by a plan, of what was divided so."""
    facts, lost = coverage.lost(division.removed, after)
    broken = max(0, unpaired(after) - unpaired(division.messages))
    quoted = sum(heading in QUOTING for heading, _ in _lines_of(after))
    return Verdict(facts, quoted, len(lost), plan.named, plan.made_up, broken, tuple(lost[:MOST_EXAMPLES]))


def without_made_up(plan: Plan, messages: Sequence[Message]) -> Plan:
    """Return a plan without the sentences that name what stands in none of the messages."""
    named = identifiers_in("\n".join([plan.retain, plan.summary, *(what for _, what in plan.to_do)]))
    unsaid = _unsaid(named, messages)
    if not unsaid:
        return replace(plan, named=len(named))
    retain, summary = ("\n".join(_said_lines(text, unsaid)) for text in (plan.retain, plan.summary))
    to_do = tuple(thing for thing in plan.to_do if not identifiers_in(thing[1]) & unsaid)
    return replace(plan, retain=retain, summary=summary, to_do=to_do, named=len(named), made_up=len(unsaid))


def _said_lines(text: str, unsaid: set[str]) -> Iterator[str]:
    """Yield the lines of a text without the sentences that name something of what is unsaid."""
    for line in text.split("\n"):
        said = [sentence for sentence in sentences_of(line) if not identifiers_in(sentence) & unsaid]
        if told := " ".join(said):
            yield told


def own_words(messages: Sequence[Message]) -> str:
    """Return what the summaries among messages tell in words that are no quotations: a pruning agent's, mostly."""
    return "\n".join(line for heading, line in _lines_of(messages) if heading not in QUOTING)


def _lines_of(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    yield from said_in(carried_by([group for each in messages if is_summary(group := Group((each,)))]).body)


def _unsaid(named: set[str], messages: Sequence[Message]) -> set[str]:
    """Return which identifiers stand in none of the messages; none where these are too long to be searched."""
    searched = 0
    for message in messages:
        arguments = (call["function"].get("arguments") for call in calls_of(message) if call.get("function"))
        text = " ".join("\n".join([all_said([message]), *map(str, arguments)]).split()).casefold()
        searched += len(text)
        if searched > MOST_SEARCHED or not named:
            return set()
        named = {each for each in named if not _says(text, " ".join(each.split()).casefold())}
    return named


def _says(text: str, core: str) -> bool:
    """Tell whether a text says this; of a range it may say both ends."""
    ends = core.split("-") if RANGE.fullmatch(core) else []
    return stands_in(core, text) or (len(ends) > 1 and all(stands_in(end, text) for end in ends))


def identifiers_in(told: str) -> set[str]:
    """Return the identifiers in the text of a summary, without what elbowroom itself counts in it."""
    return {each.core for each in find_identifiers(OWN_FIGURES.sub(" ", told))}


def unpaired(prompt: Sequence[Message]) -> int:
    """Return how many calls have no result right after them, and how many results no call before them."""
    uses = list(uses_in(prompt))
    results = sum(1 for message in prompt if message.get("role") == "tool")
    return len(uses) + results - 2 * sum(use.result is not None for use in uses)


def all_said(messages: Sequence[Message]) -> str:
    """Return all that messages say, calls included, each in a line of its own."""
    lines: list[str] = []
    for message in messages:
        lines.append(text_of(message))
        lines += [f"{name} {_values(arguments)}" for name, arguments in called(message)]
    return "\n".join(lines)


def _values(arguments: str) -> str:
    given = object_in(arguments)
    return arguments if given is None else " ".join(map(str, given.values()))
