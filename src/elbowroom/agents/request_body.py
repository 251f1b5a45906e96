"""The body of the chat request that goes upstream."""

from collections.abc import Mapping, Sequence
from typing import Any

from elbowroom.agents.request import ChatRequest

SYSTEM_ROLES = frozenset({"system", "developer"})


def relay_body(request: ChatRequest, model: str) -> dict[str, Any]:
    """Return the client's own body with nothing but the model's name replaced."""
    return {**request.body, "model": model}


def step_body(
    request: ChatRequest,
    model: str,
    defaults: Mapping[str, Any],
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    step: int,
) -> dict[str, Any]:
    """Return the body of one model step of a managed run.

    The client's fields go over the agent's `defaults`, where null counts as not sent. After the first step a
    forced `tool_choice` has been obeyed and is left out, else the model could never answer.
    """
    sent = {name: value for name, value in request.fields.items() if value is not None or name not in defaults}
    fields = {**defaults, **sent}
    if (limit := fields.pop("max_completion_tokens", None)) is not None:
        # LM Studio's documented name for the limit; with the other one a reasoning model may lose its answer.
        fields["max_tokens"] = limit
    if fields.get("stop") == "":
        # Sent by habit for "none"; taken at its word it stands before the first letter of every answer.
        del fields["stop"]
    if step > 1 and fields.get("tool_choice") not in ("auto", "none"):
        fields.pop("tool_choice", None)
    body: dict[str, Any] = {"model": model, "messages": list(messages), **fields}
    if tools:
        body["tools"] = list(tools)
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    return body


def with_instructions(messages: Sequence[dict[str, Any]], instructions: str | None) -> list[dict[str, Any]]:
    """Return the messages with the agent's instructions in front, in one system message with the client's own.

    Two system messages in a row break many chat templates.
    """
    if not instructions:
        return list(messages)
    first = messages[0]
    if first.get("role") not in SYSTEM_ROLES:
        return [{"role": "system", "content": instructions}, *messages]
    return [{**first, "role": "system", "content": _joined(instructions, first.get("content"))}, *messages[1:]]


def _joined(instructions: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": instructions}, *content]
    return f"{instructions}\n\n{content}" if content else instructions
