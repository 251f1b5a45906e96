"""What a person does about compactions, in a real browser: focus, preview, pin, edit and undo."""

import re
import time
from pathlib import Path

import chromium
import pytest
from chatting import eventually
from chromium import opened
from patient_counting import wait_for_counts
from playwright.async_api import Browser, expect
from scripted_pruner import text_of
from small_window import QUESTION, ask_whole, history, orders_of, small_window, turns_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser


async def test_a_compaction_is_foreseen_focused_edited_and_taken_back(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is one press on the page, and the next prompt shows what it did."""
    wait_for_counts(monkeypatch)
    said = history(12)
    pinned = said[7]["content"]
    async with small_window(tmp_path, window=4000) as (served, studio):

        async def prompt() -> list[str]:
            status, answer = await ask_whole(served, {"model": "writer", "messages": said})
            assert status == 200, answer
            said.extend([answer["choices"][0]["message"], {"role": "user", "content": "And the next ferry?"}])
            return [text_of(message) for message in turns_of(studio)[-1].body["messages"]]

        await prompt()
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.locator(".card-title").first.click()
            message = page.locator(".message").filter(has_text=pinned)
            await message.get_by_role("button", name="Pin", exact=True).click()
            await expect(message.get_by_text("pinned", exact=True)).to_be_visible()

            await page.get_by_text("Compact by hand").click()
            await page.get_by_label("What to keep, what to drop").fill("Keep the boats, drop the weather.")
            asked = len(studio.chats)
            await page.get_by_role("button", name="Preview").click()
            await expect(page.get_by_text("Nothing is changed yet.")).to_be_visible()
            await page.get_by_text("Would go:").click()
            await expect(page.get_by_role("group", name="Would go")).to_contain_text("crossing 2")
            await page.get_by_text("Would stay:").click()
            await expect(page.get_by_role("group", name="Would stay")).to_contain_text(re.compile("tokens, pinned"))
            assert len(studio.chats) == asked
            await page.get_by_role("button", name="Write the summary too").click()
            await expect(page.locator(".summary.boxed")).to_contain_text("earlier messages were exchanged")
            await expect(page.locator(".divider")).to_have_count(0)

            await page.get_by_role("button", name="Compact now").click()
            divider = page.locator(".divider")
            await expect(divider).to_contain_text("Compacted here")
            await divider.get_by_text("Why, and how").click()
            await expect(divider).to_contain_text("Keep the boats, drop the weather.")
            assert "Keep the boats" in text_of(orders_of(studio)[-1].body["messages"][-1])

            await divider.get_by_role("button", name="Edit summary").click()
            dialog = page.get_by_role("dialog")
            await expect(dialog.get_by_role("textbox")).to_have_value(re.compile("earlier messages were exchanged"))
            await dialog.get_by_role("textbox").fill("Boat 7919 leaks.")
            await dialog.get_by_role("button", name="Save").click()
            await divider.get_by_text("The summary, in your words").click()
            await expect(divider.locator(".summary")).to_have_text("Boat 7919 leaks.")
            await divider.get_by_text("The original summary").click()
            await expect(divider.get_by_role("group", name="The original summary")).to_contain_text("were exchanged")
            sent = await prompt()
            assert any("Boat 7919 leaks." in text for text in sent)
            assert pinned in sent
            assert said[3]["content"] not in sent

            await expect(page.locator(".message").filter(has_text=QUESTION)).to_be_visible()
            await page.reload()
            await page.locator(".divider").get_by_role("button", name="Undo").click()
            await expect(page.locator(".divider")).to_contain_text("Taken back")
            await expect(page.get_by_role("button", name="Undo")).to_have_count(0)
        sent = await prompt()
        assert said[3]["content"] in sent
        assert not any("Boat 7919 leaks." in text for text in sent)


async def test_originals_that_do_not_fit_are_told_of(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An undo for which the window is too small says how many tokens the originals need, and changes nothing."""
    wait_for_counts(monkeypatch)
    async with small_window(tmp_path) as (served, _):
        assert (await ask_whole(served, {"model": "writer", "messages": history(1)}))[0] == 200
        said = time.time()
        await eventually(lambda: int(time.time()) > int(said), "the clock stands still")  # the page sorts by seconds
        assert (await ask_whole(served, {"model": "writer", "messages": [*history(1)[:-1], *history(12)[3:]]}))[
            0
        ] == 200
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.locator(".card-title").first.click()
            await page.locator(".divider").get_by_role("button", name="Undo").click()
            await expect(page.locator("#toast")).to_contain_text("The originals do not fit: they need 1,")
            await expect(page.locator(".divider")).to_contain_text("A summary stands")
