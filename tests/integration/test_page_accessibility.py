"""Whoever cannot see the page well, or opens it on a small phone, can use all of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import chromium
import pytest
from axe import AXE, found_by_axe
from chromium import PHONE, Scheme, go, opened
from page_scene import GARDEN, TALKS, lived_in
from playwright.async_api import Browser, Page
from serving import Served

from elbowroom.server.state import SHARED

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
VIEWS = (
    "home",
    "conversations",
    "conversations?q=garden",
    "agents",
    "agents/gardener",
    "agents/+new",
    "models",
    "models/lmstudio",
    "models/+new",
    "settings",
    "settings/mcp/+new",
    "settings/mcp/files",
    "settings/people",
    "settings/people/+new",
    "connect",
    "logs",
)
UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"
"""Opens all that is folded away; what is drawn anew meanwhile is folded again."""
MCP = '[[mcp_servers]]\nname = "files"\nenabled = false\ncommand = ["files-server"]\nenv = { KEY = "literal" }\n'


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Run an elbowroom in which there is something of everything."""
    async with lived_in(tmp_path, talks=[talk for talk in TALKS if GARDEN in talk.questions], more=MCP) as (served, _):
        await served.app[SHARED].store.memories.save("", "gardener", "The garden is 12 by 8 metres. " * 8, 1e9)
        await served.app[SHARED].store.memories.save("", "gardener", f"https://example.org/{'garden' * 40}", 1e9)
        await served.app[SHARED].store.people.add("W" * 80, "member")
        await served.app[SHARED].store.people.note("", "added", f"member {'W' * 80}")
        yield served


async def views(page: Page) -> AsyncIterator[str]:
    """Show one view after the other, each with everything unfolded, and the longest conversation at last."""
    for view in VIEWS:
        await go(page, view)
        await unfold(page)
        yield view
    await go(page, "conversations")
    await page.get_by_role("link", name=GARDEN).click()
    await page.wait_for_selector(".divider .freed")
    await page.wait_for_function(f"() => {{ {UNFOLD}; return document.querySelector('.originals .message') }}")
    yield "a conversation"


async def unfold(page: Page) -> None:
    """Open all that is folded away."""
    await page.evaluate(UNFOLD)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_keeps_anybody_out(served: Served, browser: Browser, scheme: Scheme) -> None:
    """axe-core finds nothing in any view, neither in light nor in dark: names, roles, order, contrast."""
    async with opened(browser, f"{served.url}/#/connect", scheme=scheme) as page:
        await page.evaluate(AXE)
        async for view in views(page):
            assert await found_by_axe(page) == [], view


async def test_errors_and_dialogs_keep_nobody_out(served: Served, browser: Browser) -> None:
    """Nor does axe-core find anything where a value was refused, or a question is asked."""
    async with opened(browser, f"{served.url}/#/agents/gardener") as page:
        await page.evaluate(AXE)
        await page.get_by_text("More settings").click()
        await page.get_by_label("Most model calls per request").fill("none")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("[aria-invalid]")
        assert await found_by_axe(page) == []
        await page.get_by_role("button", name="Delete").click()
        await page.wait_for_selector("dialog[open]")
        assert await found_by_axe(page) == []


async def test_small_phone_scrolls_in_one_direction_only(served: Served, browser: Browser) -> None:
    """320 pixels are wide enough for every view, also unfolded, and nothing is cut off at the side."""
    async with opened(browser, f"{served.url}/#/connect", size=PHONE) as page:
        async for view in views(page):
            width, outside = await page.evaluate(
                "() => [document.documentElement.scrollWidth, [...document.querySelectorAll('main *')].filter((one) =>"
                " one.getBoundingClientRect().right > innerWidth + 1 && one.checkVisibility()).map((one) =>"
                " one.outerHTML.slice(0, 80))]"
            )
            assert (width, outside) == (PHONE[0], []), view
