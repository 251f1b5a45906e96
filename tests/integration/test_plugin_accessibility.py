"""Whoever cannot see the plugin for Obsidian well, has no mouse or a small phone, can use all of it."""

import re
from typing import Any

import plugin_fixtures
import pytest
from axe import AXE, found_by_axe
from chromium import Scheme
from obsidian_window import PHONE, Window, obsidian
from playwright.async_api import Browser, Locator, expect
from plugin_fixtures import Scene
from plugin_scene import ask, ended, paired

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long, pytest.mark.timeout(120)]
browser, scene = plugin_fixtures.browser, plugin_fixtures.scene
TOKENS = re.compile(r"\d+ % · [\d,]+ of 1,000 tokens")
OF_OBSIDIAN = ["page-has-heading-one"]
"""What is not the plugin's: the headings of the window around it."""
SIDEWAYS = """() => [document.documentElement.scrollWidth, ...[...document.querySelectorAll(
    '.elbowroom-view, .elbowroom-view *, .modal, .modal *')].filter((one) => one.checkVisibility()
    && (one.getBoundingClientRect().right > innerWidth + 1 || (getComputedStyle(one).overflowX !== 'auto'
    && getComputedStyle(one).overflowX !== 'hidden' && one.scrollWidth > one.clientWidth + 1 && one.clientWidth)))
    .map((one) => one.outerHTML.slice(0, 100))]"""


async def talked(window: Window) -> Locator:
    """Have a conversation with all that there is to see: a compaction, and a long word."""
    chat = await window.open_chat()
    await ask(chat, f"Say hello to {'the badger and ' * 3}{'x' * 200}.")
    for number in range(3):
        await ask(chat, f"What grows in bed {number}?")
    await chat.get_by_label("Message").fill("/compact")
    await chat.get_by_role("button", name="Send", exact=True).click()
    await chat.locator(".elbowroom-compaction summary").first.click()
    return chat


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_keeps_anybody_out(scene: Scene, browser: Browser, scheme: Scheme) -> None:
    """axe-core finds nothing in the chat, its list, the settings and a preview, neither in light nor in dark."""
    served, _ = scene
    async with obsidian(browser, served.url, token=await paired(served), scheme=scheme, agent="writer") as window:
        await window.page.evaluate(AXE)
        chat = await talked(window)
        assert await found_by_axe(window.page, OF_OBSIDIAN) == []
        await chat.get_by_role("button", name="Conversations").click()
        await expect(window.page.locator(".elbowroom-conversation")).not_to_have_count(0)
        assert await found_by_axe(window.page, OF_OBSIDIAN) == []
        await window.page.keyboard.press("Escape")
        await window.open_note("Garden.md")
        await window.select("12 by 8 metres")
        await window.run("rewrite-selection")
        await expect(window.page.get_by_role("button", name="Accept")).to_be_enabled()
        assert await found_by_axe(window.page, OF_OBSIDIAN) == []
        await window.page.keyboard.press("Escape")
        settings = await window.open_settings()
        await expect(settings).to_contain_text("They are kept by elbowroom")
        assert await found_by_axe(window.page, OF_OBSIDIAN) == []


async def test_small_phone_scrolls_in_one_direction_only(scene: Scene, browser: Browser) -> None:
    """320 pixels are wide enough for the chat, its list and the settings; nothing is cut off at the side."""
    served, _ = scene
    async with obsidian(browser, served.url, token=await paired(served), size=PHONE, agent="writer") as window:
        chat = await talked(window)
        assert await window.page.evaluate(SIDEWAYS) == [PHONE[0]]
        await chat.get_by_role("button", name="Conversations").click()
        await expect(window.page.locator(".elbowroom-conversation")).not_to_have_count(0)
        assert await window.page.evaluate(SIDEWAYS) == [PHONE[0]]
        await window.page.keyboard.press("Escape")
        settings = await window.open_settings()
        await expect(settings).to_contain_text("They are kept by elbowroom")
        assert await window.page.evaluate(SIDEWAYS) == [PHONE[0]]


async def test_keys_alone_do_everything(scene: Scene, browser: Browser) -> None:
    """By Tab, Enter and Escape alone a person asks, opens a compaction, finds a conversation and comes back."""
    async with obsidian(browser, scene[0].url, agent="writer") as window:
        page, keys = window.page, window.page.keyboard
        chat = await window.open_chat()

        async def go_to(element: Locator) -> None:
            for _ in range(40):
                if await element.evaluate("one => one === document.activeElement"):
                    return
                await keys.press("Tab")
            raise AssertionError(f"{element} is not reached by Tab")

        await go_to(chat.get_by_label("Message"))
        questions = ("Say hello to the lynx.", "What grows in bed 1?", "What grows in bed 2?", "And in bed 3?")
        for number, question in enumerate(questions, 1):
            await keys.type(question)
            await keys.press("Enter")
            await expect(chat.get_by_label("Message")).to_have_value("")
            await expect(chat.locator(".elbowroom-message.mod-assistant")).to_have_count(number)
            await ended(chat)
        await keys.type("/compact")
        await keys.press("Enter")
        await go_to(chat.locator(".elbowroom-compaction summary").first)
        await keys.press("Enter")
        await expect(chat.locator(".elbowroom-compaction")).to_have_attribute("open", "")
        await go_to(chat.get_by_role("button", name="Copy").last)
        await go_to(chat.get_by_role("button", name="More"))
        await keys.press("Enter")
        await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
        await keys.press("Escape")
        await go_to(chat.get_by_role("button", name="Conversations"))
        await keys.press("Enter")
        await expect(page.get_by_label("Search in all that was said")).to_be_focused()
        await keys.type("lynx")
        await expect(page.locator(".elbowroom-conversation")).to_have_count(1)
        await go_to(page.locator(".elbowroom-open"))
        await keys.press("Enter")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(chat.locator(".elbowroom-message")).to_have_count(8)


async def test_names_tell_what_is_seen(scene: Scene, browser: Browser) -> None:
    """A screen reader hears the gauge in words, the conversation as a log, and a name for all that can be used."""
    async with obsidian(browser, scene[0].url, agent="writer") as window:
        chat = await window.open_chat()
        await ask(chat, "Say hello.")
        meter = chat.get_by_role("meter", name="Fill of the window")
        await expect(meter).to_have_attribute("aria-valuetext", TOKENS)
        await expect(chat.get_by_role("log", name="Conversation")).to_contain_text("Hello!")
        unnamed: list[Any] = await window.page.evaluate(
            "[...document.querySelectorAll('.elbowroom-view :is(button, select, textarea, input, a, summary)')].filter("
            "(one) => !(one.getAttribute('aria-label') || one.textContent.trim())).map((one) => one.outerHTML)"
        )
        assert unnamed == []
        await expect(window.page.get_by_role("button", name="Open the chat.")).to_contain_text("writer")
