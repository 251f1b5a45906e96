"""Messages in the form that single model families want them: the engine rewrites them before it renders.

Pure functions from canonical messages to new ones, named after the family; `chat_families` says whose they are.
The rewriting is llama.cpp's (MIT).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elbowroom.tokens.chat_messages import Message


def with_thinking(messages: list[Message]) -> list[Message]:
    """Give the reasoning under the name `thinking` as well."""
    return [
        {**message, "thinking": message["reasoning_content"]} if "reasoning_content" in message else message
        for message in messages
    ]


def for_gpt_oss(messages: list[Message]) -> list[Message]:
    """Give the reasoning as `thinking`, and drop the text beside it where a tool is called."""
    adapted = []
    for message in with_thinking(messages):
        if "thinking" in message and message.get("tool_calls"):
            message = {key: value for key, value in message.items() if key != "content"}
        adapted.append(message)
    return adapted


def for_ministral(messages: list[Message]) -> list[Message]:
    """Turn system and assistant messages into parts, the reasoning a part of its own before the text."""
    adapted = []
    for message in messages:
        if message["role"] in ("system", "assistant"):
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if "reasoning_content" in message:
                thought = {"type": "thinking", "thinking": message["reasoning_content"]}
                parts = [thought, *parts]
            rest = {key: value for key, value in message.items() if key != "reasoning_content"}
            message = {**rest, "content": parts}
        adapted.append(message)
    return adapted


def for_stepfun(messages: list[Message]) -> list[Message]:
    """Trim every text: space that is left over drives this model into loops."""
    return [{key: trimmed(value) for key, value in message.items()} for message in messages]


def trimmed(value: Any) -> Any:
    """Trim a text, or the texts of parts; leave everything else."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return [
            {**part, "text": part["text"].strip()} if isinstance(part, dict) and "text" in part else part
            for part in value
        ]
    return value


def for_old_gemma4(messages: list[Message]) -> list[Message]:
    """Fold the results of tool calls, and the answer after them, into the message that made the calls."""
    adapted: list[Message] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        if message["role"] != "assistant" or not message.get("tool_calls"):
            adapted.append(message)
            continue
        results = []
        while rest and rest[0]["role"] == "tool":
            results.append(rest.pop(0))
        turn: Message = {"role": "assistant", "tool_calls": message["tool_calls"]}
        if results:
            turn["tool_responses"] = gemma4_responses(message["tool_calls"], results)
        if rest and is_plain_answer(rest[0]):
            turn["content"] = rest.pop(0)["content"]
        if "reasoning_content" in message:
            turn["reasoning_content"] = message["reasoning_content"]
        adapted.append(turn)
    return adapted


def is_plain_answer(message: Message) -> bool:
    """Tell whether a message is an assistant's text without calls."""
    return message["role"] == "assistant" and not message.get("tool_calls") and bool(message["content"])


def gemma4_responses(calls: list[Message], results: list[Message]) -> list[Message]:
    """Name every result after the call in the same place, and parse it where it is JSON."""
    responses = []
    for place, result in enumerate(results):
        name = calls[place]["function"]["name"] if place < len(calls) else ""
        response = result["content"]
        if isinstance(response, str):
            try:
                response = json.loads(response)
            except (ValueError, RecursionError):
                response = result["content"]
        responses.append({"name": name or result.get("tool_call_id", ""), "response": response})
    return responses


def for_deepseek_v4(messages: list[Message]) -> list[Message]:
    """Put the results of one turn into the order of its calls."""
    adapted = list(messages)
    order: dict[str, int] = {}
    at = 0
    while at < len(adapted):
        message = adapted[at]
        if message["role"] == "assistant" and message.get("tool_calls"):
            order = {call["id"]: place for place, call in enumerate(message["tool_calls"]) if "id" in call}
        end = at
        while end < len(adapted) and adapted[end]["role"] in ("user", "tool"):
            end += 1
        places = [place for place in range(at, end) if adapted[place]["role"] == "tool"]
        in_order = sorted(
            (adapted[place] for place in places),
            key=lambda result: order.get(result.get("tool_call_id", ""), 0),
        )
        for place, result in zip(places, in_order, strict=True):
            adapted[place] = result
        at = max(end, at + 1)
    return adapted
