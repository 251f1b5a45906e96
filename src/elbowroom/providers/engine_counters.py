"""Counting by the program that runs the model: llama.cpp's and vLLM's own routes, and LM Studio's websocket."""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elbowroom.errors import ElbowroomError, UpstreamError, UpstreamRejected
from elbowroom.providers.http_api import JsonApi
from elbowroom.tokens.count import CannotCount, TokenCount

REMEMBERED: Final = 4096
ANSWER_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 30.0
"""How long a server that did not answer is not asked, so that chats need not wait for it."""
UNKNOWN_ROUTE: Final = "The engine has no route for counting."


class RouteCounter:
    """Asks llama.cpp's `input_tokens` or vLLM's `tokenize`, whichever the server at this address has."""

    def __init__(self, api: JsonApi, base: str, model: str) -> None:
        self._api = api
        self._base = base
        self._root = base.removesuffix("/v1")
        self._model = model
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._paused_until = float("-inf")

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        body = {"content": text, "prompt": text, "add_special_tokens": False, "model": self._model}
        return TokenCount(await self._ask((f"{self._root}/tokenize", body)), "engine")

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the whole prompt as the engine counts it; the same request is asked once."""
        body: dict[str, Any] = {"model": self._model, "messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        if arguments:
            body["chat_template_kwargs"] = dict(arguments)
        key = hashlib.blake2b(json.dumps(body).encode(), digest_size=16).hexdigest()
        if key not in self._counts:
            self._counts[key] = await self._ask(
                (f"{self._base}/chat/completions/input_tokens", body), (f"{self._root}/tokenize", body)
            )
            if len(self._counts) > REMEMBERED:
                self._counts.popitem(last=False)
        return TokenCount(self._counts[key], "engine")

    async def _ask(self, *attempts: tuple[str, dict[str, Any]]) -> int:
        now = asyncio.get_running_loop().time()
        if now < self._paused_until:
            raise CannotCount("The engine did not answer a moment ago and is left alone for now.")
        problem = UNKNOWN_ROUTE
        for url, body in attempts:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self._api.post(url, body)
            except UpstreamRejected as refusal:
                problem = f"The engine did not count: {refusal.message}"
                continue
            except (ElbowroomError, TimeoutError) as error:
                self._paused_until = now + PAUSE_SECONDS
                reason = error.message if isinstance(error, ElbowroomError) else "it did not answer in time."
                raise CannotCount(f"The engine did not count: {reason}") from error
            if (count := _number_in(answer)) is not None:
                return count
        raise CannotCount(problem)


def _number_in(answer: Any) -> int | None:
    if not isinstance(answer, dict):
        return None
    for key in ("input_tokens", "count"):
        number = answer.get(key)
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return number
    tokens = answer.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None
