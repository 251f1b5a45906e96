"""Reads the bodies that clients send, and finds the model that they mean."""

from typing import TYPE_CHECKING, Any

from elbowroom.demo import refusals
from elbowroom.demo.journal import RecordedRequest
from elbowroom.demo.residency import Instance

if TYPE_CHECKING:
    from elbowroom.demo.studio import SimulatedLMStudio

_TOOL_CHOICES = ("none", "auto", "required")


def json_object(record: RecordedRequest) -> dict[str, Any]:
    """Return the request's JSON object; raise RefusalError if it is anything else."""
    if not isinstance(record.body, dict):
        raise refusals.plain("Invalid JSON: the request body must be a JSON object")
    return record.body


def check_chat(body: dict[str, Any]) -> None:
    """Raise RefusalError for what LM Studio does not take in a chat request."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise refusals.plain("'messages' field is required and must be an array of message objects")
    if not messages:
        raise refusals.plain("'messages' array must not be empty")
    choice = body.get("tool_choice")
    if choice is not None and choice not in _TOOL_CHOICES:
        kind = "string" if isinstance(choice, str) else "object"
        supported = ", ".join(_TOOL_CHOICES)
        raise refusals.plain(f"Invalid tool_choice type: '{kind}'. Supported string values: {supported}")
    shape = body.get("response_format")
    if shape is not None and (not isinstance(shape, dict) or shape.get("type") not in ("json_schema", "text")):
        raise refusals.plain(refusals.JSON_OBJECT)


def has_images(messages: list[dict[str, Any]]) -> bool:
    """Tell whether a message has an image in it."""
    contents = (message.get("content") for message in messages)
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return any(isinstance(part, dict) and part.get("type") == "image_url" for part in parts)


async def resolve(
    studio: "SimulatedLMStudio", body: dict[str, Any], record: RecordedRequest, *, embedding: bool = False
) -> Instance:
    """Return the instance that answers, loading the named model first where that is on.

    An unknown name is answered by the model that is loaded. Raises RefusalError if it cannot be told which that is.
    """
    residency = studio.residency
    residency.expire()
    name = body.get("model") or ""
    ttl = body.get("ttl")
    instance = residency.named(name)
    if instance is None and name in residency.models and studio.just_in_time:
        record.phase = "loading"
        seconds = float(ttl) if isinstance(ttl, int | float) else studio.idle_ttl_seconds
        instance = await residency.load_just_in_time(name, seconds, evict=studio.auto_evict)
    if instance is None:
        instance = residency.fallback(embedding=embedding)
    residency.touch(instance)
    record.instance_id, record.window = instance.id, instance.context_length
    return instance
