"""What has to hold for every chat request that reaches a model, whatever has been compacted in it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scripted_pruner import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.demo import RecordedRequest

Message = dict[str, Any]


def assert_fits(chat: RecordedRequest) -> None:
    """Fail where a request did not fit, was cut, was refused, or was allowed to grow beyond the window."""
    numbers = f"{chat.counted_tokens} tokens, window {chat.window}, max_tokens {chat.body.get('max_tokens')}"
    assert chat.fitted, numbers
    assert chat.dropped_messages == 0, numbers
    assert chat.status == 200 or chat.status is None, (chat.status, numbers)
    assert chat.counted_tokens is not None
    assert chat.window is not None
    asked = chat.body.get("max_tokens", chat.body.get("max_completion_tokens"))
    assert asked is not None, "the reply has no limit"
    assert chat.counted_tokens + asked <= chat.window, numbers
    assert chat.counted_tokens + chat.completion_tokens <= chat.window, numbers


def assert_paired(messages: Sequence[Message]) -> None:
    """Fail where a tool call is not answered right behind its message, exactly once, or a result answers nothing."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls, "a result without its call"
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls, "a call without its result"
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
            assert len(set(open_calls)) == len(open_calls)
    assert not open_calls, "a call without its result"


def assert_pinned(messages: Sequence[Message], system: str, user: str) -> None:
    """Fail where the system message or the user's last one is not there word for word, in its place and once."""
    assert system in text_of(messages[0])
    assert messages[0]["role"] == "system"
    assert sum(system in text_of(message) for message in messages) == 1
    assert sum(user in text_of(message) for message in messages if message["role"] == "user") == 1


def is_shortened(messages: Sequence[Message], history: Sequence[Message]) -> bool:
    """Tell whether a request lacks something of what the client has sent."""
    present = "\n".join(text_of(message) for message in messages)
    return not all(text_of(message) in present for message in history)


def assert_little_is_read_again(prompts: Sequence[Sequence[Message]], most: float = 0.05) -> None:
    """Fail where more than this part of all prompts is what the model had just read and reads again.

    A model's server keeps the beginning that two prompts share; messages after the first change are read anew.
    """
    again = size = 0
    for before, after in pairwise(prompts):
        shared = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        again += sum(len(str(message)) for message in after[shared:] if message in before)
        size += sum(len(str(message)) for message in after)
    assert again <= most * size, f"{again} of {size}"
