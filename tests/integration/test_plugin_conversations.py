"""Conversations of the plugin for Obsidian: listed, shared with other programs, and kept through trouble."""

import asyncio
import signal
from pathlib import Path

import plugin_fixtures
import pytest
from chatting import MODEL
from command_line import running
from obsidian_window import Window, obsidian
from openai import AsyncOpenAI
from playwright.async_api import Browser, Locator, Route, expect
from plugin_fixtures import Scene
from plugin_scene import ask, asked_for, ended
from serving import settings_for

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long, pytest.mark.timeout(120)]
browser, scene, window = plugin_fixtures.browser, plugin_fixtures.scene, plugin_fixtures.window
chat = plugin_fixtures.chat


async def test_conversations_are_found_renamed_continued_and_deleted(
    scene: Scene, window: Window, chat: Locator
) -> None:
    """The list finds a conversation by what was said; it is renamed, gone on with, and deleted after a question."""
    await ask(chat, "Say hello to the badger.")
    await chat.get_by_label("Message").fill("/new")
    await chat.get_by_label("Message").press("Enter")
    await ask(chat, "Say hello to the otter.")
    await chat.get_by_role("button", name="Conversations").click()
    dialog = window.page.get_by_role("dialog", name="Conversations", exact=True)
    await expect(dialog.locator(".elbowroom-conversation").first).to_contain_text("otter")
    await dialog.get_by_label("Search").fill("badger")
    await expect(dialog.locator(".elbowroom-conversation")).to_have_count(1)
    await dialog.get_by_role("button", name="Rename").click()
    renaming = window.page.get_by_role("dialog", name="Rename the conversation")
    await renaming.get_by_label("Title").fill("Of beasts")
    await renaming.get_by_label("Title").press("Enter")
    await expect(dialog.locator(".elbowroom-title")).to_have_text("Of beasts")
    await dialog.locator(".elbowroom-open").click()
    await expect(chat.locator(".elbowroom-message")).to_have_count(2)
    await ask(chat, "Count to three.")
    assert "badger" in str(scene[1].chats[-1].body["messages"][0])
    await chat.get_by_role("button", name="Conversations").click()
    await dialog.get_by_role("button", name="Delete Of beasts").click()
    sure = window.page.get_by_role("dialog", name="Delete this conversation?")
    await sure.get_by_role("button", name="Delete").click()
    await expect(dialog.get_by_text("Of beasts")).to_have_count(0)
    async with scene[0].http.get(f"{scene[0].url}/v1/conversations?q=badger") as response:
        assert (await response.json())["data"] == []


async def test_conversation_of_another_program_goes_on(scene: Scene, window: Window, chat: Locator) -> None:
    """What another program began is gone on with in Obsidian, and the other way round, as one conversation."""
    served, studio = scene
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        begun = await client.chat.completions.create(
            model="writer",
            messages=[{"role": "user", "content": "Say hello to the heron."}],
            extra_headers={"X-Conversation-Id": "herons"},
        )
        await chat.get_by_role("button", name="Conversations").click()
        await window.page.locator(".elbowroom-open", has_text="heron").click()
        await expect(chat.locator(".mod-assistant")).to_contain_text(begun.choices[0].message.content or "")
        await ask(chat, "Count to three.")
        said = studio.chats[-1].body["messages"]
        assert [message["role"] for message in said] == ["user", "assistant", "user"]
        await client.chat.completions.create(
            model="writer",
            messages=[
                *said,
                {"role": "assistant", "content": "Hello! One, two, three."},
                {"role": "user", "content": "Count to nine."},
            ],
            extra_headers={"X-Conversation-Id": "herons"},
        )
    await window.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(chat.locator(".elbowroom-message")).to_have_count(6)
    await expect(chat.locator(".mod-user").last).to_contain_text("Count to nine.")
    async with served.http.get(f"{served.url}/v1/conversations?q=heron") as response:
        assert len((await response.json())["data"]) == 1


async def test_answer_comes_in_one_piece_where_it_cannot_stream(scene: Scene, window: Window, chat: Locator) -> None:
    """Where the window may not ask by itself, the answer comes past it in one piece, and a notice says so."""

    async def refuse(route: Route) -> None:
        await route.abort()

    await window.page.route("**/v1/**", refuse)
    await ask(chat, "Say hello.")
    await expect(chat.locator(".mod-assistant")).to_contain_text("One, two, three.")
    assert any("in one piece" in told for told in await window.told())


async def test_nothing_in_an_answer_runs_or_asks_elsewhere(scene: Scene, window: Window, chat: Locator) -> None:
    """Pictures, frames, tags and code of other plugins in an answer or a title are text or links, and do nothing."""
    evil = "https://evil.example"
    texts = [
        f"![a]({evil}/1) ![b][r]\n\n[r]: {evil}/2",
        f'<img src="{evil}/3" onerror="window.ran = 1"><iframe src="{evil}/4"></iframe><video src="{evil}/5"></video>',
        f"- a\n  ```\n<img src={evil}/6>\n",
        f"$$\n```\n$$\n<img src={evil}/7>\n",
        "```dataviewjs\nwindow.ran = 2\n```\n\n> ````js-engine\n> window.ran = 3\n> ````\n\n`$= window.ran = 4`",
        "![[Ferry]] <script>window.ran = 5</script> <style>body { display: none }</style>",
        f"\\![c]({evil}/8) \\<img src={evil}/9> <!-- --><link rel=stylesheet href={evil}/10>",
        f"~~~js\r~~~\r![d]({evil}/11)\r",
    ]
    scene[1].enqueue("\n\n".join(texts), when=asked_for("Show it"))
    await ask(chat, "Show it: <img src=x onerror='window.ran = 6'>")
    await chat.get_by_role("button", name="Conversations").click()
    await expect(window.page.locator(".elbowroom-title").first).to_contain_text("<img src=x")
    text = chat.locator(".mod-assistant .elbowroom-text")
    await expect(text.locator("img, iframe, video, script, style, link, [onerror]")).to_have_count(0)
    await expect(text).to_contain_text("onerror=")
    assert await window.page.evaluate("[window.ran ?? null, theVault.otherPlugins.ran]") == [None, []]


async def test_links_in_an_answer_lead_to_notes_and_run_nothing(scene: Scene, window: Window, chat: Locator) -> None:
    """A link to a note opens it; one that may run something stays where it is, and a notice says so."""
    scene[1].enqueue("See [[Ferry]], [this](obsidian://advanced-uri?eval=1) too.", when=asked_for("Show links"))
    await ask(chat, "Show links.")
    text = chat.locator(".mod-assistant .elbowroom-text")
    await text.get_by_role("link", name="Ferry").click()
    await expect(window.page.locator(".mod-root .view-header-title")).to_have_text("Ferry")
    await text.locator("a", has_text="this").evaluate(
        "link => { link.href = 'obsidian://advanced-uri?eval=1'; window.isLeft = false;"
        " link.addEventListener('click', () => { window.isLeft = true; }); link.click(); }"
    )
    assert await window.page.evaluate("window.isLeft") is False
    assert any("obsidian://advanced-uri" in told for told in await window.told())


async def test_two_views_go_on_with_one_conversation(scene: Scene, window: Window, chat: Locator) -> None:
    """What was said in one view is there when the other one goes on: no answer is given without it."""
    await ask(chat, "Say hello to the marten.")
    await window.page.evaluate(
        "async () => { const { workspace } = theVault.app;"
        " const [first] = workspace.getLeavesOfType('elbowroom-chat');"
        " window.second = workspace.getLeaf('split');"
        " await second.setViewState({ type: 'elbowroom-chat', active: true });"
        " await second.view.show(first.view.chat.id); }"
    )
    views = window.page.locator(".workspace-leaf-content[data-type=elbowroom-chat]")
    one, other = views.nth(0), views.nth(1)
    await expect(other.locator(".elbowroom-message")).to_have_count(2)
    await expect(one.locator(".elbowroom-message")).to_have_count(2)
    await ask(one, "Count to three.")
    await other.get_by_label("Message").fill("Say hello once more.")
    await other.get_by_label("Message").press("Enter")
    await expect(other.locator(".elbowroom-message")).to_have_count(6)
    await ended(other)
    said = [message["content"] for message in scene[1].chats[-1].body["messages"] if message["role"] == "user"]
    assert said == ["Say hello to the marten.", "Count to three.", "Say hello once more."]


async def test_conversation_that_was_deleted_elsewhere_goes_on(scene: Scene, window: Window, chat: Locator) -> None:
    """Who goes on with a conversation that another program deleted is answered, with all that stands in the view."""
    served = scene[0]
    await ask(chat, "Say hello to the lynx.")
    async with served.http.get(f"{served.url}/v1/conversations?q=lynx") as response:
        (row,) = (await response.json())["data"]
    async with served.http.delete(f"{served.url}/v1/conversations/{row['id']}") as response:
        assert response.status < 300
    await window.page.evaluate("window.dispatchEvent(new Event('focus'))")
    await ask(chat, "Count to three.")
    await expect(chat.locator(".elbowroom-message")).to_have_count(4)
    assert "lynx" in str(scene[1].chats[-1].body["messages"])


async def test_switching_the_plugin_off_ends_an_answer(scene: Scene, window: Window, chat: Locator) -> None:
    """A plugin that is switched off while an answer streams ends it, and asks for nothing any more."""
    studio = scene[1]
    before = len(studio.disconnects)
    studio.enqueue(Script("Sow early, ", WaitFor(asyncio.Event())), when=asked_for("Tell me all"))
    await chat.get_by_label("Message").fill("Tell me all about sowing.")
    await chat.get_by_label("Message").press("Enter")
    await expect(chat.locator(".mod-assistant")).to_contain_text("Sow early,")
    await window.page.clock.install()
    await window.page.evaluate("theVault.plugin.onunload()")
    await studio.wait_until(lambda: len(studio.disconnects) == before + 1)
    asked = len(window.asked)
    await window.page.clock.run_for(60_000)
    assert len(window.asked) == asked


async def test_code_is_shown_and_copied_as_it_is(scene: Scene, window: Window, chat: Locator) -> None:
    """A block of code keeps every character and its language, also where it looks like tags."""
    code = 'const a = <div class="x">![0]</div>;'
    scene[1].enqueue(f"Like this:\n\n```jsx\n{code}\n```\n\nAnd `<b>`.", when=asked_for("Show code"))
    await ask(chat, "Show code.")
    assert await chat.locator(".mod-assistant pre code.language-jsx").inner_text() == f"{code}\n"
    await expect(chat.locator(".mod-assistant code").last).to_contain_text("b>")


async def test_away_at_the_start_and_back_later(browser: Browser, tmp_path: Path) -> None:
    """Where nothing answers, the chat says so and keeps what was typed; it goes on by itself once elbowroom is there.

    A server that is killed in the middle of an answer leaves what was said, which can be asked for again.
    """
    held = asyncio.Event()
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio:
        studio.enqueue(Script("The peas come in March. ", WaitFor(held)), when=asked_for("When do"))
        settings = tmp_path / "settings.toml"
        settings.write_text(settings_for(studio.base_url), encoding="utf-8")
        command = ("serve", "--config", str(settings))
        data = {"ELBOWROOM_DATA_DIR": str(tmp_path / "data")}
        async with running(tmp_path, *command, variables=data) as program:
            address = await program.address()
            await program.end(signal.SIGTERM)
        port = address.rpartition(":")[2]
        again = (*command, "--port", port)
        async with obsidian(browser, address) as window:
            await window.run("open-chat")
            chat = window.page.locator("[data-type=elbowroom-chat]")
            await expect(chat.get_by_role("alert")).to_contain_text("does not answer")
            await chat.get_by_label("Message").fill("When do the peas come?")
            async with running(tmp_path, *again, variables=data) as program:
                await program.address()
                await expect(chat.get_by_role("alert")).to_have_count(0)
                await expect(chat.get_by_label("Message")).to_have_value("When do the peas come?")
                await chat.get_by_label("Message").press("Enter")
                await expect(chat.locator(".mod-assistant")).to_contain_text("The peas come in March.")
                program.process.send_signal(signal.SIGKILL)
                await program.ended()
            await expect(chat.get_by_role("alert")).not_to_be_empty()
            await expect(chat.locator(".mod-assistant")).to_contain_text("Interrupted")
            async with running(tmp_path, *again, variables=data) as program:
                await program.address()
                await expect(chat.get_by_role("alert")).to_have_count(0)
                await expect(chat.locator(".mod-assistant")).to_contain_text("The peas come in March.")
                studio.enqueue("In March.", when=asked_for("When do"))
                await chat.get_by_role("button", name="Try again").click()
                await expect(chat.locator(".mod-assistant")).to_contain_text("In March.")
                await ended(chat)
                await expect(chat.locator(".elbowroom-message")).to_have_count(2)
