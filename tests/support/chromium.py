"""The Chromium of this computer, driven by Playwright, which brings no browser of its own."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from playwright.async_api import Browser, Page, Request, async_playwright, expect

Scheme = Literal["light", "dark"]
NAMES = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = (1100, 800), (320, 640)
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)


@asynccontextmanager
async def chromium(*arguments: str) -> AsyncIterator[Browser]:
    """Run the browser with further arguments; the test is skipped where there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("Chromium is not installed")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=[*arguments, *(["--no-sandbox"] if is_root else [])]
        )
        try:
            yield browser
        finally:
            await browser.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Run Chromium for a test."""
    async with chromium() as browser:
        yield browser


@asynccontextmanager
async def opened(
    browser: Browser,
    url: str,
    *,
    scheme: Scheme = "light",
    size: tuple[int, int] = DESKTOP,
    scale: float = 1,
    waits: bool = True,
) -> AsyncIterator[Page]:
    """Open the page in a window of its own, and wait for its first view unless `waits` is false.

    At the end, nothing may have failed in it, and no other server may have been asked for anything.
    """
    wrong: list[str] = []
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        device_scale_factor=scale,
        locale="en-GB",
        reduced_motion="reduce",
    )
    server = "/".join(url.split("/")[:3])

    def note_request(request: Request) -> None:
        if not request.url.startswith((f"{server}/", "blob:")):
            wrong.append(f"asked {request.url}")

    context.on("request", note_request)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: wrong.append(f"failed: {error}"))
    try:
        await page.goto(url)
        if waits:
            await page.wait_for_selector("main h1")
        yield page
        assert not wrong
    finally:
        await context.close()


async def go(page: Page, view: str) -> None:
    """Show a view of the page, such as `agents/writer`, and wait until it is there."""
    await page.evaluate("document.querySelector('main h1')?.setAttribute('data-old', '')")
    await page.evaluate("view => { location.hash = '#/' + view; }", view)
    await page.wait_for_selector("main h1:not([data-old])")
