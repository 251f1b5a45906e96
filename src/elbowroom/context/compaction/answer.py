"""Reads the answer of a pruning agent: a plan or a rewritten conversation, in JSON or nearly so.

Models think aloud, wrap their answer in fences and prose, write tags or headings instead of JSON, stop in the middle,
decline, call a tool, or echo the form they were shown. The complete parts of an answer are used; every other answer
becomes an `Unusable` whose reason can be put to the model in a second order.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elbowroom.context.compaction.division import Division, carried_by, is_summary
from elbowroom.context.compaction.loose_json import Found, find_values, sections_of, spoken
from elbowroom.context.compaction.to_do import DONE, OPEN, Thing, things_named
from elbowroom.context.transcript import SYSTEM_ROLES, Group, Message, called, readable, written

LEAST_LETTERS = 20  # in bytes: a script that says more with a letter needs fewer of them
LONGEST_REFUSAL = 300
LONGEST_RANGE = 200
DEEPEST_WRAPPING = 3
ROLES = ("system", "developer", "user", "assistant", "tool")
REFUSALS = (
    r"(?:unfortunately|sorry|apologies|leider|hmm),?\W{0,5}(?:but )?(?:i|ich|we)\b",
    r"(?:i['’]?m|i am) (?:\w+ )?(?:sorry|afraid|unable|not able)",
    r"i (?:can(?:['’]t|not)|could(?:n['’]t| not)|won['’]t|will not|must decline|apologi[sz]e)",
    r"i do(?:n['’]t| not) (?:have|see)",
    r"my apologies|as an? (?:\w+ )?(?:ai|assistant|language model)|there is no(?:thing| conversation)",
    r"(?:es )?tut mir leid|ich kann (?:\w+ ){0,3}nicht|(?:je suis )?désolée?|je ne peux|lo siento|no puedo",
    r"desculpe|não posso|mi dispiace|non posso|извините|я не могу",
    r"申し訳|すみません|抱歉|很抱歉|对不起|我无法|我不能|죄송",
)
REFUSAL = re.compile(rf"\W{{0,20}}(?:{'|'.join(REFUSALS)})", re.IGNORECASE)
TOOL_CALL = re.compile(r"<tool_call|\[TOOL_CALLS?\]|<function[=_]|<\|python_tag\|>|<\|tool_call|to=functions\.")
ID = re.compile(r"(?<!\d)(\d{1,6})(?!\d)(?: ?(?:-|–|to|bis|\.\.\.?) ?[a-z]?(\d{1,6})(?!\d))?")

Said = tuple[str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to remember, what happened, and the ids of groups that stay word for word.

    `to_do` tells which things to do are open, and then which are done. Of the `named` identifiers in the words of a
    pruning agent nobody has said those `made_up`, as far as that was looked for; their sentences are left out then.
    """

    retain: str
    summary: str
    keep: tuple[int, ...] = ()
    to_do: tuple[Thing, ...] = ()
    named: int = 0
    made_up: int = 0


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A whole conversation as the pruning agent would have it.

    Each message has a role and content or tool calls of the right types; whether calls and results belong together is
    not checked.
    """

    messages: tuple[Mapping[str, Any], ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """An answer that is neither plan nor rewrite, with the reason in words that the pruning agent can act on.

    Of a plan that was cut off `so_far` holds what came up to its last complete line.
    """

    reason: str
    so_far: Plan | None = field(default=None, compare=False)


PruneAnswer = Plan | Rewrite | Unusable


EXAMPLE = Plan("what must hold", "what happened", to_do=((OPEN, "open"), (DONE, "done")))
"""The form that the pruning agent is shown: an answer that repeats its words says nothing."""


PLACEHOLDERS = frozenset(
    {"", EXAMPLE.retain, EXAMPLE.summary, "string", "text", "summary", "retain", "your summary", "your summary here"}
    | {what for _, what in EXAMPLE.to_do}
    | {"summary here", "summary text", "none", "null", "n a", "nothing", "todo", "empty"}
)


EMPTY = Unusable("The answer was empty.")
ONLY_THOUGHT = Unusable("The answer ended before the thinking did. Answer at once, without thinking first.")
CUT_OFF = Unusable("The answer was cut off before its end. Write less.")
TOO_SHORT = Unusable("retain and summary were empty or next to it.")
ECHO = Unusable("The answer repeated the form it was shown. Fill it with what this conversation holds.")
DECLINED = Unusable("The answer was a refusal. Summarising what was said is all that is asked.")
CALLED = Unusable("The answer was a tool call. No tools are needed: write the JSON object itself.")
NO_JSON = Unusable("The answer was no JSON object with retain, summary and keep.")


def read_prune_answer(text: str) -> PruneAnswer:
    """Read an answer, in time linear in its length.

    Of several JSON objects the last usable one counts, since drafts come before the result.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    said = spoken(text)
    if not said:
        return ONLY_THOUGHT if text.strip() else EMPTY
    answer = _from_json(said)
    if not isinstance(answer, Plan | Rewrite) and '{\\"' in said:
        answer = _from_json(said.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\"))
    if isinstance(answer, Plan | Rewrite):
        return answer
    return _from_sections(said) or answer or _complaint(said)


def _from_json(text: str) -> PruneAnswer | None:
    """Return the last usable answer, complete ones before broken ones; else the first reason against one."""
    salvaged: PruneAnswer | None = None
    best: PruneAnswer | None = None
    reason: Unusable | None = None
    for found in find_values(text):
        for unchecked in _answers(found, found.value):
            answer = checked(unchecked) if isinstance(unchecked, Plan) else unchecked
            if isinstance(answer, Unusable):
                reason = reason or answer
            elif found.is_whole:
                best = answer
            else:
                salvaged = answer
    return best or salvaged or reason


def _answers(found: Found, value: Any, depth: int = 0) -> Iterator[PruneAnswer]:
    """Yield the answers in a value, plans unchecked: the value itself, an array's plans joined, or wrapped ones."""
    if depth > DEEPEST_WRAPPING:
        return
    if isinstance(value, list):
        inner = [answer for item in value for answer in _answers(found, item, depth + 1)]
        plans = [answer for answer in inner if isinstance(answer, Plan)]
        yield from [_joined(plans)] if len(plans) > 1 else inner
    elif isinstance(value, str) and "{" in value[:20]:
        for within in find_values(value):
            yield from _answers(within, within.value, depth + 1)
    elif isinstance(value, dict):
        fields = {re.sub(r"[\W_]", "", key).casefold(): item for key, item in value.items()}
        if "prunedconversation" in fields:
            yield _rewrite(found, fields)
        elif {"summary", "retain"} & {*fields, found.open_field[0] if found.open_field else ""}:
            yield _plan(found, fields)
        elif "name" in fields or "function" in fields or len(fields) <= 2:
            if isinstance(schema := fields.get("properties"), dict) and {"retain", "summary"} & schema.keys():
                yield ECHO
            wrapped = [item for key, item in fields.items() if key != "properties"]
            inner = [answer for item in wrapped for answer in _answers(found, item, depth + 1)]
            yield from inner or ([CALLED] if "name" in fields and {"arguments", "parameters"} & fields.keys() else [])


def _rewrite(found: Found, fields: dict[str, Any]) -> PruneAnswer:
    messages, summary = fields["prunedconversation"], _text(fields.get("summary"))
    if not found.is_whole:
        return CUT_OFF if found.is_cut else Unusable("The JSON was broken in prunedConversation.")
    if messages == [] and summary:
        return Plan("", summary)
    if not isinstance(messages, list) or not messages:
        return Unusable("prunedConversation has to be a list of messages.")
    for place, message in enumerate(messages):
        if not _is_message(message):
            return Unusable(f"prunedConversation[{place}] has to be a message with a role and content.")
    return Rewrite(tuple(messages), summary)


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        return False
    content, calls = message.get("content"), message.get("tool_calls") or []
    if not isinstance(content, str | list | None) or not isinstance(calls, list):
        return False
    return bool(content or calls) and all(isinstance(call, dict) for call in calls)


def _plan(found: Found, fields: dict[str, Any]) -> PruneAnswer:
    retain, summary = fields.get("retain"), fields.get("summary")
    if any(isinstance(value, dict) and isinstance(value.get("type"), str) for value in (retain, summary)):
        return ECHO
    if not found.is_whole:
        last, inside = next(reversed(fields.items()), ("", None))
        is_unfinished = last in ("retain", "summary") and isinstance(inside, list | dict)
        if found.is_cut and (is_unfinished or retain is None or not summary):
            name, rest = found.open_field or ("", "")
            texts = {name.casefold(): _complete_lines(rest), **fields}
            return _cut_off(Plan(_text(texts.get("retain")), _text(texts.get("summary"))))
        if is_unfinished or summary is None:
            return Unusable("The JSON was broken before the end of the summary.")
    keep = next((fields[name] for name in ("keep", "keepids", "keepgroups") if name in fields), None)
    to_do = [*things_named(fields.get("todo"), OPEN), *things_named(fields.get("done"), DONE)]
    return Plan(_text(retain), _text(summary), tuple(dict.fromkeys(_ids(keep))), tuple(to_do))


def _from_sections(text: str) -> PruneAnswer | None:
    """Return the plan written in tags or under headings; None where there are none."""
    sections = sections_of(text)
    if sections is None:
        return None
    if sections.is_cut:
        if sections.summary:
            return _cut_off(Plan(sections.retain, _complete_lines(sections.summary)))
        return _cut_off(Plan(_complete_lines(sections.retain), ""))
    return checked(Plan(sections.retain, sections.summary, tuple(dict.fromkeys(_ids(sections.keep)))))


def _cut_off(so_far: Plan) -> Unusable:
    """Return the reason against a plan that was cut off, with what of it can be used, if anything can."""
    usable = checked(so_far)
    return replace(CUT_OFF, so_far=usable) if isinstance(usable, Plan) else CUT_OFF


def _complete_lines(text: str) -> str:
    return text.rpartition("\n")[0].strip()


def _complaint(text: str) -> Unusable:
    if TOOL_CALL.search(text):
        return CALLED
    return DECLINED if REFUSAL.match(text) else NO_JSON


def _joined(plans: list[Plan]) -> Plan:
    keep = dict.fromkeys(number for plan in plans for number in plan.keep)
    retain = "\n".join(plan.retain for plan in plans if plan.retain)
    to_do = tuple(thing for plan in plans for thing in plan.to_do)
    return Plan(retain, "\n".join(plan.summary for plan in plans if plan.summary), tuple(keep), to_do)


def checked(plan: Plan) -> PruneAnswer:
    """Return the plan without placeholders; unusable if nothing is left then."""
    retain, summary = ("" if _is_placeholder(text) else text for text in (plan.retain, plan.summary))
    if not retain and not summary:
        return ECHO if EXAMPLE.summary in plan.summary.casefold() else TOO_SHORT
    said = retain or summary
    if (not retain or not summary) and len(said) <= LONGEST_REFUSAL and REFUSAL.match(said):
        return DECLINED
    if _letters(retain) + _letters(summary) < LEAST_LETTERS:
        return TOO_SHORT
    to_do = tuple(thing for thing in plan.to_do if not _is_placeholder(thing[1]))
    return replace(plan, retain=retain, summary=summary, to_do=to_do)


def _is_placeholder(text: str) -> bool:
    return len(text) < 100 and " ".join(re.findall(r"\w+", text.casefold())) in PLACEHOLDERS


def _letters(text: str) -> int:
    return len("".join(char for char in text[:1000] if char.isalnum()).encode())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return "\n".join(f"- {said}" for said in map(_text, value) if said)
    if isinstance(value, dict):
        return "\n".join(
            f"- {key}: {said}" for key, said in ((key, _text(item)) for key, item in value.items()) if said
        )
    return "" if value is None or isinstance(value, bool) else str(value)


def _ids(value: Any) -> Iterator[int]:
    """Yield group ids however they are written: 3, "g3", "[3]", "3-5", {"id": 3}, "3, 5"."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, list):
        for item in value:
            yield from _ids(item.split("|")[0] if isinstance(item, str) else item)
    elif isinstance(value, dict):
        yield from _ids(value.get("id", value.get("ids", [])))
    elif isinstance(value, float):
        yield from _ids(f"{value:.0f}" if value.is_integer() else "")
    else:
        for first, last in ID.findall(str(value)):
            start, end = int(first), int(last or first)
            yield from range(start, end + 1) if 0 <= end - start <= LONGEST_RANGE else (start, end)


NOTHING_TOLD = Unusable("Messages were left out, and no summary said what was in them.")


def as_plan(rewrite: Rewrite, division: Division) -> Plan | Unusable:
    """Return a rewrite as a plan: old groups that it holds unchanged are kept, other messages are summary."""
    theirs = {_said(message) for message in rewrite.messages}
    kept = [each for each in division.old if theirs.issuperset(map(_said, each.group.messages))]
    ours = [*(each.group for each in (*kept, *division.pinned)), *division.tail]
    settled = {_said(message) for group in ours for message in group.messages}
    others = [each for each in rewrite.messages if each.get("role") not in SYSTEM_ROLES and _said(each) not in settled]
    summary = "\n".join(filter(None, [rewrite.summary, *map(_told, others)]))
    if not summary and len(kept) < len(division.old):
        return NOTHING_TOLD
    return Plan("", summary, tuple(each.id for each in kept))


def _said(message: Message) -> Said:
    """Return what identifies a message: role, text and calls, but no ids, which may have been written anew."""
    return str(message.get("role")), readable(message).strip(), tuple(called(message))


def _told(message: Message) -> str:
    group = Group((message,))
    return carried_by([group]).body if is_summary(group) else written(message)
