"""Asks a model: a question is counted, waits for its place in the model's context, is sent, and its reply is read.

Whoever asks has an order of its own, a reader of its own, and knows what becomes of the reply:

    question = await beside(provider, info, window, history, body)
    if question.has_room:
        await ask(question, reader, admission, rank=job)
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from elbowroom.agents.admission import Admission, Job, Leaving, OnWait, Priority, Ticket
from elbowroom.agents.answer import Reply
from elbowroom.agents.prompt import HistoryCounter, cached_of, step_usage_of, thinking_off
from elbowroom.context.conversation import StepUsage
from elbowroom.context.costs import LEAST_TOLD
from elbowroom.context.transcript import as_json, size_in_bytes
from elbowroom.errors import EmptyReply
from elbowroom.providers.base import (
    EngineFacts,
    Finished,
    ModelInfo,
    Provider,
    ReadingProgress,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)

THINKING_ROOM: Final = 2048
"""Tokens for the thoughts of a model whose thinking cannot be switched off."""
MARGIN: Final = 16
"""Tokens left free after the longest answer: to some engines a window that is filled to the brim is an overflow."""
LEAST_ANSWER: Final = 100
"""Tokens without which an answer is of no use, unless it was to have fewer."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request that is ready to be sent to a loaded model.

    `prompt` is the size of its prompt in tokens at most, 0 where nothing is counted. `window` is the context that all
    requests to the model share; it `has_room` for an answer that is of use. `optional` are fields of the body that some
    servers refuse. `conversation` is the key of the one whose prompt it is, by which an engine finds what it has read.
    """

    provider: Provider
    info: ModelInfo
    body: Mapping[str, Any]
    prompt: int = 0
    window: int = 0
    has_room: bool = True
    optional: Mapping[str, Any] = field(default_factory=dict)
    conversation: Hashable = None

    @property
    def rough(self) -> int:
        """Return about how many tokens the prompt has."""
        return self.prompt or rough_prompt({**self.body, **self.optional})


def rough_prompt(body: Mapping[str, Any]) -> int:
    """Return about how many tokens the prompt of a body has that is not counted."""
    return size_in_bytes(as_json(body)) // 4


async def beside(
    provider: Provider,
    info: ModelInfo,
    window: int,
    history: HistoryCounter,
    body: Mapping[str, Any],
    *,
    least: int = LEAST_ANSWER,
    thinking_room: int = THINKING_ROOM,
    keeps_prefix: bool = True,
) -> Question:
    """Return a question that is asked beside the answers of a conversation, in a window of so many tokens.

    `body` has in `max_tokens` what the answer may take; a model that may think gets `thinking_room` besides, and none
    gets more than the window leaves. The question has no room where that is less than `least` and than what was wanted.
    The messages are brought into the form that the template demands. Thinking is switched off where the template can
    do that; with `keeps_prefix` only where it does so behind the last message, so that the engine still finds the
    conversation in its cache.

    Raises what the engine would refuse the request with, such as ConversationNotContinuable.
    """
    history, facts = history.with_body(body), history.facts
    messages = await history.normalised(body["messages"])
    prompt, wanted = 0, body["max_tokens"] + (thinking_room if facts.may_think else 0)
    most = wanted
    if provider.manages_context:
        prompt = (await history.count_sent(messages)).at_most
        most = min(wanted, window - prompt - MARGIN)
    has_room = most >= min(wanted, least)
    switches = facts.thinking_switch == "at the end" or (facts.thinking_switch == "elsewhere" and not keeps_prefix)
    body = {**body, "messages": messages, "max_tokens": most}
    return Question(provider, info, body, prompt, window, has_room, thinking_off(body) if switches else {})


class ReplyReader:
    """Gathers the reply to one request: text, thoughts and calls in `reply`, and `finish`, why the model has ended.

    `pieces` are all texts that the model has generated in this request, in order. `usage` is the engine's report, None
    where it sends none. Once the reader `has_enough`, the rest of the reply is not wanted.
    """

    def __init__(self, offered: Collection[str] = ()) -> None:
        self.reply, self.pieces = Reply(offered), list[str]()
        self.usage: dict[str, Any] | None = None
        self.finish = ""
        self.has_calls = self.has_enough = False

    @property
    def generated(self) -> str:
        """Return all that the model has generated in this request, shown or not."""
        return "".join(self.pieces)

    @property
    def was_cut(self) -> bool:
        """Tell whether the reply ended at a limit of its length."""
        return self.finish == "length"

    def used(self, prompt: int, count: Callable[[str], int]) -> StepUsage | None:
        """Return the tokens that the request has used, also one that was left; None where nothing has come of it.

        `prompt` is the size of its prompt by our count. What the engine does not report is counted.
        """
        if self.usage is None and not any(self.pieces):
            return None
        return step_usage_of(self.usage, prompt, "".join(self.pieces), count)

    def begin(self, body: Mapping[str, Any]) -> None:
        """Prepare for the reply to this body."""

    async def take(self, events: list[StreamEvent]) -> None:
        """Take what has arrived."""
        self.gather(events)

    def gather(self, events: list[StreamEvent]) -> None:
        """Sort events into the reply until it has enough."""
        for event in events:
            match event:
                case TextDelta():
                    self.take_text(event)
                case ReasoningDelta():
                    self.take_thought(event)
                case ToolCallDelta():
                    self.take_call(event)
                case EngineFacts():
                    self.reply.engine |= event.facts
                case ReadingProgress():
                    pass  # it has begun to write
                case Finished():
                    self.finish = event.reason
                case UsageReport():
                    self.usage = event.usage
            if self.has_enough:
                break

    def take_text(self, event: TextDelta) -> None:
        """Take a piece of visible text."""
        self.pieces.append(event.text)
        self.reply.text.append(event.text)

    def take_thought(self, event: ReasoningDelta) -> None:
        """Take a piece of the model's thinking."""
        self.pieces.append(event.text)
        self.reply.reasoning.append(event.text)

    def take_call(self, event: ToolCallDelta) -> None:
        """Take a piece of a tool call."""
        self.has_calls = True
        self.pieces += [event.name or "", event.arguments]
        self.reply.add_call(event)

    def accept_empty(self) -> bool:
        """Take an empty reply as the end of the answer; False where it is a failure."""
        return False

    async def end(self) -> None:
        """Finish a reply that has come to its end."""


async def ask(
    question: Question,
    reader: ReplyReader,
    admission: Admission | None = None,
    *,
    rank: Priority | Job = Priority.CHAT,
    held: int | None = None,
    on_wait: OnWait | None = None,
    leaves: Leaving | None = None,
    admitted: Callable[[Ticket | None], Awaitable[ModelInfo | None]] | None = None,
    reading: Callable[[Ticket], Coroutine[Any, Any, None]] | None = None,
    ended: Callable[[Ticket | None], None] | None = None,
) -> None:
    """Send the question when the model has room for it; let `reader` take the reply until it ends or is enough.

    The request holds `held` tokens of the model's context: as many as its prompt and answer may have where that is not
    said, and none where there is no `admission` or the provider manages the context by itself. Then nobody waits.
    `on_wait` and `leaves` are those of `Admission.admitted`. A request for a background job has the job's `rank`; the
    job is told when it has the model, when it waits for it, and when it is in somebody's way.

    `admitted` is called before the question is sent, and may change its body; it returns the model as it is loaded by
    then, None where nothing is to be sent. `reading` is run from two seconds on for which the model reads the prompt,
    and cancelled when the answer begins.
    `ended` is called when a request that was sent has ended, be it by a failure or a cancellation, before its place is
    given back.

    Raises ElbowroomError: EmptyReply where the reader does not accept an empty reply.
    """
    provider, info = question.provider, question.info
    place: AbstractAsyncContextManager[Ticket | None] = nullcontext()
    job = rank if isinstance(rank, Job) else None
    if admission is not None and provider.manages_context:
        priority = rank.priority if isinstance(rank, Job) else rank
        place = admission.admitted(
            (provider.id, info.id),
            capacity=question.window,
            tokens=question.prompt + question.body["max_tokens"] if held is None else held,
            prompt=question.prompt,
            slots=info.slots,
            priority=priority,
            on_wait=job.pause if job is not None and priority is Priority.BACKGROUND else on_wait,
            leaves=leaves,
            on_preempt=job.give_way if job is not None else None,
        )
    async with place as ticket:
        if job is not None and ticket is not None:
            job.has_model()
        now = info if admitted is None else await admitted(ticket)
        if now is None:
            return
        body = {**question.body, **question.optional} if question.optional else question.body
        try:
            reader.begin(body)
            # In a task of its own: each piece wakes all coroutines that wait for each other there, and above are many.
            slots = admission.slots(provider, now) if admission is not None and now.slots else None
            if slots is None or ticket is None:
                stream = provider.stream(body, now)
            else:
                stream = slots.stream(body, ticket, question.conversation)
            await asyncio.create_task(_read(reader, stream, ticket, reading))
            await reader.end()
            await asyncio.sleep(0)  # a long reply was looked at as a whole, and will be again
        finally:
            if ended is not None:
                ended(ticket)


async def _read(
    reader: ReplyReader,
    stream: AsyncGenerator[list[StreamEvent], None],
    ticket: Ticket | None,
    reading: Callable[[Ticket], Coroutine[Any, Any, None]] | None,
) -> None:
    """Read the reply to a request that is sent now; leaving it early closes the upstream."""
    is_prefilling = True
    silence = Silence(partial(reading, ticket)) if reading is not None and ticket is not None else None
    try:
        async with aclosing(stream):
            async for events in stream:
                if is_prefilling and ticket is not None:
                    if isinstance(last := events[-1], ReadingProgress):
                        ticket.reading = last
                        continue
                    is_prefilling = False
                    ticket.first_token()
                    if silence is not None:
                        await silence.end()
                await reader.take(events)
                if reader.has_enough:
                    break
        if ticket is not None:
            reported = (reader.usage or {}).get("completion_tokens")
            written = reported if isinstance(reported, int) else len(reader.pieces)
            cached = cached_of(reader.usage, reader.reply.engine)
            ticket.wrote(written, None if cached is None else ticket.prompt - cached)
    except EmptyReply:
        if not reader.accept_empty():
            raise
    finally:
        if silence is not None:
            await silence.end()


class Silence:
    """Does `work` from two seconds on, for which nothing has come."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._doing: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(LEAST_TOLD, self._begin)

    def _begin(self) -> None:
        self._doing = asyncio.create_task(self._work())

    async def end(self) -> None:
        """End the work, which may fail: what it tells is no part of the answer."""
        self._timer.cancel()
        if self._doing is not None:
            self._doing.cancel()
            await asyncio.gather(self._doing, return_exceptions=True)
            self._doing = None
