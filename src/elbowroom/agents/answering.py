"""Answers chat requests: by an agent, by a raw model, as a task, or by relaying them to their provider."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from elbowroom.agents.admission import Places, PromptToPlace
from elbowroom.agents.answer import Answer, AnswerEvent, ClientLeft, Notice, Sink
from elbowroom.agents.by_hand import answer_command
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import DROPPED, TurnRecorder, told
from elbowroom.agents.offered import NamedAgent
from elbowroom.agents.prompt import is_short, relay_body
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.running import ChatKey, RunningAnswer, stoppable
from elbowroom.agents.task import answer_task
from elbowroom.agents.tools import with_arranged_tools
from elbowroom.agents.turn import Asking, ReplyStream, RunSettings, Turn
from elbowroom.context.observations import Observations
from elbowroom.context.reuse import talk_of
from elbowroom.context.seam import command_in, without_notices
from elbowroom.errors import ElbowroomError, RequestError
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.base import ModelInfo, PassedAnswer
from elbowroom.settings.model import AgentSettings
from elbowroom.store import Store

Begun = Callable[[TurnRecorder], object]
"""Takes the recorder of a turn before the first word of the answer, and again once its conversation is found."""
Answerer = Callable[[ChatRequest, Sink, RunSettings, Answer], Awaitable[Answer]]
"""Adds to the answer until it is whole, and returns it."""


CHATS: Final = "chat/completions"
WRITTEN_SECONDS: Final = 2.0
"""How long the end of an answer waits until the database has it, where several servers share it."""


async def _written(store: Store) -> None:
    """Wait a while until other servers can read what was said: the client may go on with one of them."""
    with suppress(TimeoutError):
        async with asyncio.timeout(WRITTEN_SECONDS):
            await store.conversations.settled()


def ignore(_: TurnRecorder) -> None:
    """Do nothing with a turn that begins."""


async def answer(
    target: Target,
    request: ChatRequest,
    settings: RunSettings,
    sink: Sink,
    begun: Begun = ignore,
    *,
    keeps: bool = True,
    turn: str = "",
) -> Answer:
    """Answer a request; the sink has had all of the answer when this returns. A stopped answer keeps the text it has.

    A chat with an agent or a managed model is a turn of a conversation, which `begun` is told of; where it is not to
    be kept, nothing of it is stored; `turn` is its id, where it has one already. Tasks and relayed requests are no
    turns. Raises ElbowroomError. Cancelling this closes the upstream at once.
    """
    _refuse_several(request)
    shared, said, chat = settings.shared, Answer(), chat_key(target, request)
    with shared.running.entered(None if request.caller.may_wait else chat, request.caller) as running:
        if not is_turn(target, request):
            with _observed(target, request, shared.observations, running):
                if request.caller.may_wait:
                    await shared.admission.before_task(chat)
                answer_beside = _relay_stream if target.is_relay else answer_task
                return _noted(await answer_beside(target, request, sink, settings))
        if keeps:
            shared.store.open_soon()
        looks_up = bool(request.tools) and settings.client_tools == "search"
        runs_tools = target.agent is not None or looks_up or settings.compaction.offers_recall(is_agent=False)
        if runs_tools:
            _ = shared.sdk.begin(imported_runner)  # which takes a second; all that comes first takes some of it
        asked = await shared.recording.asked(target, request)
        recorder = shared.recording.begin(
            asked, is_patient=target.agent is not None or looks_up, keeps=keeps, turn=turn
        )

        def place() -> None:
            begun(recorder)
            if not request.caller.is_temporary:
                running.owner, running.conversation = recorder.owner, recorder.conversation
                running.name, running.id = request.caller.chat_id, recorder.id

        recorder.show = sink
        recorder.tell(place)
        settings, is_whole = replace(settings, live=recorder, running=running), False
        try:
            with stoppable(running):
                with _observed(target, request, shared.observations, running):
                    answerer = await _answerer(target, request, settings, runs_tools=runs_tools)
                    shown = _shown(sink, recorder, shared.store, running)
                    await answerer(request, shown, settings, said)
                    await recorder.is_found()
                is_whole = not said.is_interrupted
        except ElbowroomError as error:
            _let_go(error)
            raise
        finally:
            recorder.ended("complete" if is_whole else "interrupted", _key_of_answer(said, request, recorder))
            waiting = shared.queue.waiting(recorder.conversation) if running.dropping else ()
            shared.queue.let_go(recorder.conversation, running)
        if keeps:
            with stoppable(running):
                await shared.store.servers.in_step(lambda: _written(shared.store))
        if not is_whole:
            said.interrupt(calls_are_out=request.stream)  # also where a person has stopped it before it began
        if request.stream and (running.dropping or recorder.conversation in shared.queue.untold):
            dropped = [item for item in waiting if item.id in running.dropping]
            with stoppable(running):
                lost = [*shared.queue.untold.pop(recorder.conversation, ()), *dropped]
                await sink([Notice("left out", text) for text in told(DROPPED, lost)])
                running.has_told = bool(dropped)
        if request.stream and (news := shared.store.news()):
            with stoppable(running):
                await sink([Notice("store", text) for text in news])
        return _noted(said)


async def relay(target: Target, request: ChatRequest, settings: RunSettings) -> bytes:
    """Return the whole completion of a relayed model as the upstream sent it. Raises ElbowroomError."""
    admission, key = settings.shared.admission, chat_key(target, request)
    with settings.shared.running.entered(None if request.caller.may_wait else key, request.caller):
        if not request.caller.may_wait:
            return await _relay_completion(target, request, settings)
        await admission.before_task(key)
        return await admission.giving_way(key, lambda: _relay_completion(target, request, settings))


async def _relay_completion(target: Target, request: ChatRequest, settings: RunSettings) -> bytes:
    """Send the client's body on, and return the upstream's completion under the name that the client gave."""

    async def completion(bound: Target) -> bytes:
        async with bound.provider.passed(CHATS, relay_body(request, bound.model)) as passed:
            text = await passed.text(request.model)
            request_facts().take_usage(passed.usage)
            return text

    return await settings.shared.places.on_machine(target, completion, lambda: _prompt_of(request))


def _prompt_of(request: ChatRequest) -> PromptToPlace:
    """Return the prompt of a relayed chat, whose conversation only the client knows."""
    caller = request.caller
    return PromptToPlace(request.messages, talk_of(caller.owner, caller.chat_id, "", request.messages))


async def relay_stream(
    target: Target, request: ChatRequest, settings: RunSettings, sink: Callable[[Sequence[bytes]], Awaitable[None]]
) -> None:
    """Send the client's body on, and hand the frames of the upstream's stream to the sink. Raises ElbowroomError."""
    shared, key = settings.shared, chat_key(target, request)
    with (
        shared.running.entered(None if request.caller.may_wait else key, request.caller) as running,
        _observed(target, request, shared.observations, running),
    ):
        if request.caller.may_wait:
            await shared.admission.before_task(key)
        await _relay_frames(target, request, shared.places, sink)


async def _relay_frames(
    target: Target, request: ChatRequest, places: Places, sink: Callable[[Sequence[bytes]], Awaitable[None]]
) -> None:
    has_begun = False

    async def stream(bound: Target) -> None:
        nonlocal has_begun
        async with (
            bound.provider.passed(CHATS, relay_body(request, bound.model)) as passed,
            aclosing(passed.frames(request.model)) as frames,
        ):
            async for some in frames:
                has_begun = True
                await sink([some])
        _note_passed(passed)

    await places.on_machine(target, stream, lambda: _prompt_of(request), has_begun=lambda: has_begun)


def _note_passed(passed: PassedAnswer) -> None:
    facts = request_facts()
    facts.take_usage(passed.usage)
    facts.steps, facts.finish_reason = 1, passed.finish_reason


def _refuse_several(request: ChatRequest) -> None:
    """Raise RequestError where the client wants several answers at once: each would need a window of its own."""
    if request.body.get("n") not in (None, 1):
        raise RequestError(
            "n has to be 1: a local model gives one answer at a time. Only requests for models of a provider with "
            "manage_context = false, which are passed on as they come, may ask for more.",
            param="n",
        )


def is_turn(target: Target, request: ChatRequest) -> bool:
    """Tell whether the answer to a request is a turn of a conversation."""
    return not target.is_relay and not request.caller.is_task


def chat_key(target: Target, request: ChatRequest) -> ChatKey:
    """Return the key of a request's chat, by which tasks wait for it, unless it is one that waits itself."""
    return target.provider.id, target.model, request.caller.chat_id


async def _answerer(target: Target, request: ChatRequest, settings: RunSettings, *, runs_tools: bool) -> Answerer:
    """Return the function that answers a turn, once all that it needs is loaded; it runs tools for an agent."""
    if settings.compaction.chat_command and command_in(request.messages[-1]) is not None:
        return partial(answer_command, target)
    live = settings.live
    if target.agent is None and request.caller.may_have_hidden and live is not None and len(live.chain.keys) > 1:
        await live.looked_up()  # the turn goes by the keys under which its conversation is found
    agent = target.agent or (_raw_agent(target, settings) if runs_tools else None)
    if agent is None:
        return partial(_answer_raw, target)
    loading = settings.shared.sdk.begin(imported_runner)
    if not loading.done():
        # An error of the provider does not wait for the SDK, and the model is loaded meanwhile.
        await target.provider.ready(target.model)
    # A client that leaves while the SDK is being loaded must not end the loading.
    await asyncio.wait([loading])
    return partial(loading.result(), NamedAgent(target, agent))


def imported_runner() -> Any:
    """Import what runs agents, with the tools for which their first request would have to wait; return `run_agent`."""
    import elbowroom.agents.tools.vault  # noqa: F401  # it takes long to import too
    from elbowroom.agents.run import run_agent

    return run_agent


def _raw_agent(target: Target, settings: RunSettings) -> AgentSettings:
    """Return the agent as which a raw model runs that has a tool of the server: it has nothing else."""
    provider = target.provider.id
    return AgentSettings(id="raw-model", provider=provider, model=target.model, client_tools=settings.client_tools)


def _shown(sink: Sink, recorder: TurnRecorder, store: Store, running: RunningAnswer) -> Sink:
    """Return a sink that lets the running turn see what the client is shown.

    Where the conversation is being looked for, it waits a moment before its first events, which go out with the
    conversation's id. They go out at once where a stop ends the waiting: they are recorded, and a part of the answer.
    """
    waits = not recorder.is_placed or store.is_opening

    async def first(events: Sequence[AnswerEvent]) -> None:
        try:
            await store.ready_for_words()
            await recorder.is_found()
        except asyncio.CancelledError:
            with suppress(Exception):  # of a client that has left
                await sink(events)
            raise
        await sink(events)

    def shown(events: Sequence[AnswerEvent]) -> Awaitable[None]:
        nonlocal waits
        running.saw(events)
        goes_first, waits = waits, False
        return first(events) if goes_first else sink(events)

    return shown


async def _answer_raw(
    target: Target, request: ChatRequest, sink: Sink, settings: RunSettings, answer: Answer
) -> Answer:
    """Answer with the model that the client named; the sink has had all of it when this returns."""
    arranged = with_arranged_tools(request, settings.client_tools) if request.tools else request
    begin = partial(Asking, target, arranged, sink, settings, answer)
    turn = Turn(begin() if is_short(arranged.messages) else await asyncio.to_thread(begin))
    is_whole = False
    try:
        with stoppable(settings.running):
            reply = await turn.step()
            while await turn.continues_after((), reply):
                reply = await turn.step()
            is_whole = True
        if not is_whole:
            await turn.interrupted()
    finally:
        turn.end(is_whole=is_whole)
    return answer


async def _relay_stream(target: Target, request: ChatRequest, sink: Sink, settings: RunSettings) -> Answer:
    """Send the client's body on, and hand each piece of the upstream's stream to the sink."""
    offered = [*filter(None, map(tool_name, request.tools))]
    tried: list[ReplyStream] = []

    async def reply_of(bound: Target) -> Answer:
        answer = Answer()
        stream = ReplyStream(answer, sink, offered, lambda name: True)
        tried.append(stream)
        info = ModelInfo(id=bound.model, provider=bound.provider.id, name=bound.model)
        await stream.run(bound.provider, relay_body(request, bound.model), info)
        return answer

    return await settings.shared.places.on_machine(
        target,
        reply_of,
        lambda: _prompt_of(request),
        has_begun=lambda: bool(tried) and tried[-1].reply.has_said,
    )


@contextmanager
def _observed(
    target: Target, request: ChatRequest, observations: Observations, running: RunningAnswer
) -> Iterator[None]:
    """Count the answer that the block gives, with its outcome and its times."""
    began, failure = time.monotonic(), None
    running.agent, running.model = target.name, target.model
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        agent = target.agent.id if target.agent is not None else ""
        kind = "task" if request.caller.is_task else "agent" if agent else "model"
        first_token = running.spoke_at - began if running.spoke_at is not None else None
        outcome = _outcome_of(failure, is_stopped=running.is_stopped)
        observations.answered(agent, kind, outcome, time.monotonic() - began, first_token)


def _let_go(error: BaseException | None) -> None:
    """Forget where a failure went through that is told in words: those frames know it, and would stay with it."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _outcome_of(failure: BaseException | None, *, is_stopped: bool) -> str:
    """Return how an answer has ended; a person's stop may cancel it."""
    if isinstance(failure, asyncio.CancelledError | None):
        return "stopped" if is_stopped else "whole" if failure is None else "left"
    if isinstance(failure, ClientLeft):
        return "left"
    return str(failure.status) if isinstance(failure, ElbowroomError) else "500"


def _noted(answer: Answer) -> Answer:
    """Have the request's line in the log say what the answer took; return the answer."""
    facts = request_facts()
    facts.take_usage(answer.usage)
    facts.steps, facts.finish_reason = answer.steps, answer.finish_reason
    return answer


def _key_of_answer(said: Answer, request: ChatRequest, recorder: TurnRecorder) -> str:
    """Return the key of the answer in the chain of its conversation; empty where nothing was said or called."""
    message = said.as_message()
    if not (message["content"] or said.tool_calls):
        return ""
    if request.messages and request.messages[-1].get("role") == "assistant":
        return recorder.chain.continued_by(without_notices(request.messages), message)
    return recorder.chain.followed_by(message)
