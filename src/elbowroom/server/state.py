"""What handlers find in the application."""

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from elbowroom.agents.admission import QUIET_SECONDS, ChatKey
from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Catalog, Target
from elbowroom.agents.offered import RunAgent
from elbowroom.agents.raw import answer_raw, relay_completion
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.sdk import load_sdk
from elbowroom.agents.task import answer_task
from elbowroom.agents.tools import with_arranged_tools
from elbowroom.agents.turn import RunSettings, Shared
from elbowroom.errors import ElbowroomError
from elbowroom.providers.registry import Providers
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.model import AgentSettings


class AgentRuntime:
    """Answers requests; the first one to an agent waits for the SDK. `begin` is called when there is time to begin."""

    def __init__(self, begin: Callable[[], None] = lambda: None) -> None:
        self._begin = begin
        self._loading: asyncio.Task[RunAgent] | None = None

    def warm_up(self) -> None:
        """Begin to load the SDK in a thread, unless that has been done, and whatever else takes long."""
        _ = self._begin_loading()
        self._begin()

    async def run(self, target: Target, request: ChatRequest, sink: Sink, settings: RunSettings) -> Answer:
        """Answer a request; the sink has had everything visible by the time this returns.

        A task waits for its chat here; who answers a chat marks it as running from its arrival, which is before this.
        Raises ElbowroomError. Cancelling it closes the upstream at once. However it ends, the turn in `settings.live`
        has ended as well.
        """
        try:
            with observed(target, request, settings):
                return await self._answer(target, request, sink, settings)
        finally:
            if settings.live is not None:
                settings.live.ended("interrupted", "")  # where nobody could say how

    async def relay(self, target: Target, request: ChatRequest, settings: RunSettings) -> dict[str, Any]:
        """Return the whole completion of a relayed model as the upstream sent it. Raises ElbowroomError."""
        admission, key = settings.shared.admission, chat_key(target, request)
        if request.caller.may_wait:
            await admission.before_task(key)
            return await admission.giving_way(key, lambda: relay_completion(target, request))
        with admission.chat(key):
            return await relay_completion(target, request)

    async def _answer(self, target: Target, request: ChatRequest, sink: Sink, settings: RunSettings) -> Answer:
        if request.caller.may_wait:
            await settings.shared.admission.before_task(chat_key(target, request))
        if request.caller.is_task or target.agent is None:
            return await self._answer_without_agent(target, request, sink, settings)
        return await self._answer_by_agent(target, target.agent, request, sink, settings)

    async def _answer_without_agent(
        self, target: Target, request: ChatRequest, sink: Sink, settings: RunSettings
    ) -> Answer:
        """Answer without an agent: for a raw model, or a task."""
        if target.is_relay:
            return await answer_raw(target, request, sink, settings)
        answer = answer_task if request.caller.is_task else answer_raw
        return await answer(target, _arranged(target, request, settings), sink, settings)

    async def _answer_by_agent(
        self, target: Target, agent: AgentSettings, request: ChatRequest, sink: Sink, settings: RunSettings
    ) -> Answer:
        loading = self._begin_loading()
        if not loading.done():
            # What the provider has to say does not wait for the SDK, and a model is loaded meanwhile.
            await target.provider.ready(target.model)
        # A client that leaves while the SDK is being loaded must not take the loading with it.
        await asyncio.wait([loading])
        return await loading.result()(target, agent, request, sink, settings)

    def _begin_loading(self) -> "asyncio.Task[RunAgent]":
        if self._loading is None or (self._loading.done() and self._loading.exception()):
            self._loading = asyncio.create_task(asyncio.to_thread(_load))
        return self._loading


def chat_key(target: Target, request: ChatRequest) -> ChatKey:
    """Return as what a chat runs, for the tasks that wait for it."""
    return target.provider.id, target.model, request.caller.chat_id


def _arranged(target: Target, request: ChatRequest, settings: RunSettings) -> ChatRequest:
    """Return the request with its tools as the target's model is to see them; a run of agents does that for each."""
    return with_arranged_tools(request, target.agent.client_tools if target.agent else settings.client_tools)


def _load() -> RunAgent:
    load_sdk()
    importlib.import_module("elbowroom.store.sql")  # with SQLAlchemy, which the first request waits for else
    importlib.import_module("elbowroom.agents.tools.vault")
    run_agent: RunAgent = importlib.import_module("elbowroom.agents.run").run_agent
    return run_agent


@contextmanager
def observed(target: Target, request: ChatRequest, settings: RunSettings) -> Iterator[None]:
    """Take note of the answer that the block gives, and let its turn know who gives it."""
    turn, began = settings.running, time.monotonic()
    failure: BaseException | None = None
    if turn is not None:
        turn.answered_by(target.name, target.model, None)
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        agent = target.agent.id if target.agent is not None else ""
        kind = "task" if request.caller.is_task else "agent" if agent else "model"
        outcome = outcome_of(failure, is_stopped=turn is not None and turn.is_stopped)
        spoke_at = turn.spoke_at if turn is not None else None
        first_token = spoke_at - began if spoke_at is not None else None
        settings.shared.observations.answered(agent, kind, outcome, time.monotonic() - began, first_token)


def outcome_of(failure: BaseException | None, *, is_stopped: bool) -> str:
    """Return how an answer has ended; one that a person has stopped may end by being cancelled."""
    if isinstance(failure, asyncio.CancelledError | None):
        return "stopped" if is_stopped else "whole" if failure is None else "left"
    if isinstance(failure, ClientLeft):
        return "left"
    return str(failure.status) if isinstance(failure, ElbowroomError) else "500"


CUT_OFF = "elbowroom is being stopped; the text so far is kept. Ask again when it runs."
REFUSED = "elbowroom is being stopped and takes no new requests. Ask again when it runs."


class ServerStopping(ElbowroomError):
    """The server is being stopped: it ends the answers it gives, and takes no new requests.

    `retry_after` says in how many seconds it is worth asking again.
    """

    status = 503
    code = "server_stopping"
    retry_after = 5

    def __init__(self, message: str = CUT_OFF) -> None:
        super().__init__(message)


class RunningAnswers:
    """The tasks that answer requests. It is open until it is closed; then it takes no new ones."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_stopping = False
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    @asynccontextmanager
    async def endable(self) -> AsyncIterator[None]:
        """Run an answer that `stop` may end: it then raises ServerStopping, where a client that left cancels it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a handler runs in a task
        self.check_open()
        self._tasks.add(task)
        self._is_empty.clear()
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            task.uncancel()
            raise ServerStopping from None
        finally:
            self._tasks.discard(task)
            if not self._tasks:
                self._is_empty.set()

    def check_open(self) -> None:
        """Raise ServerStopping where no new answers are begun."""
        if self.is_closed:
            raise ServerStopping(REFUSED)

    def close(self) -> None:
        """Take no new answers; those that are running go on."""
        self.is_closed = True

    async def finished(self) -> None:
        """Return when no answer is running."""
        await self._is_empty.wait()

    def stop(self) -> None:
        """End all answers, and take no new ones."""
        self.close()
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits in seconds that tests shorten.

    `keep_alive`: silence towards a client before a comment is sent. `body_pause`, `body_total`: how long a
    request's body may pause and take. `idle`: how long a connection may be open without a complete request head.
    `write`: how long a client may leave what was sent unread. `quiet`: how long nobody may have asked for a model
    before work in the background begins.
    """

    keep_alive: float = 10.0
    body_pause: float = 15.0
    body_total: float = 120.0
    idle: float = 25.0
    write: float = 300.0
    quiet: float = QUIET_SECONDS


SETTINGS: web.AppKey[LiveSettings] = web.AppKey("SETTINGS", LiveSettings)
PROVIDERS: web.AppKey[Providers] = web.AppKey("PROVIDERS", Providers)
RUNNING: web.AppKey[RunningAnswers] = web.AppKey("RUNNING", RunningAnswers)
SHARED: web.AppKey[Shared] = web.AppKey("SHARED", Shared)
RUNTIME: web.AppKey[AgentRuntime] = web.AppKey("RUNTIME", AgentRuntime)
TIMING: web.AppKey[Timing] = web.AppKey("TIMING", Timing)
STARTED: web.AppKey[int] = web.AppKey("STARTED", int)
ENVIRONMENT: web.AppKey[Mapping[str, str]] = web.AppKey("ENVIRONMENT", Mapping)


def run_settings_of(app: web.Application) -> RunSettings:
    """Return what the settings that are in force now say about runs."""
    settings = app[SETTINGS].current().settings
    return RunSettings(
        compaction=settings.compaction,
        catalog=catalog_of(app),
        client_tools=settings.server.client_tools,
        tool_output=settings.tool_output,
        memory=settings.memory,
        shared=app[SHARED],
    )


def catalog_of(app: web.Application) -> Catalog:
    """Return the catalog of the settings that are in force now."""
    loaded = app[SETTINGS].current()
    return Catalog(loaded.settings.agents, app[PROVIDERS].of(loaded))


class ClientLeft(Exception):
    """The client has closed its connection, or has not read for too long and was cut off."""
