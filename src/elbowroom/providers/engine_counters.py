"""Counting by the program that runs the model: llama.cpp's and vLLM's own routes, and LM Studio's websocket."""

import asyncio
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elbowroom.errors import UpstreamError
from elbowroom.providers.http_api import JsonApi
from elbowroom.providers.lmstudio_rpc import LMStudioRpc, RpcUnavailable
from elbowroom.tokens.count import CannotCount, TokenCount

REMEMBERED: Final = 4096
CALLS_AT_ONCE: Final = 8
SPECIAL: Final = re.compile(r"(?=<\|[^|<>\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]|</?s>|<\|?eot_id\|?>)")
"""Where prompts are cut before counting: before texts that are one token in every model that has them."""
UNKNOWN_ROUTE: Final = "The engine has no route for counting."


class RouteCounter:
    """Asks llama.cpp's `input_tokens` or vLLM's `tokenize`, whichever the server at this address has."""

    def __init__(self, api: JsonApi, base: str, model: str) -> None:
        self._api = api
        self._base = base
        self._root = base.removesuffix("/v1")
        self._model = model
        self._counts: OrderedDict[str, int] = OrderedDict()

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        answer = await self._ask(
            (f"{self._root}/tokenize", {"content": text, "prompt": text, "model": self._model}),
        )
        return TokenCount(answer, "engine")

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
        for url, body in attempts:
            try:
                answer = await self._api.post(url, body)
            except UpstreamError as error:
                raise CannotCount(f"The engine did not count: {error.message}") from error
            if (count := _number_in(answer)) is not None:
                return count
        raise CannotCount(UNKNOWN_ROUTE, is_lasting=True)


def _number_in(answer: Any) -> int | None:
    if not isinstance(answer, dict):
        return None
    for key in ("input_tokens", "count"):
        if isinstance(answer.get(key), int):
            number: int = answer[key]
            return number
    tokens = answer.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None


class RpcCounter:
    """Asks LM Studio: it renders the prompt, and counts each piece of it once."""

    def __init__(self, rpc: LMStudioRpc, model: str) -> None:
        self._rpc = rpc
        self._model = model
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._turn = asyncio.Semaphore(CALLS_AT_ONCE)

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        return TokenCount(await self._count(text), "engine")

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the prompt that LM Studio makes of the messages, its begin-of-text token included."""
        try:
            prompt = await self._rpc.render(self._model, messages, tools)
        except UpstreamError as error:
            raise _cannot(error) from error
        pieces = [piece for piece in SPECIAL.split(prompt) if piece]
        counts = await asyncio.gather(*(self._count(piece) for piece in pieces))
        return TokenCount(sum(counts), "engine")

    async def _count(self, text: str) -> int:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if (known := self._counts.get(digest)) is not None:
            self._counts.move_to_end(digest)
            return known
        try:
            async with self._turn:
                count = len(await self._rpc.tokenize(self._model, text))
        except UpstreamError as error:
            raise _cannot(error) from error
        self._counts[digest] = count
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        return count


def _cannot(error: UpstreamError) -> CannotCount:
    return CannotCount(error.message, is_lasting=isinstance(error, RpcUnavailable))
