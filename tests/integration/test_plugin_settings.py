"""The settings of the plugin in Obsidian, in front of a real elbowroom."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from chromium import chromium
from obsidian_window import obsidian
from page_scene import lived_in
from playwright.async_api import Browser, expect
from serving import Served

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long, pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Run Chromium for all tests here."""
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Run an elbowroom with a few agents."""
    async with lived_in(tmp_path_factory.mktemp("settings"), talks=[]) as (served, _):
        yield served


async def code_of(served: Served) -> str:
    """Have elbowroom make a code, as its page does."""
    async with served.http.post(f"{served.url}/api/pairing", json={}) as response:
        made: dict[str, str] = await response.json()
        return made["code"]


async def test_a_code_that_is_typed_in_pairs_the_vault(served: Served, browser: Browser) -> None:
    """A code that elbowroom shows gives the vault a token: in the secret storage, its name alone in the vault's file."""
    async with obsidian(browser, served.url) as window:
        settings = await window.open_settings()
        await expect(settings).to_contain_text("Pair this vault with elbowroom to see and change them here.")
        await settings.get_by_role("button", name="Pair", exact=True).click()
        dialog = window.page.get_by_role("dialog", name="Pair with elbowroom")
        await dialog.get_by_label("Code").fill("WRNG-2345")
        await dialog.get_by_label("Code").press("Enter")
        await expect(dialog.get_by_role("alert")).not_to_be_empty()
        await dialog.get_by_label("Code").fill(await code_of(served))
        await dialog.get_by_role("button", name="Pair", exact=True).click()
        await expect(dialog).to_have_count(0)
        await expect(settings).to_contain_text("They are kept by elbowroom")
        kept = await window.kept()
        token = await window.page.evaluate("name => theVault.app.secretStorage.getSecret(name)", kept["secret"])
        assert token.startswith("elbp_")
        assert token not in str(kept)
