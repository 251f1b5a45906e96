"""Answers one client request by model calls, step after step, in the SDK's Runner or without it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from elbowroom.agents.admission import Job, Placement, PromptToPlace
from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Reply, Sink, assistant_message
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import STEER, Intake
from elbowroom.agents.prompt import StepCounter, StepRequest, fitting_tools, rough_size, warn_of_orphans
from elbowroom.agents.refusals import AskedPrompt
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.running import Phase
from elbowroom.agents.tools import ToldMemories, remembers
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.tools.recall import Recaller
from elbowroom.agents.turn.background import compacting_ahead, reading_again
from elbowroom.agents.turn.compactor import Compactor
from elbowroom.agents.turn.fit import PromptFit
from elbowroom.agents.turn.last_words import messages_at_stop, say_last_words
from elbowroom.agents.turn.managed_step import ManagedStep
from elbowroom.agents.turn.recall import Recall
from elbowroom.agents.turn.recovery import ready_model, shows_in_vain
from elbowroom.agents.turn.reminder import Reminder
from elbowroom.agents.turn.state import RunSettings
from elbowroom.agents.turn.stream import ReplyStream
from elbowroom.context.budget import NO_WINDOW, Budget
from elbowroom.context.conversation import ContextFill, StepUsage
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.prompt import Prompt
from elbowroom.context.reuse import Talk, talk_of
from elbowroom.context.seam import without_notices
from elbowroom.context.transcript import as_json, uses_tools
from elbowroom.errors import ContextOverflow, ElbowroomError, WindowUnknown
from elbowroom.providers.base import ModelInfo, TextDelta
from elbowroom.providers.machines import Machines

log = logging.getLogger(__name__)
NO_VISION: Final = "Choose a model with vision: this one does not see the image in your message."


class Turn:
    """Asks the target's model for one client request; `answer` grows with every step, and may have begun before.

    `keeper` keeps results of tools where the model can read them again. `intake` takes messages from the queue of the
    conversation; turns of one run share it. `recaller` is None where no tool may find what was compacted away.
    """

    def __init__(
        self,
        target: Target,
        request: ChatRequest,
        sink: Sink,
        settings: RunSettings,
        keeper: OutputKeeper | None = None,
        answer: Answer | None = None,
        intake: Intake | None = None,
        recaller: Recaller | None = None,
    ) -> None:
        live, shared, messages = settings.live, settings.shared, without_notices(request.messages)
        self.target = target
        self._place = Placement(shared.places, target, own) if isinstance(own := target.provider, Machines) else None
        self.request = request
        self.settings = settings
        self.answer = answer or Answer()
        self.intake = intake or Intake(shared.queue, live, sink)
        self._live = live
        self._running = settings.running
        self._sink = sink
        self._keeper = keeper
        chain = live.chain if live is not None and live.agent == target.name else None
        chosen, history = settings.compaction, Prompt.of(messages, chain)
        self._manager = AgentContextManager(NO_WINDOW, chosen.max_restarts, chosen.enabled and chosen.auto, history)
        self._recall = Recall(shared.store.ledger, shared.notes, request.caller, target.name, messages, live, chain)
        self._recaller = recaller
        self._reminder = Reminder(self._recall, live, sink, shared.observations) if chosen.recalls_unasked else None
        self._memories = self._told_memories()
        self._defaults = target.agent.sampling.as_request_fields() if target.agent else {}
        self._last: ManagedStep | None = None
        self._asked: tuple[StepRequest, ModelInfo, ReplyStream] | None = None
        self._asked_before: tuple[StepRequest, ModelInfo, ReplyStream] | None = None
        self._reply_before: Reply | None = None
        self._results: dict[str, str] = {}  # of this turn's calls, as the model is shown them
        self._usages_before = 0
        self._tools_fit = float("inf") if target.provider.manages_context else 0  # the smallest window so far

    async def step(
        self,
        *,
        instructions: str | None = None,
        appended: Sequence[dict[str, Any]] = (),
        own_tools: Sequence[dict[str, Any]] = (),
        is_for_client: Callable[[str], bool] = lambda name: True,
    ) -> Reply:
        """Ask the model for one reply and return it; the sink has had it by then.

        `appended` are the messages of the steps before, without those taken in from the queue; `own_tools` the
        specifications of tools that the server runs; `is_for_client` tells whether a call of this name is handed to
        the client. Messages from the queue with which the model cannot be asked go back into it. Where the step was
        only for these, the reply of the step before is returned.
        """
        await self._take_in(appended)
        before, self._reply_before = self._reply_before, None
        reply: Reply | None = None
        try:
            while reply is None:
                self._extend(self.intake.merged(appended))
                try:
                    reply = await self._reply_to(instructions, own_tools, is_for_client)
                except ElbowroomError as error:
                    if self._moves_after(error):
                        continue
                    if not await self.intake.put_unread_back(error):
                        raise
                    if before is not None and not self.intake.has_unread:
                        self._extend(self.intake.merged(appended))
                        reply = before
            self.intake.note_answered()
        finally:
            self.intake.note_read()
            if self._place is not None:
                self._place.end(is_whole=reply is not None)
        if reply.tool_calls:
            self._enter("tool")
        return reply

    def _extend(self, appended: Sequence[dict[str, Any]]) -> None:
        self._manager.history = self._manager.history.extended(appended)

    async def _take_in(self, appended: Sequence[dict[str, Any]]) -> None:
        if self._live is not None:
            self._live.results(appended)
        if self.answer.steps == 0:
            await self.intake.begin(self._manager.history.messages)
        else:
            await self.intake.take(len(appended), STEER)

    def _moves_after(self, failure: ElbowroomError) -> bool:
        """Tell whether the step is asked again on another machine, which it can be until its first word."""
        if self._place is None:
            return False
        reply = self._asked[2].reply if self._asked is not None and self._asked is not self._asked_before else None
        moves = self._place.moves_after(failure, has_said=reply is not None and reply.has_said)
        if moves and reply is not None:
            self.answer.retract_step()
        return moves

    def _enter(self, phase: Phase) -> None:
        if self._running is not None:
            self._running.phase = phase

    async def _reply_to(
        self, instructions: str | None, own_tools: Sequence[dict[str, Any]], is_for_client: Callable[[str], bool]
    ) -> Reply:
        tools = [*own_tools, *self.request.tools]
        shape = self._shape(instructions, tools, step=self.answer.steps + 1)
        info = await self._ready()
        asked = await self._asked_anew(shape, info)
        if await self._fit_tools(info, instructions, own_tools):
            tools = [*own_tools, *self.request.tools]
            shape = self._shape(instructions, tools, step=shape.step)
        if shape.step == 1 and shows_in_vain(self._manager.history.messages, info):
            await self._sink([Notice("images", NO_VISION)])
        known = tools if self._recaller is None else [*tools, self._recaller.tool.spec]  # offered by a compaction
        offered = [name for tool in known if (name := tool_name(tool))]
        written = known if tools and self.settings.calls_in_text and not shape.is_constrained else ()
        stream = ReplyStream(self.answer, self._sink, offered, is_for_client, self._live, written)
        self._asked = shape, info, stream
        self._enter("prefill")
        if not self.target.provider.manages_context:
            return await self._unmanaged(shape, info, stream)
        managed = await self._next_step(shape, info, stream)
        self._last, self._usages_before = managed, len(self.answer.usages)
        self._note_model(info, managed.fill.now)
        try:
            reply = await managed.run()
        except ContextOverflow as error:
            self._note_overflow(managed, error)
            if asked is not None:
                await self.settings.shared.refusals.note(asked, error)
            raise
        finally:
            self.answer.edits = self.answer.edits or managed.fit.edits
            self._note_use(managed)
        await self._note_size(managed, reply)
        return reply

    async def _asked_anew(self, shape: StepRequest, info: ModelInfo) -> AskedPrompt | None:
        """Return what the turn asks for; raises at once what that was refused with several times within a minute."""
        if self.answer.steps > 0 or info.loaded_context is None or not self.target.provider.manages_context:
            return None
        shared, chosen = self.settings.shared, self.settings
        window = shared.windows.at_most(info, info.loaded_context)
        wanted = (self.request.edits, self.request.compaction)
        counts = (chosen.compaction, chosen.tool_output, chosen.client_tools, wanted)
        owner, messages = self.request.caller.keeps_as, self._manager.history.messages
        asked = AskedPrompt(owner, self.target, info, window, counts, shape, tuple(messages))
        if shared.refusals.places and (refusal := await shared.refusals.known(asked)) is not None:
            shared.observations.refused_again(f"{info.provider}/{info.id}")
            raise refusal
        return asked

    async def _fit_tools(self, info: ModelInfo, instructions: str | None, own_tools: Sequence[dict[str, Any]]) -> bool:
        """Tell the model of the client's tools in short where they leave no room; tell whether that is so now."""
        choice = self.target.agent.client_tools if self.target.agent else self.settings.client_tools
        if choice != "auto" or not self.request.tools or info.loaded_context is None:
            return False
        if (window := self.settings.shared.windows.at_most(info, info.loaded_context)) >= self._tools_fit:
            return False
        self._tools_fit = window
        self.request, sizes = await fitting_tools(self.target, info, window, self.request, instructions, own_tools)
        if sizes is None or not sizes.are_short:
            return False
        is_first = not any(message.get("role") == "assistant" for message in self.request.messages)
        if is_first and sizes.told < window:  # else an error follows, which needs a status and no stream
            await self._sink([sizes.notice(len(self.request.tools))])
        return True

    def _note_model(self, info: ModelInfo, filling: Callable[[], ContextFill | None] | None) -> None:
        """Note which model answers now, and how to find out how full its window is."""
        if self._running is not None:
            self._running.answered_by(self.target.name, info.id, filling)

    def _note_use(self, managed: ManagedStep) -> None:
        """Record the tokens that the requests of a step have used together, and the fill after the last of them."""
        if not managed.used:
            return
        budget = managed.manager.budget
        fill = ContextFill(managed.used[-1].total, budget.window, budget.trigger, budget.stop_at)
        used = sum(managed.used, StepUsage())
        self.settings.shared.observations.step_used(managed.name, used, fill)
        if self._live is not None:
            self._live.step_used(managed.info.id, used, fill)

    def _note_overflow(self, managed: ManagedStep, error: ContextOverflow) -> None:
        """Record how full the window would have been, where nothing was sent that could tell."""
        budget = managed.manager.budget
        if self._live is not None and not managed.used and error.prompt_tokens:
            fill = ContextFill(error.prompt_tokens, budget.window, budget.trigger, budget.stop_at)
            self._live.step_used(managed.info.id, StepUsage(), fill)

    async def _note_size(self, managed: ManagedStep, reply: Reply) -> None:
        """Count a request that the engine did not report, and learn from a report how to count."""
        unreported = managed.stream.unreported
        if unreported is not None and (usage := await unreported.counted(managed.counter)):
            self.answer.usages.append(usage)
        if managed.size is not None:
            await managed.size.learn(managed.stream.usage, reply)

    async def _unmanaged(self, shape: StepRequest, info: ModelInfo, stream: ReplyStream) -> Reply:
        """Ask a provider that manages the context itself.

        Where a prompt is too long with the messages that were put back, it is sent again with fewer of them.
        """
        self._note_model(info, None)
        await self._tell_memories(rough_size)
        self._manager.history = await self._recall.put_back(self._manager.history)
        await self._tell_lost()
        while True:
            body = shape.body(shape.with_instructions(self._manager.history.messages))
            try:
                return await stream.run(self.target.provider, body, info)
            except ElbowroomError as failure:
                self.settings.shared.observations.upstream_failed(self.target.provider.id, type(failure).__name__)
                is_too_long = isinstance(failure, ContextOverflow) and not stream.reply.text
                less = self._recall.put_back_less(self._manager.history) if is_too_long else None
                if less is None:
                    raise
                self._manager.history = less
            finally:
                used = stream.used(rough_size(as_json(body)), rough_size)
                if self._live is not None and used is not None:
                    self._live.step_used(info.id, used, None)
                if self._place is not None:
                    self._place.sent(body)

    async def _next_step(self, shape: StepRequest, info: ModelInfo, stream: ReplyStream) -> ManagedStep:
        """Return the next step. Before the first of a turn, earlier compactions of the conversation are recalled."""
        if self._last is None or self._last.pool_key != (self.target.provider.id, info.id):
            self.settings.shared.background.chat_begins((self.target.provider.id, info.id))
        history = await self.settings.shared.histories.of(self.target.provider, info, shape.body(()))
        sent = self.request.messages
        if self._last is None and uses_tools(sent):
            await warn_of_orphans(self.target.name, sent)
        running = await history.counter.stream()
        await self._tell_memories(history.text)
        manager = self._with_window(info, shape.max_tokens)
        counter = StepCounter(history, running, lambda sent: shape.with_instructions(manager.history.sent(sent)))
        compactor = Compactor(self.target, self.settings, self._sink)
        recaller = self._recaller if shape.tools or "tools" in info.capabilities else None
        fit = PromptFit(shape, counter, manager, compactor, self._recall, info, self._keeper, recaller, self._reminder)
        if recaller is not None:
            recaller.reads(lambda tool: self._recall.past(manager.history, tool), fit.room)
        job = await self._recalled(fit) if self._last is None else None
        shared, leaves = self.settings.shared, self._place.leaves if self._place is not None else None
        return ManagedStep(
            self.target, info, counter, manager, fit, stream, shared, self._sink, self._talk, job, leaves
        )

    def _talk(self) -> Talk:
        """Return the keys of the conversation by which its last prompt is found."""
        caller, conversation = self.request.caller, self._live.conversation if self._live is not None else ""
        return talk_of(caller.owner, caller.chat_id, conversation, self.request.messages)

    def _with_window(self, info: ModelInfo, max_tokens: int | None) -> AgentContextManager:
        """Return the turn's manager, with the usable part of the window that is loaded now. Raises WindowUnknown."""
        if info.loaded_context is None:
            raise WindowUnknown(info.id, self.target.provider.id)
        window = self.settings.shared.windows.at_most(info, info.loaded_context)
        self._manager.use(Budget(window, self.settings.compaction.threshold_ratio, max_tokens))
        return self._manager

    async def _recalled(self, fit: PromptFit) -> Job | None:
        """Take over earlier compactions; return a compaction of the same conversation that is under way."""
        try:
            job = self.settings.shared.background.claim(self._recall.chain.keys)
            await fit.recall_compactions(waits=self._live is None or self._live.is_patient)
        except Exception:  # a chat that nobody remembers goes on as a new one
            log.exception("What was compacted of a conversation with %s cannot be recalled.", self.target.name)
            return None
        await self._tell_lost()
        return job

    async def _tell_lost(self) -> None:
        if news := self._recall.news():
            await self._sink(news)

    async def continues_after(self, appended: Sequence[dict[str, Any]], reply: Reply) -> bool:
        """Take in messages that wait after a reply that would be the last; tell whether there are any to answer.

        A reply with calls is not the last. A reply that has to follow a grammar is: two of them would break it.
        """
        if reply.tool_calls or self._shape(None, (), step=1).is_constrained:
            return False
        self._reply_before = reply
        return await self.intake.take_after(len(appended), reply.as_message())

    def returned(self, call_id: str, text: str) -> None:
        """Take a tool's result, as the model is shown it, as soon as it is there."""
        self._results[call_id] = text
        if self._live is not None:
            self._live.returned(call_id, text)

    async def stop(self, appended: Sequence[dict[str, Any]], why: str) -> None:
        """End the answer with a paragraph that says why, though the model would go on after `appended`."""
        self._extend([*self.intake.merged(appended), assistant_message(why, ())])
        if self._live is not None:
            self._live.results(appended)
            self._live.step_began()
            self._live.said([TextDelta(why)])
            self._live.called(())
        await self._sink([self.answer.stop(why)])

    async def interrupted(self) -> None:
        """End the answer where a person has stopped it, with the model's last words where they are wanted."""
        used = self._last.used if self._last is not None else []
        if len(used) > len(self.answer.usages) - self._usages_before:
            self.answer.usages.append(used[-1].as_openai())
        if (running := self._running) is not None and running.wants_last_words and (self.answer.text or self._results):
            with running.saying_last_words():
                await self._say_last_words()
        self.answer.interrupt(calls_are_out=self.request.stream)

    async def _say_last_words(self) -> None:
        if self._asked is None:
            return
        (shape, info, stream), last = self._asked, self._last  # the last is None where nothing is counted
        await say_last_words(
            messages_at_stop(self._manager.history, stream.reply.as_message(), self._results),
            self.target.provider,
            info,
            last.shape if last is not None else shape,
            self.settings.shared.admission,
            lambda: ReplyStream(self.answer, self._sink, (), lambda name: False, self._live),
            last.counter.history if last is not None else None,
            last.manager.budget.window if last is not None else 0,
        )

    async def fitted(self, instructions: str | None, own_tools: Sequence[dict[str, Any]] = ()) -> PromptFit:
        """Return what fits the history into the window of the loaded model, earlier compactions recalled."""
        info = await self._ready()
        await self._fit_tools(info, instructions, own_tools)
        shape = self._shape(instructions, [*own_tools, *self.request.tools], step=1)
        await asyncio.to_thread(lambda: self._recall.chain)  # which takes long for a long conversation that is new
        managed = await self._next_step(shape, info, ReplyStream(self.answer, self._sink, (), lambda name: True))
        if self._place is not None:
            self._place.end(is_whole=True)
        return managed.fit

    def end(self, *, is_whole: bool, is_handed_over: bool = False) -> None:
        """Keep what the next turn can use; an answer that is not whole is the part that the client has.

        After a handover another turn goes on: this one's history lacks the end, and is not kept.
        """
        self.intake.end()
        if self._last is None:
            return
        self.settings.shared.observations.restarted(self._last.manager.restarts)
        try:
            if self._memories is not None:
                self._memories.end(self._recall.chain, self._recall.answer_key(self.answer.as_message()))
            if not is_handed_over:
                self._keep(self._last, is_whole=is_whole)
        except Exception:  # the client has its answer, which must not fail for the next one
            log.exception("What a turn of %s leaves for the next one could not be kept.", self.target.name)

    def _keep(self, managed: ManagedStep, *, is_whole: bool) -> None:
        """Keep the turn's compaction, and begin the next one in the background where the answer comes near to it."""
        reply, said = managed.stream.reply.as_message(), self.answer.as_message()
        self._recall.end(self._manager.history, reply, said)
        goes_on = bool(self.answer.tool_calls)  # with results that the client is about to send
        wants_more = is_whole and not goes_on and self.settings.compaction.background and managed.manager.auto
        background = self.settings.shared.background
        if wants_more and managed.info.slots == 1:
            background.chat_ended(managed.pool_key, reading_again(managed, reply, said))
        if not wants_more or managed.answered(reply) < managed.manager.budget.window // 4:
            return
        if (work := compacting_ahead(managed, reply, said)) is not None:
            conversation = self._live.conversation if self._live is not None else ""
            background.begin(self._recall.answer_key(said), managed.pool_key, work, conversation)

    def _shape(self, instructions: str | None, tools: Sequence[dict[str, Any]], *, step: int) -> StepRequest:
        shape = StepRequest(self.request, self.target.model, self._defaults, instructions, tools, step, self._memories)
        tool = self._recaller.tool if self._recaller is not None and self._recaller.is_offered else None
        return shape.offering(tool.spec) if tool is not None else shape

    def _told_memories(self) -> ToldMemories | None:
        agent, shared = self.target.agent, self.settings.shared
        if agent is None or not remembers(agent.tools, self.settings.memory):
            return None
        owner = self.request.caller.owner
        return ToldMemories(shared.store.memories, shared.notes.told, owner, agent.id, self.settings.memory)

    async def _tell_memories(self, size_of: Callable[[str], int]) -> None:
        if self._memories is not None:
            await self._memories.text(self._recall.chain, size_of)

    async def _ready(self) -> ModelInfo:
        """Return the model, loaded; the person is told where that takes a while."""
        if self._place is not None:
            self._asked_before = self._asked
            self.target = await self._place.choose(PromptToPlace(self._manager.history.messages, self._talk()))
        return await ready_model(self.target.provider, self.target.model, self._tell_loading)

    async def _tell_loading(self, events: Sequence[AnswerEvent]) -> None:
        self.settings.shared.prompts.loaded_anew(f"{self.target.provider.id}/{self.target.model}")
        await self._sink(events)
