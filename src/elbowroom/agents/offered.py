"""What a model of an agent can call: tools of the server, agents to ask, agents to hand over to, results to read."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink, name_in_lm_studio, tell_nobody
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import Caller, ChatRequest, own_request, tool_name
from elbowroom.agents.tools import OwnTool, distinct, with_arranged_tools
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.turn import RunSettings
from elbowroom.context.outputs import READ_TOOL, SEARCH_TOOL, ToolOutputRef
from elbowroom.errors import ElbowroomError
from elbowroom.settings.model import AgentSettings
from elbowroom.settings.references import TOOL_OUTPUT_CACHE

log = logging.getLogger(__name__)
RunAgent = Callable[[Target, AgentSettings, ChatRequest, Sink, RunSettings], Awaitable[Answer]]
LONGEST_NAME: Final = 64
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
    """An agent of the settings, with the model that stands behind it."""

    target: Target
    settings: AgentSettings

    def answering(self, settings: RunSettings, caller: Caller) -> AbstractContextManager[None]:
        """Mark it as answering somebody: tasks of the chat wait for that."""
        return settings.shared.running.chat((self.target.provider.id, self.target.model, caller.chat_id))


def agents_named(ids: Sequence[str], settings: RunSettings) -> list[NamedAgent]:
    """Return the agents of these ids that there are; one that is missing is a matter for the log."""
    found: list[NamedAgent] = []
    for agent_id in ids:
        target = settings.catalog.of_agent(agent_id)
        if target is None or target.agent is None:
            log.warning("There is no agent %r, or it is switched off: it is left out.", agent_id)
        else:
            found.append(NamedAgent(target, target.agent))
    return found


def agent_tools(agent: NamedAgent, caller: Caller, sink: Sink, settings: RunSettings, run: RunAgent) -> list[OwnTool]:
    """Return those that an agent may ask, each as a tool; `run` runs one.

    The `sink` is told what happens in there, such as that a model is loaded, but never what is said.
    """
    others = agents_named(agent.settings.agent_tools, settings)
    return [_Asked(other, caller, sink, settings, run).as_tool() for other in others]


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return a tool's name that stands for no other tool as LM Studio writes names: this one, or with a number."""
    wanted = name_in_lm_studio(wanted)[:LONGEST_NAME]
    others = {name_in_lm_studio(name) for name in taken}
    name, number = wanted, 1
    while name in others:
        number += 1
        name = f"{wanted[: LONGEST_NAME - len(str(number)) - 1]}_{number}"
    return name


@dataclass(frozen=True, slots=True)
class _Asked:
    """An agent that another one asks, on behalf of the same caller."""

    agent: NamedAgent
    caller: Caller
    sink: Sink
    settings: RunSettings
    run: RunAgent

    def as_tool(self) -> OwnTool:
        settings = self.agent.settings
        description = settings.tool_description or (
            f"Ask {self._name}, another assistant with instructions and tools of its own. Returns its answer."
        )
        return OwnTool(settings.tool_name or f"ask_{settings.id}", description, PARAMETERS, self.ask, timeout=None)

    async def ask(self, arguments: Mapping[str, Any]) -> str:
        """Return the agent's answer. Cancelling this closes its upstream at once."""
        wish = arguments.get("request")
        if not isinstance(wish, str) or not wish.strip():
            raise ElbowroomError(
                "`request` is missing: a text that says what to do, with everything that has to be known for it."
            )
        target, question = self.agent.target, {"role": "user", "content": wish}
        request = replace(own_request(target.name, [question]), caller=self.caller)
        with self.agent.answering(self.settings, self.caller):
            try:
                answer = await self.run(target, self.agent.settings, request, self._tell, self._settings_within)
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
        """Tell the person what happens in there, with the agent's name; what it says is the tool's result."""
        told = [replace(event, text=f"{self._name}: {event.text}") for event in events if isinstance(event, Notice)]
        if told:
            await self.sink(told)

    @property
    def _name(self) -> str:
        return self.agent.settings.display_name

    @property
    def _settings_within(self) -> RunSettings:
        """Return the settings without what is kept of an answer, or done behind it: it is a result."""
        compaction = self.settings.compaction.model_copy(update={"background": False})
        memory = self.settings.memory.model_copy(update={"flush": False})
        return replace(self.settings, compaction=compaction, memory=memory, live=None, running=None)


NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Handoff:
    """An agent to which the conversation can be handed over, by a call of this name."""

    name: str
    agent: NamedAgent

    @property
    def description(self) -> str:
        """Return what the model is told of it."""
        does = f"Hand the conversation over to {self.agent.settings.display_name}, who answers the user from here on."
        return f"{does} {self.agent.settings.tool_description}".strip()


@dataclass(frozen=True, slots=True)
class Offered:
    """What an agent has of its own, for a request as it is to get it; `keeper` keeps what the tools return."""

    request: ChatRequest
    tools: Sequence[OwnTool]
    handoffs: Sequence[Handoff]
    keeper: OutputKeeper | None

    @property
    def clashes(self) -> dict[str, str]:
        """Return the names of the client's tools that LM Studio writes like an own tool's, each with that."""
        names_of_own = [*(tool.name for tool in self.tools), *(handoff.name for handoff in self.handoffs)]
        own = {name_in_lm_studio(name): name for name in names_of_own}
        names = (name for spec in self.request.tools if (name := tool_name(spec)) is not None)
        return {name: taken for name in names if (taken := own.get(name_in_lm_studio(name)))}

    @property
    def specs(self) -> list[dict[str, Any]]:
        """Return the own tools as a chat request lists them."""
        own = [_spec(tool.name, tool.description, tool.parameters) for tool in self.tools]
        return own + [_spec(handoff.name, handoff.description, NO_ARGUMENTS) for handoff in self.handoffs]


async def offered_to(
    agent: NamedAgent,
    request: ChatRequest,
    sink: Sink,
    settings: RunSettings,
    run: RunAgent,
    refs: dict[str, ToolOutputRef] | None = None,
) -> Offered:
    """Return what an agent can call in a request; agents that it asks are run by `run`, and tell the sink.

    `refs` are those that agents before it have in the same conversation, to be added to.
    """
    request = with_arranged_tools(request, agent.settings.client_tools)
    of_client = [name for spec in request.tools if (name := tool_name(spec)) is not None]
    tools = distinct(await settings.shared.toolbox(agent.target, request.caller), of_client)
    taken = [READ_TOOL, SEARCH_TOOL, *(tool.name for tool in tools)]
    for tool in agent_tools(agent, request.caller, sink, settings, run):
        tools.append(replace(tool, name=free_name(tool.name, taken)))
        taken.append(tools[-1].name)
    keeper = _keeper(agent, request.caller, tools, settings, refs)
    tools += keeper.readers if keeper else []
    handoffs: list[Handoff] = []
    for other in agents_named(agent.settings.handoffs, settings):
        handoffs.append(Handoff(free_name(f"transfer_to_{other.settings.id}", taken), other))
        taken.append(handoffs[-1].name)
    return Offered(request, tools, handoffs, keeper)


def _keeper(
    agent: NamedAgent,
    caller: Caller,
    tools: Sequence[OwnTool],
    settings: RunSettings,
    refs: dict[str, ToolOutputRef] | None,
) -> OutputKeeper | None:
    """Return what keeps the results of an agent's tools, None where it has none or nobody looks after its window."""
    chosen = agent.settings.tool_output.over(settings.tool_output)
    has_tools = bool(tools) or TOOL_OUTPUT_CACHE in agent.settings.tools
    if not (chosen.enabled and has_tools and agent.target.provider.manages_context):
        return None
    return OutputKeeper(settings.shared.store.tool_outputs, caller.owner, chosen, tools, refs)


def _spec(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as the SDK writes it into a request."""
    function = {"name": name, "description": description, "parameters": dict(parameters), "strict": False}
    return {"type": "function", "function": function}


async def offered_unasked(target: Target, request: ChatRequest, settings: RunSettings) -> Offered:
    """Return what a target's model can call, for one who asks nobody but wants to know how large a request is."""
    if target.is_relay:
        return Offered(request, (), (), None)
    if target.agent is None:
        return Offered(with_arranged_tools(request, settings.client_tools), (), (), None)
    return await offered_to(NamedAgent(target, target.agent), request, tell_nobody, settings, _run_nobody)


async def _run_nobody(*_: Any) -> Answer:
    raise RuntimeError("an agent was about to be asked while a request was only counted")
