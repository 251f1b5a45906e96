"""What a person is told and keeps in the plugin: marks, notes as they are now, long conversations, several at once."""

import asyncio
import json
import re
from typing import Any

import plugin_fixtures
import pytest
from obsidian_window import PHONE, Window, obsidian
from playwright.async_api import Browser, Locator, expect
from plugin_fixtures import Scene
from plugin_scene import ask, asked_for, ended, paired
from serving import Served

from elbowroom.demo import Script, ToolCall, WaitFor

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long, pytest.mark.timeout(180)]
browser, scene, window = plugin_fixtures.browser, plugin_fixtures.scene, plugin_fixtures.window
chat = plugin_fixtures.chat
MESSAGES = 302
LONGEST_TASK_MS = 50.0
LONG_NOTE = "".join(f"Line {number} tells of bed {number * 7} and what grows there.\n" for number in range(3000))


async def test_what_the_model_did_not_get_of_a_note_stays_at_its_message(scene: Scene, browser: Browser) -> None:
    """A note of 150 kB is cut: a mark at the question says to how much, and what can be done, also after a restart."""
    async with obsidian(browser, scene[0].url, agent="archivist", notes={"Beds.md": LONG_NOTE}) as window:
        chat = await window.open_chat()
        await window.page.locator(".nav-file-title", has_text="Beds").drag_to(chat.get_by_label("Message"))
        await ask(chat, "Say hello.")
        mark = chat.locator(".mod-user .elbowroom-mark")
        await expect(mark).to_contain_text(
            re.compile(r"Beds.* too large to be shown whole: about [\d,]+ tokens became")
        )
        await expect(mark).to_contain_text("Select what matters and ask about that alone")
        items = "theVault.app.workspace.getLeavesOfType('elbowroom-chat')[0].view.chat.items"
        await window.page.wait_for_function(f"{items}[0].id !== ''")  # elbowroom has noted the answer
        await window.page.evaluate(
            "async () => { const [leaf] = theVault.app.workspace.getLeavesOfType('elbowroom-chat');"
            " const state = leaf.view.getState(); leaf.detach(); const next = theVault.app.workspace.getLeaf('split');"
            " await next.setViewState({ type: 'elbowroom-chat', active: true, state }); }"
        )
        await expect(window.page.locator(".elbowroom-mark")).to_contain_text("too large to be shown whole")


async def test_an_answer_that_is_ended_by_its_length_says_so_and_goes_on(scene: Scene, chat: Locator) -> None:
    """An answer that reached its limit has a mark; its button has the model go on."""
    scene[1].enqueue(Script("Sow early and", finish_reason="length"), when=asked_for("Tell me of sowing"))
    scene[1].enqueue("water well.", when=asked_for("Go on"))
    await ask(chat, "Tell me of sowing.")
    mark = chat.locator(".elbowroom-mark[data-kind=length]")
    await expect(mark).to_contain_text("its end is missing")
    await mark.get_by_role("button", name="Go on").click()
    await expect(chat.locator(".mod-assistant").last).to_contain_text("water well.")
    await ended(chat)


async def test_another_conversation_is_looked_at_while_an_answer_is_written(
    scene: Scene, window: Window, chat: Locator
) -> None:
    """The answer goes on unseen, a notice says when it is there, and it is found where it was asked for."""
    await ask(chat, "Say hello to the first.")
    held = asyncio.Event()
    scene[1].enqueue(Script("The peas ", WaitFor(held), "come in March."), when=asked_for("When do the peas"))
    await chat.get_by_role("button", name="New conversation").click()
    await chat.get_by_label("Message").fill("When do the peas come?")
    await chat.get_by_label("Message").press("Enter")
    await expect(chat.locator(".mod-assistant")).to_contain_text("The peas")
    before = len(scene[1].disconnects)
    await chat.get_by_role("button", name="Conversations").click()
    await window.page.locator(".elbowroom-open", has_text="the first").click()
    await expect(chat.locator(".mod-user")).to_contain_text("Say hello to the first.")
    await chat.get_by_role("button", name="Conversations").click()
    await window.page.locator(".elbowroom-open", has_text="peas").click()
    await expect(chat.locator(".mod-assistant")).to_contain_text("The peas")
    await expect(chat.get_by_role("button", name="Stop")).to_be_visible()
    await chat.get_by_role("button", name="New conversation").click()
    held.set()
    await expect(window.page.locator(".notice").last).to_contain_text("is there")
    assert len(scene[1].disconnects) == before
    await expect(chat.locator(".elbowroom-message")).to_have_count(0)


async def test_a_deleted_conversation_stays_deleted_and_the_chosen_agent_chosen(
    scene: Scene, window: Window, chat: Locator
) -> None:
    """Deleted in the list while its answer is written, it is gone for good; the chosen agent stays."""
    await chat.get_by_label("Agent or model").select_option("archivist")
    scene[1].enqueue(Script("The stoat ", WaitFor(asyncio.Event())), when=asked_for("Where is the stoat"))
    await chat.get_by_label("Message").fill("Where is the stoat?")
    await chat.get_by_label("Message").press("Enter")
    await expect(chat.locator(".mod-assistant")).to_contain_text("The stoat")
    await chat.get_by_role("button", name="Conversations").click()
    await window.page.get_by_role("button", name="Delete Where is the stoat?").click()
    sure = window.page.get_by_role("dialog", name="Delete this conversation?")
    await sure.get_by_role("button", name="Delete").click()
    await window.page.keyboard.press("Escape")
    await expect(chat.locator(".elbowroom-message")).to_have_count(0)
    await expect(chat.get_by_label("Agent or model")).to_have_value("archivist")
    await ask(chat, "Say hello.")
    assert scene[1].chats[-1].body["model"] == "qwen2.5-7b-instruct"
    async with scene[0].http.get(f"{scene[0].url}/v1/conversations?q=stoat") as response:
        assert (await response.json())["data"] == []


async def long_conversation(served: Served) -> None:
    """Have a conversation of 300 messages with an agent, whose window holds them all."""
    said = ("- **one** `two`", "| a | b |\n|---|---|\n| 1 | 2 |")
    history = [{"role": ("user", "assistant")[n % 2], "content": f"{n} {said[n % 2]}"} for n in range(MESSAGES - 2)]
    body = {"model": "archivist", "messages": [*history[:-1]]}
    async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": "long"}) as response:
        assert response.status == 200, await response.text()


def longest_task(trace: bytes) -> float:
    """Return how many milliseconds of its processor the page's longest task has taken; what the test asks is none."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    mains = {(each["pid"], each["tid"]) for each in events if each.get("args", {}).get("name") == "CrRendererMain"}
    on_main = [each for each in events if (each["pid"], each["tid"]) in mains]
    asked = [each["ts"] for each in on_main if "DevToolsSession" in str(each.get("args"))]
    tasks = [each for each in on_main if each["name"].endswith("RunTask") and "tdur" in each]
    own = [each for each in tasks if not any(each["ts"] <= at <= each["ts"] + each["dur"] for at in asked)]
    longest: float = max(each["tdur"] / 1000 for each in own)
    return longest


async def test_an_answer_redraws_itself_alone(scene: Scene, browser: Browser) -> None:
    """Behind 302 messages, no task takes 50 ms while an answer streams, nor while they are opened."""
    served, studio = scene
    await long_conversation(served)
    paragraph = "The *garden* is 12 by 8 metres, `peas` come in March, and [[Ferry]] tells more.\n\n"
    held = asyncio.Event()
    studio.enqueue(Script("Now ", WaitFor(held), *[paragraph] * 60), when=asked_for("Tell me more"))
    async with obsidian(browser, served.url, agent="archivist") as window:
        chat = await window.open_chat()
        await chat.get_by_role("button", name="Conversations").click()
        await expect(window.page.locator(".elbowroom-open", has_text="0 - **one**")).to_be_visible()
        await browser.start_tracing(page=window.page, categories=["toplevel", "__metadata"])
        await window.page.locator(".elbowroom-open", has_text="0 - **one**").click()
        await expect(chat.locator(".elbowroom-message")).to_have_count(MESSAGES - 2)
        await expect(chat.locator(".elbowroom-message").first.locator("strong")).to_have_count(1)
        await chat.get_by_label("Message").fill("Tell me more.")
        await chat.get_by_label("Message").press("Enter")
        await expect(chat.locator(".elbowroom-message").last).to_contain_text("Now")
        await window.page.evaluate(
            "() => { window.touched = new Set(); const log = document.querySelector('.elbowroom-log');"
            " new MutationObserver((changes) => { for (const { target } of changes)"
            " touched.add([...log.children].findIndex((each) => each.contains(target))); })"
            ".observe(log, { childList: true, subtree: true, characterData: true }); }"
        )
        held.set()
        await expect(chat.locator(".elbowroom-message").last).to_contain_text("tells more.")
        await ended(chat)
        trace = await browser.stop_tracing()
        last = await chat.locator(".elbowroom-log > *").count() - 1
        assert (
            await window.page.evaluate("last => [...touched].filter((each) => ![-1, last].includes(each))", last) == []
        )
        assert await window.page.evaluate("touched.size")
    assert 1 < longest_task(trace) < LONGEST_TASK_MS


async def test_tables_break_no_word_on_a_phone(scene: Scene, browser: Browser) -> None:
    """A wide table is scrolled by itself: its words stay whole, and the page is no wider than the phone."""
    head = "| Wateringschedule | Fertilizerapplication | Harvestinstructions |\n|---|---|---|\n"
    scene[1].enqueue(f"{head}| Continuously | Occasionally | Immediately |", when=asked_for("Show a table"))
    async with obsidian(browser, scene[0].url, agent="writer", size=PHONE) as window:
        chat = await window.open_chat()
        await chat.get_by_label("Message").fill("Show a table.")
        await chat.get_by_role("button", name="Send").click()
        await ended(chat)
        heights = await chat.locator("th").evaluate_all("cells => cells.map((cell) => cell.getClientRects()[0].height)")
        assert max(heights) < 40
        assert await window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_note_is_sent_as_it_is_then(scene: Scene, browser: Browser) -> None:
    """With the note at work as context, each question has what the note holds when it is sent."""
    async with obsidian(browser, scene[0].url, agent="archivist", noteContext="note") as window:
        await window.open_note("Garden.md")
        chat = await window.open_chat()
        await chat.get_by_label("Message").focus()
        await expect(chat.locator(".elbowroom-chip")).to_contain_text("tokens")
        for words in ("Leeks are new.", "Beans are newer."):
            await window.page.evaluate("words => editors[0].setValue(words)", words)
            await ask(chat, "Say hello.")
            assert words in str(scene[1].chats[-1].body["messages"][-1])


async def test_what_was_said_while_elbowroom_was_away_is_asked_once_it_is_back(
    scene: Scene, window: Window, chat: Locator
) -> None:
    """Nobody has to press anything: the question waits at its place, and is asked by itself."""
    await ask(chat, "Say hello.")
    address = scene[0].url
    await window.page.evaluate("() => { theVault.plugin.preferences.address = 'http://127.0.0.1:9'; }")
    await chat.get_by_label("Message").fill("Count to three.")
    await chat.get_by_label("Message").press("Enter")
    await expect(chat.locator(".mod-user").last).to_contain_text("is asked as soon as that is back")
    await expect(chat.get_by_role("alert")).to_contain_text("Your question is asked as soon as elbowroom is back")
    await window.page.evaluate("address => { theVault.plugin.preferences.address = address; }", address)
    await expect(chat.locator(".mod-assistant")).to_have_count(2)
    await ended(chat)
    window.asked[:] = [url for url in window.asked if not url.startswith("http://127.0.0.1:9/")]


async def test_an_answer_from_the_vault_links_the_notes_that_it_comes_from(scene: Scene, browser: Browser) -> None:
    """`/vault` chooses an agent that looks into the notes; below its answer stand those that it has found and read."""
    call = ToolCall("vault_search", {"query": "ferry"})
    scene[1].enqueue(Script(call), "At 21:40.", when=lambda body: "last ferry leave" in str(body["messages"][-3:]))
    async with obsidian(browser, scene[0].url, token=await paired(scene[0]), agent="writer") as window:
        chat = await window.open_chat()
        await ask(chat, "/vault When does the last ferry leave?")
        await expect(chat.get_by_label("Agent or model")).to_have_value("librarian")
        await chat.locator(".elbowroom-sources").get_by_role("link", name="Ferry").click()
        await expect(window.page.locator(".mod-root .view-header-title")).to_have_text("Ferry")
