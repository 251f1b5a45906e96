"""OpenAI-style messages and tools, brought into the form that chat templates are given by the engine.

Pure functions: what comes in is never changed, what goes out is new or the very same. The rules are those of
llama.cpp's server, so that a count made here is the count made there: unknown keys are dropped, no content is `""`,
tool definitions always have a description and parameters, arguments of calls are objects where the template can take
them.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.caches import PLAIN

Message = dict[str, Any]

MEDIA_TYPES: Final = {
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "input_video": "video",
    "video_url": "video",
}
"""Parts that are no text, and the type under which templates know them."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The forms of messages that a template can take; `capabilities_of` in reasoning.py finds them out."""

    string_content: bool = True
    typed_content: bool = False
    system_role: bool = True
    object_arguments: bool = True


def canonical_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages with the keys an engine reads, in its order, and nothing else."""
    return [*map(canonical_message, messages)]


def canonical_message(message: Mapping[str, Any]) -> Message:
    """Return one message with `role`, `content` and those of its other keys that an engine reads.

    One that has but a role and a text, in this order, is its own form.
    """
    if type(message) is dict and len(message) == PLAIN:
        (first, role), (second, content) = message.items()
        if (first, second) == ("role", "content") and type(role) is str and type(content) is str:
            return message
    role, content = message.get("role"), message.get("content")
    result: Message = {"role": text_or_nothing(role), "content": canonical_content(content)}
    for key in ("reasoning_content", "name", "tool_call_id"):
        if value := text_or_nothing(message.get(key)):
            result[key] = value
    if calls := mappings_in(message.get("tool_calls")):
        result["tool_calls"] = list(map(canonical_call, calls))
    return result


def canonical_content(content: object) -> str | list[Message]:
    """Return text as it is, parts with type and text alone, and `""` for nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return [canonical_part(part) for part in mappings_in(content)] or ""
    return ""


def canonical_part(part: Mapping[str, Any]) -> Message:
    """Return a text part as type and text, and any other part as its type, without its bytes."""
    kind = text_or_nothing(part.get("type")) or "text"
    if "text" in part or kind == "text":
        return {"type": "text", "text": text_or_nothing(part.get("text"))}
    return {"type": MEDIA_TYPES.get(kind, kind)}


def canonical_call(call: Mapping[str, Any]) -> Message:
    """Return a tool call as `{type, function: {name, arguments}, id}`."""
    function = mapping_or_nothing(call.get("function"))
    arguments = function.get("arguments", "")
    result: Message = {
        "type": "function",
        "function": {
            "name": text_or_nothing(function.get("name")),
            "arguments": arguments if isinstance(arguments, str) else copy.deepcopy(arguments),
        },
    }
    if identifier := text_or_nothing(call.get("id")):
        result["id"] = identifier
    return result


def canonical_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Message]:
    """Return tool definitions with a name, a description and parameters; other keys are dropped."""
    return [canonical_tool(mapping_or_nothing(tool.get("function"))) for tool in mappings_in(tools)]


def canonical_tool(function: Mapping[str, Any]) -> Message:
    """Return one tool definition as the engine would write it."""
    return {
        "type": "function",
        "function": {
            "name": text_or_nothing(function.get("name")),
            "description": text_or_nothing(function.get("description")),
            "parameters": copy.deepcopy(dict(mapping_or_nothing(function.get("parameters")))),
        },
    }


def text_or_nothing(value: object) -> str:
    """Return a text as it is, and anything else as the empty text."""
    return value if isinstance(value, str) else ""


def mapping_or_nothing(value: object) -> Mapping[str, Any]:
    """Return an object as it is, and anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings_in(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list, without its other items; nothing for a value that is no list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def fit_messages(messages: list[Message], able: Capabilities) -> list[Message]:
    """Return canonical messages in the shape that a template of these abilities can take."""
    takes_text = able.string_content or not able.typed_content
    fitted = [
        message
        if takes_text and isinstance(message["content"], str) and "tool_calls" not in message
        else fit_message(message, able)
        for message in messages
    ]
    if fitted and not able.system_role and fitted[0]["role"] == "system":
        return merge_system(fitted)
    return fitted


def fit_message(message: Message, able: Capabilities) -> Message:
    """Fit one message: its content as text or parts, its calls' arguments as objects or text."""
    result = {**message, "content": fit_content(message["content"], able)}
    if "tool_calls" in message:
        fit = arguments_as_object if able.object_arguments else arguments_as_text
        result["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": fit(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    return result


def fit_content(content: str | list[Message], able: Capabilities) -> str | list[Message]:
    """Turn parts into text for a template that reads only text, and text into a part for the opposite kind."""
    if able.string_content and not able.typed_content:
        return content if isinstance(content, str) else joined_text(content)
    if able.typed_content and not able.string_content and isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content


def joined_text(parts: list[Message], between: str = "\n") -> str:
    """Join the text parts by line breaks, but not next to a medium, which has no text of its own."""
    text = ""
    after_medium = False
    for part in parts:
        if part["type"] == "text":
            text += between + part["text"] if text and not after_medium else part["text"]
        after_medium = part["type"] != "text"
    return text


def arguments_as_object(arguments: object) -> object:
    """Parse arguments given as JSON text; other text stays as it is, and no text is `{}`."""
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def arguments_as_text(arguments: object) -> str:
    """Write arguments as JSON text unless they are that already."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def merge_system(messages: list[Message]) -> list[Message]:
    """Put a leading system message in front of the next one's text, for templates that have no such role."""
    system, *rest = messages
    if not rest:
        return []
    first = rest[0]
    merged = {**first, "content": f"{text_of(system)}\n{text_of(first)}"}
    return [merged, *rest[1:]]


def text_of(message: Message, between: str = "\n") -> str:
    """Return a message's content as one text."""
    content = message["content"]
    return content if isinstance(content, str) else joined_text(content, between)


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
    """Trim every text: spaces around one drive this model into loops."""
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
            (adapted[place] for place in places), key=lambda result: order.get(result.get("tool_call_id", ""), 0)
        )
        for place, result in zip(places, in_order, strict=True):
            adapted[place] = result
        at = max(end, at + 1)
    return adapted
