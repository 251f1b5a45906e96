"""Several agents in front of a simulated LM Studio, each with lines of its own to say."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from chatting import MODEL, READERS, eventually
from own_tools import Given
from scripted_pruner import is_prune_order, text_of, valid_plan
from serving import Served, serve, settings_for

from elbowroom.demo import Overflow, Script, SimulatedLMStudio, SimulatedModel
from elbowroom.demo.journal import RecordedRequest

Body = dict[str, Any]
Lines = Mapping[str, Any]
WINDOW: Final = 32_768


def agent(agent_id: str, *, model: str = MODEL, **fields: Any) -> str:
    """Return the settings of an agent, with instructions that tell it from others."""
    values = {"id": agent_id, "instructions": f"You are the {agent_id}.", "model": model, **fields}
    return "[[agents]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def speaker(body: Body) -> str:
    """Return the id of the agent whose instructions stand in a request."""
    return text_of(body["messages"][0]).split("\n")[0].removeprefix("You are the ").rstrip(".")


def chats_of(studio: SimulatedLMStudio, agent_id: str) -> list[RecordedRequest]:
    """Return the requests with the instructions of an agent that were no orders to prune."""
    return [chat for chat in studio.chats if speaker(chat.body) == agent_id and not is_prune_order(chat.body)]


def results_of(body: Body) -> list[str]:
    """Return the results of tool calls in a request, as the model gets them."""
    return [text_of(message) for message in body["messages"] if message["role"] == "tool"]


def notices_of(chunks: Sequence[Body]) -> list[tuple[str, str]]:
    """Return the kind and the text of each notice in a stream, without those about calls of tools."""
    told = [chunk for chunk in chunks if "event" in chunk and not chunk["elbowroom"]["kind"].startswith("tool ")]
    return [(chunk["elbowroom"]["kind"], chunk["event"]["data"]["description"]) for chunk in told]


def tools_of(body: Body) -> list[str]:
    """Return the names of the tools that a request offers, without those that read results again."""
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    return [name for name in names if name not in READERS]


@asynccontextmanager
async def team(
    folder: Path,
    agents: Sequence[str],
    lines: Lines,
    *,
    models: Sequence[SimulatedModel] = (),
    toolbox: Given | None = None,
    compaction: str = "",
    overflow: Overflow | None = None,
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both; each agent says its `lines`, scripts or texts, one after another, the last again and again.

    At the end no request may be open upstream, and no task may be left.
    """
    spoken: dict[str, int] = {}

    def says(body: Body) -> Script | str:
        if is_prune_order(body):
            return valid_plan(body)
        who = speaker(body)
        spoken[who] = spoken.get(who, -1) + 1
        said: Script | str = lines[who][min(spoken[who], len(lines[who]) - 1)] if who in lines else "Loaded."
        return said

    before = asyncio.all_tasks()
    loaded = [*models] or [SimulatedModel(MODEL, loaded_context_length=WINDOW)]
    async with SimulatedLMStudio(loaded, on_request=says, overflow=overflow or Overflow()) as studio:
        settings = settings_for(studio.base_url, agents="".join([f"[compaction]\n{compaction}\n", *agents]))
        async with serve(folder, settings, toolbox=toolbox) as served:
            yield served, studio
            await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")
    before |= {task for task in [asyncio.current_task()] if task}
    await eventually(lambda: not asyncio.all_tasks() - before, "tasks are left running")
