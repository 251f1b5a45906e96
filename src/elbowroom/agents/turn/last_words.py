"""The last words of an answer that a person has stopped: what was done, and what was left undone."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.admission import Gate
from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.prompt import NO_THINKING, HistoryCounter, PromptSize, StepRequest
from elbowroom.agents.running import GRACE_SECONDS
from elbowroom.agents.turn.history import History
from elbowroom.agents.turn.pruner import MARGIN, NOT_FOR_PRUNING
from elbowroom.agents.turn.stream import Step
from elbowroom.context.transcript import Message
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider

log = logging.getLogger(__name__)
MOST_TOKENS: Final = 150
NO_RESULT: Final = "No result: the user has stopped this call, or it was not run."
ORDER: Final[Message] = {
    "role": "user",
    "content": "I have stopped you here. Do not go on with the work, and call no tools. Tell me in two or three "
    "sentences what you have done so far, and what is left undone.",
}
OF_TOOLS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"})


def messages_at_stop(history: History, reply: Message, results: Mapping[str, str]) -> list[Message]:
    """Return the conversation up to where it was stopped in the model's last `reply`, with the order behind it.

    `results` are what the model was to read of those calls that had ended, by their ids; of the others it reads that
    they have no result.
    """
    whole = history.followed_by(reply).messages
    answered = {message.get("tool_call_id") for message in whole if message.get("role") == "tool"}
    calls = whole[-1].get("tool_calls") or () if whole else ()
    told = [
        {"role": "tool", "tool_call_id": call["id"], "content": results.get(call["id"], NO_RESULT)}
        for call in calls
        if call["id"] not in answered
    ]
    return [*whole, *told, ORDER]


@dataclass(frozen=True, slots=True)
class GraceTurn:
    """One more call of a model that was stopped, without tools and short; its words end the `answer`.

    `counter` is that of the request that was stopped; without one its context is the provider's own matter, and
    nothing is counted. `window` is what can be used of the context.
    """

    provider: Provider
    info: ModelInfo
    shape: StepRequest
    answer: Answer
    sink: Sink
    gate: Gate
    live: TurnRecorder | None = None
    counter: HistoryCounter | None = None
    window: int = 0

    async def speak(self, messages: Sequence[Message]) -> None:
        """Ask for the last words. That the model has none is no failure: the answer ends where it was stopped."""
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                await self._speak(messages)
        except TimeoutError:
            log.info("%s took too long over the last words of an answer.", self.info.id)
        except ElbowroomError as error:
            log.info("%s has said no last words: %s", self.info.id, error)

    async def _speak(self, messages: Sequence[Message]) -> None:
        body, size = await self._body(messages)
        if size is not None and size.at_most + body["max_tokens"] + MARGIN > self.window:
            log.info("The window of %s has no room for the last words of an answer.", self.info.id)
            return
        prompt = size.at_most if size is not None else 0
        step = Step(self.answer, self.sink, (), lambda name: False, self.live)
        async with self.gate.entered(
            self.provider, self.info, window=self.window, prompt=prompt, tokens=prompt + body["max_tokens"]
        ) as ticket:
            await step.attempt(self.provider, body, self.info, ticket=ticket)
        step.reply.drop_calls()
        await step.close()

    async def _body(self, messages: Sequence[Message]) -> tuple[dict[str, Any], PromptSize | None]:
        """Return the body, and its size where it is counted."""
        shape = replace(self.shape, tools=())
        whole = shape.body(shape.with_instructions(messages))
        body = {name: value for name, value in whole.items() if name not in NOT_FOR_PRUNING | OF_TOOLS}
        body["max_tokens"] = min(self.shape.max_tokens or MOST_TOKENS, MOST_TOKENS)
        if self.counter is None:
            return body, None
        if self.counter.facts.thinking_switch != "none":
            sent = body.get("chat_template_kwargs")
            body["chat_template_kwargs"] = {**(sent if isinstance(sent, Mapping) else {}), **NO_THINKING}
        history = self.counter.with_body(body)
        body["messages"] = history.normalised(body["messages"])
        return body, PromptSize(await history.count_sent(body["messages"]), history.counter, body)
