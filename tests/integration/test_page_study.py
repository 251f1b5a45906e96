"""The study of pruning agents on the page, in a real browser."""

import asyncio
from pathlib import Path

import chromium
import pytest
from chromium import opened
from playwright.async_api import Browser, expect
from serving import serve, settings_for
from study_models import PRUNERS, StudyModels

from elbowroom.server.state import Timing

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser


async def test_which_should_i_choose(tmp_path: Path, browser: Browser) -> None:
    """The button begins a study; how far it is, Stop, then the table of another one with its advice."""
    models = StudyModels()
    models.holds = asyncio.Event()
    async with models.studio, serve(tmp_path, settings_for(models.studio.base_url), timing=Timing(quiet=0)) as served:
        async with opened(browser, f"{served.url}/#/settings/compaction") as page:
            await page.get_by_text("Compare pruning agents").click()
            await page.get_by_role("button", name="Which should I choose?").click()
            await expect(page.get_by_role("progressbar", name="Steps of the study")).to_be_visible()
            await page.get_by_role("button", name="Stop").click()
            await expect(page.get_by_text("Stopped: this was measured until then.")).to_be_visible()
            models.holds.set()
            await page.get_by_role("button", name="Which should I choose?").click()
            faithful = f"lmstudio/{next(iter(PRUNERS))}"
            await expect(page.get_by_text(f"Choose {faithful}: ")).to_be_visible(timeout=120_000)
            rows = page.get_by_role("group", name="What each pruning agent keeps").get_by_role("row")
            await expect(rows.nth(1)).to_contain_text(faithful)
            await expect(rows.nth(1)).to_contain_text("100 %")
