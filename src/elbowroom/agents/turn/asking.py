"""Asks for one reply of a turn: finds the model and its machine, prepares the step, and records what it has used."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from weakref import ref

from elbowroom.agents.admission import Job, Placement, PromptToPlace
from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Reply, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.prompt import StepPrompt, StepRequest, fitting_tools, rough_size, warn_of_orphans
from elbowroom.agents.refusals import AskedPrompt
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.tools import ToldMemories, ToolSearch, remembers
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.tools.recall import Recaller, ResultRoom
from elbowroom.agents.turn.compactor import Compactor
from elbowroom.agents.turn.fit import PromptFit
from elbowroom.agents.turn.gauge import note_fill
from elbowroom.agents.turn.managed_step import ManagedStep
from elbowroom.agents.turn.parting import stops_of
from elbowroom.agents.turn.recall import Recall
from elbowroom.agents.turn.recovery import Recovery, ready_model, shows_in_vain
from elbowroom.agents.turn.reminder import Reminder
from elbowroom.agents.turn.sending import Sending
from elbowroom.agents.turn.state import RunSettings
from elbowroom.agents.turn.stream import ReplyStream
from elbowroom.context.budget import NO_WINDOW, Budget
from elbowroom.context.conversation import ContextFill, StepUsage
from elbowroom.context.ledger import Chain
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.prompt import Prompt
from elbowroom.context.reuse import Talk, talk_of
from elbowroom.context.seam import without_notices
from elbowroom.context.transcript import as_json, uses_tools
from elbowroom.errors import ContextOverflow, ElbowroomError, WindowUnknown
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.machines import Machines
from elbowroom.settings.model import RECALLS_UNASKED, AgentSettings

log = logging.getLogger(__name__)
NO_VISION: Final = "Choose a model with vision: this one does not see the image in your message."


class Asking:
    """Asks the target's model for the replies of one turn, into `answer`, which may have begun before.

    `target` is bound to a machine while a step runs, and `request` has its tools in short where they leave no room.
    `manager` has the history, `recall` the compactions of its conversation. `last` is the last step in a window, None
    where there was none; before it there were `usages_before` reports. `asked` is what was asked last, and of whom.
    `keeper` keeps results of tools where the model can read them again; `recaller` is None where no tool may find what
    was compacted away. `chain` is that of the request's messages where it was made before. `search` stands for the
    tools `by_name`.
    """

    def __init__(
        self,
        target: Target,
        request: ChatRequest,
        sink: Sink,
        settings: RunSettings,
        answer: Answer | None = None,
        keeper: OutputKeeper | None = None,
        recaller: Recaller | None = None,
        chain: Chain | None = None,
        search: ToolSearch | None = None,
    ) -> None:
        live, shared, messages = settings.live, settings.shared, without_notices(request.messages)
        self._stops, request = stops_of(request) if request.tells_stop else ((), request)
        self.target, self.request, self.settings = target, request, settings
        self.place = Placement(shared.places, target, own) if isinstance(own := target.provider, Machines) else None
        self.answer, self.sink, self._live = answer or Answer(), sink, live
        self._keeper, self._recaller, self._search = keeper, recaller, search
        chain = live.chain if live is not None and live.agent == target.name else chain
        self.recall = Recall(shared.store.ledger, shared.notes, request.caller, target.name, messages, live, chain)
        chosen, history = settings.compaction, Prompt(self.recall.items, self.recall.items)
        self.manager = AgentContextManager(NO_WINDOW, chosen.max_restarts, chosen.enabled and chosen.auto, history)
        reminder = Reminder(self.recall, live, sink, shared.observations)
        self._reminder = reminder if chosen.recall in RECALLS_UNASKED else None
        self.memories = told_memories(target.agent, request, settings) if target.agent is not None else None
        self._defaults = target.agent.sampling.as_request_fields() if target.agent else {}
        self.last: Sending | None = None
        self.usages_before = 0
        self.asked: tuple[StepRequest, ModelInfo, ReplyStream] | None = None
        self._asked_before: tuple[StepRequest, ModelInfo, ReplyStream] | None = None
        self._tools_fit = float("inf") if target.provider.manages_context else 0  # the smallest window so far

    async def reply(
        self, instructions: str | None, own_tools: Sequence[dict[str, Any]], is_for_client: Callable[[str], bool]
    ) -> Reply:
        """Return the next reply; the sink has had it by then."""
        shape = self._shape(instructions, own_tools, step=self.answer.steps + 1)
        info = await self._ready()
        asked = await self._asked_anew(shape, info)
        if self.request.tools and await self._fit_tools(info, instructions, own_tools):
            shape = self._shape(instructions, own_tools, step=shape.step)
        if shape.step == 1 and shows_in_vain(self.manager.history.messages, info):
            await self.sink([Notice("images", NO_VISION)])
        self.asked = shape, info, (stream := self._stream([*own_tools, *self.request.tools], shape, is_for_client))
        if (running := self.settings.running) is not None:
            running.phase, running.filling = "prefill", self.fill
            running.agent, running.model = self.target.name, info.id
        if not self.target.provider.manages_context:
            return await _unmanaged(self, shape, info, stream)
        sending, job = await self._next_step(shape, info, stream)
        self.last, self.usages_before = sending, len(self.answer.usages)
        try:
            step = ManagedStep(sending, job)
            reply = await (step.run() if info.slots != 1 else self._in_turn(step, sending))
        except ContextOverflow as error:
            _note_overflow(sending, error, self.settings)
            if asked is not None:
                await self.settings.shared.refusals.note(asked, error)
            raise
        finally:
            self.answer.edits = self.answer.edits or sending.fit.edits
            if sending.used:
                _note_use(sending, self.answer, self.settings)
        await _note_size(sending, reply, self.answer)
        if not reply.tool_calls and self.settings.live is not None:
            await note_fill(sending.fit.prompt.after(reply.as_message()), self.settings)
        return reply

    async def _in_turn(self, step: ManagedStep, sending: Sending) -> Reply:
        """Take a step in an engine with one slot, where chats of one owner that alternate take turns."""
        admission, pool = self.settings.shared.admission, sending.pool_key
        last = next(reversed(self.manager.history.items), None)
        brings_results = last is not None and last.message.get("role") == "tool"  # and no words of a person after them
        on_wait = sending.tell_of_turn if brings_results else None
        async with admission.turns.taken(pool, self.request.caller.owner, sending.talk().kept[0], on_wait) as turn:
            reply = await step.run()
            if reply.tool_calls:
                turn.reading = self.manager.prompt / admission.engine(pool).reading
        return reply

    def moves_after(self, failure: ElbowroomError) -> bool:
        """Tell whether the reply is asked for again on another machine, which it can be until its first word."""
        if self.place is None:
            return False
        reply = self.asked[2].reply if self.asked is not None and self.asked is not self._asked_before else None
        moves = self.place.moves_after(failure, has_said=reply is not None and reply.has_said)
        if moves and reply is not None:
            self.answer.retract_step()
        return moves

    async def fitted(self, instructions: str | None, own_tools: Sequence[dict[str, Any]] = ()) -> PromptFit:
        """Return what fits the history, which nobody answers, into the loaded window; earlier compactions recalled."""
        self.recall.is_continued = False
        info = await self._ready()
        if self.request.tools:
            await self._fit_tools(info, instructions, own_tools)
        shape = self._shape(instructions, own_tools, step=1)
        sending, _ = await self._next_step(shape, info, ReplyStream(self.answer, self.sink, (), lambda name: True))
        if self.place is not None:
            self.place.end(is_whole=True)
        return sending.fit

    def _shape(self, instructions: str | None, own_tools: Sequence[dict[str, Any]], *, step: int) -> StepRequest:
        tools = [*own_tools, *self.request.tools]
        shape = StepRequest(self.request, self.target.model, self._defaults, instructions, tools, step, self.memories)
        tool = self._recaller.tool if self._recaller is not None and self._recaller.is_offered else None
        return shape.offering(tool.spec) if tool is not None else shape

    def _stream(
        self, tools: Sequence[dict[str, Any]], shape: StepRequest, is_for_client: Callable[[str], bool]
    ) -> ReplyStream:
        tools = [*tools, *self.request.by_name]
        known = tools if self._recaller is None else [*tools, self._recaller.tool.spec]  # offered by a compaction
        offered = [*filter(None, map(tool_name, known))]
        written = known if tools and self.settings.calls_in_text and not shape.is_constrained else ()
        resolved = self._search.resolved if self._search is not None else None
        return ReplyStream(self.answer, self.sink, offered, is_for_client, self._live, written, self._stops, resolved)

    async def _asked_anew(self, shape: StepRequest, info: ModelInfo) -> AskedPrompt | None:
        """Return what the turn asks for; raises at once what that was refused with several times within a minute."""
        if self.answer.steps > 0 or info.loaded_context is None or not self.target.provider.manages_context:
            return None
        shared, chosen = self.settings.shared, self.settings
        window = shared.windows.at_most(info, info.loaded_context)
        wanted = (self.request.edits, self.request.compaction)
        counts = (chosen.compaction, chosen.tool_output, chosen.client_tools, wanted)
        owner, messages = self.request.caller.keeps_as, self.manager.history.messages
        asked = AskedPrompt(owner, self.target, info, window, counts, shape, tuple(messages))
        if shared.refusals.places and (refusal := await shared.refusals.known(asked)) is not None:
            shared.observations.refused_again(f"{info.provider}/{info.id}")
            raise refusal
        return asked

    async def _fit_tools(self, info: ModelInfo, instructions: str | None, own_tools: Sequence[dict[str, Any]]) -> bool:
        """Tell the model of the client's tools in short where they leave no room; tell whether that is so now."""
        choice = self.target.agent.client_tools if self.target.agent else self.settings.client_tools
        if choice != "auto" or info.loaded_context is None:
            return False
        if (window := self.settings.shared.windows.at_most(info, info.loaded_context)) >= self._tools_fit:
            return False
        self._tools_fit = window
        self.request, sizes = await fitting_tools(self.target, info, window, self.request, instructions, own_tools)
        if sizes is None or not sizes.are_short:
            return False
        is_first = not any(message.get("role") == "assistant" for message in self.request.messages)
        if is_first and sizes.told < window:  # else an error follows, which needs a status and no stream
            await self.sink([sizes.notice(len(self.request.tools))])
        return True

    def fill(self) -> ContextFill | None:
        """Return how full the window is now, with the answer that grows; None before a prompt was measured."""
        return self.last.fill() if self.last is not None else None

    async def _next_step(self, shape: StepRequest, info: ModelInfo, stream: ReplyStream) -> tuple[Sending, Job | None]:
        """Return what sends the next step, and a background compaction of this very conversation that is under way.

        Before the first step of a turn, earlier compactions of the conversation are recalled.
        """
        key = (self.target.provider.id, info.id)
        if self.last is None or self.last.pool_key != key:
            self.settings.shared.background.chat_begins(key)
        history = await self.settings.shared.histories.of(self.target.provider, info, shape.body(()))
        if self.last is None and uses_tools(self.request.messages):
            await warn_of_orphans(self.target.name, self.request.messages)
        running = await history.counter.stream()
        if self.memories is not None:
            await self.memories.text(self.recall.chain, history.text)
        manager = self._with_window(info, shape.max_tokens)
        recaller, recall = self._recaller if shape.tools or "tools" in info.capabilities else None, self.recall
        prompt = StepPrompt(shape, info, manager, history, running, recaller)
        compactor = Compactor(self.target, self.settings, self.sink)
        fit = PromptFit(prompt, compactor, recall, self._keeper, self._reminder)
        if recaller is not None:
            room = partial(_room_in, ref(prompt))  # which has the recaller: neither is to keep the other
            recaller.reads(lambda tool: recall.past(manager.history, tool), room)
        job = await self._recalled(fit) if self.last is None else None
        shared, talk = self.settings.shared, partial(_talk, self.request, self._live)
        recovery = Recovery(self.target.provider, info, manager, shared.windows, self.sink)
        leaves, name = self.place.leaves if self.place is not None else None, "/".join(key)
        return Sending(self.target, key, name, recovery, manager, fit, stream, shared, self.sink, talk, leaves), job

    def _with_window(self, info: ModelInfo, max_tokens: int | None) -> AgentContextManager:
        """Return the turn's manager, with the usable part of the window that is loaded now. Raises WindowUnknown."""
        if info.loaded_context is None:
            raise WindowUnknown(info.id, self.target.provider.id)
        window = self.settings.shared.windows.at_most(info, info.loaded_context)
        talk, model = _talk(self.request, self._live), f"{self.target.provider.id}/{info.id}"
        answers = self.settings.shared.answers.of(talk, model).sizes
        self.manager.use(Budget(window, self.settings.compaction.threshold_ratio, max_tokens, answers))
        return self.manager

    async def _recalled(self, fit: PromptFit) -> Job | None:
        """Take over earlier compactions; return a compaction of the same conversation that is under way."""
        try:
            job = self.settings.shared.background.claim(self.recall.chain.keys)
            model, talk = f"{self.target.provider.id}/{fit.prompt.info.id}", _talk(self.request, self._live)
            before = self.settings.shared.prompts.last_of(talk, model)
            if before is not None and before.window == fit.prompt.info.loaded_context:
                key, changes = before.compacted
                self.recall.sent_with = key if key or not changes else None
            await fit.recall_compactions(waits=self._live is None or self._live.is_patient)
        except Exception:  # a chat that nobody remembers goes on as a new one
            log.exception("What was compacted of a conversation with %s cannot be recalled.", self.target.name)
            return None
        if news := self.settings.shared.notes.ended.news(self.recall.chain.keys, self.recall.lost):
            await self.sink(news)
        return job

    async def _ready(self) -> ModelInfo:
        """Return the model, loaded; the person is told where that takes a while."""
        if self.place is not None:
            self._asked_before = self.asked
            talk = _talk(self.request, self._live)
            self.target = await self.place.choose(PromptToPlace(self.manager.history.messages, talk))
        return await ready_model(self.target.provider, self.target.model, self._tell_loading)

    async def _tell_loading(self, events: Sequence[AnswerEvent]) -> None:
        self.settings.shared.prompts.loaded_anew(f"{self.target.provider.id}/{self.target.model}")
        await self.sink(events)


async def _room_in(step: "ref[StepPrompt]") -> ResultRoom:
    """Return the room for a result of a tool in a step that goes on; none after it."""
    prompt = step()
    return await prompt.room_for_result() if prompt is not None else ResultRoom(0, len)


def _talk(request: ChatRequest, live: TurnRecorder | None) -> Talk:
    """Return the keys of the conversation by which its last prompt is found."""
    caller, conversation = request.caller, live.conversation if live is not None else ""
    return talk_of(caller.owner, caller.chat_id, conversation, request.messages)


async def _unmanaged(asking: Asking, shape: StepRequest, info: ModelInfo, stream: ReplyStream) -> Reply:
    """Ask a provider that manages the context itself.

    Where a prompt is too long with the messages that were put back, it is sent again with fewer of them.
    """
    if asking.memories is not None:
        await asking.memories.text(asking.recall.chain, rough_size)
    asking.manager.history = await asking.recall.put_back(asking.manager.history)
    if news := asking.settings.shared.notes.ended.news(asking.recall.chain.keys, asking.recall.lost):
        await asking.sink(news)
    while True:
        body = shape.body(shape.with_instructions(asking.manager.history.messages))
        try:
            return await stream.run(asking.target.provider, body, info)
        except ElbowroomError as failure:
            asking.settings.shared.observations.upstream_failed(asking.target.provider.id, type(failure).__name__)
            is_too_long = isinstance(failure, ContextOverflow) and not stream.reply.text
            less = asking.recall.put_back_less(asking.manager.history) if is_too_long else None
            if less is None:
                raise
            asking.manager.history = less
        finally:
            used = stream.used(rough_size(as_json(body)), rough_size)
            if asking.settings.live is not None and used is not None:
                asking.settings.live.step_used(info.id, used, None)
            if asking.place is not None:
                asking.place.sent(body)


def told_memories(agent: AgentSettings, request: ChatRequest, settings: RunSettings) -> ToldMemories | None:
    """Return the memories that an agent is told of; None for an agent that has no tool for them."""
    if not remembers(agent.tools, settings.memory):
        return None
    shared = settings.shared
    return ToldMemories(shared.store.memories, shared.notes.told, request.caller.owner, agent.id, settings.memory)


def _note_use(sending: Sending, answer: Answer, settings: RunSettings) -> None:
    """Record the tokens that the requests of a step have used together, and the fill after the last of them."""
    fill = ContextFill.of(sending.used[-1].total, sending.manager.budget)
    used = sum(sending.used, StepUsage())
    answer.written = used.output if len(sending.used) > 1 else 0
    settings.shared.observations.step_used(sending.name, used, fill)
    shape = sending.fit.prompt.shape
    said = shape.request.messages
    asked = sending.began if shape.step == 1 and said and said[-1].get("role") == "user" else None
    settings.shared.answers.note(sending.talk(), sending.name, used.output, asked, time.monotonic())
    if settings.live is not None:
        settings.live.step_used(sending.recovery.info.id, used, fill)


def _note_overflow(sending: Sending, error: ContextOverflow, settings: RunSettings) -> None:
    """Record how full the window would have been, where nothing was sent that could tell."""
    if settings.live is not None and not sending.used and error.prompt_tokens:
        budget = sending.manager.budget
        budget = replace(budget, window=error.window or budget.window)  # both as whoever refused it counts
        fill = ContextFill.of(error.prompt_tokens, budget)
        settings.live.step_used(sending.recovery.info.id, StepUsage(), fill)


async def _note_size(sending: Sending, reply: Reply, answer: Answer) -> None:
    """Count a request that the engine did not report, and learn from a report how to count.

    Nothing is learned where the prompt may have been too long: then it may have been cut before it was counted.
    """
    unreported = sending.stream.unreported
    if unreported is not None and (usage := await unreported.counted(sending.fit.prompt)):
        answer.usages.append(usage)
    if sending.size is not None and sending.size.count.at_most < sending.manager.budget.window:
        await sending.size.learn(sending.stream.usage, reply)
