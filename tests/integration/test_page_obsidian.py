"""The vaults on the Connect view, in a real browser."""

import json
from importlib.resources import files
from pathlib import Path

import chromium
import pytest
from chromium import PHONE, opened
from playwright.async_api import Browser, expect
from serving import serve, settings_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


async def test_installed_switched_on_and_removed(tmp_path: Path, browser: Browser) -> None:
    """One click installs the plugin and says what it changed, also to who cannot see it; another one removes it."""
    (tmp_path / "Notes" / ".obsidian").mkdir(parents=True)
    (tmp_path / ".config" / "obsidian").mkdir(parents=True)
    rows = {"abc": {"path": str(tmp_path / "Notes"), "ts": 1}}
    (tmp_path / ".config" / "obsidian" / "obsidian.json").write_text(json.dumps({"vaults": rows}), encoding="utf-8")
    plugin = tmp_path / "Notes" / ".obsidian" / "plugins" / "elbowroom"
    settings, environ = settings_for("http://127.0.0.1:9"), {"HOME": str(tmp_path)}
    async with serve(tmp_path, settings, environ=environ) as served:
        async with opened(browser, f"{served.url}/#/connect", size=PHONE) as page:
            await expect(page.get_by_label("Switch it on as well")).to_be_checked()
            await page.get_by_label("Let agents with vault tools work in this vault").check()
            await page.get_by_role("button", name="Install in Notes").click()
            await expect(page.get_by_text("up to date, switched on. Agents work in this vault.")).to_be_visible()
            await expect(page.get_by_text("Reload app without saving")).to_be_visible()
            await expect(page.get_by_role("listitem").filter(has_text="main.js")).to_be_visible()
            assert (plugin / "main.js").exists()
            assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
            await page.evaluate(AXE)
            assert await page.evaluate("axe.run().then(({ violations }) => violations.map(({ help }) => help))") == []
            await page.get_by_role("button", name="Remove from Notes").click()
            await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
            await expect(page.get_by_text("Not installed.")).to_be_visible()
            assert not (plugin / "main.js").exists()
