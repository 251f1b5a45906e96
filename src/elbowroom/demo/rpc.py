"""LM Studio's websocket: the handshake, and its calls for counting, model information and downloads."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from elbowroom.demo import refusals
from elbowroom.demo.journal import STUDIO
from elbowroom.demo.models import SimulatedModel
from elbowroom.demo.residency import Instance

if TYPE_CHECKING:
    from elbowroom.demo.studio import SimulatedLMStudio

NAMESPACES = ("llm", "embedding", "system", "files", "repository")
Parameter = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A call that was received."""

    namespace: str
    endpoint: str
    parameter: Any


async def serve(request: web.Request) -> web.StreamResponse:
    """Serve one socket of a namespace: first the handshake, then calls until it closes."""
    studio = request.app[STUDIO]
    if not studio.rpc or request.headers.get("Upgrade", "").lower() != "websocket":
        return refusals.unexpected_endpoint(request.method, request.path)
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    hello = await socket.receive()
    error = _handshake_error(hello.data if hello.type is WSMsgType.TEXT else "", studio.api_token)
    await socket.send_json({"success": False, "error": error} if error else {"success": True})
    if error:
        await socket.close()
        return socket
    async for message in socket:
        if message.type is WSMsgType.TEXT and (answer := _answer(studio, request.path[1:], message.json())):
            await socket.send_json(answer)
    return socket


def _handshake_error(data: str, api_token: str | None) -> str | None:
    try:
        hello = json.loads(data)
    except ValueError:
        hello = None
    if not isinstance(hello, dict) or hello.get("authVersion") != 1:
        return "Failed to authenticate: the first message must be an authentication packet of version 1"
    token = f"sk-lm-{hello.get('clientIdentifier')}:{hello.get('clientPasskey')}"
    if api_token is not None and token != api_token:
        return "Failed to authenticate: invalid LM Studio API token"
    return None


def _answer(studio: "SimulatedLMStudio", namespace: str, message: dict[str, Any]) -> dict[str, Any] | None:
    if message.get("type") == "keepAlive":
        return {"type": "keepAliveAck"}
    if message.get("type") != "rpcCall":
        return None
    endpoint, parameter = str(message.get("endpoint")), message.get("parameter")
    studio.rpc_calls.append(RpcCall(namespace, endpoint, parameter))
    call_id = message.get("callId")
    try:
        result = answer_call(studio, namespace, endpoint, parameter or {})
        return {"type": "rpcResult", "callId": call_id, "result": result}
    except RpcError as error:
        return {"type": "rpcError", "callId": call_id, "error": error.as_json()}


class RpcError(Exception):
    """The error answer to a call; the code is LM Studio's, such as `generic.noModelMatchingQuery`."""

    def __init__(self, title: str, code: str, suggestion: str = "") -> None:
        super().__init__(title)
        self.title = title
        self.code = code
        self.suggestion = suggestion

    def as_json(self) -> dict[str, Any]:
        """Return the error object of the answer."""
        return {
            "title": self.title,
            "rootTitle": self.title,
            "displayData": {"code": self.code},
            "suggestion": self.suggestion,
        }


def answer_call(studio: "SimulatedLMStudio", namespace: str, endpoint: str, parameter: Parameter) -> Any:
    """Return the result of a call; raise RpcError if it fails."""
    studio.residency.expire()
    if namespace == "system" and endpoint == "listDownloadedModels":
        return [_model_info(model) for model in studio.residency.models.values()]
    if namespace in ("llm", "embedding"):
        if endpoint == "listLoaded":
            return [_instance_info(one) for one in studio.residency.ready if _namespace(one) == namespace]
        if (call := _CALLS.get(endpoint)) is not None:
            instance = _specified(studio, namespace, parameter)
            return None if instance is None else call(studio, instance, parameter)
    raise RpcError(f"No endpoint {endpoint!r} in namespace {namespace!r}", "generic.unknownEndpoint")


def _specified(studio: "SimulatedLMStudio", namespace: str, parameter: Parameter) -> Instance | None:
    """Return the loaded instance that a call names; a call never loads a model."""
    specifier = parameter.get("specifier") or {}
    candidates = [one for one in studio.residency.ready if _namespace(one) == namespace]
    if specifier.get("type") == "instanceReference":
        found = [one for one in candidates if one.reference == specifier.get("instanceReference")]
        code = "generic.specificModelUnloaded"
    else:
        name = (specifier.get("query") or {}).get("identifier")
        found = [one for one in candidates if name in (None, one.id)]
        code = "generic.noModelMatchingQuery"
    if not found and parameter.get("throwIfNotFound", True):
        raise RpcError("No model found that fits the query", code, "Load the model first.")
    return found[0] if found else None


def _namespace(instance: Instance) -> str:
    return "embedding" if instance.model.type == "embedding" else "llm"


def _tokenize(studio: "SimulatedLMStudio", instance: Instance, parameter: Parameter) -> Any:
    text = str(parameter.get("inputString", ""))
    return {"tokens": studio.tokenizer_of(instance.model).encode(text)}


def _count_tokens(studio: "SimulatedLMStudio", instance: Instance, parameter: Parameter) -> Any:
    return {"tokenCount": len(_tokenize(studio, instance, parameter)["tokens"])}


def _apply_prompt_template(studio: "SimulatedLMStudio", instance: Instance, parameter: Parameter) -> Any:
    history = (parameter.get("history") or {}).get("messages") or []
    tools = (parameter.get("opts") or {}).get("toolDefinitions") or None
    messages = [message for one in history for message in _as_openai(one)]
    try:
        return {"formatted": studio.tokenizer_of(instance.model).render(messages, tools)}
    except ValueError as error:
        raise RpcError(f"Error rendering prompt with jinja template: {error}", "generic.unknown") from error


def _as_openai(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("content") or []
    results = [part for part in parts if part.get("type") == "toolCallResult"]
    if message.get("role") == "tool":
        return [
            {"role": "tool", "tool_call_id": one.get("toolCallId"), "content": one.get("content")} for one in results
        ]
    text = "".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
    calls = [_call_as_openai(part["toolCallRequest"]) for part in parts if part.get("type") == "toolCallRequest"]
    return [{"role": message.get("role"), "content": text} | ({"tool_calls": calls} if calls else {})]


def _call_as_openai(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call.get("name"), "arguments": json.dumps(call.get("arguments") or {})}
    return {"id": call.get("id"), "type": "function", "function": function}


def _get_base_prediction_config(studio: "SimulatedLMStudio", _: Instance, __: Parameter) -> Any:
    return {"fields": [{"key": "llm.prediction.contextOverflowPolicy", "value": studio.overflow.policy}]}


def _get_load_config(_: "SimulatedLMStudio", instance: Instance, __: Parameter) -> Any:
    return {"fields": [{"key": f"{_namespace(instance)}.load.contextLength", "value": instance.context_length}]}


def _get_processing_state(_: "SimulatedLMStudio", instance: Instance, __: Parameter) -> Any:
    status = "idle"
    if instance.generations:
        status = "processingPrompt" if instance.prefill.locked() else "generating"
    return {"status": status, "queued": instance.queued}


def _model_info(model: SimulatedModel) -> dict[str, Any]:
    kind = "embedding" if model.type == "embedding" else "llm"
    info = {
        "type": kind,
        "modelKey": model.key,
        "format": model.format,
        "displayName": model.name,
        "publisher": model.publisher,
        "path": model.key,
        "indexedModelIdentifier": model.key,
        "sizeBytes": model.size_bytes,
        "deviceIdentifier": None,
        "maxContextLength": model.max_context_length,
    }
    return info | ({"vision": model.vision, "trainedForToolUse": model.tool_use} if kind == "llm" else {})


def _instance_info(instance: Instance) -> dict[str, Any]:
    ttl = None if instance.ttl_seconds is None else int(instance.ttl_seconds * 1000)
    return _model_info(instance.model) | {
        "identifier": instance.id,
        "instanceReference": instance.reference,
        "contextLength": instance.context_length,
        "ttlMs": ttl,
        "lastUsedTime": None,
    }


_CALLS: dict[str, Callable[["SimulatedLMStudio", Instance, Parameter], Any]] = {
    "getModelInfo": lambda _, instance, __: _instance_info(instance),
    "tokenize": _tokenize,
    "countTokens": _count_tokens,
    "applyPromptTemplate": _apply_prompt_template,
    "getBasePredictionConfig": _get_base_prediction_config,
    "getLoadConfig": _get_load_config,
    "getInstanceProcessingState": _get_processing_state,
}
