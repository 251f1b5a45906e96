"""Requests that take an engine or a parser long, in the form of each route with a body."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Body = dict[str, Any]
PICTURE: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OWN_PAGE: Final = ("agents/check", "settings")
PATHS: Final[Mapping[str, str]] = {
    "chat": "/v1/chat/completions",
    "agent": "/v1/chat/completions",
    "chat count": "/v1/chat/completions/input_tokens",
    "compact": "/v1/conversations/x/compact",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "responses": "/v1/responses",
    "responses count": "/v1/responses/input_tokens",
    "messages": "/v1/messages",
    "messages count": "/v1/messages/count_tokens",
    "agents/check": "/api/agents/check",
    "settings": "/api/settings",
}
"""The routes with a body, by the names of the columns."""


def said(text: Any, role: str = "user") -> Body:
    """Return a message."""
    return {"role": role, "content": text}


def _in_turns(text: str, count: int) -> Body:
    return {"messages": [said(text, "assistant" if at % 2 else "user") for at in range(count)]}


def _called(count: int, name: Callable[[int], str]) -> Body:
    calls = [{"id": name(at), "type": "function", "function": {"name": "t", "arguments": "{}"}} for at in range(count)]
    results = [{"role": "tool", "tool_call_id": name(at), "content": "r"} for at in range(count)]
    answer = {"role": "assistant", "content": None, "tool_calls": calls}
    return {"messages": [said("hi"), answer, *results, said("go on")]}


def _tools(count: int) -> Body:
    properties = {f"p{at}": {"type": "string", "description": "x" * 100} for at in range(20)}
    schema = {"type": "object", "properties": properties}
    functions = [{"name": f"t{at}", "description": "d" * 200, "parameters": schema} for at in range(count)]
    return {"messages": [said("hi")], "tools": [{"type": "function", "function": one} for one in functions]}


def _tools_of(count: int, length: int) -> Body:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    told = [{"name": f"t{at}", "description": "d" * length, "parameters": schema} for at in range(count)]
    return {"messages": [said("hi")], "tools": [{"type": "function", "function": one} for one in told]}


def _result(text: str) -> Body:
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"messages": [said("hi"), answer, {"role": "tool", "tool_call_id": "c", "content": text}]}


def _results(count: int, text: str) -> Body:
    asked = _called(count, lambda at: f"c{at}")
    return {"messages": [one | {"content": text} if one["role"] == "tool" else one for one in asked["messages"]]}


def _deep_tool(depth: int) -> Body:
    schema: Body = {"type": "object", "properties": {}}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"inner": schema}}
    told = {"name": "deep", "description": "d", "parameters": schema}
    return {"messages": [said("hi")], "tools": [{"type": "function", "function": told}] * 200}


def _parts(count: int, text: str) -> Body:
    return {"messages": [said([{"type": "text", "text": text}] * count)]}


def _pictures(count: int) -> Body:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    return {"messages": [said([{"type": "text", "text": "look"}, *[picture] * count])]}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _beside(value: Any) -> Body:
    return {"messages": [said("hi")], "x": value}


BODIES: Final[Mapping[str, Callable[[], Body]]] = {
    "20,000 messages of one letter": lambda: _in_turns("a", 19_999),
    "15 MB of empty lists": lambda: _beside([[]] * 5_000_000),
    "60 MB of messages": lambda: _in_turns("word " * 1000, 12_001),
    "one message of 60 MB": lambda: {"messages": [said("word " * 12_000_000)]},
    "5,000 tool calls": lambda: _called(5000, lambda at: f"c{at}"),
    "5,000 tool calls with one id": lambda: _called(5000, lambda at: "c"),
    "1,000 tool calls with one id": lambda: _called(1000, lambda at: "c"),
    "10,000 pictures": lambda: _pictures(10_000),
    "2,000 tools with long schemas": lambda: _tools(2000),
    "2,000 tools of 7 kB": lambda: _tools_of(2000, 7000),
    "a tool with 15 MB of description": lambda: _tools_of(1, 15_000_000),
    "a result of 15 MB in one line": lambda: _result("word " * 3_000_000),
    "300 parts of 200,000 spaces": lambda: _parts(300, " " * 200_000),
    "15 MB without a space": lambda: {"messages": [said("x" * 15_000_000)]},
    "1,000 results of 15 kB": lambda: _results(1000, "word " * 3000),
    "100,000 parts of one letter": lambda: _parts(100_000, "a"),
    "a tool with a schema 60 deep": lambda: _deep_tool(60),
    "300,000 values": lambda: _beside([1] * 299_990),
    "1,000,000 spaces": lambda: {"messages": [said(" " * 1_000_000)]},
    "deep nesting": lambda: _beside([_nested(100)] * 2900),
}
"""What is sent, by the names of the rows, as the body of a chat."""


def request_of(column: str, row: str) -> bytes:
    """Return the body of a row in the form of a column's route."""
    chat = BODIES[row]()
    messages, rest = chat.pop("messages"), chat
    return json.dumps(_formed(column, messages, rest)).encode()


def _formed(column: str, messages: Sequence[Body], rest: Body) -> Body:
    texts = [text if isinstance(text := one["content"], str) else json.dumps(text) for one in messages]
    match column:
        case "chat" | "chat count" | "compact":
            return {"model": "lmstudio/big", "messages": messages, **rest}
        case "agent":
            return {"model": "helper", "messages": messages, **rest}
        case "completions":
            return {"model": "lmstudio/big", "prompt": "".join(texts), **rest}
        case "embeddings":
            return {"model": "lmstudio/embedder", "input": texts, **rest}
        case "responses" | "responses count":
            items = [item for message in messages for item in _items_of(message)]
            tools = [{"type": "function", **tool["function"]} for tool in rest.pop("tools", ())]
            return {"model": "lmstudio/big", "input": items, "tools": tools, **rest}
        case "messages" | "messages count":
            blocks = [_blocks_of(message) for message in messages]
            tools = [_anthropic(tool["function"]) for tool in rest.pop("tools", ())]
            asked = {"model": "lmstudio/big", "max_tokens": 100, "diagnostics": {}, **rest}
            return {**asked, "messages": blocks, "tools": tools}
        case "agents/check":
            return {"id": "other", "model": "big", "instructions": "".join(texts), **rest}
        case _:
            return {"logging": {"level": "".join(texts)}, **rest}


def _items_of(message: Body) -> list[Body]:
    """Return a message of a chat as items of a response's input."""
    content = message["content"]
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}]
    if "tool_calls" in message:
        called = [{"call_id": call["id"], **call["function"]} for call in message["tool_calls"]]
        return [{"type": "function_call", **call} for call in called]
    if isinstance(content, list):
        picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
        parts = [{"type": "input_text", "text": part["text"]} if "text" in part else picture for part in content]
        return [said(parts, message["role"])]
    return [said(content, message["role"])]


def _blocks_of(message: Body) -> Body:
    """Return a message of a chat in the form of Anthropic's."""
    content = message["content"]
    if message["role"] == "tool":
        return said([{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}])
    if "tool_calls" in message:
        uses = [{"type": "tool_use", "id": call["id"], "name": "t", "input": {}} for call in message["tool_calls"]]
        return said(uses, "assistant")
    if isinstance(content, list):
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        return said([part if "text" in part else {"type": "image", "source": source} for part in content])
    return said(content, message["role"])


def _anthropic(function: Body) -> Body:
    return {
        "name": function["name"],
        "description": function["description"],
        "input_schema": function["parameters"],
    }
