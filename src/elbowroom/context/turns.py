"""Who speaks after whom: messages of one role joined, and neutral ones put where a template insists on them."""

import functools
from collections.abc import Iterable, Sequence
from typing import Literal

from elbowroom.context.message_content import merged
from elbowroom.context.template_demands import TemplateDemands
from elbowroom.context.transcript import SYSTEM_ROLES, Message

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
