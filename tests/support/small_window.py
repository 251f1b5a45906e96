"""elbowroom in front of a simulated LM Studio whose window a few messages fill, and the messages that do."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from chatting import AGENT, MODEL, eventually
from own_tools import Given
from scripted_pruner import is_prune_order, valid_plan
from serving import Served, serve, settings_for

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, Text
from elbowroom.demo.journal import RecordedRequest
from elbowroom.server.state import SHARED, Timing

Body = dict[str, Any]
Message = dict[str, Any]
Model = Callable[[Body], Script | str]
WINDOW: Final = 1000
SYSTEM: Final = "You keep the log of the ferry and answer in full sentences."
QUESTION: Final = "Which pier does the last ferry leave from?"
ANSWER: Final = "The last ferry leaves from the ninth pier."


def answers(body: Body) -> Script | str:
    """Say the one answer to whatever is asked."""
    return ANSWER


@asynccontextmanager
async def small_window(
    folder: Path,
    model: Model = answers,
    *,
    window: int = WINDOW,
    slots: int = 4,
    compaction: str = "",
    server: str = "",
    agents: str = AGENT,
    provider: str = "",
    prune: Model = valid_plan,
    timing: Timing | None = None,
    toolbox: Given | None = None,
    others: Sequence[SimulatedModel] = (),
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both; `compaction`, `server` and `provider` are further lines of these tables of the settings.

    Beside the model there may be `others`.

    The model answers the orders of compactions as `prune` says, and all else as `model` does.
    """

    def says(body: Body) -> Script | str:
        if not is_prune_order(body):
            return model(body)
        plan = prune(body)
        return in_pieces(plan) if isinstance(plan, str) else plan

    loaded = SimulatedModel(MODEL, loaded_context_length=window, parallel=slots)
    async with SimulatedLMStudio([loaded, *others], on_request=says) as studio:
        tables = f"[compaction]\n{compaction}\n{agents}"
        settings = settings_for(studio.base_url, agents=tables, server=server, provider=provider)
        async with serve(folder, settings, timing=timing, toolbox=toolbox) as served:
            await served.app[SHARED].store.ready(60)  # a busy machine opens it slowly, of which people are told
            yield served, studio
            await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")


def in_pieces(text: str) -> Script:
    """Return a text that an engine sends forty words at a time: single tokens, of thousands, take a test seconds."""
    return Script(*(Text(piece, whole=True) for piece in re.findall(r"(?:\S+\s*|\s+){1,40}", text)))


def history(exchanges: int) -> list[Message]:
    """Return system message, so many exchanges of about 120 tokens, and the question at the end."""
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    for number in range(exchanges):
        asked = f"What was noted on crossing {number}? The captain of boat {number * 7919} wants to know it today."
        noted = f"On crossing {number} the sea was calm, the boat was half full and the engine ran well. "
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": noted * 2 + "The harbour was reached in time."})
    return [*messages, {"role": "user", "content": QUESTION}]


def turns_of(studio: SimulatedLMStudio) -> list[RecordedRequest]:
    """Return the requests that were turns of a conversation, not orders to prune."""
    return [chat for chat in studio.chats if not is_prune_order(chat.body)]


def orders_of(studio: SimulatedLMStudio) -> list[RecordedRequest]:
    """Return the requests that ordered a model to prune."""
    return [chat for chat in studio.chats if is_prune_order(chat.body)]


async def ask_whole(served: Served, body: Body) -> tuple[int, Body]:
    """Ask without streaming; return status and parsed body."""
    async with served.http.post(served.chat_url, json=body) as response:
        return response.status, await response.json()
