"""Pairing and renaming on elbowroom's page, in a real browser."""

from pathlib import Path

import chromium
import pytest
from chatting import RAW_MODEL, elbowroom_with_studio
from chromium import PHONE, opened
from playwright.async_api import Browser, expect
from serving import serve, settings_for
from settings_calls import NOBODY, ask

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
QUESTION, HOSTILE = "Which way to the harbour?", "Boats & <b>harbours</b>"


async def test_a_code_is_shown_until_it_is_used(tmp_path: Path, browser: Browser) -> None:
    """One click shows a code with its time; the page says when a program has used it, lists that, and revokes it."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        async with opened(browser, f"{served.url}/#/connect", size=PHONE) as page:
            await page.get_by_role("button", name="Make a code").click()
            code = await page.get_by_role("region", name="code").inner_text()
            await expect(page.get_by_role("timer")).to_contain_text("valid for 9:5")
            body = {"code": code.strip(), "name": "Anna's phone"}
            status, got = await ask(served, "POST", "/api/pairing/claim", body, Origin="capacitor://localhost")
            assert status == 201, got
            await expect(page.get_by_text("Anna's phone is paired.")).to_be_visible()
            await expect(page.get_by_role("timer")).to_be_empty()
            assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
            await page.get_by_role("button", name="Revoke Anna's phone").click()
            await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
            await expect(page.get_by_role("button", name="Revoke Anna's phone")).to_have_count(0)
        assert (await ask(served, "GET", "/api/pairing"))[1]["data"] == []


async def test_a_conversation_is_renamed(tmp_path: Path, browser: Browser) -> None:
    """By the keyboard alone; the heading and the list have the new title, and the old one where it is left empty."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        await served.chat(RAW_MODEL, QUESTION)
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.locator(".card-title").first.click()
            for title, shown in ((HOSTILE, HOSTILE), ("", QUESTION)):
                await page.get_by_role("button", name="Rename").press("Enter")
                await page.get_by_label("Title").fill(title)
                await page.get_by_label("Title").press("Enter")
                await expect(page.get_by_role("heading", level=1)).to_have_text(shown)
            await page.get_by_role("button", name="Rename").click()
            await page.get_by_label("Title").fill("Boats")
            await page.get_by_role("dialog").get_by_role("button", name="Rename").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("Boats")
            await page.get_by_role("link", name="Conversations").last.click()
            await expect(page.locator(".card-title").first).to_have_text("Boats")
