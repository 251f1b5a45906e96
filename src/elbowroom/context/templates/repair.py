"""Makes the calls and results of a history fit together with nothing of it lost: each call gets exactly one result."""

import hashlib
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elbowroom.context.transcript import (
    BLANK_LINE,
    Message,
    calls_of,
    is_text,
    parts_of,
    text_of,
    with_calls,
    with_safe_calls,
)

MISSING_RESULT = "Error: the call was interrupted, and no result of it is known."
"""The result that the model reads for a call that nobody answered."""

Place = tuple[int, int]
"""A call: the place of its message in the history, and its own among that message's calls."""

ALPHABET = string.digits + string.ascii_letters
LENGTH = 9


def repair(messages: Iterable[Message]) -> list[Message]:
    """Return the history with every tool call answered exactly once, right after its message and in call order.

    A result that answers no call is told by the user, where it stands; so is a second result of a call. Calls without
    a result get `MISSING_RESULT`. Ids that are empty or already taken are replaced by new ones, at the call and its
    result alike, and by the same ones on every turn. Arguments that are no JSON object become one that holds their
    text. Sound messages are returned as the same objects.
    """
    safe = [with_safe_calls(message) for message in messages]
    answers = answers_in(safe)
    answering, taken = set(answers.values()), TakenIds()
    repaired: list[Message] = []
    for at, message in enumerate(safe):
        if message.get("role") == "tool":
            if at not in answering:
                repaired.append(_told_by_user(message))
            continue
        calls = [with_free_id(call, taken) for call in calls_of(message)]
        repaired.append(with_calls(message, calls) if calls else message)
        for position, call in enumerate(calls):
            result = answers.get((at, position))
            repaired.append(_result_for(call, None if result is None else safe[result]))
    return repaired


def orphans_in(messages: Sequence[Message]) -> int:
    """Return how many results answer no call, or a call that has its result already."""
    results = sum(message.get("role") == "tool" for message in messages)
    return results - len(answers_in(messages)) if results else 0


def answers_in(messages: Sequence[Message]) -> dict[Place, int]:
    """Find which tool message answers which call; return the places of these messages by call.

    Results with the id of an open call come first. Then a result without an id answers the first open call of the
    latest message with calls. A result right after that message does so too where its id is of no call at all.
    """
    answers = _answers_by_id(messages)
    answering = set(answers.values())
    ids = {call.get("id") for message in messages for call in calls_of(message)}
    left, is_right_after = list[Place](), False
    for at, message in enumerate(messages):
        if calls := calls_of(message):
            left = [(at, position) for position in range(len(calls)) if (at, position) not in answers]
        is_result, call_id = message.get("role") == "tool", message.get("tool_call_id")
        is_right_after = bool(calls) or (is_right_after and is_result)
        if is_result and left and at not in answering and (not call_id or (is_right_after and call_id not in ids)):
            answers[left.pop(0)] = at
    return answers


def _answers_by_id(messages: Sequence[Message]) -> dict[Place, int]:
    """Pair results with the first open call of their id, in the latest message before the result that has one."""
    answers: dict[Place, int] = {}
    left: dict[object, list[list[Place]]] = {}  # open calls by id, and of each id by message
    for at, message in enumerate(messages):
        of_message: dict[object, list[Place]] = {}
        for position, call in enumerate(calls_of(message)):
            of_message.setdefault(call.get("id"), []).append((at, position))
        for call_id, places in of_message.items():
            left.setdefault(call_id, []).append(places)
        call_id = message.get("tool_call_id")
        if message.get("role") == "tool" and call_id and (latest := left.get(call_id)):
            answers[latest[-1].pop(0)] = at
            if not latest[-1]:
                latest.pop()
    return answers


def _told_by_user(result: Message) -> Message:
    """Return a message of the user with the text of a result that answers no call."""
    name = result.get("name")
    tool = name if isinstance(name, str) and name else "a tool"
    return {"role": "user", "content": reported(f"Result of {tool}, for no call of this conversation", result)}


def reported(introduction: str, result: Message) -> str | list[Any]:
    """Write a result as data between fences; parts of it that are no text stay parts."""
    text = text_of(result)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    written = f"{introduction}:{BLANK_LINE}{fence}\n{text}\n{fence}"
    media = [part for part in parts_of(result.get("content")) if not is_text(part)]
    return [{"type": "text", "text": written}, *media] if media else written


class TakenIds(set[str]):
    """Ids that are taken; `attempts` are those that equal calls have needed, so that thousands of them take no time."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        super().__init__(ids)
        self.attempts: dict[tuple[str, str, str], int] = {}


def with_free_id(call: Mapping[str, Any], taken: TakenIds) -> Mapping[str, Any]:
    """Return the call under its own id, or under a new one if that is empty or taken; add the id to `taken`.

    The new id is derived from what the call says, so that it stays the same when older calls are cut off.
    """
    present = call.get("id")
    own = call_id = present if isinstance(present, str) else ""
    said = own, call["function"]["name"], call["function"]["arguments"]
    while not call_id or call_id in taken:
        taken.attempts[said] = attempt = taken.attempts.get(said, 0) + 1
        call_id = portable_id(*said, str(attempt))
    taken.add(call_id)
    return call if call_id == present else {**call, "id": call_id}


def _result_for(call: Mapping[str, Any], found: Message | None) -> Message:
    if found is None:
        return {"role": "tool", "tool_call_id": call["id"], "content": MISSING_RESULT}
    return found if found.get("tool_call_id") == call["id"] else {**found, "tool_call_id": call["id"]}


def portable_id(*seed: str) -> str:
    """Return nine letters and digits derived from the seed alone: the same on every turn and every machine."""
    digest = hashlib.sha256("\0".join(seed).encode("utf-8", "surrogatepass")).digest()
    number = int.from_bytes(digest, "big")
    letters = []
    for _ in range(LENGTH):
        number, letter = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[letter])
    return "".join(letters)
