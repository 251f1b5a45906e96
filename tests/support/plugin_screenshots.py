"""Takes the pictures of the plugin for Obsidian that docs/ shows: the chat, the list, a preview, the settings."""

import asyncio
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from chromium import PHONE, Scheme, chromium
from obsidian_window import LETS_PAGES_ASK_LOOPBACK, Window, obsidian
from page_screenshots import shrink
from playwright.async_api import Browser, Locator, expect
from plugin_scene import ask, asked_for, for_plugins, paired
from serving import Served

from elbowroom.demo import Script, SimulatedLMStudio, ToolCall

DOCS: Final = Path(__file__).parents[2] / "docs" / "obsidian"
DESKTOP: Final = (1100, 760)
LOOKS: Final[tuple[tuple[str, Scheme, tuple[int, int]], ...]] = (
    ("light", "light", DESKTOP),
    ("dark", "dark", DESKTOP),
    ("phone", "light", PHONE),
)
NOTED: Final = "Note in Garden that the rhubarb goes to the north."
GARDENS: Final = {"light": "school garden", "dark": "walled garden", "phone": "roof garden"}
"""What the pictures of a look ask about, since a compaction that is found again has no summary of its own."""
REWRITTEN: Final = "The bed measures 12 by 8 metres; sow peas there in the second week of March."


async def talk(window: Window, look: str) -> Locator:
    """Have a conversation over a compaction, with the summary opened."""
    chat = await window.open_chat()
    lines = chat.locator(".elbowroom-compaction")
    for number in range(1, 12):
        await ask(chat, f"What grows in bed {number} of the {GARDENS[look]}?")
        await expect(chat.get_by_role("meter")).not_to_have_attribute("aria-valuenow", "0")
        if await lines.count():
            break
    await lines.first.locator("summary").click()
    await lines.first.evaluate("line => line.scrollIntoView({ block: 'center' })")
    return chat


async def note_something(window: Window, studio: SimulatedLMStudio) -> None:
    """Have an agent change a note, which the chat shows with an undo."""
    call = ToolCall("vault_append", {"path": "Garden.md", "text": "Rhubarb goes to the north."})
    studio.enqueue(Script(call), "It is noted.", when=lambda body: "rhubarb" in str(body["messages"]))
    chat = await window.open_chat()
    await chat.get_by_label("Agent or model").select_option("librarian")
    await ask(chat, NOTED)
    await expect(chat.locator(".elbowroom-change")).to_have_count(1)


async def rewrite(window: Window) -> None:
    """Show what a model makes of a selection."""
    await window.open_note("Garden.md")
    await window.select("The garden is 12 by 8 metres. Peas come in the second week of March.")
    await window.run("rewrite-selection")
    await expect(window.page.get_by_role("button", name="Accept")).to_be_enabled()


async def picture(window: Window, folder: Path, name: str) -> None:
    """Write the picture of what is seen, without a cursor and notices."""
    await window.page.evaluate("document.activeElement?.blur()")
    await window.page.add_style_tag(content=".notice-container, .notice { display: none }")
    await window.page.wait_for_timeout(300)
    await window.page.screenshot(path=folder / f"{name}.png")


async def take(browser: Browser, scene: tuple[Served, SimulatedLMStudio], folder: Path) -> None:
    """Take all pictures."""
    served, studio = scene
    token = await paired(served)
    for look, scheme, size in LOOKS:
        studio.enqueue(REWRITTEN, when=asked_for("Rewrite the text"))
        opened = partial(obsidian, browser, served.url, token=token, scheme=scheme, size=size, agent="writer")
        async with opened() as window:
            await window.open_note("Garden.md")
            chat = await talk(window, look)
            await picture(window, folder, f"chat-{look}")
            await chat.get_by_role("button", name="Conversations").click()
            await expect(window.page.locator(".elbowroom-conversation")).not_to_have_count(0)
            await picture(window, folder, f"conversations-{look}")
        async with opened() as window:
            await rewrite(window)
            await picture(window, folder, f"preview-{look}")
        async with opened() as window:
            await note_something(window, studio)
            await picture(window, folder, f"changes-{look}")
        async with opened() as window:
            settings = await window.open_settings()
            await expect(settings).to_contain_text("They are kept by elbowroom")
            await expect(settings.get_by_label("Pruning agent")).to_be_enabled()
            await settings.get_by_text("Pruning agent", exact=True).evaluate(
                "row => row.scrollIntoView({ block: 'center' })"
            )
            await picture(window, folder, f"settings-{look}")


async def main(folder: Path) -> None:
    """Run a server and a browser for the pictures."""
    with tempfile.TemporaryDirectory() as data:
        async with for_plugins(Path(data)) as scene, chromium(LETS_PAGES_ASK_LOOPBACK) as browser:
            await take(browser, scene, folder)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    target.mkdir(exist_ok=True)
    asyncio.run(main(target))
    shrink(target)
