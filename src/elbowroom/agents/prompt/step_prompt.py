"""The prompt of one model step: what is sent with its history, and how large that is."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elbowroom.agents.answer import COUNTED
from elbowroom.agents.prompt.body import StepRequest
from elbowroom.agents.prompt.counters import HistoryCounter, is_short
from elbowroom.agents.prompt.size import PromptSize
from elbowroom.agents.tools.recall import Recaller, ResultRoom
from elbowroom.context.fitting import NOTHING_ASKED
from elbowroom.context.ledger import is_system
from elbowroom.context.manager import AgentContextManager, room_for_results
from elbowroom.context.transcript import Message, as_json, size_in_bytes
from elbowroom.providers.base import ModelInfo
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.files import StreamCounter

log = logging.getLogger(__name__)
SHARE_OF_TOOL: Final = 10
"""One tool more takes at most one part in so many of the room for the conversation."""


@dataclass(slots=True, weakref_slot=True)
class StepPrompt:
    """The history of `manager` as `shape` has it sent to the loaded model `info`, and how large that is by `counter`.

    `running` counts the answer. `recaller` has the tool that finds what is compacted away, None where it must not be
    offered, and `unoffered` is the shape before that was last offered. The last history is not dressed twice, and the
    last two prompts are not counted twice: one is sent next, or is the beginning of that which its engine has read.
    """

    shape: StepRequest
    info: ModelInfo
    manager: AgentContextManager
    counter: HistoryCounter
    running: StreamCounter
    recaller: Recaller | None = None
    unoffered: StepRequest = field(init=False)
    _sent: tuple[list[Message], list[Message]] | None = field(default=None, init=False)
    _counted: tuple[tuple[Sequence[Message], TokenCount], ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.unoffered = self.shape

    def after(self, reply: Message) -> "StepPrompt":
        """Return the prompt of the whole conversation with this reply at its end, whatever becomes of this one."""
        return replace(
            self, manager=AgentContextManager(self.manager.budget, history=self.manager.history.followed_by(reply))
        )

    async def offer(self) -> bool:
        """Offer the recaller's tool from now on, where that leaves the window its room; tell whether it was not yet."""
        self.unoffered, recaller = self.shape, self.recaller
        if recaller is None or self.shape.recalls_with or not self.shape.takes_more_tools:
            return False
        tool, budget = recaller.tool.spec, self.manager.budget
        if self.text(as_json(tool)) * SHARE_OF_TOOL > budget.trigger - budget.occupied(await self.empty()):
            return False
        recaller.is_offered = True
        self._use(self.shape.offering(tool))
        return True

    def take_back(self) -> None:
        """Offer the tool no more that was offered last."""
        if self.recaller is not None:
            self.recaller.is_offered = False
        self._use(self.unoffered)

    def _use(self, shape: StepRequest) -> None:
        self.shape, self.counter = shape, self.counter.with_body(shape.body(()))
        self._sent, self._counted = None, ()

    async def body(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Return the body that is sent for this history."""
        return self.shape.body(await self.sent(messages))

    async def most(self, messages: Sequence[Message]) -> int:
        """Return the most tokens that the whole request with this history may have."""
        return (await self._count(await self.sent(messages))).at_most

    async def least(self, messages: Sequence[Message]) -> int:
        """Return the fewest tokens that the whole request with this history may have."""
        return (await self._count(await self.sent(messages))).at_least

    async def empty(self) -> int:
        """Return the size of the prompt as long as nothing was said yet."""
        return await self.most([*filter(is_system, self.manager.history.messages), NOTHING_ASKED])

    async def room_for_result(self) -> ResultRoom:
        """Return how much room a result of a tool has in the next step."""
        return ResultRoom(room_for_results(self.manager.budget, await self.empty()) // 2, self.text)

    def text(self, text: str) -> int:
        """Return the size of a bare text."""
        return self.counter.text(text)

    async def sent(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that are sent for this history, in the form that the template takes."""
        return self._formed(messages) if is_short(messages) else await asyncio.to_thread(self._formed, messages)

    def _formed(self, messages: Sequence[Message]) -> list[Message]:
        """Return them at once; several threads may do so, each for a history of its own."""
        dressed, before = self.shape.with_instructions(self.manager.history.sent(messages)), self._sent
        if before is not None and before[0] == dressed:
            return before[1]
        formed = self.counter.formed(dressed)
        self._sent = dressed, formed
        return formed

    async def size(self, body: Mapping[str, Any]) -> PromptSize:
        """Return the size of a body that is about to be sent, with messages that are dressed and normalised."""
        return PromptSize(await self._count(body["messages"]), self.counter.counter, body)

    async def beginning(self, sent: Sequence[Message], length: int) -> int:
        """Return about how many tokens the first `length` messages of a prompt take, and all that stands before them.

        Where so short a conversation cannot be counted, since its template refuses it, that is their share of the text.
        """
        if not length:
            return 0
        try:
            return (await self._count(sent[:length])).tokens
        except Exception:  # noqa: BLE001  # the answer is there already, and must not be lost for its count
            whole, first = size_in_bytes(as_json(list(sent))), size_in_bytes(as_json(list(sent[:length])))
            return (await self._count(sent)).tokens * first // max(1, whole)

    async def _count(self, sent: Sequence[Message]) -> TokenCount:
        """Return the size of messages in their final form."""
        for messages, count in self._counted:
            if messages == sent:
                return count
        count = await self.counter.count_sent(sent)
        self._counted = (sent, count), *self._counted[:1]
        return count


@dataclass(frozen=True, slots=True)
class Unreported:
    """A request whose engine reported no usage: its body, and all that the model generated."""

    body: Mapping[str, Any]
    generated: str

    async def counted(self, prompt: StepPrompt) -> dict[str, Any] | None:
        """Return a usage object, marked as counted here; None where the prompt cannot be counted.

        Of a tool call only name and arguments are counted: what a model writes around them never arrives.
        """
        try:
            read = (await prompt.size(self.body)).count.tokens
        except Exception as error:  # noqa: BLE001  # the answer is there already, and must not be lost for its count
            log.info("A prompt without a report could not be counted either: %s", error)
            return None
        written = prompt.text(self.generated)
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "elbowroom": COUNTED,
        }
