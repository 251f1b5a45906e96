"""The state that all requests of one server share, and the settings of one request."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final, Self
from weakref import WeakValueDictionary

from elbowroom.agents.admission import QUIET_SECONDS, Admission, Background, Places
from elbowroom.agents.catalog import Catalog, Target
from elbowroom.agents.conversations import MessageQueue, Recording, TurnRecorder, queue_of
from elbowroom.agents.prompt import HistoryCounters, LearnedWindows
from elbowroom.agents.refusals import Refusals
from elbowroom.agents.request import ChatRequest, OnlyUser
from elbowroom.agents.running import Running, RunningAnswer
from elbowroom.agents.sdk import SdkLoader
from elbowroom.agents.tools import ByConversation, Toolbox
from elbowroom.agents.tools.outputs import ClientEdits
from elbowroom.agents.tools.recall import Pasts
from elbowroom.agents.turn.ended import EndedAnswers
from elbowroom.context.answers import Answers
from elbowroom.context.ledger import Entry
from elbowroom.context.memories import Memory
from elbowroom.context.observations import Observations
from elbowroom.context.reuse import SentPrompts
from elbowroom.settings.model import (
    ClientTools,
    CompactionSettings,
    MemorySettings,
    Settings,
    TaskHistory,
    ToolOutputSettings,
)
from elbowroom.store import ALONE, Servers, Store, open_temporary
from elbowroom.store.questions import Conversations

CLOSING_SECONDS: Final = 10.0
"""How long the end of the server waits for compactions that are being written."""


class CompactionLock:
    """Lets one request at a time compact a conversation, on all `servers` that share the store.

    As a context it gives whether another server had it first, so that there may be something to look for.
    """

    def __init__(self, name: str, notes: "CompactionNotes") -> None:
        self._name = name
        self._notes = notes
        self._own = asyncio.Lock()
        self._held = AsyncExitStack()

    def locked(self) -> bool:
        """Tell whether a request of this server has it."""
        return self._own.locked()

    async def __aenter__(self) -> bool:
        """Wait until nobody else has it."""
        await self._own.acquire()
        async with AsyncExitStack() as entered:
            entered.callback(self._own.release)
            servers = self._notes.servers
            was_taken = await entered.enter_async_context(servers.alone(self._name))
            entered.push_async_callback(servers.in_step, self._notes.saved)
            self._held = entered.pop_all()
        return was_taken

    async def __aexit__(self, *_: object) -> None:
        """Let the next one have it, which finds what this one has made."""
        await self._held.aclose()


@dataclass(frozen=True, slots=True)
class CompactionNotes:
    """What this process has noted about the compactions of its conversations; a restart loses it without harm.

    `told` are the memories that an agent was told in a conversation, `flushed` the cycle in which its last memory flush
    was, None once it was compacted since, `in_vain` the one in which a plan that was asked for ahead of time came to
    nothing. `locks` let one request at a time compact a conversation, by its last key. `unsaved` are entries of the
    ledger on their way to the store. `refusing` are the models, by provider and name, that refuse the optional fields
    of a pruning request, `complaints` the warnings about pruning agents that the log has already. `ended` are the
    answers that have ended. `cleared` is the id of the newest call in a conversation up to which the client has wanted
    calls cleared. `pasts` are indexes of what was said. `servers` are those that share the store.
    """

    told: ByConversation[tuple[Memory, ...]] = field(default_factory=ByConversation)
    flushed: ByConversation[str | None] = field(default_factory=ByConversation)
    in_vain: ByConversation[str] = field(default_factory=ByConversation)
    cleared: ByConversation[str] = field(default_factory=ByConversation)
    locks: WeakValueDictionary[str, CompactionLock] = field(default_factory=WeakValueDictionary)
    unsaved: dict[str, Entry] = field(default_factory=dict)
    saving: set[asyncio.Task[None]] = field(default_factory=set)
    refusing: set[tuple[str, str]] = field(default_factory=set)
    complaints: set[str] = field(default_factory=set)
    ended: EndedAnswers = field(default_factory=EndedAnswers)
    pasts: Pasts = field(default_factory=Pasts)
    servers: Servers = ALONE

    def lock(self, key: str) -> CompactionLock:
        """Return the lock of the conversation with this last key."""
        return self.locks.setdefault(key, CompactionLock(key, self))

    async def saved(self) -> None:
        """Wait until all entries are saved, or until that has taken too long."""
        if self.saving:
            await asyncio.wait(self.saving, timeout=CLOSING_SECONDS)


@dataclass(frozen=True, slots=True)
class Shared:
    """One for each server, on its event loop.

    `temporary` is the same for chats of which nothing outlives this process, a day at most, and nothing is shown.
    """

    histories: HistoryCounters
    windows: LearnedWindows
    admission: Admission
    background: Background
    toolbox: Toolbox
    store: Store
    notes: CompactionNotes
    recording: Recording
    running: Running
    only_user: OnlyUser
    queue: MessageQueue
    observations: Observations
    sdk: SdkLoader
    refusals: Refusals
    places: Places
    prompts: SentPrompts
    answers: Answers
    temporary: "Shared | None" = None

    @classmethod
    def over(
        cls,
        store: Store,
        toolbox: Toolbox,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        conversations: Conversations | None = None,
        observations: Observations | None = None,
    ) -> "Shared":
        """Return the state of a server that begins with this store; `toolbox` gives agents their tools.

        Nothing of conversations is kept where `conversations` is None.
        """
        running = Running()
        admission, prompts = Admission(running, servers=store.servers), SentPrompts()
        observations = observations or Observations()
        kept = cls(
            histories=HistoryCounters(),
            windows=LearnedWindows(),
            admission=admission,
            background=Background(admission.background_may_start, quiet_seconds),
            toolbox=toolbox,
            store=store,
            notes=CompactionNotes(servers=store.servers),
            recording=Recording(conversations),
            running=running,
            only_user=OnlyUser(),
            queue=queue_of(store, conversations, running),
            observations=observations,
            sdk=SdkLoader(),
            refusals=Refusals(),
            places=Places(admission, prompts, observations),
            prompts=prompts,
            answers=Answers(),
        )
        passing = open_temporary()
        noted = passing.conversations if conversations is not None else None
        temporary = replace(kept, store=passing, recording=Recording(noted), queue=MessageQueue(noted))
        return replace(kept, temporary=temporary)

    async def aclose(self) -> None:
        """End the work in the background, and wait until everything is written."""
        await self.queue.aclose()
        await self.background.aclose()
        self.admission.close()
        await self.recording.aclose()
        await self.notes.saved()
        if self.temporary is not None:
            await self.temporary.queue.aclose()
            await self.temporary.recording.aclose()
            await self.temporary.store.aclose()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings at the moment a request came in; `client_tools` is for raw models, agents have their own.
    `tool_events` says that the person is told of each call of the server's tools, `calls_in_text` that calls which a
    model writes into its text are taken as calls, `task_history` how much of a conversation a title is made from.

    `shared` is what this request has in common with all others of the server. `live` records the answer, and `running`
    is the turn that a person may stop; both are None where the request is no turn of a conversation: a task, or an
    agent that another one asks. `compaction` is how the model of the request is compacted; `compaction_of` tells that
    for a model by its provider and id, None where all models have the same.
    """

    compaction: CompactionSettings
    catalog: Catalog
    client_tools: ClientTools
    tool_output: ToolOutputSettings
    memory: MemorySettings
    shared: Shared
    live: TurnRecorder | None = None
    running: RunningAnswer | None = None
    tool_events: bool = True
    calls_in_text: bool = True
    task_history: TaskHistory = "ends"
    compaction_of: Callable[[str, str], CompactionSettings] | None = None

    @classmethod
    def under(cls, settings: Settings, catalog: Catalog, shared: Shared) -> Self:
        """Return what all settings say about a run."""
        return cls(
            compaction=settings.compaction,
            catalog=catalog,
            client_tools=settings.server.client_tools,
            tool_output=settings.tool_output,
            tool_events=settings.server.tool_events,
            calls_in_text=settings.server.calls_in_text,
            task_history=settings.server.task_history,
            memory=settings.memory,
            shared=shared,
            compaction_of=settings.compaction_of if settings.models else None,
        )

    def of(self, target: Target) -> Self:
        """Return the settings for another model than that of the request."""
        if self.compaction_of is None:
            return self
        own = self.compaction_of(target.provider.id, target.model)
        return replace(self, compaction=own.model_copy(update={"background": self.compaction.background}))

    def edits(self, target: Target, request: ChatRequest) -> ClientEdits:
        """Return what applies the edits that a request to this target wants of its history."""
        agent, common = target.agent, self.tool_output
        chosen = agent.tool_output.over(common) if agent is not None else common
        return ClientEdits(request, chosen, self.shared.notes.cleared, self.shared.store.tool_outputs)
