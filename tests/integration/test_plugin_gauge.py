"""The gauge of the plugin for Obsidian is the size of the next prompt, as that of the page and of `status` is."""

import asyncio
from pathlib import Path

import plugin_fixtures
import pytest
from chatting import RAW_MODEL, eventually
from ferry_log import AGENT, MOST_OFF, TURNS, WINDOW, check, read_log, says
from obsidian_window import obsidian
from own_tools import own_tool
from playwright.async_api import Browser, Locator, expect
from plugin_scene import ask, ended
from serving import Served
from small_window import orders_of, small_window, turns_of

from elbowroom.server.state import SHARED, Timing

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long, pytest.mark.timeout(300)]
browser = plugin_fixtures.browser


async def shown(served: Served, chat: Locator) -> int:
    """Return what the gauge shows once nothing is done in the background any more, and it has heard what was done."""
    shared = served.app[SHARED]
    await eventually(lambda: not shared.background._jobs, "the background never ends")
    await shared.store.conversations.settled()
    async with served.http.get(f"{served.url}/v1/conversations") as response:
        rows = (await response.json())["data"]
    told = rows[0]["context"]["tokens"] if rows else 0
    tokens = 0
    for _ in range(50):
        tokens = int(await chat.get_by_role("meter").get_attribute("aria-valuenow") or 0)
        if abs(tokens - told) <= MOST_OFF * told:
            break
        await asyncio.sleep(0.1)
    return tokens


@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_forty_turns(tmp_path: Path, browser: Browser, model: str) -> None:
    """With tools, thoughts, compactions behind answers and by hand, and edits it is at most 2 % off each time."""
    tools = [own_tool(read_log)]
    async with (
        small_window(
            tmp_path, says, window=WINDOW, agents=AGENT, timing=Timing(quiet=0.02), toolbox=lambda target: tools
        ) as (served, studio),
        obsidian(browser, served.url, agent=model) as window,
    ):
        chat, off = await window.open_chat(), list[tuple[int, int, int]]()
        for number in range(1, TURNS + 1):
            gauge, before = await shown(served, chat), len(turns_of(studio))
            if number % 13 == 0:
                await chat.locator(".mod-user").last.get_by_role("button", name="Edit and ask again").click()
                await chat.get_by_label("Message").fill(f"And crossing {number}")
                await chat.get_by_role("button", name="Ask again", exact=True).last.click()
                await studio.wait_until(lambda: len(turns_of(studio)) > before)  # noqa: B023  # at once
                await ended(chat)
                continue
            await ask(chat, f"And crossing {number}")
            off.append((number, gauge, turns_of(studio)[before].counted_tokens or 0))
            if number == 20:
                lines = await chat.locator(".elbowroom-compaction").count()
                await chat.get_by_label("Message").fill("/compact")
                await chat.get_by_label("Message").press("Enter")
                await expect(chat.locator(".elbowroom-compaction")).to_have_count(lines + 1)
        assert len(orders_of(studio)) >= 2
        check(off[1:])
