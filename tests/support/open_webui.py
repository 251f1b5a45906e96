"""The real Open WebUI on a port of its own, and a person who uses it in a real browser."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from chromium import chromium
from playwright.async_api import Locator, Page

from elbowroom.connect.clients import OPEN_WEBUI
from elbowroom.connect.open_webui import OpenWebUI, leading_back, wanted

EXECUTABLE: Final = "ELBOWROOM_OPEN_WEBUI"
"""Names the program where it is not on the path."""
SHOTS: Final = "ELBOWROOM_SHOTS"
"""Names a folder for pictures of what the person sees."""
START_SECONDS: Final = 180.0
ANSWER_SECONDS: Final = 120.0
SIZE: Final = (1280, 800)
ENVIRONMENT: Final[Mapping[str, str]] = {
    "WEBUI_AUTH": "false",
    "WEBUI_SECRET_KEY": "a-key-for-tests-that-is-long-enough",
    "ENABLE_OLLAMA_API": "false",
    "ENABLE_OPENAI_API": "true",
    "OPENAI_API_BASE_URLS": "",
    "OFFLINE_MODE": "true",
    "HF_HUB_OFFLINE": "1",
    "ENABLE_VERSION_UPDATE_CHECK": "false",
    "BYPASS_MODEL_ACCESS_CONTROL": "true",
    "BYPASS_EMBEDDING_AND_RETRIEVAL": "true",
    "RAG_EMBEDDING_ENGINE": "openai",
    "AUDIO_STT_ENGINE": "openai",
    "AUDIO_TTS_ENGINE": "openai",
    "ANONYMIZED_TELEMETRY": "false",
    "DO_NOT_TRACK": "true",
    "NO_PROXY": "127.0.0.1,localhost",
}


@dataclass(slots=True)
class Installed:
    """A running Open WebUI; `token` is its admin's, `elbowroom` the address to which it is connected."""

    url: str
    token: str
    elbowroom: str = ""

    async def connect_to(self, address: str) -> None:
        """Have one connection in it, to the elbowroom at this address, with all headers."""
        self.elbowroom = address
        admin = OpenWebUI(self.url, self.token)
        connection = wanted(None, f"{address}/v1", "none", {**OPEN_WEBUI.headers, **leading_back(self.url)})
        await asyncio.to_thread(admin.set_connections, [connection], are_on=True)

    async def give_tools(self, *, are_on: bool) -> None:
        """Switch its built-in tools on or off for all models, as *Model Defaults* does."""
        path = "/api/v1/configs/models"
        config = await asyncio.to_thread(self.ask, path)
        capabilities = {"builtin_tools": are_on, "usage": True, "status_updates": True, "file_upload": True}
        config["DEFAULT_MODEL_METADATA"] = {"capabilities": capabilities}
        await asyncio.to_thread(self.ask, path, config)

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask its API and return the JSON of the answer."""
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


def executable() -> str:
    """Return the program; the test is skipped where it is not installed."""
    path = os.environ.get(EXECUTABLE) or shutil.which("open-webui")
    if path is None:
        pytest.skip("Open WebUI is not installed")
    return path


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


@contextmanager
def open_webui(folder: Path, **variables: str) -> Iterator[Installed]:
    """Run it with its data in the folder, until the block ends."""
    program, port = executable(), free_port()
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environ = {**kept, "HOME": str(folder), "DATA_DIR": str(folder), **ENVIRONMENT, **variables}
    command = [program, "serve", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "open-webui.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_healthy(url, process)
        signed_in = Installed(url, "").ask("/api/v1/auths/signin", {"email": "", "password": ""})
        yield Installed(url, signed_in["token"])
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "Open WebUI has ended; open-webui.log says why"
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=2):
            return
        time.sleep(0.3)
    raise AssertionError(f"Open WebUI is not healthy after {START_SECONDS:.0f} s")


@dataclass(slots=True)
class Person:
    """Uses Open WebUI in a browser window; `chat` is the id of the chat that is open."""

    there: Installed
    page: Page
    name: str
    shots: int = field(default=0)

    async def opens(self, model: str, *, is_temporary: bool = False) -> None:
        """Begin a new chat with a model."""
        await self.page.goto(f"{self.there.url}/?models={model}" + ("&temporary-chat=true" if is_temporary else ""))
        await self.page.wait_for_selector("#chat-input")
        await self.page.wait_for_timeout(500)

    async def sends(self, text: str) -> None:
        """Send a message, and do not wait for the answer."""
        await self.page.click("#chat-input")
        await self.page.keyboard.insert_text(text)
        await self.page.wait_for_timeout(200)
        await self.page.keyboard.press("Enter")

    async def says(self, text: str) -> str:
        """Send a message and return the answer as it is shown."""
        await self.sends(text)
        return await self.finished()

    async def finished(self) -> str:
        """Wait until nothing is being answered, and return the last answer as it is shown."""
        stop = self.page.locator('button[aria-label="Stop"]')
        quiet = 0
        async with asyncio.timeout(ANSWER_SECONDS):
            while quiet < 6:
                await self.page.wait_for_timeout(150)
                quiet = 0 if await stop.count() else quiet + 1
        return await self.page.locator(".chat-assistant").last.inner_text()

    async def attaches(self, file: Path) -> None:
        """Attach a file to the next message."""
        await self.page.locator("input[type=file]").first.set_input_files(file)
        await self.page.get_by_text(file.name).first.wait_for()
        await self.page.wait_for_timeout(1500)

    async def continues(self) -> str:
        """Press Continue below the last answer."""
        await self.page.locator("#continue-response-button").last.click()
        return await self.finished()

    async def reloads(self) -> None:
        """Load the page anew."""
        await self.page.reload()
        await self.page.wait_for_selector("#chat-input")
        await self.page.wait_for_timeout(1500)

    async def lines(self) -> list[str]:
        """Return the status lines of the last answer, as they are stored."""
        message = await self.stored()
        return [line.get("description", "") for line in message.get("statusHistory") or ()]

    async def stored(self) -> dict[str, Any]:
        """Return the last message of the chat, as Open WebUI has stored it."""
        chat = await asyncio.to_thread(self.there.ask, f"/api/v1/chats/{self.chat}")
        history = chat["chat"]["history"]
        message: dict[str, Any] = history["messages"][history["currentId"]]
        return message

    async def row(self) -> dict[str, Any]:
        """Return the open chat as elbowroom lists it."""
        elbowroom = Installed(self.there.elbowroom, "")
        listed = await asyncio.to_thread(elbowroom.ask, "/v1/conversations")
        [row] = [row for row in listed["data"] if row["name"] == self.chat]
        found: dict[str, Any] = row
        return found

    async def reads(self) -> None:
        """Read the last answer for as long as elbowroom works ahead behind it."""
        elbowroom, row = Installed(self.there.elbowroom, ""), await self.row()
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(elbowroom.ask, f"/v1/conversations/{row['id']}"))["works_ahead"]:
                pass

    @property
    def chat(self) -> str:
        """Return the id of the chat that is open."""
        return self.page.url.rpartition("/c/")[2]

    async def shot(self, what: str) -> None:
        """Take a picture, where somebody wants pictures."""
        if folder := os.environ.get(SHOTS):
            self.shots += 1
            await self.page.screenshot(path=Path(folder) / f"{self.name}-{self.shots}-{what}.png")


@asynccontextmanager
async def person(there: Installed, name: str) -> AsyncIterator[Person]:
    """Open a browser window on it."""
    async with chromium() as browser:
        context = await browser.new_context(viewport={"width": SIZE[0], "height": SIZE[1]}, locale="en-GB")
        try:
            page = await context.new_page()
            page.set_default_timeout(30_000)
            # What is new stands over the chat whenever it has come.
            await page.add_locator_handler(page.get_by_role("button", name="Okay, Let's Go"), Locator.click)
            yield Person(there, page, name)
        finally:
            await context.close()
