"""Brings a history into the form that the model's chat template takes, with nothing of it lost.

First `repair` makes every call have exactly one result; then each demand of the template has a step of its own.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.templates.repair import LENGTH, portable_id, repair, reported
from elbowroom.context.transcript import (
    SYSTEM_ROLES,
    Group,
    Message,
    Transcript,
    calls_of,
    flattened,
    is_blank,
    joined,
    merged,
    says_nothing,
    uses_tools,
    with_calls,
    with_content,
    without_calls,
)

NO_ANSWER = "(no answer)"
"""Stands for an answer without a word, where a template wants one."""

CONTINUE: Message = {"role": "user", "content": "Continue."}
"""A user message that asks for nothing new."""

ACKNOWLEDGED: Message = {"role": "assistant", "content": "Understood."}
"""An answer that says nothing new."""

Turn = Literal["user", "assistant"]

PORTABLE = re.compile(rf"[0-9A-Za-z]{{{LENGTH}}}")


def normalise(messages: Iterable[Message], demands: TemplateDemands) -> list[Message]:
    """Return a sound history that the template takes, with all text and all pairs of call and result.

    The same history becomes the same messages on every turn. Messages that need no change are returned as the same
    objects, a second pass changes nothing, and no message that came in is changed itself.
    """
    history = list(messages)
    result = repair(history) if uses_tools(history) else history
    for step in _steps(demands):
        result = step(result)
    return result


def _steps(demands: TemplateDemands) -> list[Callable[[list[Message]], list[Message]]]:
    """Return the steps that the template demands, in the order in which they have to be done."""
    every: list[tuple[bool, Callable[[list[Message]], list[Message]]]] = [
        (demands.no_developer_role, _developer_as_system),
        (demands.no_null_content, _null_as_empty),
        (demands.text_content_only, _parts_as_text),
        (demands.results_as_text, _results_as_text),
        (demands.drops_text_beside_calls, _text_before_calls),
        (demands.one_call_a_message, _one_call_a_message),
        (demands.system_first_only or demands.system_as_user, _one_system_message),
        (demands.system_as_user, _system_as_user),
        (demands.no_empty_answer, _without_empty_answers),
        (demands.user_needed, _with_some_user),
        (demands.no_answer_alone, _with_more_than_an_answer),
        (demands.no_user_after_result and not demands.roles_alternate, _with_answers_to_results),
        (demands.user_first or demands.user_before_calls, lambda messages: _with_user_first(messages, demands)),
        (demands.one_answer_at_end, _with_one_answer_at_end),
        (demands.roles_alternate, lambda messages: _alternating(messages, demands)),
        (demands.portable_ids, lambda messages: [*map(_with_portable_id, messages)]),
    ]
    return [step for demanded, step in every if demanded]


def _developer_as_system(messages: list[Message]) -> list[Message]:
    return [{**message, "role": "system"} if message.get("role") == "developer" else message for message in messages]


def _null_as_empty(messages: list[Message]) -> list[Message]:
    return [{**message, "content": ""} if message.get("content") is None else message for message in messages]


def _parts_as_text(messages: list[Message]) -> list[Message]:
    return [with_content(message, flattened(message.get("content"))) for message in messages]


def _results_as_text(messages: Sequence[Message]) -> list[Message]:
    """Let the user report what was called and what came back, fenced as data; the history has to be sound.

    The assistant keeps its text alone: a model that saw calls written out in its own words would write such words
    instead of calling.
    """
    return [message for group in Transcript.of(messages).groups for message in _told(group)]


def _told(group: Group) -> Iterator[Message]:
    """Yield the messages of a group without calls and results: what was said, then a report of the results."""
    first, *results = group.messages
    calls = calls_of(first)
    if not calls:
        yield from group.messages
        return
    if not is_blank(first.get("content")):
        yield without_calls(first)
    content: str | list[Any] = ""
    for call, result in zip(calls, results, strict=True):
        function = call["function"]
        told = reported(f"Result of {function['name']}, called with {function['arguments']}", result)
        content = joined(content, told)
    yield {"role": "user", "content": content}


def _text_before_calls(messages: list[Message]) -> list[Message]:
    """Let what the assistant says beside calls be a message of its own before them."""
    return [part for message in messages for part in _text_and_calls(message)]


def _text_and_calls(message: Message) -> Iterator[Message]:
    if not message.get("tool_calls") or is_blank(message.get("content")):
        yield message
        return
    yield {"role": "assistant", "content": message["content"]}
    yield {**message, "content": ""}


def _one_call_a_message(messages: Sequence[Message]) -> list[Message]:
    """Split assistant messages with several calls: each call stands alone, followed by its result.

    Text and thoughts stay with the first call. The history has to be sound, as `repair` leaves it.
    """
    if not any("tool_calls" in message for message in messages):
        return list(messages)
    return [message for group in Transcript.of(messages).groups for message in _split(group)]


def _split(group: Group) -> Iterator[Message]:
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


def _one_system_message(messages: list[Message]) -> list[Message]:
    """Join the system messages at the beginning; later ones become the user's, where they stand.

    No message moves to the front: the part of the prompt that an engine has read already stays as it is.
    """
    at = _after_system(messages)
    opening = [functools.reduce(merged, messages[:at])] if at else []
    return opening + [_as_user(message) for message in messages[at:]]


def _after_system(messages: Sequence[Message]) -> int:
    others = (at for at, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES)
    return next(others, len(messages))


def _as_user(message: Message) -> Message:
    return {**message, "role": "user"} if message.get("role") in SYSTEM_ROLES else message


def _system_as_user(messages: list[Message]) -> list[Message]:
    """Let the system message at the beginning be the user's, joined with the user's own where that comes next."""
    if not _after_system(messages):
        return messages
    first, *others = messages
    if others and others[0].get("role") == "user":
        return [merged(first, others[0]), *others[1:]]
    return [_as_user(first), *others]


def _without_empty_answers(messages: list[Message]) -> list[Message]:
    """Put `NO_ANSWER` where the assistant says nothing; drop such a message at the end, where the answer is due."""
    spoken = list(messages)
    if spoken and says_nothing(spoken[-1]):
        spoken.pop()
    return [{**message, "content": NO_ANSWER} if says_nothing(message) else message for message in spoken]


def _with_some_user(messages: list[Message]) -> list[Message]:
    """Put `CONTINUE` after the system messages at the beginning where no user says anything."""
    if any(message.get("role") == "user" for message in messages):
        return messages
    at = _after_system(messages)
    return [*messages[:at], CONTINUE, *messages[at:]]


def _with_more_than_an_answer(messages: list[Message]) -> list[Message]:
    """Put `CONTINUE` before answers that are the whole history."""
    return messages if any(not _is_plain_answer(message) for message in messages) else [CONTINUE, *messages]


def _is_plain_answer(message: Message) -> bool:
    return message.get("role") == "assistant" and not message.get("tool_calls")


def _with_user_first(messages: list[Message], demands: TemplateDemands) -> list[Message]:
    """Put `CONTINUE` before an answer or a call that would stand before the first user message.

    An answer at the end of the history does not count: it is continued, and no turn of its own.
    """
    at = _after_system(messages)
    spoken = list(itertools.takewhile(lambda message: message.get("role") != "user", messages[at:]))
    if spoken and at + len(spoken) == len(messages) and _is_plain_answer(spoken[-1]):
        spoken.pop()
    has_answer, has_call = any(map(_is_plain_answer, spoken)), any(message.get("tool_calls") for message in spoken)
    if (demands.user_first and has_answer) or (demands.user_before_calls and has_call):
        return [*messages[:at], CONTINUE, *messages[at:]]
    return messages


def _with_answers_to_results(messages: list[Message]) -> list[Message]:
    """Put `ACKNOWLEDGED` between a tool result and a user message."""
    answered: list[Message] = []
    for message in messages:
        if message.get("role") == "user" and answered and answered[-1].get("role") == "tool":
            answered.append(ACKNOWLEDGED)
        answered.append(message)
    return answered


def _with_one_answer_at_end(messages: list[Message]) -> list[Message]:
    start = len(messages)
    while start and _is_plain_answer(messages[start - 1]):
        start -= 1
    if len(messages) - start < 2:
        return messages
    return [*messages[:start], functools.reduce(merged, messages[start:])]


def _alternating(messages: Sequence[Message], demands: TemplateDemands) -> list[Message]:
    """Let user and assistant take turns, the user first.

    Neighbouring messages of one role become one. Where calls or results stand between them, a neutral message of the
    other role is put in. An answer at the end with no turn before it stays: it is continued, and no turn of its own.
    """
    result: list[Message] = []
    last: Turn = "assistant"
    has_begun = False
    for at, message in enumerate(messages):
        turn = _turn_of(message, result, demands)
        is_continued_alone = not has_begun and at == len(messages) - 1 and _is_plain_answer(message)
        if turn is None or is_continued_alone:
            result.append(message)
            continue
        has_begun = True
        if turn == last:
            if result and _may_merge(result[-1], message, demands):
                result[-1] = merged(result[-1], message)
                continue
            result.append(CONTINUE if turn == "assistant" else ACKNOWLEDGED)
        result.append(message)
        last = turn
    return result


def _turn_of(message: Message, before: list[Message], demands: TemplateDemands) -> Turn | None:
    """Return the role whose turn a message is; None for one that the template does not count."""
    role = message.get("role")
    if role == "tool":
        first_result = demands.calls_take_turns and before[-1].get("role") != "tool"
        return "user" if first_result else None
    if role == "assistant":
        return "assistant" if demands.calls_take_turns or not message.get("tool_calls") else None
    return "user" if role == "user" else None


def _may_merge(first: Message, second: Message, demands: TemplateDemands) -> bool:
    """Tell whether two messages can be one without moving a call, or text to a place where the template loses it."""
    if first.get("role") != second.get("role") or first.get("tool_calls"):
        return False
    return not (second.get("tool_calls") and demands.drops_text_beside_calls)


def _with_portable_id(message: Message) -> Message:
    if message.get("role") == "tool" and not _is_portable(message["tool_call_id"]):
        return {**message, "tool_call_id": portable_id(message["tool_call_id"])}
    calls = calls_of(message)
    if not calls:
        return message
    portable = [call if _is_portable(call["id"]) else {**call, "id": portable_id(call["id"])} for call in calls]
    return with_calls(message, portable)


def _is_portable(call_id: object) -> bool:
    return isinstance(call_id, str) and PORTABLE.fullmatch(call_id) is not None
