"""The plugin in a window of Obsidian: a real Chromium, mocks of Obsidian's API, and what these leave to a screen.

The window's origin is that of Obsidian on Android. What the plugin asks by `requestUrl` leaves past the browser, as it
does in Obsidian; all else obeys CORS.
"""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from chromium import DESKTOP, PATIENCE_MS, Scheme
from client_libraries import LibraryUnavailableError
from obsidian_plugin import PLUGIN, SOURCES, packages
from obsidian_requests import ANDROID
from playwright.async_api import Browser, Locator, Page, Request, Route

WINDOW: Final = SOURCES / "tests" / "window"
PHONE: Final = (320, 640)
SECRET: Final = "elbowroom-token"
LETS_PAGES_ASK_LOOPBACK: Final = "--disable-features=LocalNetworkAccessChecks"
"""Chromium asks a person before a page may ask its own computer; Obsidian is no such page."""
HTML: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Obsidian</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="/window.css"><link rel="stylesheet" href="/styles.css"></head>
<body class="theme-{scheme}"><main class="app-container"><div class="workspace"><div class="side-dock-actions"></div>
<div class="nav-files-container"></div><div class="workspace-split mod-root"></div>
<div class="workspace-split mod-right-split"></div></div><div class="status-bar"></div></main>
<script type="module" src="/window.js"></script></body></html>"""
NOTES: Final = {
    "Garden.md": "# Garden\n\nThe garden is 12 by 8 metres. Peas come in the second week of March.\n",
    "Ferry.md": "# Ferry\n\nThe last ferry leaves from the ninth pier at 21:40.\n",
}


@dataclass(slots=True)
class Window:
    """The window; `asked` are the addresses that anything in it has asked, by the browser or past it."""

    page: Page
    asked: list[str] = field(default_factory=list)

    async def open_settings(self) -> Locator:
        """Show the settings of the plugin."""
        await self.page.evaluate("theVault.openSettings()")
        return self.page.locator(".mod-settings")

    async def open_chat(self) -> Locator:
        """Show the chat, and wait until it can be used; return it."""
        await self.run("open-chat")
        chat = self.page.locator(".workspace-leaf-content[data-type=elbowroom-chat]")
        await chat.get_by_label("Agent or model").locator("option").first.wait_for(state="attached")
        return chat

    async def run(self, command: str) -> None:
        """Run a command of the plugin, as the palette does."""
        await self.page.evaluate("command => theVault.run(command)", command)

    async def open_note(self, path: str) -> None:
        """Open a note."""
        await self.page.evaluate("path => theVault.openNote(path)", path)

    async def note(self, path: str) -> str:
        """Return what a note holds."""
        text: str = await self.page.evaluate("path => theVault.app.vault.adapter.read(path)", path)
        return text

    async def select(self, text: str) -> None:
        """Select the first place with this text in the open note."""
        await self.page.evaluate("text => theVault.select(text)", text)

    async def told(self) -> list[str]:
        """Return what notices have said."""
        said: list[str] = await self.page.evaluate("told")
        return said

    async def kept(self) -> dict[str, Any]:
        """Return what the plugin has kept in its file."""
        data: dict[str, Any] = await self.page.evaluate("theVault.plugin.data__")
        return data


@asynccontextmanager
async def obsidian(
    browser: Browser,
    address: str,
    *,
    token: str = "",
    notes: Mapping[str, str] = NOTES,
    scheme: Scheme = "light",
    size: tuple[int, int] = DESKTOP,
    **kept: Any,
) -> AsyncIterator[Window]:
    """Open a vault with these notes, in which the plugin is installed, with this address and whatever else it kept.

    At the end, nothing may have failed in it, and nothing but its own files and this address may have been asked.
    """
    bundle = window_or_skip()
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, locale="en-GB", reduced_motion="reduce",
        permissions=["clipboard-read", "clipboard-write"],
    )  # fmt: skip
    window, failed = Window(await context.new_page()), list[str]()
    page = window.page
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: failed.append(f"{error}"))
    page.on("console", lambda line: failed.append(line.text) if "Unhandled" in line.text else None)
    context.on("request", lambda request: note(window, request))
    async with aiohttp.ClientSession() as http:
        await page.expose_function("requestPastTheBrowser", lambda asked: past_the_browser(http, window, asked))
        await page.route(f"{ANDROID}/**", lambda route: serve_files(route, bundle, scheme))
        try:
            await page.goto(f"{ANDROID}/")
            await page.wait_for_selector("body[data-ready]")
            await page.evaluate("given => startObsidian(given)", {
                "notes": dict(notes),
                "kept": {"address": address, **({"secret": SECRET} if token else {}), **kept},
                "secrets": {SECRET: token} if token else {},
                "code": (PLUGIN / "main.js").read_text(encoding="utf-8"),
                "manifest": json.loads((PLUGIN / "manifest.json").read_text(encoding="utf-8")),
                "isPhone": size[0] < DESKTOP[0] / 2,
            })  # fmt: skip
            yield window
            assert failed == [], failed
            assert [url for url in window.asked if not url.startswith(f"{address}/")] == [], window.asked
        finally:
            await context.close()


def note(window: Window, request: Request) -> None:
    """Note what the browser asks, but for the window's own files."""
    if not request.url.startswith((f"{ANDROID}/", "blob:", "data:")):
        window.asked.append(request.url)


async def past_the_browser(http: aiohttp.ClientSession, window: Window, asked: dict[str, Any]) -> dict[str, Any]:
    """Send a request as Obsidian's `requestUrl` does: without an origin."""
    window.asked.append(asked["url"])
    try:
        async with http.request(
            asked["method"], asked["url"], data=asked["body"], headers=asked["headers"]
        ) as response:
            return {"status": response.status, "headers": dict(response.headers), "text": await response.text()}
    except aiohttp.ClientError:
        return {"failed": "CONNECTION_REFUSED"}


async def serve_files(route: Route, bundle: str, scheme: Scheme) -> None:
    """Give the window its files."""
    match route.request.url.removeprefix(ANDROID):
        case "/":
            await route.fulfill(body=HTML.format(scheme=scheme), content_type="text/html")
        case "/window.js":
            await route.fulfill(body=bundle, content_type="text/javascript")
        case "/window.css":
            await route.fulfill(path=WINDOW / "window.css")
        case "/styles.css":
            await route.fulfill(path=PLUGIN / "styles.css")
        case _:
            await route.fulfill(status=404)


def window_or_skip() -> str:
    """Return the script of the window; skip where its packages cannot be had."""
    built = window_or_reason()
    if isinstance(built, LibraryUnavailableError):
        pytest.skip(str(built))
    return built


@cache
def window_or_reason() -> str | LibraryUnavailableError:
    """Bundle the script of the window; return why it cannot be done, where it cannot."""
    try:
        folder = packages()
    except LibraryUnavailableError as error:
        return error
    command: list[str | Path] = [
        folder / ".bin" / "esbuild",
        WINDOW / "window.js",
        "--bundle",
        "--format=esm",
        "--log-level=error",
    ]
    environment = {**os.environ, "NODE_PATH": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout
