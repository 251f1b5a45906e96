"""Takes the pictures of the page that docs/ shows: every view in light, in dark, and on a phone."""

import asyncio
import logging
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chromium import Scheme, chromium, go, opened
from page_scene import GARDEN, answer, lived_in
from playwright.async_api import Browser, Page
from scripted_pruner import text_of
from serving import Served

from elbowroom.demo import Script, WaitFor
from elbowroom.logs.set_up import logging_to_file
from elbowroom.server.state import SHARED
from elbowroom.settings.live import LiveSettings

DOCS: Final = Path(__file__).parents[2] / "docs" / "page"
RUNNING: Final = "Rewrite the chapter about the harbour in the present tense."
CHANGED: Final = "[compaction]\nthreshold_ratio = 0.75\n"


@dataclass(frozen=True, slots=True)
class Look:
    """How a view is shown: in which colours, and in a window of which size."""

    name: str
    scheme: Scheme
    size: tuple[int, int]


LOOKS: Final = (
    Look("light", "light", (1100, 760)),
    Look("dark", "dark", (1100, 760)),
    Look("phone", "light", (360, 740)),
)
VIEWS: Final = (
    "home",
    "conversations",
    "conversation",
    "search",
    "agents",
    "agent",
    "models",
    "settings",
    "connect",
    "logs",
)


async def take(browser: Browser, served: Served, view: str, look: Look, folder: Path) -> None:
    """Write the picture of a view."""
    async with opened(browser, f"{served.url}/#/home", scheme=look.scheme, size=look.size) as page:
        await page.wait_for_selector(".light:not([data-state=unknown])", state="attached")
        await page.wait_for_selector(".is-running")
        await show(page, view)
        await page.evaluate("document.activeElement?.blur()")
        await page.wait_for_timeout(300)
        await page.screenshot(path=folder / f"{view}-{look.name}.png")


async def show(page: Page, view: str) -> None:
    """Show a view as a person would find it after a look around."""
    match view:
        case "conversation":
            await go(page, "conversations")
            await page.get_by_role("link", name=GARDEN).click()
            divider = page.locator(".divider").first
            await divider.get_by_text("Why, and how").click()
            await divider.get_by_text("The summary that stands for it").click()
            await divider.evaluate("divider => divider.scrollIntoView({ block: 'center' })")
        case "search":
            await go(page, "conversations?q=peppers")
            await page.wait_for_selector(".excerpt mark")
        case "agent":
            await go(page, "agents/gardener")
        case "connect":
            await go(page, view)
            await page.get_by_role("button", name="Test").click()
            await page.wait_for_selector(".checks li:nth-child(3)")
        case "logs":
            await go(page, view)
            await page.locator(".log summary").first.click()
        case "home":
            await page.wait_for_selector(".model-card")
        case _:
            await go(page, view)


async def main(folder: Path) -> None:
    """Take all pictures."""
    held = asyncio.Event()
    logging.getLogger().setLevel(logging.INFO)
    with tempfile.TemporaryDirectory() as data:
        environ = {"ELBOWROOM_DATA_DIR": data}
        async with lived_in(Path(data), more=CHANGED) as (served, studio), chromium() as browser:
            with logging_to_file(LiveSettings(served.settings, environ, {}).current(), environ):
                await served.chat("writer", "Thank you!")
                await served.app[SHARED].store.memories.save("", "gardener", "The garden is 12 by 8 metres.", 1e9)
                studio.enqueue(
                    Script(answer(300), WaitFor(held)), when=lambda body: text_of(body["messages"][-1]) == RUNNING
                )
                running = asyncio.create_task(served.chat_frames("writer", RUNNING))
                for view in VIEWS:
                    for look in LOOKS:
                        await take(browser, served, view, look, folder)
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running


def shrink(folder: Path) -> None:
    """Give the pictures a palette, which makes them a third as large; without pngquant they stay as they are."""
    if program := shutil.which("pngquant"):
        pictures = [str(picture) for picture in sorted(folder.glob("*.png"))]
        subprocess.run([program, "--force", "--ext", ".png", "--strip", "64", "--", *pictures], check=True, timeout=120)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    target.mkdir(exist_ok=True)
    asyncio.run(main(target))
    shrink(target)
