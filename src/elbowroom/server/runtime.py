"""The agents' side of the server, loaded in a thread once the server listens: the SDK takes a second to import."""

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

from elbowroom.agents.admission import ChatKey
from elbowroom.agents.agent_tools import RunAgent
from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.client_tools import with_arranged_tools
from elbowroom.agents.raw_model import answer_raw
from elbowroom.agents.relay import relay_completion
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.sdk import load_sdk
from elbowroom.agents.task_request import answer_task
from elbowroom.server.observing import observed
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
    importlib.import_module("elbowroom.agents.vault_tools")
    run_agent: RunAgent = importlib.import_module("elbowroom.agents.run").run_agent
    return run_agent
