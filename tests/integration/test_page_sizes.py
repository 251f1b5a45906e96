"""No view of the page is wider than its window, whatever names people and models have."""

from pathlib import Path

import chromium
import pytest
from chromium import go, opened
from page_scene import LONG_TALK, lived_in
from playwright.async_api import Browser

from elbowroom.server.state import SHARED

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
SIZES = ((320, 640), (768, 900), (1024, 768), (1280, 800), (1920, 1080))
VIEWS = (
    "home",
    "conversations",
    "agents",
    "agents/long",
    "models",
    "settings/compaction",
    "settings/vault",
    "connect",
    "logs",
)
LONG = "Summaries_of_everything_that_was_ever_said_in_any_of_the_conversations_about_the_garden_by_the_wall" * 2
AGENT = f"""
[[agents]]
id = "long"
name = "{LONG}"
instructions = "{LONG}"
model = "{LONG}"
tools = ["vault.read", "tool_output_cache"]
"""


async def test_no_view_is_wider_than_its_window(tmp_path: Path, browser: Browser) -> None:
    """Names of 200 letters without a space are broken or cut, at five sizes."""
    async with lived_in(tmp_path, talks=[LONG_TALK], more=AGENT) as (served, _):
        wide = []
        for size in SIZES:
            async with opened(browser, served.url, size=size) as page:
                for view in VIEWS:
                    await go(page, view)
                    width = await page.evaluate("document.scrollingElement.scrollWidth")
                    if width > size[0]:
                        wide.append((view, size[0], width))
        assert not wide


BROKEN = """() => [...document.querySelectorAll("main button, main .button")].filter((one) => {
    const letters = document.createRange(), text = one.firstChild;
    if (!one.offsetParent || text?.nodeType !== Node.TEXT_NODE || text.data.includes(" ")) return false;
    letters.selectNodeContents(text);
    return letters.getClientRects().length > 1;
}).map((one) => one.textContent)"""


async def test_no_word_on_a_button_is_broken(tmp_path: Path, browser: Browser) -> None:
    """Long words beside it leave it its room, a memory's too, on a phone and elsewhere."""
    async with lived_in(tmp_path, talks=[LONG_TALK], more=AGENT) as (served, _):
        await served.app[SHARED].store.memories.save("", "gardener", "The garden is 12 by 8 metres. " * 9, 1e9)
        for size in SIZES[:3]:
            async with opened(browser, served.url, size=size) as page:
                for view in (*VIEWS, "agents/gardener"):
                    await go(page, view)
                    if view == "agents/gardener":
                        await page.get_by_role("button", name="Forget").wait_for()
                    assert await page.evaluate(BROKEN) == [], (view, size)


PLACEHOLDERS = """() => [...document.querySelectorAll("main input[placeholder]")].filter((one) => {
    const style = getComputedStyle(one), pen = document.createElement("canvas").getContext("2d");
    pen.font = style.font;
    const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return one.offsetParent && pen.measureText(one.placeholder).width > room;
}).map((one) => one.placeholder)"""


async def test_what_a_field_asks_for_can_be_read(tmp_path: Path, browser: Browser) -> None:
    """No words in an empty field are cut, on a phone either."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, served.url, size=SIZES[0]) as page:
        for view in (*VIEWS, "models/+new", "settings/mcp/+new"):
            await go(page, view)
            assert await page.evaluate(PLACEHOLDERS) == [], view


async def test_a_search_in_the_settings_leaves_no_empty_part(tmp_path: Path, browser: Browser) -> None:
    """Where none of the settings that are folded away has the words, the fold is not there either."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/settings") as page:
        for words, parts in (("retain", 0), ("drain", 1), ("", 4)):
            await page.get_by_label("Find a setting").fill(words)
            folds = page.locator("details.more:visible")
            assert await folds.count() >= parts
            for fold in await folds.all():
                assert await fold.locator("[data-key]:not([hidden])").count(), words


async def test_words_of_people_find_their_direction(tmp_path: Path, browser: Browser) -> None:
    """A title and a message in Arabic stand from right to left, beside English ones; what is typed does so too."""
    async with lived_in(tmp_path, talks=[]) as (served, _):
        await served.chat("writer", "\u0645\u0627 \u0647\u064a \u0627\u0644\u062d\u062f\u064a\u0642\u0629\u061f")
        async with opened(browser, f"{served.url}/#/conversations") as page:
            title = page.locator(".card-title")
            assert await title.evaluate("one => getComputedStyle(one).direction") == "rtl"
            await title.click()
            said = page.locator(".from-user .said")
            assert await said.evaluate("one => getComputedStyle(one).direction") == "rtl"
            answered = page.locator(".message:not(.from-user) .said").last
            assert await answered.evaluate("one => getComputedStyle(one).direction") == "ltr"
