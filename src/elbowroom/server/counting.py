"""`POST /v1/chat/completions/input_tokens`: how large the prompt of a chat request is, without asking the model."""

from aiohttp import web

from elbowroom.agents.catalog import Target
from elbowroom.agents.count_request import count_request
from elbowroom.agents.offered_tools import offered_unasked
from elbowroom.agents.request import ChatRequest
from elbowroom.server.caller import read_chat_request
from elbowroom.server.keys import catalog_of, run_settings_of


async def input_tokens(request: web.Request) -> web.Response:
    """Count the prompt that this chat request would make; no model is loaded for it."""
    chat = await read_chat_request(request)
    return await counted(request, await catalog_of(request.app).resolve(chat.model), chat)


async def counted(request: web.Request, target: Target, chat: ChatRequest) -> web.Response:
    """Answer how large the prompt of a chat is, in the form of OpenAI's route with what elbowroom knows beside it."""
    offered = await offered_unasked(target, chat, run_settings_of(request.app))
    sized = await count_request(target, offered.request, offered.specs)
    return web.json_response(
        {
            "object": "response.input_tokens",
            "input_tokens": sized.count.tokens,
            "method": sized.count.method,
            "exact": sized.count.is_exact,
            "error_bound": sized.count.error_bound,
            "window": sized.window,
        }
    )
