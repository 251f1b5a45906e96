"""Counts whatever the history of one step may become, as it would be sent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elbowroom.agents.history_counter import HistoryCounter
from elbowroom.agents.prompt_size import PromptSize
from elbowroom.context.transcript import Message
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.stream_count import StreamCounter


@dataclass(frozen=True, slots=True)
class StepCounter:
    """A counter that puts in front and behind of a history what is sent with it: `dress` says what that is.

    What was asked for last is remembered, for as long as the step lasts: it is sent next.
    """

    history: HistoryCounter
    running: StreamCounter
    dress: Callable[[Sequence[Message]], Sequence[Message]]
    _last_sent: list[list[Message]] = field(default_factory=list)
    _last: list[Any] = field(default_factory=list)

    async def prompt(self, messages: Sequence[Message]) -> int:
        """Return the most tokens that the whole request with this history may have."""
        count = await self._count(self.sent(messages))
        return count.tokens + count.error_bound

    def text(self, text: str) -> int:
        """Return the size of a bare text."""
        return self.history.text(text)

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that are sent for this history, in the form that the template takes."""
        dressed = list(self.dress(messages))
        if not self._last_sent or self._last_sent[0] != dressed:
            self._last_sent[:] = [dressed, self.history.normalised(dressed)]
        return self._last_sent[1]

    async def size(self, body: Mapping[str, Any]) -> PromptSize:
        """Return the size of a body that is about to be sent, with messages that are dressed and normalised."""
        return PromptSize(await self._count(body["messages"]), self.history.counter, body)

    async def _count(self, sent: Sequence[Message]) -> TokenCount:
        """Return the size of messages in their final form."""
        if not self._last or self._last[0] != sent:
            self._last[:] = [sent, await self.history.count_sent(sent)]
        count: TokenCount = self._last[1]
        return count
