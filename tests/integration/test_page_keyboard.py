"""The page by keyboard alone: eleven things that a stranger does there, without a pointer."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import chromium
import pytest
from chromium import opened
from page_scene import GARDEN, QWEN, TALKS, answer, lived_in
from playwright.async_api import Browser, expect
from scripted_pruner import text_of
from typist import NO_POINTER, Typist

from elbowroom.demo import Script, WaitFor
from elbowroom.server.state import SHARED

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
CHANGED: Final = "[compaction]\nthreshold_ratio = 0.75\n"
RUNNING: Final = "Tell me all about tides."


async def stop_an_answer(one: Typist) -> None:
    """What runs stands on the first view, with its button."""
    await one.enter(f"Stop {RUNNING}")
    await expect(one.page.locator("#toast")).to_contain_text("Stopped")


async def make_an_agent(one: Typist) -> None:
    """The whole form is walked through, which changes nothing; the model that was chosen stays."""
    await one.enter("Agents")
    await one.enter("New agent")
    await one.reach("Name")
    await one.page.keyboard.type("Gaertner")
    await one.enter("Create agent")
    await expect(one.page.get_by_role("link", name="Gaertner", exact=True)).to_be_visible()
    assert f'id = "gaertner"\nname = "Gaertner"\nmodel = "{QWEN}"' in one.settings()


async def change_an_agent(one: Typist) -> None:
    """Its other fields stay as they were."""
    await one.enter("Agents")
    await one.enter("Writer")
    before = one.settings()
    await one.reach("Instructions")
    await one.page.keyboard.press("Control+End")
    await one.page.keyboard.type(" Be kind.")
    await one.enter("Save")
    await one.saved()
    assert one.settings() == before.replace("the language of the question.", "the language of the question. Be kind.")


async def choose_the_pruner(one: Typist) -> None:
    """A list is chosen from by its first letters."""
    await one.enter("Agents")
    await one.reach("Pruning agent")
    await one.page.keyboard.type("Archi")
    await one.enter("Save")
    await one.saved()
    assert 'pruning_agent = "archivist"' in one.settings()


async def read_an_original(one: Typist) -> None:
    """What a summary stands for is unfolded."""
    await one.enter(GARDEN)
    await one.enter("The originals, word for word")
    await expect(one.page.get_by_role("group", name="The originals").first).to_contain_text(GARDEN)


async def undo_a_setting(one: Typist) -> None:
    """A changed value leads back to the usual one."""
    await one.enter("Settings")
    await one.enter("Back to 80 %: Compact from")
    await one.enter("Save")
    await one.saved()
    assert "threshold_ratio" not in one.settings()


async def connect_a_program(one: Typist) -> None:
    """The address to paste is copied."""
    await one.enter("Connect")
    await one.enter("Copy base address")
    await expect(one.page.locator("#toast")).to_contain_text("base address")


async def delete_a_memory(one: Typist) -> None:
    """The question before it is answered with the keyboard too."""
    await one.enter("Agents")
    await one.enter("Gardener")
    await one.enter("Forget: The garden is 12 by 8 metres.")
    await one.enter("Delete")
    await expect(one.page.get_by_text("Nothing is remembered.")).to_be_visible()


async def export_a_chat(one: Typist) -> None:
    """It arrives as a file."""
    await one.enter(GARDEN)
    async with one.page.expect_download() as saving:
        await one.enter("Export Markdown")
    assert GARDEN in (await (await saving.value).path()).read_text(encoding="utf-8")


async def find_a_word(one: Typist) -> None:
    """The search leads to the hit."""
    await one.reach("Find what was said")
    await one.page.keyboard.type("bed 17")
    await one.page.keyboard.press("Enter")
    await expect(one.page.locator(".excerpt mark")).to_have_text(["bed 17"])
    await one.enter(GARDEN)
    await expect(one.page.locator("mark.now")).to_be_in_viewport()


async def give_a_model_its_own(one: Typist) -> None:
    """Where the model stands, with its name filled in; what it has then stands beside it."""
    await one.enter("Models")
    await one.enter(f"Own settings of {QWEN}")
    await one.reach("Compact from")
    await one.page.keyboard.type("0.5")
    await one.reach("Window that programs are told (tokens)")
    await one.page.keyboard.type("64000")
    await one.enter("Add")
    await one.saved()
    models = one.page.get_by_role("list", name="Models of lmstudio")
    await expect(models.get_by_role("listitem").filter(has_text=QWEN)).to_contain_text("compacted from 50 %")
    await expect(models).to_contain_text("advertised as 64,000")
    assert f'[[models]]\nid = "lmstudio/{QWEN}"\nthreshold_ratio = 0.5\nadvertised_window = 64000' in one.settings()
    await one.enter(f"Own settings of {QWEN}")
    await one.enter("Delete")
    await one.enter("Delete")
    await expect(models).not_to_contain_text("advertised")
    assert "[[models]]" not in one.settings()


TASKS: Final[tuple[Callable[[Typist], Awaitable[None]], ...]] = (
    stop_an_answer,
    make_an_agent,
    change_an_agent,
    choose_the_pruner,
    read_an_original,
    undo_a_setting,
    connect_a_program,
    delete_a_memory,
    export_a_chat,
    find_a_word,
    give_a_model_its_own,
)


async def test_a_stranger_does_eleven_things_by_keyboard(tmp_path: Path, browser: Browser) -> None:
    """Each is done with Tab, Enter and letters, and no field changes because the focus passed it."""
    never = asyncio.Event()
    talks = [talk for talk in TALKS if GARDEN in talk.questions]
    async with lived_in(tmp_path, talks=talks, more=CHANGED) as (served, studio):
        await served.app[SHARED].store.memories.save("", "gardener", "The garden is 12 by 8 metres.", 1e9)
        studio.enqueue(Script(answer(20), WaitFor(never)), when=lambda body: text_of(body["messages"][-1]) == RUNNING)
        running = asyncio.create_task(served.chat_frames("writer", RUNNING))
        async with opened(browser, served.url) as page:
            await page.evaluate(NO_POINTER)
            one = Typist(page, served)
            for task in TASKS:
                await page.evaluate("location.hash = '#/home'")
                await expect(page.get_by_role("heading", name="Home")).to_be_visible()
                await page.evaluate("document.activeElement.blur()")
                await task(one)
            assert not await page.evaluate("window.pointed")
        await running
