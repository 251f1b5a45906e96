"""The plugin for Obsidian in a note: what a model makes of a selection, and what agents have changed."""

import asyncio
from pathlib import Path

import plugin_fixtures
import pytest
from obsidian_window import NOTES, Window, obsidian
from playwright.async_api import Browser, expect
from plugin_fixtures import Scene
from plugin_scene import ask, asked_for, paired

from elbowroom.demo import Script, ToolCall, WaitFor

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long, pytest.mark.timeout(120)]
browser, scene, window = plugin_fixtures.browser, plugin_fixtures.scene, plugin_fixtures.window


async def test_rewriting_is_shown_before_and_taken_back_by_one_undo(scene: Scene, window: Window) -> None:
    """A selection is rewritten in a preview as it streams; once accepted, the note changes by one step of undo."""
    held = asyncio.Event()
    scene[1].enqueue(Script("Peas are sown ", WaitFor(held), "in March."), when=asked_for("Rewrite the text"))
    await window.open_note("Garden.md")
    await window.select("Peas come in the second week of March.")
    await window.run("rewrite-selection")
    preview = window.page.get_by_role("dialog", name="Rewrite selection")
    await expect(preview.get_by_role("region", name="Preview")).to_have_text("Peas are sown")
    await expect(preview.get_by_role("button", name="Accept")).to_be_disabled()
    held.set()
    await preview.get_by_role("button", name="Accept").click()
    await expect(preview).to_have_count(0)
    assert "metres. Peas are sown in March.\n" in await window.note("Garden.md")
    await window.page.evaluate("theVault.app.workspace.activeEditor.editor.undo()")
    assert await window.note("Garden.md") == NOTES["Garden.md"]
    async with scene[0].http.get(f"{scene[0].url}/v1/conversations?q=sown") as response:
        assert (await response.json())["data"] == []


async def test_preview_is_stopped_and_tried_again(scene: Scene, window: Window) -> None:
    """Stop ends the model, closing leaves the note as it is, and the selection may be asked about in the chat."""
    studio = scene[1]
    before = len(studio.disconnects)
    studio.enqueue(Script("The ferry ", WaitFor(asyncio.Event())), "It leaves at 21:40.", when=asked_for("Summarise"))
    await window.open_note("Ferry.md")
    await window.select("The last ferry leaves from the ninth pier at 21:40.")
    await window.run("summarise-selection")
    preview = window.page.get_by_role("dialog", name="Summarise selection")
    await expect(preview.get_by_role("region", name="Preview")).to_have_text("The ferry")
    await preview.get_by_role("button", name="Stop").click()
    await studio.wait_until(lambda: len(studio.disconnects) == before + 1)
    await preview.get_by_role("button", name="Try again").click()
    await expect(preview.get_by_role("region", name="Preview")).to_have_text("It leaves at 21:40.")
    await window.page.keyboard.press("Escape")
    await expect(preview).to_have_count(0)
    assert await window.note("Ferry.md") == NOTES["Ferry.md"]
    await window.run("ask-about-selection")
    await expect(window.page.locator(".elbowroom-chip")).to_contain_text("Selection of Ferry")


async def test_changes_of_an_agent_are_linked_and_taken_back(scene: Scene, browser: Browser) -> None:
    """What an agent does to notes stands at its answer, with a link to each note and an undo that undoes it."""
    served, studio = scene
    vault = Path(served.settings.parent, "vault")
    changed = NOTES["Garden.md"] + "Rhubarb goes to the north.\n"
    studio.enqueue(
        Script(ToolCall("vault_append", {"path": "Garden.md", "text": "Rhubarb goes to the north."})),
        "It is noted.",
        when=lambda body: "rhubarb" in str(body["messages"]),
    )
    async with obsidian(browser, served.url, token=await paired(served), agent="librarian") as window:
        chat = await window.open_chat()
        await ask(chat, "Note where the rhubarb goes.")
        await expect(chat.locator(".mod-assistant")).to_contain_text("It is noted.")
        assert (vault / "Garden.md").read_text(encoding="utf-8").split() == changed.split()
        step = chat.locator(".elbowroom-step")
        await expect(step).to_contain_text("vault_append")
        change = chat.locator(".elbowroom-change")
        await change.get_by_role("link", name="Garden.md").click()
        await expect(window.page.locator(".mod-root .view-header-title")).to_have_text("Garden")
        await change.get_by_role("button", name="Undo").click()
        await expect(change.get_by_role("button", name="Undo")).to_have_count(0)
        assert (vault / "Garden.md").read_text(encoding="utf-8") == NOTES["Garden.md"]


async def test_undo_never_takes_what_a_person_wrote(scene: Scene, browser: Browser) -> None:
    """A change is not taken back where its note was changed by hand since, and an older one not behind a newer one."""
    served, studio = scene
    vault = Path(served.settings.parent, "vault")
    note = vault / "Garden.md"
    async with obsidian(browser, served.url, token=await paired(served), agent="librarian") as window:
        chat = await window.open_chat()
        calls = [
            ToolCall("vault_append", {"path": "garden", "text": f"{each} come next."}) for each in ("Leeks", "Beans")
        ]
        studio.enqueue(*map(Script, calls), "Noted.", when=lambda body: "Note what comes" in str(body["messages"]))
        await ask(chat, "Note what comes next.")
        await expect(chat.locator(".elbowroom-change")).to_have_count(2)
        first, second = await chat.locator(".elbowroom-change").all()
        await first.get_by_role("button", name="Undo").click()
        await expect(window.page.locator(".notice").last).to_contain_text("has changed since")
        by_agent = note.read_bytes()
        assert b"Leeks come next." in by_agent
        note.write_bytes(by_agent + b"By hand.\n")
        await second.get_by_role("button", name="Undo").click()
        await expect(second.get_by_role("button", name="Undo")).to_be_enabled()
        assert note.read_bytes() == by_agent + b"By hand.\n"
        note.write_bytes(by_agent)
        for change in (second, first):
            await change.get_by_role("button", name="Undo").click()
            await expect(change.get_by_role("button", name="Undo")).to_have_count(0)
        assert note.read_text(encoding="utf-8") == NOTES["Garden.md"]
