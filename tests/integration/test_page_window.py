"""Where a gauge says that it is full, the model is loaded with a larger window right there."""

from pathlib import Path

import chromium
import pytest
from chromium import opened
from playwright.async_api import Browser, expect
from serving import serve, settings_for
from small_window import ask_whole, history

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
MODEL = SimulatedModel("tiny", loaded_context_length=4096, max_context_length=20_000)


async def test_a_full_window_is_made_larger(tmp_path: Path, browser: Browser) -> None:
    """It offers twice the window up to the largest that the model takes, and shows the new one when it is loaded."""
    off = "\n[compaction]\nauto = false\n"
    async with (
        SimulatedLMStudio([MODEL]) as studio,
        serve(tmp_path, settings_for(studio.base_url, agents=off)) as served,
    ):
        async with opened(browser, served.url) as page:
            card = page.get_by_role("region", name="tiny")
            again = card.get_by_role("button", name="Load with a larger window")
            await expect(card).to_contain_text("All free")
            await expect(again).to_be_hidden()
            status, answer = await ask_whole(served, {"model": "lmstudio/tiny", "messages": history(32)})
            assert status == 200, answer
            await expect(card).to_contain_text("Full")
            await again.click()
            dialog = page.get_by_role("dialog")
            assert await dialog.get_by_role("option").all_text_contents() == [
                "8,192 tokens",
                "16,384 tokens",
                "20,000 tokens",
            ]
            await dialog.get_by_label("Window").select_option("16384")
            await dialog.get_by_role("button", name="Load").click()
            await expect(card).to_contain_text("window of 16,384 tokens")
            await expect(card).not_to_contain_text("Full")
    assert [instance.context_length for instance in studio.residency.instances.values()] == [16_384]
