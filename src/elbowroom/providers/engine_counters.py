"""Counting by the program that runs the model: llama.cpp's and vLLM's own routes, and LM Studio's websocket."""

import asyncio
import hashlib
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elbowroom.errors import ElbowroomError, UpstreamError, UpstreamRejected
from elbowroom.providers.http_api import JsonApi
from elbowroom.providers.lmstudio_rpc import LMStudioRpc
from elbowroom.tokens.count import CannotCount, TokenCount

REMEMBERED: Final = 4096
CALLS_AT_ONCE: Final = 8
MARK: Final = re.compile(r"<\|[^|<>\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]|</?s>")
"""Texts that are one token in models that have them: a prompt can be cut before these, and before no others."""
MARKS_TRIED: Final = 16
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
            raise CannotCount(error.message) from error
        added = await self._count("")  # where begin-of-text is put before every text, a prompt has it once
        pieces = await self._pieces(prompt, added)
        counts = await asyncio.gather(*(self._count(piece) for piece in pieces))
        return TokenCount(sum(counts) - added * (len(counts) - 1), "engine")

    async def _pieces(self, prompt: str, added: int) -> list[str]:
        """Cut the prompt before texts that are one token to this model, so that most pieces are known already."""
        found = [mark for mark, _ in Counter(MARK.findall(prompt)).most_common(MARKS_TRIED)]
        sizes = await asyncio.gather(*(self._count(mark) for mark in found))
        marks = [re.escape(mark) for mark, size in zip(found, sizes, strict=True) if size - added == 1]
        return [piece for piece in re.split(f"(?={'|'.join(marks)})", prompt) if piece] if marks else [prompt]

    async def _count(self, text: str) -> int:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if (known := self._counts.get(digest)) is not None:
            self._counts.move_to_end(digest)
            return known
        try:
            async with self._turn:
                count = len(await self._rpc.tokenize(self._model, text))
        except UpstreamError as error:
            raise CannotCount(error.message) from error
        self._counts[digest] = count
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        return count
