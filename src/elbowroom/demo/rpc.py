"""LM Studio's websocket calls: exact counting, model information, the list of downloads."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from elbowroom.demo import refusals
from elbowroom.demo.keys import STUDIO
from elbowroom.demo.rpc_calls import RpcError, answer_call

if TYPE_CHECKING:
    from elbowroom.demo.studio import SimulatedLMStudio

NAMESPACES = ("llm", "embedding", "system", "files", "repository")


@dataclass(frozen=True, slots=True)
class RpcCall:
    """A call that arrived: on which namespace, of which endpoint, with which parameter."""

    namespace: str
    endpoint: str
    parameter: Any


async def serve(request: web.Request) -> web.StreamResponse:
    """Serve one socket of one namespace: the handshake first, then calls until it closes."""
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
