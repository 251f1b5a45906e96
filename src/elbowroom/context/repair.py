"""A history whose tool calls and results fit together, whatever the client sent or a cut left over."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elbowroom.context.tool_call_ids import portable_id
from elbowroom.context.tool_calls import calls_of, with_calls, with_safe_calls
from elbowroom.context.transcript import Message

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
