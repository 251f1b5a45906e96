"""The last step before a history is rendered: whatever it holds, the model's chat template takes it, and whole."""

import functools
from collections.abc import Callable, Iterable

from elbowroom.context.message_content import flattened, is_blank, merged
from elbowroom.context.repair import repair
from elbowroom.context.template_demands import TemplateDemands
from elbowroom.context.tool_call_ids import is_portable, portable_id
from elbowroom.context.tool_calls import calls_of, with_calls
from elbowroom.context.tool_history import one_call_a_message, results_as_text
from elbowroom.context.transcript import SYSTEM_ROLES, Message
from elbowroom.context.turns import (
    after_system,
    alternating,
    with_answers_to_results,
    with_one_answer_at_end,
    with_some_user,
    with_user_first,
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
