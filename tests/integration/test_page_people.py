"""People on elbowroom's page, in a real browser: who sees them, and what an owner does there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import chromium
import pytest
from axe import AXE, found_by_axe
from chromium import DESKTOP, PHONE, Scheme, go, opened
from people import KEY, OWNER, say, server_of_people, token_of
from playwright.async_api import Browser, Locator, Page, Request, expect
from serving import Served, serve, settings_for
from settings_calls import NOBODY, ask
from typist import NO_POINTER, Typist

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
HOSTILE = ("<img src=x onerror=alert(1)>", "דנה כהן", "🦫" * 40, "W" * 80, "a/b?c#d %2F", "+new")


@asynccontextmanager
async def signed_in(
    browser: Browser, served: Served, token: str, *, size: tuple[int, int] = DESKTOP, scheme: Scheme = "light"
) -> AsyncIterator[Page]:
    """Open the page with a token, which it asks for."""
    async with opened(browser, served.url, size=size, scheme=scheme, waits=False) as page:
        await page.get_by_label("Token", exact=True).fill(token)
        await page.get_by_label("Token", exact=True).press("Enter")
        await expect(page.get_by_role("heading", name="Home")).to_be_visible()
        yield page


def bearer(token: str) -> dict[str, str]:
    """Return the headers with a token."""
    return {"Authorization": f"Bearer {token}"}


async def shown_token(page: Page, name: str) -> str:
    """Return the token that is shown for somebody, once its button to copy has the focus."""
    await expect(page.get_by_role("button", name=f"Copy token of {name}")).to_be_focused()
    return (await page.get_by_role("region", name=f"token of {name}").inner_text()).strip()


async def confirmed(page: Page, verb: str) -> None:
    """Press a button, and the one of the question that follows."""
    await page.get_by_role("button", name=verb).click()
    await page.get_by_role("dialog").get_by_role("button", name=verb).click()


async def error_at(field: Locator) -> str:
    """Return the error that stands at a field, which has the focus."""
    await expect(field).to_have_attribute("aria-invalid", "true")
    await expect(field).to_be_focused()
    described = (await field.get_attribute("aria-describedby") or "").split()
    return await field.page.locator(f"#{described[-1]}").inner_text()


async def test_somebody_is_given_a_token_by_keyboard(tmp_path: Path, browser: Browser) -> None:
    """From the settings on: made, copied, used, given another role, renewed and revoked, and all of it is noted."""
    async with server_of_people(tmp_path) as (served, _), signed_in(browser, served, KEY) as page:
        await page.evaluate(NO_POINTER)
        one = Typist(page, served)
        await one.enter("Settings")
        await one.enter("People with a token each")
        await expect(page.get_by_text("Nobody has a token besides yours")).to_be_visible()
        await one.enter("New person")
        await one.reach("Name")
        await page.keyboard.type("anna")
        await page.keyboard.press("Enter")
        first = await shown_token(page, "anna")
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("token of anna")
        assert (await say(served, "Hi", bearer(first)))[0] == 200
        await one.enter("Done")
        row = page.get_by_role("list", name="People").get_by_role("listitem")
        await expect(row).to_contain_text("member · used just now")
        await one.enter("anna")
        await one.reach("Role")
        await page.keyboard.type("own")
        await one.enter("Save")
        await expect(row).to_contain_text("owner")
        assert (await ask(served, "GET", "/api/settings", **bearer(first)))[0] == 200
        await one.enter("anna")
        await one.enter("New token")
        await one.enter("New token")
        second = await shown_token(page, "anna")
        used = [(await ask(served, "GET", "/api/live", **bearer(token)))[0] for token in (first, second)]
        assert used == [401, 200]
        await one.enter("Revoke")
        await one.enter("Revoke")
        await expect(page.get_by_text("Nobody has a token besides yours")).to_be_visible()
        assert (await ask(served, "GET", "/api/live", **bearer(second)))[0] == 401
        assert [line.partition(" · ")[0] for line in await page.locator(".boxed li").all_inner_texts()] == [
            "Whoever has server.token removed owner anna",
            "Whoever has server.token changed owner anna: token",
            "Whoever has server.token changed owner anna: role",
            "Whoever has server.token added member anna",
        ]
        assert not await page.evaluate("window.pointed")


async def test_names_do_no_harm(tmp_path: Path, browser: Browser) -> None:
    """Markup, other directions, emoji and letters without an end are text, and nothing is wider than a phone."""
    async with server_of_people(tmp_path) as (served, _), signed_in(browser, served, KEY, size=PHONE) as page:
        for name in HOSTILE:
            await go(page, "settings/people")
            await go(page, "settings/people/+new")
            await page.get_by_label("Name").fill(name)
            await page.get_by_role("button", name="Make a token").click()
            assert (await shown_token(page, name)).startswith("elbp_")
            assert await page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        await go(page, "settings/people")
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        assert await page.locator("main img").count() == 0
        for name in HOSTILE:
            await page.get_by_role("link", name=name, exact=True).click()
            await expect(page.get_by_role("heading", level=1)).to_have_text(name)
            assert await page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
            await go(page, "settings/people")
        await page.get_by_role("link", name=HOSTILE[-1], exact=True).click()
        await confirmed(page, "Revoke")
        await expect(page.get_by_role("link", name=HOSTILE[-1], exact=True)).to_have_count(0)


async def test_what_is_wrong_stands_at_its_field(tmp_path: Path, browser: Browser) -> None:
    """Names that are none or taken; without a token of the server the form says what to do first."""
    async with server_of_people(tmp_path) as (served, _), signed_in(browser, served, KEY) as page:
        await token_of(served, "anna")
        await go(page, "settings/people/+new")
        field = page.get_by_label("Name")
        wrong = (
            ("", "one line, of at most 80 letters"),
            ("a" * 10_000, "at most 80 letters"),
            ("a\u202eb", "can all be seen"),
            ("anna", "anna has a token already"),
        )
        for name, words in wrong:
            await field.fill(name)
            await field.press("Enter")
            await expect(page.locator(".error:not([hidden])")).to_contain_text(words)
            assert words in await error_at(field)
            assert await field.input_value() == name
    (folder := tmp_path / "open").mkdir()
    async with serve(folder, settings_for(NOBODY)) as served:
        async with opened(browser, f"{served.url}/#/settings/people/+new") as page:
            await page.get_by_label("Name").fill("anna")
            await page.get_by_label("Name").press("Enter")
            await expect(page.get_by_role("alert")).to_contain_text("Set server.token first")


async def test_a_member_is_told_what_is_for_owners(tmp_path: Path, browser: Browser) -> None:
    """One sentence says it on each view; what is for owners is not there, and home claims no fault."""
    async with server_of_people(tmp_path) as (served, _):
        anna = await token_of(served, "anna")
        await say(served, "I am Anna.", anna)
        async with signed_in(browser, served, anna["Authorization"].removeprefix("Bearer ")) as page:
            sentence = "anna is a member here, and may chat and see what is anna's own; settings and the rest are for"
            told = page.locator("#banner").get_by_text(sentence)
            await expect(told).to_be_visible()
            await expect(page.get_by_role("link", name="I am Anna.")).to_be_visible()
            await expect(page.get_by_text("No server of models answers")).not_to_be_visible()
            links = page.get_by_role("navigation").get_by_role("link")
            assert await links.all_inner_texts() == ["Home", "Conversations", "Connect"]
            for view in ("settings", "settings/people", "settings/people/+new", "agents", "logs", "models"):
                await go(page, view)
                await expect(told).to_be_visible()
                await expect(page.get_by_role("button", name="Make a token")).to_have_count(0)
                await expect(page.get_by_role("list", name="People")).to_have_count(0)
            await page.evaluate(AXE)
            for view in ("home", "connect", "settings"):
                await go(page, view)
                assert await found_by_axe(page) == [], view


async def test_an_owner_goes_on_with_the_own_new_token(tmp_path: Path, browser: Browser) -> None:
    """Who renews the token of this very tab is not asked for it."""
    async with server_of_people(tmp_path) as (served, _):
        olga = await token_of(served, "olga", "owner")
        async with signed_in(browser, served, olga["Authorization"].removeprefix("Bearer ")) as page:
            await go(page, "settings/people")
            await page.get_by_role("link", name="olga").click()
            await confirmed(page, "New token")
            await shown_token(page, "olga")
            await page.get_by_role("link", name="Done").click()
            await expect(page.get_by_role("list", name="People")).to_contain_text("olga")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            assert (await ask(served, "GET", "/api/live", **olga))[0] == 401


async def test_one_person_on_one_machine_sees_nothing_of_it(tmp_path: Path, browser: Browser) -> None:
    """Without a token there is no way to people, and nobody asks the server for them; the search finds the line."""
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    async with serve(tmp_path, settings_for(NOBODY)) as served, opened(browser, served.url) as page:
        page.on("request", note)
        for view in ("settings", "agents", "models", "conversations", "connect", "home"):
            await go(page, view)
            await expect(page.get_by_role("link", name="People")).to_have_count(0)
        assert asked
        assert not [url for url in asked if "/api/users" in url or "/api/acts" in url]
        await go(page, "settings")
        await page.get_by_label("Find a setting").fill("people")
        await expect(page.get_by_text("With a token, people can have one each.")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_people_keep_nobody_out(tmp_path: Path, browser: Browser, scheme: Scheme) -> None:
    """axe-core finds nothing in the list, at errors, at a token or in the question before it is revoked."""
    async with server_of_people(tmp_path) as (served, _), signed_in(browser, served, KEY, scheme=scheme) as page:
        await token_of(served, "anna")
        await page.evaluate(AXE)
        await go(page, "settings/people")
        assert await found_by_axe(page) == []
        await go(page, "settings/people/+new")
        await page.get_by_label("Name").fill("anna")
        await page.get_by_label("Name").press("Enter")
        await error_at(page.get_by_label("Name"))
        assert await found_by_axe(page) == []
        await page.get_by_label("Name").fill("ben")
        await page.get_by_label("Name").press("Enter")
        await shown_token(page, "ben")
        assert await found_by_axe(page) == []
        await page.get_by_role("link", name="Done").click()
        await page.get_by_role("link", name="anna").click()
        await page.get_by_role("button", name="Revoke").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await found_by_axe(page) == []
        assert len((await ask(served, "GET", "/api/users", **OWNER))[1]["data"]) == 2
