"""Takes the pictures of the page that docs/ shows."""

import asyncio
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chromium import DESKTOP, Scheme, chromium, go, opened
from page_scene import GARDEN, answer, lived_in
from playwright.async_api import Browser, Page
from scripted_pruner import text_of
from serving import Served

from elbowroom.demo import Script, WaitFor

DOCS: Final = Path(__file__).parents[2] / "docs"
TALL_PHONE: Final = (360, 740)
RUNNING: Final = "Rewrite the chapter about the harbour in the present tense."


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: its name, which view it shows, how, and in a window of which size."""

    name: str
    view: str
    scheme: Scheme = "light"
    size: tuple[int, int] = DESKTOP


PICTURES: Final = (
    Picture("conversations", "conversations", size=(1100, 760)),
    Picture("conversations-dark", "conversations", "dark", size=(1100, 760)),
    Picture("conversation", "conversation", size=(1100, 1000)),
    Picture("agents-dark", "agents", "dark", size=(1100, 1040)),
    Picture("connect", "connect", size=(1100, 980)),
    Picture("phone", "conversations", size=TALL_PHONE),
)


async def take(browser: Browser, served: Served, picture: Picture, folder: Path) -> None:
    """Write one picture."""
    start = f"{served.url}/#/conversations"
    async with opened(browser, start, scheme=picture.scheme, size=picture.size) as page:
        await page.wait_for_selector(".light:not([data-state=unknown])")
        await page.wait_for_selector(".is-running")
        if picture.view == "conversation":
            await show_conversation(page)
        elif picture.view != "conversations":
            await go(page, picture.view)
        if picture.view == "connect":
            await page.get_by_role("button", name="Test").click()
            await page.wait_for_selector(".checks li:nth-child(3)")
        await page.evaluate("document.activeElement?.blur(); scrollTo(0, 0)")
        await page.wait_for_timeout(300)
        await page.screenshot(path=folder / f"page-{picture.name}.png")


async def show_conversation(page: Page) -> None:
    """Show the conversation that was compacted most, with the first summary unfolded."""
    await page.get_by_role("link", name=GARDEN).click()
    await page.get_by_text("The summary that stands for it").first.click()


async def main(folder: Path) -> None:
    """Take all pictures."""
    held = asyncio.Event()
    with tempfile.TemporaryDirectory() as data:
        async with lived_in(Path(data)) as (served, studio), chromium() as browser:
            studio.enqueue(
                Script(answer(330), WaitFor(held)), when=lambda body: text_of(body["messages"][-1]) == RUNNING
            )
            running = asyncio.create_task(served.chat_frames("writer", RUNNING))
            for picture in PICTURES:
                await take(browser, served, picture, folder)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS))
