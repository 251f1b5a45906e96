"""Tasks: what a client asks for beside a conversation, such as its title, answered by the target's own model.

A task brings its whole order with it and wants an answer in a form that the client parses. The agent's instructions
would speak against that form, its tools would lead away from it, and the SDK's Runner has nothing to do without them.
The history in it is a copy of the conversation for this one request: it is neither compacted nor remembered. Titles,
tags and follow-up questions get its ends alone. Where it is still too long, its middle is left out.

A coding agent's own compaction brings the chat itself, with the order at the end: there the middles of long texts are
left out, then a digest that code makes takes the place of the oldest messages. The order stays to the letter.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.admission import Priority, PromptToPlace
from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.agents.ask import Question, ask
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt import HistoryCounter, PromptSize, StepRequest, carried_out, is_short
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.task_history import (
    longest_middle,
    order_of,
    title_in,
    with_ends_of_history,
    with_short_calls,
    with_short_middles,
)
from elbowroom.agents.tools import with_arranged_tools
from elbowroom.agents.turn import ReplyStream, RunSettings, Shared
from elbowroom.context.budget import Budget, leaves_room
from elbowroom.context.compaction import Compaction, Ladder, Layout, Wishes
from elbowroom.context.conversation import Titled
from elbowroom.context.effects import Count, Effect
from elbowroom.context.seam import without_notices
from elbowroom.context.transcript import SYSTEM_ROLES, Message, Transcript
from elbowroom.errors import ContextOverflow, WindowUnknown
from elbowroom.providers.base import ModelInfo, Provider

log = logging.getLogger(__name__)
MOST_RETRIES: Final = 2
MOST_COUNTS: Final = 6
"""How often at most a prompt is counted to find the longest that fits."""
UNUSED_SHARE: Final = 50
"""A fitting prompt is long enough when it leaves less than one fiftieth of the window unused."""
OF_CONVERSATIONS: Final = frozenset({"max_tokens", "max_completion_tokens", "n_predict", "stop"})
"""Sampling parameters of an agent that limit its answers in a conversation; a task has its own limit."""


async def answer_task(target: Target, request: ChatRequest, sink: Sink, settings: RunSettings) -> Answer:
    """Answer a task with one request to the target's model; the sink has had all of it when this returns.

    When a chat begins that needs the model, the request is cancelled and sent again later, unless the client has seen
    the beginning of its answer, or a chat waits for it. Raises ElbowroomError: ContextOverflow where even an empty
    history leaves no room for the answer.
    """
    client_tools = target.agent.client_tools if target.agent else settings.client_tools
    request = with_arranged_tools(request, client_tools)
    has_said = False

    async def seen(events: Sequence[AnswerEvent]) -> None:
        nonlocal has_said
        has_said = request.stream
        await sink(events)

    def answered() -> Awaitable[Answer]:
        return settings.shared.places.on_machine(
            target,
            lambda bound: _answer(bound, request, seen, settings),
            lambda: PromptToPlace(request.messages),
            has_begun=lambda: has_said,
        )

    if request.caller.is_awaited:
        return await answered()
    answer = await _answered_in_time(target, request, settings, answered, may_leave=lambda: not has_said)
    if request.caller.wants_title:
        await _note_title("".join(answer.text), request, settings)
    return answer


async def _answered_in_time(
    target: Target,
    request: ChatRequest,
    settings: RunSettings,
    answered: Callable[[], Awaitable[Answer]],
    *,
    may_leave: Callable[[], bool],
) -> Answer:
    # A load is not given up: the chat would have to wait for the same one from its beginning.
    await target.provider.ready(target.model)
    key = target.provider.id, target.model, request.caller.chat_id
    return await settings.shared.admission.giving_way(key, answered, may_leave=may_leave)


async def _note_title(said: str, request: ChatRequest, settings: RunSettings) -> None:
    """Give the conversation the title that was made for it, where it is known by name; a task never fails for that."""
    kept, caller, title = settings.shared.recording.conversations, request.caller, title_in(said)
    if kept is None or not caller.chat_id or not title:
        return
    try:
        if (row := await kept.find(caller.keeps_as, caller.chat_id)) is not None:
            kept.note([Titled(row.id, title)])
    except Exception:
        log.exception("The title of a conversation could not be kept.")


async def _answer(target: Target, request: ChatRequest, sink: Sink, settings: RunSettings) -> Answer:
    provider = target.provider
    shape = StepRequest(request, target.model, _defaults(target), None, request.tools, step=1)
    messages = _as_needed(target, request, settings)
    info = await provider.ready(target.model)
    answer = Answer()
    stream = ReplyStream(answer, sink, [name for tool in request.tools if (name := tool_name(tool))], lambda name: True)
    if not provider.manages_context:
        await stream.run(provider, shape.body(messages), info)
        return answer
    if info.loaded_context is None:
        raise WindowUnknown(info.id, provider.id)
    window = settings.shared.windows.at_most(info, info.loaded_context)
    budget = Budget(window, settings.compaction.threshold_ratio, shape.max_tokens)
    counter = await settings.shared.histories.of(provider, info, shape.body(()))
    priority = Priority.CHAT if request.caller.is_awaited else Priority.TASK
    order = order_of(messages) if request.caller.brings_chat else ""
    try:
        await TaskStep(shape, messages, provider, info, counter, stream, budget, settings.shared, priority, order).run()
    finally:
        if request.caller.may_wait:
            settings.shared.background.read_again((provider.id, info.id))
    return answer


def _as_needed(target: Target, request: ChatRequest, settings: RunSettings) -> list[Message]:
    """Return the messages of a task; a title or tags need the ends of the conversation, unless all of it is wanted."""
    messages = without_notices(request.messages)
    is_short = settings.task_history == "ends" and not request.caller.is_awaited
    if not (is_short and target.provider.manages_context):
        return messages
    return with_ends_of_history(messages)


def _defaults(target: Target) -> Mapping[str, Any]:
    sampling = target.agent.sampling.as_request_fields() if target.agent else {}
    return {name: value for name, value in sampling.items() if name not in OF_CONVERSATIONS}


@dataclass(slots=True)
class TaskStep:
    """Asks for the answer to one task within the window; `budget` shrinks where the engine names a smaller one.

    `order` is what the last message ends with, after a chat; empty where the messages are no chat.
    """

    shape: StepRequest
    messages: Sequence[Message]
    provider: Provider
    info: ModelInfo
    counter: HistoryCounter
    stream: ReplyStream
    budget: Budget
    shared: Shared
    priority: Priority
    order: str = ""

    async def run(self) -> None:
        """Send the task, shortened where it has to be, and take its answer to the end."""
        prompt = await self._counted()
        if prompt is None:
            body = self.shape.body(await self.counter.normalised(self.messages))
            await self._send(body, self.budget.window, held=self.budget.window)
            await self.stream.close()
            return
        if not self._leaves_room(prompt):
            raise self._overflow(prompt)
        prompt = await self._send_until_it_fits(prompt)
        reply = await self.stream.close()
        await prompt.learn(self.stream.usage, reply)
        if cut := prompt.truncation(self.stream.usage, self.budget.window):
            log.warning("%s was sent a task of %d tokens and read only %d.", self.info.id, cut.counted, cut.read)

    async def _send_until_it_fits(self, prompt: PromptSize) -> PromptSize:
        """Send the prompt, shorter each time the engine refuses it as too long; return what it has taken."""
        retries = MOST_RETRIES
        while True:
            try:
                await self._send(self._body(prompt), prompt.count.at_most)
                return prompt
            except ContextOverflow as refusal:
                if not retries or self._has_said:
                    raise
                retries -= 1
                self._learn(refusal, prompt)
                shorter = await self._counted()
                if shorter is None or not self._leaves_room(shorter):
                    raise
                prompt = shorter

    async def _send(self, body: Mapping[str, Any], prompt: int, *, held: int | None = None) -> None:
        """Send one request as soon as there is room for it beside the chats, and read its answer to the end."""
        model = f"{self.provider.id}/{self.info.id}"
        await ask(
            Question(self.provider, self.info, body, prompt, self.budget.window),
            self.stream,
            self.shared.admission,
            rank=self.priority,
            held=held,
            ended=lambda _: self.shared.prompts.passed(model),
        )

    async def _counted(self) -> PromptSize | None:
        """Return the prompt to send with its size; None where it cannot be counted."""
        try:
            return await self._shortened()
        except Exception as error:  # a task must not fail for its count: the engine may judge
            log.warning("A task for %s could not be counted: %s", self.info.id, error, exc_info=error)
            return None

    async def _shortened(self) -> PromptSize:
        """Leave out as little as possible; the prompt may still be too long with all of the middle left out."""
        whole = await self._measured(self.messages)
        if self._fits(whole):
            return whole
        if self.order and self.shape.tools:
            await self._offer_fewer_tools()
        prompt = await self._without_middles(self.messages, self.order)
        if self.order and not self._fits(prompt):
            prompt = await self._with_digest()
        log.info("A task of %d tokens for %s was cut to %d.", whole.count.at_most, self.info.id, prompt.count.at_most)
        return prompt

    async def _offer_fewer_tools(self) -> None:
        """Tell the model of the tools in short, or of none where even so they would leave the chat no room."""
        for choice in ("slim", "drop"):
            request = with_arranged_tools(self.shape.request, choice)
            self.shape = replace(self.shape, request=request, tools=request.tools)
            self.counter = self.counter.with_body(self.shape.body(()))
            size = await self._measured(self._alone)
            if leaves_room(size.count.at_most, self.budget.window):
                return

    async def _without_middles(self, messages: Sequence[Message], order: str) -> PromptSize:
        """Return the prompt with as much of each text's middle as fits, and with none of it where nothing does."""
        whole = await self._measured(messages)
        if self._fits(whole) or not (middle := longest_middle(messages, order)):
            return whole
        prompt = await self._measured(with_short_middles(messages, 0, order))
        return await self._longest(prompt, whole, middle, messages, order) if self._fits(prompt) else prompt

    async def _with_digest(self) -> PromptSize:
        """Return the prompt with a digest for the oldest messages; the order loses its middle only where it must."""
        short = with_short_calls(with_short_middles(self.messages, 0, self.order))
        ladder = Ladder(Layout(self.budget, self.budget.window, self.counter.text), None, Wishes())
        climb = ladder.climb(Transcript.of(short))
        done = await carried_out(climb, self._count, in_thread=not is_short(short))
        shorter = done.messages if isinstance(done, Compaction) else self._alone
        prompt = await self._measured(shorter)
        return prompt if self._fits(prompt) else await self._without_middles(self._alone, "")

    async def _count(self, effect: Effect) -> int:
        """Answer the ladder, which asks no pruning agent here."""
        return await self.counter.prompt(effect.messages) if isinstance(effect, Count) else 0

    @property
    def _alone(self) -> list[Message]:
        """Return the order without the chat that it is about."""
        fixed = [message for message in self.messages if message.get("role") in SYSTEM_ROLES]
        return [*fixed, {"role": "user", "content": self.order}]

    async def _longest(
        self, fitting: PromptSize, too_long: PromptSize, middle: int, messages: Sequence[Message], order: str
    ) -> PromptSize:
        """Search for the longest prompt that fits, or nearly; each try costs a count.

        `fitting` shows nothing of a text's middle, `too_long` all of it; the longest middle has `middle` characters.
        """
        window = self.budget.window
        shown, beyond = 0, middle
        least, most = self._occupied(fitting), self._occupied(too_long)
        for count in range(MOST_COUNTS):
            if beyond - shown <= 1 or window - least <= window // UNUSED_SHARE:
                break
            # By proportion first, then by halves: a text may be dense here and sparse there.
            share = 0.5 if count % 2 else (window - window // (2 * UNUSED_SHARE) - least) / (most - least)
            tried = min(max(shown + 1, shown + int((beyond - shown) * share)), beyond - 1)
            prompt = await self._measured(with_short_middles(messages, tried, order))
            if self._fits(prompt):
                shown, least, fitting = tried, self._occupied(prompt), prompt
            else:
                beyond, most = tried, self._occupied(prompt)
        return fitting

    async def _measured(self, messages: Sequence[Message]) -> PromptSize:
        body = self.shape.body(await self.counter.normalised(messages))
        return PromptSize(await self.counter.count_sent(body["messages"]), self.counter.counter, body)

    def _occupied(self, prompt: PromptSize) -> int:
        return self.budget.occupied(prompt.count.at_most)

    def _fits(self, prompt: PromptSize) -> bool:
        return self._occupied(prompt) <= self.budget.window

    def _leaves_room(self, prompt: PromptSize) -> bool:
        """Tell whether an answer has room, though perhaps a shorter one than the client has asked for."""
        window = self.budget.window
        return replace(self.budget, max_tokens=None).occupied(prompt.count.within(window)) <= window

    def _body(self, prompt: PromptSize) -> dict[str, Any]:
        """Return the body with a limit for the answer: the client's, else the reserve, and what is left at most."""
        asked = self.shape.max_tokens or self.budget.reserve(prompt.count.at_most)
        left = max(1, self.budget.window - prompt.count.within(self.budget.window))
        return {**prompt.body, "max_tokens": min(asked, left)}

    def _learn(self, refusal: ContextOverflow, prompt: PromptSize) -> None:
        """Shrink the budget to the window that the engine names, or below the refused prompt."""
        log.warning("%s refused a task of %d tokens: %s", self.info.id, prompt.count.at_most, refusal)
        window = min(refusal.window or prompt.count.at_most, prompt.count.at_most)
        if refusal.window is not None:
            self.shared.windows.learn(self.info, self.info.loaded_context or self.budget.window, refusal.window)
        self.budget = replace(self.budget, window=max(1, window))

    def _overflow(self, prompt: PromptSize) -> ContextOverflow:
        window = self.budget.window
        reserve = replace(self.budget, max_tokens=None).reserve(prompt.count.at_most)
        return ContextOverflow(
            f"Load the model with a larger context length. This model's maximum context length is {window} tokens. The "
            f"task needs {prompt.count.at_most} without any history in it, and {reserve} for its answer.",
            window=window,
            prompt_tokens=prompt.count.at_most,
        )

    @property
    def _has_said(self) -> bool:
        return self.stream.reply.has_said
