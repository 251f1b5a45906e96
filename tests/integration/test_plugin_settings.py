"""The settings of the plugin for Obsidian, in front of a real elbowroom."""

from typing import Any

import plugin_fixtures
import pytest
from obsidian_requests import ANDROID
from obsidian_window import Window, obsidian
from playwright.async_api import Browser, expect
from plugin_fixtures import Scene
from plugin_scene import paired
from serving import Served

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long, pytest.mark.timeout(120)]
browser, scene, window = plugin_fixtures.browser, plugin_fixtures.scene, plugin_fixtures.window


async def compaction_of(served: Served) -> dict[str, Any]:
    """Return the settings of compactions that are in force."""
    async with served.http.get(f"{served.url}/api/settings") as response:
        values: dict[str, Any] = (await response.json())["values"]["compaction"]
        return values


async def test_a_code_that_is_typed_in_pairs_the_vault(scene: Scene, window: Window) -> None:
    """A code that elbowroom shows gives the vault a token: in the secret storage, its name alone in the vault's file."""
    served, _ = scene
    refused = await window.page.evaluate("url => fetch(url).then((answer) => answer.text())", f"{served.url}/api/settings")
    assert "pairing_needed" in refused
    settings = await window.open_settings()
    await expect(settings).to_contain_text("Pair this vault with elbowroom to see and change them here.")
    await settings.get_by_role("button", name="Pair", exact=True).click()
    dialog = window.page.get_by_role("dialog", name="Pair with elbowroom")
    await dialog.get_by_label("Code").fill("WRNG-2345")
    await dialog.get_by_label("Code").press("Enter")
    await expect(dialog.get_by_role("alert")).not_to_be_empty()
    async with served.http.post(f"{served.url}/api/pairing", json={}) as response:
        code = (await response.json())["code"]
    await dialog.get_by_label("Code").fill(code)
    await dialog.get_by_role("button", name="Pair", exact=True).click()
    await expect(dialog).to_have_count(0)
    await expect(settings).to_contain_text("They are kept by elbowroom")
    kept = await window.kept()
    token = await window.page.evaluate("name => theVault.app.secretStorage.getSecret(name)", kept["secret"])
    assert token.startswith("elbp_")
    assert token not in str(kept)


@pytest.mark.parametrize("version", ["1.13", "1.11"])
async def test_settings_are_the_same_on_both_sides(scene: Scene, browser: Browser, version: str) -> None:
    """What is chosen in Obsidian, old or new, counts in elbowroom; what is changed there shows when the window is seen again."""
    served, _ = scene
    async with obsidian(browser, served.url, token=await paired(served)) as window:
        if version == "1.11":
            await window.page.evaluate("delete theVault.plugin.settingTabs__[0].settingItems")
        settings = await window.open_settings()

        def row(name: str) -> Any:
            return settings.locator(".setting-item", has=window.page.get_by_text(name, exact=True))

        pruner = row("Pruning agent").locator("select")
        await expect(pruner.locator("option")).to_have_text(["Same as current agent", "Writer", "Librarian", "Archivist"])
        await expect(pruner).to_be_enabled()
        await pruner.select_option("archivist")
        await expect(pruner).to_have_value("archivist")
        assert (await compaction_of(served))["pruning_agent"] == "archivist"
        await pruner.select_option("same")
        await expect(pruner).to_have_value("same")
        await row("Compact from").locator("input").fill("70")
        await expect(row("Compact from").locator("input")).to_have_value("70")
        values = await compaction_of(served)
        assert (values["pruning_agent"], values["threshold_ratio"]) == ("same", 0.7)
        change = {"compaction": {"pruning_agent": "writer", "threshold_ratio": 0.8}}
        async with served.http.patch(f"{served.url}/api/settings", json=change) as response:
            assert response.status == 200
        await row("Settings of elbowroom").get_by_label("Read them again").click()
        await expect(pruner).to_have_value("writer")
        await expect(row("Compact from").locator("input")).to_have_value("80")
        async with served.http.patch(f"{served.url}/api/settings", json={"compaction": {"pruning_agent": "same"}}) as response:
            assert response.status == 200


async def test_test_button_tells_what_the_doctor_finds(scene: Scene, browser: Browser) -> None:
    """The test tells in sentences what works; without a pairing it tells what can be seen from here, and what to do."""
    served, _ = scene
    async with obsidian(browser, served.url) as window:
        settings = await window.open_settings()
        await settings.get_by_role("button", name="Test").click()
        await expect(settings.locator(".elbowroom-check")).to_contain_text(["answers.", "offered.", "This vault is not paired."])
    async with obsidian(browser, served.url, token=await paired(served)) as window:
        settings = await window.open_settings()
        await settings.get_by_role("button", name="Test").click()
        await expect(settings.locator(".elbowroom-check").filter(has_text="LM Studio")).not_to_have_count(0)


async def test_token_that_is_not_taken_any_more_is_told(scene: Scene, browser: Browser) -> None:
    """A wrong token is told in the chat and in the settings, with the way to pair again."""
    async with obsidian(browser, scene[0].url, token="elbp_wrong") as window:
        settings = await window.open_settings()
        await expect(settings).to_contain_text("not paired with elbowroom, or not any more")
        assert ANDROID not in "".join(window.asked)
