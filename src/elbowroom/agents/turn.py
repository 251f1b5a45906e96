"""One request's model calls, step after step, with the SDK's Runner around them or not."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt_size import PromptSize, prompt_size_if_countable
from elbowroom.agents.reply import Reply
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.request_body import step_body, with_instructions
from elbowroom.agents.step import Step
from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
POLICY_SECONDS = 0.5  # the client waits for the end of its answer meanwhile


class Turn:
    """Asks the target's model for one client request; `answer` grows with every step."""

    def __init__(self, target: Target, request: ChatRequest, sink: Sink) -> None:
        self.target = target
        self.request = request
        self.answer = Answer()
        self._sink = sink
        self._defaults = target.agent.sampling.as_request_fields() if target.agent else {}

    def with_model(self, model: str) -> "Turn":
        """Return the same turn, answer and all, going on with another model of the provider."""
        other = Turn(replace(self.target, model=model), self.request, self._sink)
        other.answer = self.answer
        return other

    async def step(
        self,
        *,
        instructions: str | None = None,
        appended: Sequence[dict[str, Any]] = (),
        own_tools: Sequence[dict[str, Any]] = (),
        is_for_client: Callable[[str], bool] = lambda name: True,
    ) -> Reply:
        """Ask the model once and return its reply, which the sink has had by then.

        `appended` are the messages of the steps before, `own_tools` the specifications of tools that the server
        runs; `is_for_client` tells whether a call of this name is handed to the client.
        """
        messages = with_instructions(self.request.messages, instructions) + list(appended)
        body = step_body(
            self.request,
            self.target.model,
            self._defaults,
            messages,
            [*own_tools, *self.request.tools],
            step=self.answer.steps + 1,
        )
        info = await self.target.provider.ready(self.target.model)
        size = await self._checked_size(info, body)
        offered = [name for tool in body.get("tools", ()) if (name := tool_name(tool))]
        step = Step(self.answer, self._sink, offered, is_for_client)
        reply = await step.run(self.target.provider, body, info)
        if size is not None:
            await self._compare(size, info, step.usage, reply)
        return reply

    async def _compare(self, size: PromptSize, info: ModelInfo, usage: Mapping[str, Any] | None, reply: Reply) -> None:
        """Learn from what the engine reports, and say where it has silently cut the prompt."""
        truncation = await size.compare(usage, reply)
        if truncation is None:
            return
        try:
            async with asyncio.timeout(POLICY_SECONDS):
                policy = await self.target.provider.overflow_policy(info.id)
        except TimeoutError:
            policy = None
        log.warning(
            "%s was sent %d tokens and read only %d: the middle of the conversation was cut out silently%s. "
            "Load it with a larger context length, or begin a new conversation.",
            size.counter.model,
            truncation.counted,
            truncation.read,
            f" (its overflow policy is {policy})" if policy else "",
        )

    async def _checked_size(self, info: ModelInfo, body: dict[str, Any]) -> PromptSize | None:
        """Count the prompt where the provider's windows are watched over, and refuse one that surely does not fit."""
        size = await prompt_size_if_countable(self.target.provider, info, body)
        if size is not None and info.loaded_context is not None:
            size.refuse_overflow(info.loaded_context)
        return size
