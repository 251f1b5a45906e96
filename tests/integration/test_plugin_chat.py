"""A chat in the plugin for Obsidian: a real Chromium, a real elbowroom, a simulated LM Studio."""

import asyncio
import re
from itertools import pairwise

import plugin_fixtures
import pytest
from obsidian_window import NOTES, Window
from playwright.async_api import Locator, expect
from plugin_fixtures import Scene
from plugin_scene import WINDOW, ask, asked_for, ended

from elbowroom.demo import Script, WaitFor

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long, pytest.mark.timeout(120)]
browser, scene, window = plugin_fixtures.browser, plugin_fixtures.scene, plugin_fixtures.window
chat = plugin_fixtures.chat
MORE_THAN_300 = re.compile("[3-9][0-9][0-9]")


async def fill_of(chat: Locator) -> int:
    """Return the tokens that the gauge shows."""
    return int(await chat.get_by_role("meter").get_attribute("aria-valuenow") or 0)


async def test_gauge_rises_and_falls_over_two_compactions(window: Window, chat: Locator) -> None:
    """A chat goes on over two compactions: each is told while it runs, stays as a line with summary and originals."""
    lines = chat.locator(".elbowroom-compaction")
    seen = [0]
    for number in range(20):
        await ask(chat, f"What grows in bed {number}?")
        await expect(chat.get_by_role("meter")).not_to_have_attribute("aria-valuenow", str(seen[-1]))
        seen.append(await fill_of(chat))
        if await lines.count() == 2:
            break
    rises = [later > before for before, later in pairwise(seen)]
    assert rises.count(False) == 2, seen
    assert max(seen) <= WINDOW
    told = await window.told()
    assert sum("Compacting conversation history" in words for words in told) >= 2
    first = lines.first
    await first.get_by_text("Compacted:").click()
    await expect(first).to_contain_text("earlier messages were exchanged")
    await first.get_by_role("button", name="Show the originals").click()
    originals = window.page.get_by_role("dialog", name="What the summary stands for")
    await expect(originals).to_contain_text("What grows in bed 0?")
    await window.page.keyboard.press("Escape")
    await expect(originals).to_have_count(0)
    await expect(chat.locator(".elbowroom-message")).to_have_count(2 * (len(seen) - 1))


async def test_said_meanwhile_is_taken_in(scene: Scene, chat: Locator) -> None:
    """What is said while an answer is written waits visibly, and is answered in the same answer."""
    held = asyncio.Event()
    scene[1].enqueue(Script("The peas ", WaitFor(held), "come in March."), when=asked_for("When do the peas"))
    await chat.get_by_label("Message").fill("When do the peas come?")
    await chat.get_by_label("Message").press("Enter")
    await expect(chat.locator(".mod-assistant")).to_contain_text("The peas")
    await chat.get_by_label("Message").fill("Count to three as well.")
    await chat.get_by_role("button", name="Say it meanwhile").click()
    await expect(chat.locator(".elbowroom-waiting")).to_contain_text("Count to three as well.")
    held.set()
    await expect(chat.locator(".mod-assistant")).to_contain_text("One, two, three.")
    await ended(chat)
    await expect(chat.locator(".elbowroom-waiting")).to_have_count(0)
    await expect(chat.locator(".elbowroom-between")).to_contain_text("Count to three as well.")


async def test_stop_ends_the_model_and_keeps_the_text(scene: Scene, chat: Locator) -> None:
    """Stop closes the connection to the engine; what was said stays, and the next question follows on it."""
    studio = scene[1]
    before = len(studio.disconnects)
    studio.enqueue(Script("Sow early, ", WaitFor(asyncio.Event())), when=asked_for("Tell me all"))
    await chat.get_by_label("Message").fill("Tell me all about sowing.")
    await chat.get_by_label("Message").press("Enter")
    await expect(chat.locator(".mod-assistant")).to_contain_text("Sow early,")
    await chat.get_by_role("button", name="Stop").click()
    await studio.wait_until(lambda: len(studio.disconnects) == before + 1)
    await ended(chat)
    await expect(chat.locator(".mod-assistant")).to_contain_text("Sow early,")
    await ask(chat, "Say hello.")
    assert "Sow early," in str(studio.chats[-1].body["messages"])


async def test_compact_and_new_are_commands(scene: Scene, chat: Locator) -> None:
    """`/compact` with a focus compacts the conversation, and `/new` begins one that knows nothing of it."""
    for number in range(3):
        await ask(chat, f"What grows in bed {number}?")
    await expect(chat.get_by_role("meter")).to_have_attribute("aria-valuenow", MORE_THAN_300)
    before = await fill_of(chat)
    await chat.get_by_label("Message").fill("/compact keep the measures")
    await chat.get_by_label("Message").press("Enter")
    await expect(chat.locator(".elbowroom-compaction")).to_have_count(1)
    assert await fill_of(chat) < before
    assert any("keep the measures" in str(request.body) for request in scene[1].chats)
    await chat.get_by_label("Message").fill("/new")
    await chat.get_by_label("Message").press("Enter")
    await expect(chat.locator(".elbowroom-message")).to_have_count(0)
    await ask(chat, "Say hello.")
    assert len(scene[1].chats[-1].body["messages"]) == 1


async def test_messages_are_retried_edited_copied_inserted_and_saved(
    scene: Scene, window: Window, chat: Locator
) -> None:
    """Each message offers what can be done with it; an answer goes into a note at the cursor, or becomes one."""
    await window.open_note("Garden.md")
    await ask(chat, "Say hello.")
    answer = chat.locator(".mod-assistant").last
    scene[1].enqueue("Good evening!", when=asked_for("Say hello"))
    await answer.get_by_role("button", name="Try again").click()
    await expect(answer).to_contain_text("Good evening!")
    await chat.locator(".mod-user").get_by_role("button", name="Edit and ask again").click()
    await expect(chat.get_by_label("Message")).to_have_value("Say hello.")
    await chat.get_by_label("Message").fill("Count to three.")
    await chat.get_by_label("Message").press("Enter")
    await expect(answer).to_contain_text("One, two, three.")
    await ended(chat)
    await expect(chat.locator(".elbowroom-message")).to_have_count(2)
    await answer.get_by_role("button", name="Copy").click()
    assert await window.page.evaluate("navigator.clipboard.readText()") == "Hello! One, two, three."
    await answer.get_by_role("button", name="Insert at the cursor").click()
    await expect(window.page.get_by_role("textbox", name="Note")).to_contain_text("Hello! One, two, three.# Garden")
    await answer.get_by_role("button", name="Save as a note").click()
    await expect(window.page.locator(".mod-root .view-header-title").last).to_have_text("Hello! One, two, three.")
    assert await window.note("Hello! One, two, three..md") == "Hello! One, two, three."


async def test_note_goes_along_with_the_tokens_that_it_takes(scene: Scene, window: Window, chat: Locator) -> None:
    """A note that is dragged in shows its tokens as elbowroom counts them, before it is sent, and goes along whole."""
    await window.page.locator(".nav-file-title", has_text="Ferry").drag_to(chat.get_by_label("Message"))
    chip = chat.locator(".elbowroom-chip")
    await expect(chip).to_contain_text("tokens")
    shown = int((await chip.inner_text()).split("\n")[-1].split()[0])
    await ask(chat, "Say hello.")
    sent = scene[1].chats[-1].body["messages"][-1]["content"]
    assert NOTES["Ferry.md"].strip() in sent
    served = scene[0]
    counts = []
    for content in (sent, "Say hello."):
        body = {"model": "writer", "messages": [{"role": "user", "content": content}]}
        async with served.http.post(f"{served.chat_url}/input_tokens", json=body) as response:
            counts.append((await response.json())["input_tokens"])
    assert abs(shown - (counts[0] - counts[1])) <= 2
