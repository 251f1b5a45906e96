"""The last step before a history is rendered: whatever it holds, the model's chat template takes it, and whole."""

import functools
import hashlib
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.transcript import (
    BLANK_LINE,
    SYSTEM_ROLES,
    Group,
    Message,
    Transcript,
    calls_of,
    flattened,
    is_blank,
    is_text,
    joined,
    merged,
    parts_of,
    text_of,
    with_calls,
    with_safe_calls,
)

NO_ANSWER = "(no answer)"
"""Stands for an answer without a word, where a template wants one."""


def normalise(messages: Iterable[Message], demands: TemplateDemands) -> list[Message]:
    """Return a history that is sound and that the template takes, with all text and all pairs of call and result.

    Deterministic: the same history becomes the same messages on every turn. Messages that need no change are
    returned as they are, and a second pass changes nothing. Nothing that came in is changed itself.
    """
    result = repair(messages)
    for step in steps(demands):
        result = step(result)
    return result


def steps(demands: TemplateDemands) -> list[Callable[[list[Message]], list[Message]]]:
    """Return what has to be done, in order; nothing where nothing is demanded."""
    every: list[tuple[bool, Callable[[list[Message]], list[Message]]]] = [
        (demands.no_developer_role, developer_as_system),
        (demands.no_null_content, null_as_empty),
        (demands.text_content_only, parts_as_text),
        (demands.results_as_text, results_as_text),
        (demands.one_call_a_message, one_call_a_message),
        (demands.system_first_only or demands.system_as_user, one_system_message),
        (demands.system_as_user, system_as_user),
        (demands.no_empty_answer, without_empty_answers),
        (demands.user_needed, with_some_user),
        (demands.user_first, with_user_first),
        (demands.no_user_after_result and not demands.roles_alternate, with_answers_to_results),
        (demands.one_answer_at_end, with_one_answer_at_end),
        (demands.roles_alternate, lambda messages: alternating(messages, demands)),
        (demands.portable_ids, with_portable_ids),
    ]
    return [step for demanded, step in every if demanded]


def developer_as_system(messages: list[Message]) -> list[Message]:
    """Let developer messages be system messages."""
    return [{**message, "role": "system"} if message.get("role") == "developer" else message for message in messages]


def null_as_empty(messages: list[Message]) -> list[Message]:
    """Give messages without content an empty one."""
    return [{**message, "content": ""} if message.get("content") is None else message for message in messages]


def parts_as_text(messages: list[Message]) -> list[Message]:
    """Write content of text parts alone as one text."""
    return [with_content(message, flattened(message.get("content"))) for message in messages]


def with_content(message: Message, content: object) -> Message:
    """Return the message with this content: itself where that is its own."""
    return message if content is message.get("content") else {**message, "content": content}


def one_system_message(messages: list[Message]) -> list[Message]:
    """Join the system messages at the beginning; later ones become the user's, where they stand.

    Nothing moves to the front: what an engine has read already stays as it is.
    """
    at = after_system(messages)
    opening = [functools.reduce(merged, messages[:at])] if at else []
    return opening + [as_user(message) for message in messages[at:]]


def as_user(message: Message) -> Message:
    """Let a system message be the user's; any other stays itself."""
    return {**message, "role": "user"} if message.get("role") in SYSTEM_ROLES else message


def system_as_user(messages: list[Message]) -> list[Message]:
    """Let the system message at the beginning be the user's, one with the user's own where that comes next."""
    if not after_system(messages):
        return messages
    first, *others = messages
    if others and others[0].get("role") == "user":
        return [merged(first, others[0]), *others[1:]]
    return [as_user(first), *others]


def without_empty_answers(messages: list[Message]) -> list[Message]:
    """Put `NO_ANSWER` where the assistant says nothing; at the end, where the answer is yet to come, nothing."""
    spoken = list(messages)
    if spoken and is_empty_answer(spoken[-1]):
        spoken.pop()
    return [{**message, "content": NO_ANSWER} if is_empty_answer(message) else message for message in spoken]


def is_empty_answer(message: Message) -> bool:
    """Tell whether an assistant message neither says anything nor calls a tool."""
    return message.get("role") == "assistant" and not calls_of(message) and is_blank(message.get("content"))


def with_portable_ids(messages: list[Message]) -> list[Message]:
    """Give every call whose id is no portable one another, and its result the same."""
    return [with_portable_id(message) for message in messages]


def with_portable_id(message: Message) -> Message:
    """Replace the ids in a message that are not portable, each by what its hash says."""
    if message.get("role") == "tool" and not is_portable(message["tool_call_id"]):
        return {**message, "tool_call_id": portable_id(message["tool_call_id"])}
    calls = calls_of(message)
    if not calls:
        return message
    portable = [call if is_portable(call["id"]) else {**call, "id": portable_id(call["id"])} for call in calls]
    return with_calls(message, portable)


CONTINUE: Message = {"role": "user", "content": "Continue."}
"""A user message that asks for nothing new."""

ACKNOWLEDGED: Message = {"role": "assistant", "content": "Understood."}
"""An answer that says nothing new."""

Turn = Literal["user", "assistant"]


def with_user_first(messages: list[Message]) -> list[Message]:
    """Put `CONTINUE` before whoever else would speak first; system messages may stand before it."""
    at = after_system(messages)
    if at == len(messages) or messages[at].get("role") == "user":
        return messages
    return [*messages[:at], CONTINUE, *messages[at:]]


def with_some_user(messages: list[Message]) -> list[Message]:
    """Put `CONTINUE` behind the system messages at the beginning where no user says anything."""
    if any(message.get("role") == "user" for message in messages):
        return messages
    at = after_system(messages)
    return [*messages[:at], CONTINUE, *messages[at:]]


def after_system(messages: Sequence[Message]) -> int:
    """Return how many system messages stand at the beginning."""
    others = (at for at, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES)
    return next(others, len(messages))


def with_answers_to_results(messages: list[Message]) -> list[Message]:
    """Put `ACKNOWLEDGED` between a tool result and a user message."""
    answered: list[Message] = []
    for message in messages:
        if message.get("role") == "user" and answered and answered[-1].get("role") == "tool":
            answered.append(ACKNOWLEDGED)
        answered.append(message)
    return answered


def alternating(messages: Iterable[Message], demands: TemplateDemands) -> list[Message]:
    """Let user and assistant take turns, the user first.

    Messages of one role that stand together become one; where something stands between them, calls or results, the
    other role says something neutral.
    """
    result: list[Message] = []
    last: Turn = "assistant"
    for message in messages:
        turn = turn_of(message, result, demands)
        if turn is None:
            result.append(message)
            continue
        if turn == last:
            if result and may_merge(result[-1], message, demands):
                result[-1] = merged(result[-1], message)
                continue
            result.append(CONTINUE if turn == "assistant" else ACKNOWLEDGED)
        result.append(message)
        last = turn
    return result


def with_one_answer_at_end(messages: list[Message]) -> list[Message]:
    """Join the assistant messages at the end that call nothing."""
    start = len(messages)
    while start and messages[start - 1].get("role") == "assistant" and not messages[start - 1].get("tool_calls"):
        start -= 1
    if len(messages) - start < 2:
        return messages
    return [*messages[:start], functools.reduce(merged, messages[start:])]


def turn_of(message: Message, before: list[Message], demands: TemplateDemands) -> Turn | None:
    """Return whose turn a message is; None for one that the template does not count."""
    role = message.get("role")
    if role == "tool":
        first_result = demands.calls_take_turns and before[-1].get("role") != "tool"
        return "user" if first_result else None
    if role == "assistant":
        return "assistant" if demands.calls_take_turns or not message.get("tool_calls") else None
    return "user" if role == "user" else None


def may_merge(first: Message, second: Message, demands: TemplateDemands) -> bool:
    """Tell whether two messages can be one: no call moves, and no text to where the template loses it."""
    if first.get("role") != second.get("role") or first.get("tool_calls"):
        return False
    return not (second.get("tool_calls") and demands.drops_text_beside_calls)


def one_call_a_message(messages: Sequence[Message]) -> list[Message]:
    """Split assistant messages with several calls: each call stands alone, its result behind it.

    Text and thoughts stay with the first call. The history has to be sound, as `repair` leaves it.
    """
    return [message for group in Transcript.of(messages).groups for message in split(group)]


def split(group: Group) -> Iterator[Message]:
    """Yield the messages of a group, one call at a time."""
    first, *results = group.messages
    calls = calls_of(first)
    if len(calls) < 2:
        yield from group.messages
        return
    for call, result in zip(calls, results, strict=True):
        if call is calls[0]:
            yield {**first, "tool_calls": [call]}
        else:
            yield {"role": "assistant", "content": "", "tool_calls": [call]}
        yield result


def results_as_text(messages: Sequence[Message]) -> list[Message]:
    """Let the user say what was called and what came back, fenced as data; the history has to be sound.

    The assistant's part keeps its text alone: a model that saw calls written out in its own words would write such
    words instead of calling.
    """
    return [message for group in Transcript.of(messages).groups for message in told(group)]


def told(group: Group) -> Iterator[Message]:
    """Yield the messages of a group without calls and results: what was said, and what the tools returned."""
    first, *results = group.messages
    calls = calls_of(first)
    if not calls:
        yield from group.messages
        return
    if not is_blank(first.get("content")):
        yield {key: value for key, value in first.items() if key != "tool_calls"}
    content: str | list[Any] = ""
    for call, result in zip(calls, results, strict=True):
        content = joined(content, report(call, result))
    yield {"role": "user", "content": content}


def report(call: Mapping[str, Any], result: Message) -> str | list[Any]:
    """Write a call and its result; what is no text of the result stays a part of its own."""
    function, text = call["function"], text_of(result)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    written = f"Result of {function['name']}, called with {function['arguments']}:{BLANK_LINE}{fence}\n{text}\n{fence}"
    media = [part for part in parts_of(result.get("content")) if not is_text(part)]
    return [{"type": "text", "text": written}, *media] if media else written


MISSING_RESULT = "Error: the call was interrupted, and no result of it is known."
"""What the model reads as the result of a call that nobody answered."""

Answers = dict[tuple[int, int], Message]
"""Tool messages by what they answer: the position of the assistant message, and of the call in it."""


def repair(messages: Iterable[Message]) -> list[Message]:
    """Return the history with every tool call answered exactly once, right behind its message and in call order.

    Results without a call before them, and second results of one call, go. Calls without a result get
    `MISSING_RESULT`. Ids that are empty or already taken become new ones, at the call and its result alike, and the
    same on every turn. Arguments that are no JSON object become one that holds their text. Sound messages are
    returned as they are, the same objects.
    """
    history = list(messages)
    if not any("tool_calls" in message or message.get("role") == "tool" for message in history):
        return history
    safe = [with_safe_calls(message) for message in history]
    answers = answers_in(safe)
    taken: set[str] = set()
    repaired: list[Message] = []
    for at, message in enumerate(safe):
        if message.get("role") == "tool":
            continue
        calls = [with_free_id(call, taken) for call in calls_of(message)]
        repaired.append(with_calls(message, calls) if calls else message)
        repaired.extend(result_for(call, answers.get((at, position))) for position, call in enumerate(calls))
    return repaired


def answers_in(messages: Sequence[Message]) -> Answers:
    """Find out which tool message answers which call; those that say it by id come first, then those without one."""
    answers: Answers = {}
    for with_id in (True, False):
        for at, message in enumerate(messages):
            if message.get("role") != "tool" or bool(message.get("tool_call_id")) is not with_id:
                continue
            call = open_call(messages, at, answers)
            if call is not None:
                answers[call] = message
    return answers


def open_call(messages: Sequence[Message], result: int, answers: Answers) -> tuple[int, int] | None:
    """Find the call that a result answers: in the latest message before it with an open call of its id, the first.

    A result without an id belongs to the latest message with calls, and to no earlier one.
    """
    call_id = messages[result].get("tool_call_id")
    for at in range(result - 1, -1, -1):
        calls = calls_of(messages[at])
        for position, call in enumerate(calls):
            if (at, position) not in answers and (not call_id or call.get("id") == call_id):
                return at, position
        if calls and not call_id:
            return None
    return None


def with_free_id(call: Mapping[str, Any], taken: set[str]) -> Mapping[str, Any]:
    """Return the call, with a new id if its own is none or taken, and take the id.

    The new one comes from what the call says, so that it stays the same when older calls are cut off.
    """
    present = call.get("id")
    own = present if isinstance(present, str) else ""
    call_id, attempt = own, 0
    while not call_id or call_id in taken:
        attempt += 1
        call_id = portable_id(own, call["function"]["name"], call["function"]["arguments"], str(attempt))
    taken.add(call_id)
    return call if call_id == present else {**call, "id": call_id}


def result_for(call: Mapping[str, Any], found: Message | None) -> Message:
    """Return the result of a call under the call's id."""
    if found is None:
        return {"role": "tool", "tool_call_id": call["id"], "content": MISSING_RESULT}
    return found if found.get("tool_call_id") == call["id"] else {**found, "tool_call_id": call["id"]}


ALPHABET = string.digits + string.ascii_letters
LENGTH = 9
PORTABLE = re.compile(rf"[0-9A-Za-z]{{{LENGTH}}}")


def is_portable(call_id: object) -> bool:
    """Tell whether an id consists of exactly nine ASCII letters and digits."""
    return isinstance(call_id, str) and PORTABLE.fullmatch(call_id) is not None


def portable_id(*seed: str) -> str:
    """Return nine letters and digits that depend on the seed alone: the same on every turn and every machine."""
    digest = hashlib.sha256("\0".join(seed).encode("utf-8", "surrogatepass")).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(LENGTH):
        number, letter = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[letter])
    return "".join(letters)
