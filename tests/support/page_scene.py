"""An elbowroom as somebody has it after a few days: agents, models in several states, conversations."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from scripted_pruner import is_prune_order, listed_groups, text_of
from serving import Served, serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

Body = dict[str, Any]
QWEN, LLAMA, NEMO = "qwen2.5-7b-instruct", "llama-3.2-3b-instruct", "mistral-nemo-instruct-2407"
MODELS: Final = (
    SimulatedModel(QWEN, loaded_context_length=8192),
    SimulatedModel(LLAMA, loaded_context_length=4096, max_context_length=131_072, architecture="llama"),
    SimulatedModel(NEMO, max_context_length=131_072, architecture="mistral"),
)
AGENTS: Final = f"""
[[agents]]
id = "writer"
name = "Writer"
instructions = "You help with notes and drafts. Answer briefly, and in the language of the question."
model = "{QWEN}"

[[agents]]
id = "gardener"
name = "Gardener"
instructions = "You know soil, seeds and seasons. Ask for the climate before you advise."
model = "{QWEN}"
agent_tools = ["archivist"]

[[agents]]
id = "archivist"
name = "Archivist"
instructions = "You write summaries that keep every name, number and promise."
model = "{LLAMA}"

[[agents]]
id = "critic"
name = "Critic"
enabled = false
model = "{NEMO}"
"""
SENTENCES: Final = (
    "The beds nearest to the wall stay two degrees warmer, so the peppers belong there.",
    "Sow the peas in the second week of March, as soon as the soil can be crumbled in the hand.",
    "Beans and onions do not like each other; carrots and onions do.",
    "A metre between the rows looks wasteful in April and is needed in July.",
    "Note what was sown where: next year nothing should follow its own family.",
    "The compost from the left heap is ready; the right one wants another winter.",
    "Water in the morning, at the root, and rather seldom and much than often and little.",
)
SUMMARY: Final = (
    "The garden is 12 by 8 metres, with a wall on its north side, in a climate where frost ends about 2027-05-10. "
    "Agreed so far: peppers along the wall, peas from the second week of March, beans away from the onions, a metre "
    "between rows. The left compost heap is ready. Still open: where the rhubarb goes."
)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation: which agent it is with, its name, its questions, and how many sentences each answer has."""

    agent: str
    name: str
    questions: Sequence[str]
    sentences: int


GARDEN: Final = "Plan a vegetable garden of 12 by 8 metres with me, bed by bed."
TALKS: Final = (
    Talk("writer", "letter", ["Draft a letter to the landlord about the broken heating.", "Make it friendlier."], 6),
    Talk("gardener", "pruning", [f"How do I prune an old apple tree, step {step}?" for step in range(1, 14)], 26),
    Talk("gardener", "garden", [GARDEN, *(f"And what goes into bed {bed}?" for bed in range(1, 22))], 26),
    Talk("writer", "minutes", [f"Turn part {part} of these notes into minutes." for part in range(1, 10)], 23),
)
LONG_TALK: Final = Talk("gardener", "garden", [f"What grows in bed {bed}?" for bed in range(12)], 26)
"""One that is compacted on its way."""


def says(body: Body) -> str:
    """Answer a question with as many sentences as its talk has, an order to prune with a plan."""
    if is_prune_order(body):
        keep = list(listed_groups(body))[-1:]
        return json.dumps({"retain": "Measures are metric.", "summary": SUMMARY, "keep": keep})
    asked = text_of(body["messages"][-1])
    if asked.startswith("Say hello"):
        return "Hello, how nice to see you!"
    return answer(next((talk.sentences for talk in TALKS if asked in talk.questions), 26))


def answer(sentences: int) -> str:
    """Return a text of so many sentences."""
    return " ".join(islice(cycle(SENTENCES), sentences))


@asynccontextmanager
async def lived_in(
    folder: Path, *, talks: Sequence[Talk] = TALKS, more: str = ""
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both, with these conversations behind them; `more` is added to the settings."""
    async with SimulatedLMStudio(MODELS, on_request=says) as studio:
        async with serve(folder, settings_for(studio.base_url, agents=f"{AGENTS}\n{more}")) as served:
            for talk in talks:
                await hold(served, talk)
            yield served, studio


async def hold(served: Served, talk: Talk) -> None:
    """Hold a conversation as a chat program does, which sends all of it each time."""
    messages: list[Body] = []
    for question in talk.questions:
        messages.append({"role": "user", "content": question})
        body = {"model": talk.agent, "messages": messages}
        async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": talk.name}) as response:
            replied = await response.json()
            assert response.status == 200, replied
        messages.append({"role": "assistant", "content": replied["choices"][0]["message"]["content"]})
