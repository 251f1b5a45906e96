"""The search in one conversation, and what came back unasked with a message, in a real browser."""

import re
from pathlib import Path

import chromium
import pytest
from chatting import RAW_MODEL
from chromium import opened
from playwright.async_api import Browser, expect
from small_window import ask_whole, small_window
from told_early import ABOUT, SECRET, with_secret

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser


async def test_passages_are_found_seen_and_forgotten(tmp_path: Path, browser: Browser) -> None:
    """A few words find a passage and lead to its message; what came back stands folded under the question, and goes."""
    said = with_secret(34, ABOUT)
    async with small_window(tmp_path, window=4096, compaction="background = false") as (served, _):
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": said})
        assert status == 200, answer
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.locator(".card-title").first.click()
            came = page.locator("details.recalled")
            await expect(came).to_have_count(1)
            await came.locator("summary").click()
            passage = came.locator("div").filter(has_text=SECRET).first
            await expect(passage).to_be_visible()
            await passage.get_by_role("button", name="Forget").click()
            await expect(page.get_by_text("Forgotten:")).to_be_visible()
            await expect(page.locator("details.recalled").filter(has_text=SECRET)).to_have_count(0)

            await page.get_by_role("searchbox", name="Search in this conversation").fill("blue tarpaulins")
            hit = page.locator(".passages li").first
            await expect(hit).to_contain_text(SECRET)
            await hit.get_by_role("button", name="Show").click()
            await expect(page.locator(".message").filter(has_text=re.compile("K-4417-QX")).first).to_be_in_viewport()
