"""Between the Agents SDK's items and chat messages, in both directions."""

import json
import secrets
import time
from collections.abc import Sequence
from typing import Any, cast

from agents import Handoff, Tool
from agents.items import TResponseInputItem
from agents.models.chatcmpl_converter import Converter
from agents.models.fake_id import FAKE_RESPONSES_ID
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from elbowroom.agents.answer import ToolCall
from elbowroom.agents.reply import Reply
from elbowroom.context.message_content import whole_characters


def to_messages(items: Sequence[TResponseInputItem]) -> list[dict[str, Any]]:
    """Return the chat messages for what the Runner appended: the model's own turns and the tools' results."""
    return [_flat(cast("dict[str, Any]", message)) for message in Converter.items_to_messages(items)]


def to_tool_specs(tools: Sequence[Tool], handoffs: Sequence[Handoff[Any, Any]]) -> list[dict[str, Any]]:
    """Return the server's tools and handoffs as a chat request lists them."""
    specs = [Converter.tool_to_openai(tool) for tool in tools]
    specs += [Converter.convert_handoff_tool(handoff) for handoff in handoffs]
    return [cast("dict[str, Any]", spec) for spec in specs]


def completed_event(
    reply: Reply, tool_calls: Sequence[ToolCall], model: str, usage: dict[str, Any] | None
) -> ResponseCompletedEvent:
    """Return the one event that the Runner needs of a model step; built without validation, as it is ours."""
    response = Response.model_construct(
        id=f"resp_{secrets.token_hex(12)}",
        created_at=time.time(),
        model=model,
        object="response",
        output=_output_items(reply, tool_calls),
        usage=_response_usage(usage or {}),
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
    )
    return ResponseCompletedEvent.model_construct(type="response.completed", sequence_number=0, response=response)


def _output_items(reply: Reply, tool_calls: Sequence[ToolCall]) -> list[ResponseOutputItem]:
    items: list[ResponseOutputItem] = []
    if reply.reasoning:
        summary = Summary.model_construct(type="summary_text", text="".join(reply.reasoning))
        items.append(ResponseReasoningItem.model_construct(id=FAKE_RESPONSES_ID, type="reasoning", summary=[summary]))
    if reply.text or not tool_calls:
        text = ResponseOutputText.model_construct(type="output_text", text="".join(reply.text), annotations=[])
        items.append(
            ResponseOutputMessage.model_construct(
                id=FAKE_RESPONSES_ID, type="message", role="assistant", status="completed", content=[text]
            )
        )
    items += [
        ResponseFunctionToolCall.model_construct(
            id=FAKE_RESPONSES_ID,
            type="function_call",
            call_id=call.id,
            name=whole_characters(call.name),
            arguments=_encodable(call.arguments),
        )
        for call in tool_calls
    ]
    return items


def _encodable(arguments: str) -> str:
    """Return the arguments without lone surrogates, escaped ones too: the SDK cannot encode them for its hashes."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return whole_characters(arguments)
    text = json.dumps(parsed, ensure_ascii=False)
    whole = whole_characters(text)
    return arguments if whole == text else whole


def _response_usage(usage: dict[str, Any]) -> ResponseUsage:
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return ResponseUsage.model_construct(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=prompt + completion,
        input_tokens_details=InputTokensDetails.model_construct(cached_tokens=cached, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails.model_construct(reasoning_tokens=reasoning),
    )


def _flat(message: dict[str, Any]) -> dict[str, Any]:
    """Join the text parts of a tool's result: many local chat templates accept only a string there."""
    content = message.get("content")
    if message.get("role") != "tool" or not isinstance(content, list):
        return message
    return {**message, "content": "\n".join(part["text"] for part in content if part.get("type") == "text")}
