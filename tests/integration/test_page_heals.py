"""The page when elbowroom is away and comes back, and when a gauge changes behind an answer."""

import asyncio
import re
from pathlib import Path
from typing import Any

import chromium
import pytest
from aiohttp import web
from chromium import opened
from page_scene import QWEN
from playwright.async_api import Browser, expect
from scripted_pruner import valid_plan
from serving import elbowroom, settings_for
from small_window import ask_whole, history, small_window

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.app import create_runner
from elbowroom.server.state import Timing

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
WITHIN_MS = 3500
"""Two seconds, as is promised, and the patience with a server that takes the request and says nothing."""
OPACITY = "Number(getComputedStyle(document.querySelector('.gauge-box')).opacity)"


async def start(folder: Path, settings: str, port: int = 0) -> tuple[web.AppRunner, int]:
    """Run elbowroom on a port, 0 for a free one; return what ends it, and the port."""
    runner = create_runner(elbowroom(folder, settings))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    return runner, runner.addresses[0][1]


async def test_connection_lost_and_found(tmp_path: Path, browser: Browser) -> None:
    """It is said within two seconds, what stands there is marked as old, and all is fresh when the server is back."""
    async with SimulatedLMStudio([SimulatedModel(QWEN, loaded_context_length=4096)]) as studio:
        settings = settings_for(studio.base_url)
        runner, port = await start(tmp_path, settings)
        try:
            async with opened(browser, f"http://127.0.0.1:{port}/") as page:
                lost = page.get_by_text("Connection lost, looking for it")
                await expect(page.get_by_text("window of 4,096 tokens")).to_be_visible()
                await runner.cleanup()
                await expect(lost).to_be_visible(timeout=WITHIN_MS)
                assert await page.evaluate(OPACITY) < 1
                studio.reload(QWEN, 8192)
                runner, _ = await start(tmp_path, settings, port)
                await expect(page.get_by_text("window of 8,192 tokens")).to_be_visible()
                await expect(lost).to_be_hidden()
                assert await page.evaluate(OPACITY) == 1
        finally:
            await runner.cleanup()


async def test_a_form_that_is_being_filled_in_is_left_alone(tmp_path: Path, browser: Browser) -> None:
    """What a person has entered is there when the server comes back."""
    settings = settings_for("http://127.0.0.1:9")
    runner, port = await start(tmp_path, settings)
    try:
        async with opened(browser, f"http://127.0.0.1:{port}/#/agents/+new") as page:
            await page.get_by_label("Name", exact=True).fill("Gardener")
            await runner.cleanup()
            await expect(page.get_by_text("Connection lost")).to_be_visible()
            runner, _ = await start(tmp_path, settings, port)
            await expect(page.get_by_text("Connection lost")).to_be_hidden()
            await expect(page.get_by_label("Name", exact=True)).to_have_value("Gardener")
    finally:
        await runner.cleanup()


async def test_gauge_of_a_raw_model_falls_with_a_compaction_behind_the_answer(tmp_path: Path, browser: Browser) -> None:
    """Home shows the chat of a model without an agent, and its next prompt once that is shorter, without a reload."""
    long, gate = " ".join(["The ferry left at noon and came back in the evening."] * 20), asyncio.Event()

    def prune(body: Any) -> Script:
        return Script(WaitFor(gate), valid_plan(body))

    quick = Timing(quiet=0.05)
    async with small_window(tmp_path, lambda body: long, window=4096, timing=quick, prune=prune) as (served, studio):
        async with opened(browser, served.url) as page:
            model = page.get_by_role("region", name=QWEN)
            await expect(model).to_contain_text("All free")
            await ask_whole(served, {"model": f"lmstudio/{QWEN}", "messages": history(31)})
            await expect(model).to_contain_text(re.compile("About .* turns? left|Full"))
            meter = model.get_by_role("meter")
            await page.wait_for_function(
                "() => Number(document.querySelector('.model-card .gauge').ariaValueNow) > 2600"
            )
            await expect(page.get_by_text("summarising the older part, while nobody waits")).to_be_visible()
            gate.set()
            await page.wait_for_function(
                "() => Number(document.querySelector('.model-card .gauge').ariaValueNow) < 2200"
            )
            shown = int(await meter.get_attribute("aria-valuenow") or 0)
        await ask_whole(served, {"model": f"lmstudio/{QWEN}", "messages": [*history(31), said(long), asked()]})
        assert abs(shown - (studio.chats[-1].counted_tokens or 0)) < 4096 // 50


def said(answer: str) -> dict[str, str]:
    """Return the model's answer as a client has it."""
    return {"role": "assistant", "content": answer}


def asked() -> dict[str, str]:
    """Return a short question."""
    return {"role": "user", "content": "And then?"}
