"""Agents that others can ask as they ask a tool: each answers one request, in a run and a window of its own."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink
from elbowroom.agents.caller import Caller
from elbowroom.agents.catalog import Target
from elbowroom.agents.own_tool import OwnTool
from elbowroom.agents.reply import name_in_lm_studio
from elbowroom.agents.request import ChatRequest, own_request
from elbowroom.agents.run_settings import RunSettings
from elbowroom.errors import ElbowroomError
from elbowroom.settings.model import AgentSettings

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
        return settings.shared.admission.chat((self.target.provider.id, self.target.model, caller.chat_id))


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
