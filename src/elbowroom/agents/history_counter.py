"""Counts whatever a history may become, as it would be sent; and brings it into the form the chat template takes."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from elbowroom.agents.prompt_size import PromptSize, template_arguments
from elbowroom.context.normalise import normalise
from elbowroom.context.template_demands import TemplateDemands, demands_of
from elbowroom.context.template_probe import ASK
from elbowroom.context.transcript import Message
from elbowroom.tokens.count import CannotCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.stream_count import StreamCounter

log = logging.getLogger(__name__)
UNKNOWN = TemplateDemands(user_needed=True, no_developer_role=True, no_null_content=True)
"""What is done for a template that nobody here can render: nothing that any template could mind."""
_found: WeakKeyDictionary[TokenCounter, asyncio.Future[TemplateDemands]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class HistoryCounter:
    """Counts for one model, with the template's demands and a stream counter that is ready for bare texts.

    `dress` makes of a history the messages that are sent, `arguments` and `tools` are those of the request.
    """

    tokens: TokenCounter
    demands: TemplateDemands
    tools: Sequence[Mapping[str, Any]]
    arguments: Mapping[str, Any]
    dress: Callable[[Sequence[Message]], Sequence[Message]]
    running: StreamCounter
    _sizes: dict[str, int] = field(default_factory=dict)

    @classmethod
    async def of(
        cls,
        tokens: TokenCounter,
        tools: Sequence[Mapping[str, Any]],
        arguments: Mapping[str, Any],
        dress: Callable[[Sequence[Message]], Sequence[Message]],
    ) -> "HistoryCounter":
        """Return the counter for one step's requests."""
        return cls(tokens, await template_demands(tokens), tools, arguments, dress, await tokens.stream())

    def text(self, text: str) -> int:
        """Return the size of a bare text."""
        if text not in self._sizes:
            counter = self.running.fresh()
            counter.feed(text)
            self._sizes[text] = counter.value
        return self._sizes[text]

    async def prompt(self, messages: Sequence[Message]) -> int:
        """Return the size of the whole request with this history: the most that it may be where it is not exact."""
        count = await self.tokens.count_chat(self.sent(messages), self.tools, self.arguments)
        return count.tokens + count.error_bound

    async def size(self, body: Mapping[str, Any]) -> PromptSize:
        """Return the size of the body that is about to be sent."""
        count = await self.tokens.count_chat(body["messages"], body.get("tools") or (), template_arguments(body))
        return PromptSize(count, self.tokens, body)

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that are sent for this history, in the form that the template takes."""
        return normalise(self.dress(messages), self.demands)


async def template_demands(tokens: TokenCounter) -> TemplateDemands:
    """Return what the model's chat template demands; it is asked once, as long as the model stays as it is."""
    if (asked := _found.get(tokens)) is None:
        try:
            await tokens.render_chat([ASK])
        except CannotCount:
            return UNKNOWN
        except Exception:
            log.exception("The chat template of %s could not be asked what it demands.", tokens.model)
            return UNKNOWN
        asked = _found.setdefault(tokens, asyncio.ensure_future(_ask(tokens)))
    return await asyncio.shield(asked)


async def _ask(tokens: TokenCounter) -> TemplateDemands:
    """Put the questions from a thread, one rendering at a time, so that nothing else has to wait for all of them."""
    loop = asyncio.get_running_loop()

    def render(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        return asyncio.run_coroutine_threadsafe(tokens.render_chat(messages, tools), loop).result()

    return await asyncio.to_thread(demands_of, render)
