"""What a model of an agent can call: tools of the server, agents to ask, agents to hand over to, results to read."""

import asyncio
import hashlib
import importlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink, name_in_lm_studio, tell_nobody
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import Caller, ChatRequest, own_request, tool_name
from elbowroom.agents.tools import (
    ServerTool,
    ToolSearch,
    distinct,
    free_name,
    function_spec,
    memory_tools,
    searched,
    with_arranged_tools,
)
from elbowroom.agents.tools.mcp import McpServers
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.tools.recall import RECALL_TOOL, Recaller
from elbowroom.agents.turn import RunSettings
from elbowroom.context.memories import Memories
from elbowroom.context.outputs import READ_TOOL, SEARCH_TOOL, ToolOutputRef
from elbowroom.elsewhere import LOOK_SECONDS, WORK_SECONDS, NotAnswering, look
from elbowroom.errors import ElbowroomError
from elbowroom.settings.fields import data_dir, expanded
from elbowroom.settings.load import LoadedSettings
from elbowroom.settings.model import AgentSettings, AgentVault, VaultSettings
from elbowroom.settings.references import TOOL_OUTPUT_CACHE, VAULT_TOOLS

if TYPE_CHECKING:
    from elbowroom.vault.changes import Changes
    from elbowroom.vault.index import Index
    from elbowroom.vault.journal import Journal
    from elbowroom.vault.vault import Vault

log = logging.getLogger(__name__)
VAULT_MODULE: Final = "elbowroom.agents.tools.vault"
PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "request": {
            "type": "string",
            "description": "What to do, and everything that has to be known for it: nothing of this conversation "
            "is seen there, only this text.",
        }
    },
    "required": ["request"],
}


@dataclass(frozen=True, slots=True)
class NamedAgent:
    """An agent of the settings, with its model."""

    target: Target
    settings: AgentSettings

    def answering(self, settings: RunSettings, caller: Caller) -> AbstractContextManager[None]:
        """Mark the agent as answering a chat: the tasks of this chat wait until the block ends."""
        return settings.shared.running.chat((self.target.provider.id, self.target.model, caller.chat_id))


RunAgent = Callable[[NamedAgent, ChatRequest, Sink, RunSettings], Awaitable[Answer]]


def agents_named(ids: Sequence[str], settings: RunSettings) -> list[NamedAgent]:
    """Return the agents with these ids; an id without an agent is left out, with a warning in the log."""
    found: list[NamedAgent] = []
    for agent_id in ids:
        target = settings.catalog.of_agent(agent_id)
        if target is None or target.agent is None:
            log.warning("There is no agent %r, or it is switched off: it is left out.", agent_id)
        else:
            found.append(NamedAgent(target, target.agent))
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    """An agent that another one asks, on behalf of the same caller; `run` runs it.

    The `sink` gets its notices, such as that a model is loaded, but nothing of what it says.
    """

    agent: NamedAgent
    caller: Caller
    sink: Sink
    settings: RunSettings
    run: RunAgent

    def as_tool(self) -> ServerTool:
        settings = self.agent.settings
        description = settings.tool_description or (
            f"Ask {self._name}, another assistant with instructions and tools of its own. Returns its answer."
        )
        name = settings.tool_name or f"ask_{settings.id}"
        return ServerTool(name, description, PARAMETERS, self.ask, limits_itself=True)

    async def ask(self, arguments: Mapping[str, Any]) -> str:
        """Return the agent's answer. Cancelling this closes its upstream at once."""
        wish = arguments.get("request")
        if not isinstance(wish, str) or not wish.strip():
            raise ElbowroomError(
                "`request` is missing: a text that says what to do, with everything that has to be known for it."
            )
        question = {"role": "user", "content": wish}
        request = replace(own_request(self.agent.target.name, [question]), caller=self.caller)
        with self.agent.answering(self.settings, self.caller):
            try:
                answer = await self.run(self.agent, request, self._tell, self._settings_within)
            except ElbowroomError as error:
                raise ElbowroomError(f"{self._name} could not answer: {error.message}") from error
        return self._result(answer)

    def _result(self, answer: Answer) -> str:
        text = answer.conclusion
        if not text:
            raise ElbowroomError(f"{self._name} has said nothing. Ask in another way, or do without.")
        was_cut = answer.finish_reason == "length" and not answer.is_stopped
        return f"{text}\n\n[The answer was cut off here.]" if was_cut else text

    async def _tell(self, events: Sequence[AnswerEvent]) -> None:
        """Pass on the agent's notices with its name in front; what it says is the tool's result."""
        told = [replace(event, text=f"{self._name}: {event.text}") for event in events if isinstance(event, Notice)]
        if told:
            await self.sink(told)

    @property
    def _name(self) -> str:
        return self.agent.settings.display_name

    @property
    def _settings_within(self) -> RunSettings:
        """Return settings under which nothing is kept of the answer or done after it: the answer is a tool's result."""
        compaction = self.settings.of(self.agent.target).compaction.model_copy(update={"background": False})
        memory = self.settings.memory.model_copy(update={"flush": False})
        return replace(self.settings, compaction=compaction, memory=memory, live=None, running=None, tool_events=False)


NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Handoff:
    """An agent to which a call of this name hands the conversation over."""

    name: str
    agent: NamedAgent

    @property
    def description(self) -> str:
        """Return what the model is told of it."""
        does = f"Hand the conversation over to {self.agent.settings.display_name}, who answers the user from here on."
        return f"{does} {self.agent.settings.tool_description}".strip()

    @property
    def spec(self) -> dict[str, Any]:
        """Return it as a chat request lists it."""
        return function_spec(self.name, self.description, NO_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools and handoffs of an agent, and the request as it gets it; `keeper` keeps what the tools return.

    `recaller` has the tool that is offered besides once something was compacted away; None where it never is. `search`
    stands for the client's tools where the model is told of them by name.
    """

    request: ChatRequest
    tools: Sequence[ServerTool]
    handoffs: Sequence[Handoff]
    keeper: OutputKeeper | None
    recaller: Recaller | None = None
    search: ToolSearch | None = None

    @property
    def own_names(self) -> list[str]:
        """Return the names of the tools that the server runs, and of the handoffs."""
        return [*map(attrgetter("name"), (*self.tools, *self.handoffs))]

    @property
    def clashes(self) -> dict[str, str]:
        """Return the names of the client's tools that LM Studio writes like an own tool's, each with that tool's."""
        own = {name_in_lm_studio(name): name for name in self.own_names}
        return {name: taken for name in self.request.tool_names if (taken := own.get(name_in_lm_studio(name)))}

    def without_clashes(self) -> "Offered":
        """Return the same without the client's tools that share a name with an own one."""
        clashes = self.clashes
        left, by_name = (
            tuple(spec for spec in specs if tool_name(spec) not in clashes)
            for specs in (self.request.tools, self.request.by_name)
        )
        search = self.search.without(clashes) if self.search is not None else None
        return replace(self, request=replace(self.request, tools=left, by_name=by_name), search=search)

    @property
    def specs(self) -> list[dict[str, Any]]:
        """Return the own tools as a chat request lists them."""
        search = [self.search.tool] if self.search is not None else []
        return [*map(attrgetter("spec"), (*self.tools, *search, *self.handoffs))]


async def offered_to(
    agent: NamedAgent,
    request: ChatRequest,
    sink: Sink,
    settings: RunSettings,
    run: RunAgent,
    refs: dict[str, ToolOutputRef] | None = None,
) -> Offered:
    """Return what an agent can call in a request; `run` runs the agents that it asks, and the sink gets their notices.

    `refs` are the references of outputs that all agents of one run share; the keeper adds to them.
    """
    choice = agent.settings.client_tools
    if request.tools and choice != "search":
        request = with_arranged_tools(request, choice)
    tools = distinct(await settings.shared.toolbox(agent.target, request.caller), request.tool_names)
    used = {READ_TOOL, SEARCH_TOOL, *map(name_in_lm_studio, map(attrgetter("name"), tools))}
    for asked in agents_named(agent.settings.agent_tools, settings):
        tool = _Asked(asked, request.caller, sink, settings, run).as_tool()
        tools.append(replace(tool, name=free_name(tool.name, used)))
        used.add(tools[-1].name)
    keeper = _keeper(agent, request.caller, tools, settings, refs)
    tools += keeper.readers if keeper else []
    handoffs: list[Handoff] = []
    for other in agents_named(agent.settings.handoffs, settings):
        handoffs.append(Handoff(free_name(f"transfer_to_{other.settings.id}", used), other))
        used.add(handoffs[-1].name)
    is_agent = agent.target.agent is not None
    recaller = _recaller({*used, *request.tool_names}, settings, is_agent=is_agent)
    search = None
    if choice == "search":
        request, search = searched(request, {*used, RECALL_TOOL})
    return Offered(request, tools, handoffs, keeper, recaller, search)


def _recaller(taken: Iterable[str], settings: RunSettings, *, is_agent: bool) -> Recaller | None:
    if not settings.compaction.offers_recall(is_agent=is_agent):
        return None
    return Recaller(free_name(RECALL_TOOL, set(map(name_in_lm_studio, taken))))


def _keeper(
    agent: NamedAgent,
    caller: Caller,
    tools: Sequence[ServerTool],
    settings: RunSettings,
    refs: dict[str, ToolOutputRef] | None,
) -> OutputKeeper | None:
    """Return the keeper of an agent's results; None for one without tools, or whose window nobody manages."""
    chosen = agent.settings.tool_output.over(settings.tool_output)
    has_tools = bool(tools) or TOOL_OUTPUT_CACHE in agent.settings.tools
    if not (chosen.enabled and has_tools and agent.target.provider.manages_context):
        return None
    return OutputKeeper(settings.shared.store.tool_outputs, caller.owner, chosen, tools, refs)


async def offered_unasked(target: Target, request: ChatRequest, settings: RunSettings) -> Offered:
    """Return what a target's model can call, to count a request without asking a model."""
    if target.is_relay:
        return Offered(request, (), (), None)
    if target.agent is None:
        choice = settings.client_tools
        recaller = _recaller(request.tool_names, settings, is_agent=False)
        if choice != "search":
            return Offered(with_arranged_tools(request, choice), (), (), None, recaller)
        request, search = searched(request, {READ_TOOL, SEARCH_TOOL, RECALL_TOOL})
        return Offered(request, (), (), None, recaller, search)
    return await offered_to(NamedAgent(target, target.agent), request, tell_nobody, settings, _run_nobody)


async def _run_nobody(*_: Any) -> Answer:
    raise RuntimeError("an agent was about to be asked while a request was only counted")


class SettingsToolbox:
    """Gives each agent the tools that its settings name; `current` returns the settings in force.

    The index of the vault is kept from one request to the next. Call it only once the SDK is loaded.
    """

    def __init__(self, current: Callable[[], LoadedSettings], environ: Mapping[str, str], memories: Memories) -> None:
        self._current = current
        self._environ = environ
        self._memories = memories
        self._mcp = McpServers(environ)
        self._reading: asyncio.Task[None] | None = None
        self._vaults: dict[str, tuple[Index, Journal]] = {}

    async def __call__(self, target: Target, caller: Caller) -> Sequence[ServerTool]:
        """Return the tools of a target's agent, none for a raw model. Two may have the same name."""
        agent = target.agent
        if agent is None:
            return ()
        loaded = self._current()
        settings = loaded.settings
        tools = self._vault_tools(agent, settings.vault)
        if settings.memory.enabled and not caller.is_temporary:
            tools += memory_tools(agent.tools, self._memories, caller.owner, agent.id, time.time)
        return [*tools, *await self._mcp.tools(loaded, agent.mcp)]

    def warm_up(self) -> None:
        """Begin to connect to the MCP servers, which may take a while to start, and to read the vault."""
        loaded = self._current()
        self._mcp.warm_up(loaded)
        settings = loaded.settings
        readers = [agent for agent in settings.agents if agent.enabled and not VAULT_TOOLS.isdisjoint(agent.tools)]
        if settings.vault.path and readers and self._reading is None:
            self._reading = asyncio.create_task(self._read_vault(readers[0], settings.vault))

    async def aclose(self) -> None:
        """End the MCP servers, and wait until the vault is read, unless it hangs."""
        await self._mcp.aclose()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=LOOK_SECONDS)
            self._reading.cancel()

    def _vault_tools(self, agent: AgentSettings, settings: VaultSettings) -> list[ServerTool]:
        if not settings.path or VAULT_TOOLS.isdisjoint(agent.tools):
            return []
        from elbowroom.agents.tools.vault import vault_tools

        changes = self._changes(settings, agent.id, agent.vault)
        return vault_tools(agent.tools, changes, may_write=settings.write and agent.vault.write)

    async def _read_vault(self, agent: AgentSettings, settings: VaultSettings) -> None:
        await asyncio.to_thread(importlib.import_module, VAULT_MODULE)
        vault = self._changes(settings, agent.id, agent.vault).vault
        with suppress(NotAnswering):
            await look(vault.root, lambda: _read(vault), WORK_SECONDS)

    def notes(self) -> "Changes | None":
        """Return the vault of the settings as a person may change it; None where there is none. Imports its room."""
        settings = self._current().settings.vault
        return self._changes(settings, "", AgentVault()) if settings.path else None

    def _changes(self, settings: VaultSettings, agent: str, narrowed: AgentVault) -> "Changes":
        from elbowroom.vault.changes import Changes
        from elbowroom.vault.index import Index
        from elbowroom.vault.journal import Journal
        from elbowroom.vault.names import Scope
        from elbowroom.vault.vault import Vault

        root = str(expanded(settings.path))
        if root not in self._vaults:  # the settings name another vault; the index of the old one is dropped
            self._vaults = {root: (Index(), Journal(self._undo_folder(root)))}
        index, journal = self._vaults[root]
        opened = Scope.of(settings.include, settings.exclude)
        scope = Scope.of(narrowed.include, narrowed.exclude, opened)
        return Changes(Vault(root, scope, index), journal, agent)

    def _undo_folder(self, root: str) -> Path:
        """Return the folder of a vault's undo journal: outside the vault, so that nothing synchronises it."""
        return data_dir(self._environ) / "vault-undo" / hashlib.sha256(root.encode()).hexdigest()[:16]


def _read(vault: "Vault") -> None:
    """Read all notes ahead of the first search; a vault that cannot be read tells that again when it is used."""
    try:
        vault.refresh()
    except Exception as error:  # noqa: BLE001  # a server starts without its vault, too
        log.warning("The vault could not be read: %s", error)
