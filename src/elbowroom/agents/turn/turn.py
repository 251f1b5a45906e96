"""One request's model calls, step after step, with the SDK's Runner around them or not."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from elbowroom.agents.admission import Gate, Job
from elbowroom.agents.answer import Answer, Reply, Sink, assistant_message
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import STEER, Intake
from elbowroom.agents.prompt import StepCounter, StepRequest, step_usage_of
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.running import Phase
from elbowroom.agents.tools import TurnMemories, remembers
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.turn.background import work_behind
from elbowroom.agents.turn.compactor import Compactor
from elbowroom.agents.turn.fit import Fitting, ResultPruning
from elbowroom.agents.turn.history import History
from elbowroom.agents.turn.last_words import GraceTurn, messages_at_stop
from elbowroom.agents.turn.managed_step import ManagedStep
from elbowroom.agents.turn.recall import TurnMemory
from elbowroom.agents.turn.recovery import ready_model
from elbowroom.agents.turn.state import RunSettings
from elbowroom.agents.turn.stream import Step, size_in_bytes
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import Cannot, Compaction
from elbowroom.context.conversation import ContextFill, StepUsage
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.seam import without_notices
from elbowroom.context.transcript import Message, as_json
from elbowroom.errors import ContextOverflow, ElbowroomError, WindowUnknown
from elbowroom.providers.base import ModelInfo, TextDelta

log = logging.getLogger(__name__)


class Turn:
    """Asks the target's model for one client request; `answer` grows with every step, and may have begun before.

    `keeper` keeps what tools return where the model can read it again. `intake` is what the run has taken in from the
    queue of its conversation; turns of one run share it.
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
    ) -> None:
        messages = without_notices(request.messages)
        self.target = target
        self.request = request
        self.settings = settings
        self.answer = answer or Answer()
        self.intake = intake or Intake(settings.shared.queue, settings.live, sink)
        self._history = History(messages)
        self._live = settings.live
        chain = self._live.chain if self._live is not None and self._live.agent == target.name else None
        self._memory = TurnMemory(settings.shared.ledger, request.caller, target.name, messages, self._live, chain)
        self._remembered = self._memories()
        self._last: list[ManagedStep] = []
        self._asked: tuple[StepRequest, ModelInfo, Step] | None = None
        self._reply_before: Reply | None = None
        self._results: dict[str, str] = {}  # of this turn's calls, as the model is shown them
        self._usages_before = 0
        self._records = TurnRecords(target, settings)
        self._sink = sink
        self._preparation = StepPreparation(
            target, settings, sink, self._history, self._memory, keeper=keeper, remember=self._remember
        )
        self._defaults = target.agent.sampling.as_request_fields() if target.agent else {}

    async def step(
        self,
        *,
        instructions: str | None = None,
        appended: Sequence[dict[str, Any]] = (),
        own_tools: Sequence[dict[str, Any]] = (),
        is_for_client: Callable[[str], bool] = lambda name: True,
    ) -> Reply:
        """Ask the model for one reply and return it; the sink has had it by then.

        `appended` are the messages of the steps before, without what was taken in from the queue; `own_tools` the
        specifications of tools that the server runs; `is_for_client` tells whether a call of this name is handed to
        the client.
        """
        if self._live is not None:
            self._live.results(appended)
        if self.answer.steps == 0:
            await self.intake.begin(self._history.messages)
        else:
            await self.intake.take(len(appended), STEER)
        try:
            reply = await self._reply_to_all(instructions, appended, own_tools, is_for_client)
        finally:
            self.intake.note_read()
        if reply.tool_calls:
            self._records.is_in("tool")
        return reply

    async def _reply_to_all(
        self,
        instructions: str | None,
        appended: Sequence[dict[str, Any]],
        own_tools: Sequence[dict[str, Any]],
        is_for_client: Callable[[str], bool],
    ) -> Reply:
        """Return the reply to what was taken in from the queue too, but for messages that make it impossible.

        Where nothing is left behind a reply that would have been the last, it is the last.
        """
        before, self._reply_before = self._reply_before, None
        while True:
            self._history.extend_to(self.intake.merged(appended))
            try:
                reply = await self._reply_to(instructions, own_tools, is_for_client)
            except ElbowroomError as error:
                if not await self.intake.leave_out(error):
                    raise
                if before is None or self.intake.has_unread:
                    continue
                self._history.extend_to(self.intake.merged(appended))
                reply = before
            self.intake.note_answered()
            return reply

    async def _reply_to(
        self,
        instructions: str | None,
        own_tools: Sequence[dict[str, Any]],
        is_for_client: Callable[[str], bool],
    ) -> Reply:
        tools = [*own_tools, *self.request.tools]
        shape = self._shape(instructions, tools, step=self.answer.steps + 1)
        info = await self._ready()
        offered = [name for tool in tools if (name := tool_name(tool))]
        step = Step(self.answer, self._sink, offered, is_for_client, self._live)
        self._asked = shape, info, step
        self._records.is_in("prefill")
        if not self.target.provider.manages_context:
            self._records.is_asked(info, None)
            await self._remember(rough_size)
            return await self._unmanaged(shape, info, step)
        managed = await self._preparation.step(shape, info, step, is_first=not self._last)
        self._last[:], self._usages_before = [managed], len(self.answer.usages)
        self._records.is_asked(info, managed.fill.now)
        try:
            reply = await managed.run()
        finally:
            self._records.used(managed)
        self._account(managed, step.usage)
        if step.unreported is not None and (usage := await step.unreported.counted(managed.counter)):
            self.answer.usages.append(usage)
        if managed.size is not None:
            await managed.size.learn(step.usage, reply)
        return reply

    async def goes_on_behind(self, appended: Sequence[dict[str, Any]], reply: Reply) -> bool:
        """Take in what waits behind a reply that would be the last; tell whether there is something to answer.

        A reply with calls is not the last. One that has to follow a grammar is, as two of them would break it.
        """
        if reply.tool_calls or self._shape(None, (), step=1).is_constrained:
            return False
        self._reply_before = reply
        return await self.intake.take_after(len(appended), reply.as_message())

    async def _unmanaged(self, shape: StepRequest, info: ModelInfo, step: Step) -> Reply:
        """Ask a provider that looks after its context itself.

        A prompt that is too long for it only for what was put back is sent with less of that.
        """
        await self._memory.put_back(self._history)
        while True:
            body = shape.body(shape.with_instructions(self._history.messages))
            try:
                return await step.run(self.target.provider, body, info)
            except ElbowroomError as failure:
                self._records.failed(failure)
                if (
                    not isinstance(failure, ContextOverflow)
                    or step.reply.text
                    or not self._memory.leave_away(self._history)
                ):
                    raise
            finally:
                self._records.used_roughly(info, step, body)

    async def stop(self, appended: Sequence[dict[str, Any]], why: str) -> None:
        """End the answer with a paragraph that says why, though the model would go on behind `appended`."""
        self._history.extend_to([*self.intake.merged(appended), assistant_message(why, ())])
        if self._live is not None:
            self._live.results(appended)
            self._live.step_began()
            self._live.said([TextDelta(why)])
            self._live.called(())
        await self._sink([self.answer.stop(why)])

    async def interrupted(self) -> None:
        """End the answer where a person has stopped it, with the model's last words where they are wanted."""
        used = self._last[0].used if self._last else []
        if len(used) > len(self.answer.usages) - self._usages_before:
            self.answer.usages.append(used[-1].as_openai())
        running = self.settings.running
        if running is not None and running.wants_last_words and (self.answer.text or self._results):
            with running.saying_last_words():
                await self._say_last_words()
        self.answer.interrupt(calls_are_out=self.request.stream)

    async def _say_last_words(self) -> None:
        if self._asked is None:
            return
        shape, info, step = self._asked
        gate, counter, window = Gate(self.settings.shared.admission), None, 0
        if self._last:
            counter, window = self._last[0].counter.history, self._last[0].manager.budget.window
        grace = GraceTurn(
            self.target.provider, info, shape, self.answer, self._sink, gate, self._live, counter=counter, window=window
        )
        await grace.speak(messages_at_stop(self._history, step.reply.as_message(), self._results))

    def returned(self, call_id: str, text: str) -> None:
        """Take what the model is shown of a tool's result, as soon as it is there."""
        self._results[call_id] = text
        if self._live is not None:
            self._live.returned(call_id, text)

    async def compact(
        self, instructions: str | None, own_tools: Sequence[dict[str, Any]] = ()
    ) -> tuple[Sequence[Message], int, Compaction | Cannot]:
        """Compact what stands for the client's history; return that, its size in tokens, and what became of it."""
        shape = self._shape(instructions, [*own_tools, *self.request.tools], step=1)
        step = Step(self.answer, self._sink, (), lambda name: True)
        managed = await self._preparation.step(shape, await self._ready(), step, is_first=not self._last)
        messages = self._history.messages
        return messages, *await managed.fitting.compact_by_hand(managed.info)

    def end(self, *, is_whole: bool, is_handed_over: bool = False) -> None:
        """Leave what the next turn can use; an answer that is not whole is what the client has got of one.

        Where it is handed over, another turn goes on with it: this one's history lacks the end, and is not kept.
        """
        self.intake.end()
        if not self._last:
            return
        self._records.restarted(self._last[0].manager.statistics.restarts)
        try:
            self._leave_memories()
            if not is_handed_over:
                self._leave(self._last[0], is_whole=is_whole)
        except Exception:  # the client has its answer, which must not fail for the next one
            log.exception("What a turn of %s leaves for the next one could not be kept.", self.target.name)

    def _leave_memories(self) -> None:
        if self._remembered is not None:
            self._remembered.end(self._memory.chain, self._memory.key_behind(self.answer.as_message()))

    def _leave(self, managed: ManagedStep, *, is_whole: bool) -> None:
        reply, said = managed.step.reply.as_message(), self.answer.as_message()
        self._memory.end(self._history, reply, said)
        goes_on = bool(self.answer.tool_calls)  # with results that the client is about to send
        if is_whole and not goes_on and self.settings.compaction.background and managed.manager.auto:
            behind = work_behind(managed, reply, said)
            if behind is not None:
                conversation = self._live.conversation if self._live is not None else ""
                background = self.settings.shared.background
                background.begin(self._memory.key_behind(said), managed.pool_key, behind, conversation)

    def _account(self, managed: ManagedStep, usage: Mapping[str, Any] | None) -> None:
        """Add what the engine reports to the turn's statistics; where it reports nothing, nothing is guessed."""
        tokens = (usage or {}).get("completion_tokens")
        managed.manager.received(tokens if isinstance(tokens, int) else 0)

    def _shape(self, instructions: str | None, tools: Sequence[dict[str, Any]], *, step: int) -> StepRequest:
        return StepRequest(self.request, self.target.model, self._defaults, instructions, tools, step, self._remembered)

    def _memories(self) -> TurnMemories | None:
        agent, shared = self.target.agent, self.settings.shared
        if agent is None or not remembers(agent.tools, self.settings.memory):
            return None
        owner = self.request.caller.owner
        return TurnMemories(shared.store.memories, shared.told_before, owner, agent.id, self.settings.memory)

    async def _remember(self, size_of: Callable[[str], int]) -> None:
        if self._remembered is not None:
            await self._remembered.text(self._memory.chain, size_of)

    async def _ready(self) -> ModelInfo:
        """Return the model, loaded; the person is told where that takes a while."""
        return await ready_model(self.target.provider, self.target.model, self._sink)


class TurnRecords:
    """Tells the running turn, the conversation and the observations of `settings`, as far as there are any."""

    def __init__(self, target: Target, settings: RunSettings) -> None:
        self._target = target
        self._running = settings.running
        self._live = settings.live
        self._observations = settings.shared.observations

    def is_in(self, phase: Phase) -> None:
        """Tell what is being done now."""
        if self._running is not None:
            self._running.phase = phase

    def is_asked(self, info: ModelInfo, filling: Callable[[], ContextFill | None] | None) -> None:
        """Tell which model answers now, and how to find out how full its window is."""
        if self._running is not None:
            self._running.answered_by(self._target.name, info.id, filling)

    def used(self, managed: ManagedStep) -> None:
        """Keep what the requests of a step have used together, and what the last of them has filled."""
        if not managed.used:
            return
        budget = managed.manager.budget
        fill = ContextFill(managed.used[-1].total, budget.window, budget.trigger, budget.stop_at)
        used = sum(managed.used, StepUsage())
        self._observations.step_used(managed.name, used, fill)
        if self._live is not None:
            self._live.step_used(managed.info.id, used, fill)

    def used_roughly(self, info: ModelInfo, step: Step, body: Mapping[str, Any]) -> None:
        """Keep what a request of a provider has used of which nobody asks to count; one it refused has used nothing."""
        if self._live is not None and (step.usage is not None or step.generated):
            size = rough_size(as_json(body))
            self._live.step_used(info.id, step_usage_of(step.usage, size, step.generated, rough_size), None)

    def failed(self, failure: ElbowroomError) -> None:
        """Count a request that the provider did not answer."""
        self._observations.upstream_failed(self._target.provider.id, type(failure).__name__)

    def restarted(self, restarts: int) -> None:
        """Count how often the turn's requests were cut and sent again."""
        self._observations.restarted(restarts)


def rough_size(text: str) -> int:
    """Return about how many tokens a text has, for a model of which nobody asks to count."""
    return -(-size_in_bytes(text) // 3)


class StepPreparation:
    """Makes the managed steps of one turn, which share its history and what decides about its window.

    `keeper` keeps what tools return where the model can read it again. `remember` has the agent told what it has saved,
    given what tells the size of a text in tokens.
    """

    def __init__(
        self,
        target: Target,
        settings: RunSettings,
        sink: Sink,
        history: History,
        memory: TurnMemory,
        *,
        keeper: OutputKeeper | None,
        remember: Callable[[Callable[[str], int]], Awaitable[None]],
    ) -> None:
        self._target = target
        self._settings = settings
        self._sink = sink
        self._history = history
        self._memory = memory
        self._keeper = keeper
        self._remember = remember
        self._manager: AgentContextManager | None = None

    async def step(self, shape: StepRequest, info: ModelInfo, step: Step, *, is_first: bool) -> ManagedStep:
        """Return the next step. Before the first of a turn, what was compacted of the conversation is taken over."""
        provider = self._target.provider
        history = await self._settings.shared.histories.of(provider, info, shape.body(()))
        running = await history.counter.stream()
        await self._remember(history.text)
        counter = StepCounter(history, running, lambda sent: shape.with_instructions(self._history.sent(sent)))
        manager = self._manager_for(info, shape.max_tokens)
        compactor = Compactor(self._target, self._settings, self._sink, Gate(self._settings.shared.admission))
        pruning = None
        if self._keeper is not None:
            pruning = ResultPruning(self._keeper, counter, self._history, manager, self._memory)
        fitting = Fitting(shape, counter, self._history, manager, compactor, self._memory, pruning)
        return ManagedStep(provider, info, fitting, step, await self._recalled(fitting) if is_first else None)

    async def _recalled(self, fitting: Fitting) -> Job | None:
        """Take over what was compacted before; return a compaction of the same conversation that is under way."""
        try:
            job = self._settings.shared.background.taken_up(self._memory.chain.keys)
            await fitting.recall()
        except Exception:  # a chat that nobody remembers goes on as a new one
            log.exception("What was compacted of a conversation with %s cannot be recalled.", self._target.name)
            return None
        return job

    def _manager_for(self, info: ModelInfo, max_tokens: int | None) -> AgentContextManager:
        """Return the turn's manager, with what can be used of the window that is loaded now. Raises WindowUnknown."""
        if info.loaded_context is None:
            raise WindowUnknown(info.id, self._target.provider.id)
        chosen = self._settings.compaction
        window = self._settings.shared.windows.at_most(info, info.loaded_context)
        budget = Budget(window, chosen.threshold_ratio, max_tokens)
        if self._manager is None:
            self._manager = AgentContextManager(
                budget, max_restarts=chosen.max_restarts, auto=chosen.enabled and chosen.auto
            )
        self._manager.use(budget)
        return self._manager
