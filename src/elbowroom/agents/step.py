"""One step of a run: ask the model once, and hand on each piece as it comes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.agents.reply import Reply
from elbowroom.errors import EmptyReply
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.events import (
    Finished,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)


class Step:
    """Reads one streamed reply into `answer` and `sink`; `is_for_client` tells whose tool a name is.

    `usage` is what the engine has reported by the end, None where it reports nothing.
    """

    def __init__(
        self, answer: Answer, sink: Sink, offered: Collection[str], is_for_client: Callable[[str], bool]
    ) -> None:
        self._answer = answer
        self._sink = sink
        self._is_for_client = is_for_client
        self.usage: dict[str, Any] | None = None
        self.reply = Reply(offered)

    async def run(self, provider: Provider, body: Mapping[str, Any], info: ModelInfo) -> Reply:
        """Send the body and return the whole reply.

        An empty reply after text in an earlier step means that the model has nothing to add; otherwise it is
        raised as EmptyReply, like every other failure.
        """
        self._answer.begin_step()
        try:
            async with aclosing(provider.stream(body, info)) as stream:
                async for events in stream:
                    await self._take(events)
        except EmptyReply:
            if not self._answer.text:
                raise
            self._answer.upstream_finish = "stop"
        calls = self.reply.close_calls(was_cut=self._answer.upstream_finish == "length")
        await self._hand_on([call for call in calls if self._is_for_client(call.name)])
        if self.usage is not None:
            self._answer.usages.append(self.usage)
        return self.reply

    async def _take(self, events: list[StreamEvent]) -> None:
        visible: list[AnswerEvent] = []
        for event in events:
            match event:
                case TextDelta():
                    self.reply.text.append(event.text)
                    visible.append(event)
                case ReasoningDelta():
                    self.reply.reasoning.append(event.text)
                    visible.append(event)
                case ToolCallDelta():
                    self.reply.add_call(event)
                case Finished():
                    self._answer.upstream_finish = event.reason
                case UsageReport():
                    self.usage = event.usage
        await self._hand_on(visible)

    async def _hand_on(self, events: Sequence[AnswerEvent]) -> None:
        if events:
            await self._sink([self._answer.take(event) for event in events])
