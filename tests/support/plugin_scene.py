"""An elbowroom for the plugin's tests: agents with small and large windows, one of whom may change notes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from chatting import eventually
from obsidian_window import NOTES
from page_scene import SENTENCES
from playwright.async_api import Locator, expect
from scripted_pruner import is_prune_order, text_of, valid_plan
from serving import Served, serve, settings_for
from vaults import write_notes

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel

Body = dict[str, Any]
SMALL, LARGE = "qwen2.5-1.5b-instruct", "qwen2.5-7b-instruct"
WINDOW: Final = 1000
MODELS: Final = (SimulatedModel(SMALL, loaded_context_length=WINDOW), SimulatedModel(LARGE, loaded_context_length=8192))
AGENTS: Final = f"""
[compaction]
background = false

[[agents]]
id = "writer"
name = "Writer"
model = "{SMALL}"

[[agents]]
id = "librarian"
name = "Librarian"
model = "{LARGE}"
tools = ["vault"]

[[agents]]
id = "archivist"
name = "Archivist"
model = "{LARGE}"

[vault]
path = "VAULT"
write = true
"""


def says(body: Body) -> Script | str:
    """Answer an order to prune with a plan, all else with a few sentences, fewer where that is asked for."""
    if is_prune_order(body):
        return valid_plan(body)
    asked = text_of(body["messages"][-1])
    if asked.startswith(("Say hello", "Count to")):
        return "Hello! One, two, three."
    return " ".join(islice(cycle(SENTENCES), 6))


@asynccontextmanager
async def for_plugins(folder: Path) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both; the vault is in the folder `vault`."""
    vault = write_notes(folder / "vault", NOTES)
    async with SimulatedLMStudio(MODELS, on_request=says) as studio:
        async with serve(folder, settings_for(studio.base_url, agents=AGENTS.replace("VAULT", str(vault)))) as served:
            yield served, studio
            await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")


async def paired(served: Served) -> str:
    """Pair a device and return its token."""
    async with served.http.post(f"{served.url}/api/pairing", json={}) as response:
        code = (await response.json())["code"]
    claim = {"code": code, "name": "A vault"}
    async with served.http.post(f"{served.url}/api/pairing/claim", json=claim) as response:
        token: str = (await response.json())["token"]
        return token


async def ask(chat: Locator, question: str) -> None:
    """Ask, and wait for the end of the answer."""
    answers = chat.locator(".elbowroom-message.mod-assistant")
    before = await answers.count()
    await chat.get_by_label("Message").fill(question)
    await chat.get_by_role("button", name="Send", exact=True).click()  # on a phone, Enter makes a line
    await expect(answers).to_have_count(before + 1)
    await ended(chat)


async def ended(chat: Locator) -> None:
    """Wait until nothing is being written."""
    await expect(chat.get_by_role("button", name="Stop")).to_be_hidden()
    await expect(chat.locator(".elbowroom-message[aria-busy=true]")).to_have_count(0)


def asked_for(words: str) -> Callable[[Body], bool]:
    """Tell requests whose last message begins with these words."""
    return lambda body: text_of(body["messages"][-1]).startswith(words)
