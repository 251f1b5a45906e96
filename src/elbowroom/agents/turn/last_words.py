"""The last words of an answer that a person has stopped: what was done, and what was left undone."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.admission import Admission
from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.prompt import HistoryCounter, PromptSize, StepRequest, thinking_off, without_answer_fields
from elbowroom.agents.running import GRACE_SECONDS
from elbowroom.agents.turn.history import History
from elbowroom.agents.turn.pruner import MARGIN
from elbowroom.agents.turn.stream import ReplyStream, read_reply
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
    """Return the conversation up to the place in the model's last `reply` where it was stopped, and the order.

    `results` are the results of the calls that had ended, by their ids, as the model is shown them. It reads of the
    other calls that they have no result.
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
class LastWords:
    """Calls a model that was stopped once more, shortly and without tools; its words end the `answer`.

    `counter` counted the request that was stopped; it is None where the provider manages the context by itself, and
    nothing is counted. `window` is the usable context in tokens.
    """

    provider: Provider
    info: ModelInfo
    shape: StepRequest
    answer: Answer
    sink: Sink
    admission: Admission
    live: TurnRecorder | None = None
    counter: HistoryCounter | None = None
    window: int = 0

    async def speak(self, messages: Sequence[Message]) -> None:
        """Ask for the last words. Without them the answer ends where it was stopped: that is no failure."""
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
        stream = ReplyStream(self.answer, self.sink, (), lambda name: False, self.live)
        async with self.admission.entered(
            self.provider, self.info, window=self.window, prompt=prompt, tokens=prompt + body["max_tokens"]
        ) as ticket:
            await read_reply(stream, self.provider, body, self.info, ticket)
        stream.reply.drop_calls()
        await stream.close()

    async def _body(self, messages: Sequence[Message]) -> tuple[dict[str, Any], PromptSize | None]:
        shape = replace(self.shape, tools=())
        whole = shape.body(shape.with_instructions(messages))
        body = {name: value for name, value in without_answer_fields(whole).items() if name not in OF_TOOLS}
        body["max_tokens"] = min(self.shape.max_tokens or MOST_TOKENS, MOST_TOKENS)
        if self.counter is None:
            return body, None
        if self.counter.facts.thinking_switch != "none":
            body |= thinking_off(body)
        history = self.counter.with_body(body)
        body["messages"] = await history.normalised(body["messages"])
        return body, PromptSize(await history.count_sent(body["messages"]), history.counter, body)
