"""What a stranger wants to do on the page, each within a few presses of the mouse from its first view."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import chromium
import pytest
from chromium import opened
from page_scene import GARDEN, TALKS, answer, lived_in
from playwright.async_api import Browser, Locator, Page, expect
from scripted_pruner import text_of
from serving import Served

from elbowroom.demo import Script, WaitFor
from elbowroom.server.state import SHARED

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
MOST_PRESSES: Final = 4
COUNT: Final = "window.presses = 0; addEventListener('pointerdown', () => { window.presses += 1; }, true)"
CHANGED: Final = "[compaction]\nthreshold_ratio = 0.75\n"
RUNNING: Final = "Tell me all about tides."


@dataclass(frozen=True, slots=True)
class Stranger:
    """Somebody at the page of a server, who uses the mouse, and types where the cursor is."""

    page: Page
    served: Served

    def named(self, role: str, name: str) -> Locator:
        """Return what has this role and exactly this name in the view or in the navigation."""
        return self.page.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]

    async def press(self, role: str, name: str) -> None:
        """Press what has this role and name."""
        await self.named(role, name).first.click()


async def make_an_agent(one: Stranger) -> None:
    """Its name is typed; a model that is loaded is chosen already."""
    await one.press("link", "Agents")
    await one.press("link", "New agent")
    await one.page.get_by_label("Name", exact=True).click()
    await one.page.keyboard.type("Gärtner")
    await one.press("button", "Create agent")
    await expect(one.named("link", "Gärtner")).to_be_visible()
    assert 'id = "gaertner"' in one.served.settings.read_text(encoding="utf-8")


async def choose_the_pruner(one: Stranger) -> None:
    """The agent is chosen from a list, whose opening and choosing are two presses."""
    await one.press("link", "Agents")
    choice = one.page.get_by_label("Pruning agent")
    await choice.click()
    await choice.select_option("archivist")
    await one.page.evaluate("window.presses += 1")
    await one.press("button", "Save")
    await expect(one.page.locator("form.dirty")).to_have_count(0)
    assert 'pruning_agent = "archivist"' in one.served.settings.read_text(encoding="utf-8")


async def find_out_why_a_chat_was_compacted(one: Stranger) -> None:
    """The reason stands where it happened, in the messages of the chat."""
    await one.press("link", GARDEN)
    await one.page.get_by_text("Why, and how").first.click()
    await expect(one.page.get_by_text(re.compile("The chat had grown to .* of its window")).first).to_be_visible()


async def read_an_original(one: Stranger) -> None:
    """Beside the summary is what it stands for."""
    await one.press("link", GARDEN)
    await one.page.get_by_text("The originals, word for word").first.click()
    await expect(one.page.get_by_role("group", name="The originals").first).to_contain_text(GARDEN)


async def undo_a_setting(one: Stranger) -> None:
    """A changed value is marked, and leads back to the usual one."""
    await one.press("link", "Settings")
    await one.press("button", "Back to 80 %: Compact from")
    await one.press("button", "Save")
    await expect(one.page.locator("form.dirty")).to_have_count(0)
    assert "threshold_ratio" not in one.served.settings.read_text(encoding="utf-8")


async def connect_a_program(one: Stranger) -> None:
    """The address to paste is copied."""
    await one.press("link", "Connect")
    await one.press("button", "Copy base address")
    await expect(one.page.locator("#toast")).to_contain_text("base address")


async def stop_an_answer(one: Stranger) -> None:
    """What runs stands on the first view, with its button."""
    await one.press("button", f"Stop {RUNNING}")
    await expect(one.page.locator("#toast")).to_contain_text("Stopped")
    await expect(one.page.get_by_role("list", name="Running now")).to_be_hidden()


async def delete_a_memory(one: Stranger) -> None:
    """It is deleted after a question."""
    await one.press("link", "Agents")
    await one.press("link", "Gardener")
    await one.press("button", "Forget: The garden is 12 by 8 metres.")
    await one.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(one.page.get_by_text("Nothing is remembered.")).to_be_visible()


async def export_a_chat(one: Stranger) -> None:
    """It arrives as a file."""
    await one.press("link", GARDEN)
    async with one.page.expect_download() as saving:
        await one.press("button", "Export Markdown")
    assert GARDEN in (await (await saving.value).path()).read_text(encoding="utf-8")


async def find_a_word_said_last_week(one: Stranger) -> None:
    """The list shows the words around it, and the chat opens at the hit, which is marked."""
    await one.page.get_by_role("searchbox").click()
    await one.page.keyboard.type("bed 17")
    await one.page.keyboard.press("Enter")
    await expect(one.page.locator(".excerpt mark")).to_have_text(["bed 17"])
    await one.press("link", GARDEN)
    await expect(one.page.locator("mark.now")).to_have_text("bed 17")
    await expect(one.page.locator("mark.now")).to_be_in_viewport()


TASKS: Final[tuple[Callable[[Stranger], Awaitable[None]], ...]] = (
    stop_an_answer,
    make_an_agent,
    choose_the_pruner,
    find_out_why_a_chat_was_compacted,
    read_an_original,
    undo_a_setting,
    connect_a_program,
    delete_a_memory,
    export_a_chat,
    find_a_word_said_last_week,
)


async def test_a_stranger_does_ten_things_with_few_presses(tmp_path: Path, browser: Browser) -> None:
    """From the first view no task takes more than four presses; what is typed, and Enter, do not count."""
    never = asyncio.Event()
    talks = [talk for talk in TALKS if GARDEN in talk.questions]
    async with lived_in(tmp_path, talks=talks, more=CHANGED) as (served, studio):
        await served.app[SHARED].store.memories.save("", "gardener", "The garden is 12 by 8 metres.", 1e9)
        studio.enqueue(Script(answer(20), WaitFor(never)), when=lambda body: text_of(body["messages"][-1]) == RUNNING)
        running = asyncio.create_task(served.chat_frames("writer", RUNNING))
        async with opened(browser, f"{served.url}/#/connect") as page:
            await page.evaluate(COUNT)
            for task in TASKS:
                await page.get_by_role("link", name="elbowroom").click()
                await expect(page.get_by_role("heading", name="Home")).to_be_visible()
                await page.evaluate("window.presses = 0")
                await task(Stranger(page, served))
                assert 0 < await page.evaluate("window.presses") <= MOST_PRESSES, task.__name__
        await running
