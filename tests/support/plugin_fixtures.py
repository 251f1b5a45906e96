"""What the tests of the plugin share: one browser, one elbowroom and one LM Studio for a module, a vault for a test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from chromium import chromium
from obsidian_window import LETS_PAGES_ASK_LOOPBACK, Window, obsidian
from playwright.async_api import Browser, Locator
from plugin_scene import for_plugins
from serving import Served

from elbowroom.demo import SimulatedLMStudio

Scene = tuple[Served, SimulatedLMStudio]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Run Chromium for all tests of a module."""
    async with chromium(LETS_PAGES_ASK_LOOPBACK) as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Run an elbowroom and its LM Studio for all tests of a module."""
    async with for_plugins(tmp_path_factory.mktemp("plugin")) as scene:
        yield scene


@pytest_asyncio.fixture(loop_scope="module")
async def window(scene: Scene, browser: Browser) -> AsyncIterator[Window]:
    """Open a vault whose chats are with the writer."""
    async with obsidian(browser, scene[0].url, agent="writer") as window:
        yield window


@pytest_asyncio.fixture(loop_scope="module")
async def chat(window: Window) -> Locator:
    """Open the chat in it."""
    return await window.open_chat()
