"""The page in a real browser: what happens is seen there, by everybody, and what was said stays text."""

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import chromium
import pytest
from chatting import MODEL, elbowroom_with_studio, eventually
from chromium import go, opened
from noted_conversations import Noted, milk
from own_tools import own_tool
from page_scene import LONG_TALK, QWEN, Talk, lived_in
from playwright.async_api import Browser, Page, Response, expect
from serving import serve, settings_for
from small_window import history, small_window

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall, WaitFor
from elbowroom.logs.formats import FIELDS
from elbowroom.logs.set_up import logging_to_file
from elbowroom.server.state import SHARED
from elbowroom.settings.live import LiveSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


async def test_gauge_moves_while_a_chat_streams_and_stop_stops_it(tmp_path: Path, browser: Browser) -> None:
    """The bar grows with the answer without a reload, says what is going on, and Stop ends the answer."""
    more, never = asyncio.Event(), asyncio.Event()
    async with (
        SimulatedLMStudio([SimulatedModel(QWEN, loaded_context_length=4096)]) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        studio.enqueue(Script("word " * 800, WaitFor(more), "word " * 800, WaitFor(never)))
        asking = asyncio.create_task(served.chat_frames(f"lmstudio/{QWEN}", "Tell me all."))
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens >= 800, "nothing was said", 20)
        async with opened(browser, f"{served.url}/#/conversations") as page:
            gauge, phase = page.get_by_role("meter"), page.locator(".card .phase")
            await expect(phase).to_have_text("writing")
            await wait_for_fill(page, 800, 1600)
            more.set()
            await wait_for_fill(page, 1600, 2400)
            assert "of 4,096 tokens" in (await gauge.get_attribute("aria-valuetext") or "")
            await page.get_by_role("button", name="Stop Tell me all.").click()
            await expect(phase).to_be_hidden()
            await asking
        await eventually(lambda: studio.open_requests == 0, "the answer was not stopped", 20)


async def test_a_stop_shows_what_waited_for_the_answer(tmp_path: Path, browser: Browser) -> None:
    """Who looks at the conversation reads which messages the stop has dropped."""
    never = asyncio.Event()
    async with (
        SimulatedLMStudio([SimulatedModel(QWEN, loaded_context_length=4096)]) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        studio.enqueue(Script("word " * 10, WaitFor(never)))
        asking = asyncio.create_task(served.chat_frames(f"lmstudio/{QWEN}", "Tell me all."))
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.get_by_role("link", name="Tell me all.").first.click()
            await expect(page.locator(".phase")).to_have_text("writing")
            conversation = page.url.rpartition("/")[2].partition("?")[0]
            url = f"{served.url}/v1/conversations/{conversation}/queue"
            async with served.http.post(url, json={"content": "Also check May."}) as response:
                assert response.status == 202
            await page.get_by_role("button", name="Stop").click()
            await expect(page.get_by_text("Not said, since it was stopped")).to_be_visible()
            await expect(page.get_by_text("Also check May.")).to_be_visible()
            await asking


async def wait_for_fill(page: Page, least: int, most: int) -> None:
    """Wait until the only gauge shows a number of tokens between these, and a bar of that width."""
    await page.wait_for_function(
        "([least, most]) => { const now = Number(document.querySelector('.gauge').ariaValueNow);"
        " return now >= least && now < most; }",
        arg=[least, most],
    )
    now = await page.evaluate(
        "() => { const gauge = document.querySelector('.gauge'); return [Number(gauge.ariaValueNow) / "
        "Number(gauge.ariaValueMax), gauge.firstChild.clientWidth / gauge.clientWidth]; }"
    )
    assert now[0] == pytest.approx(now[1], abs=0.02)


async def test_three_steps_tick_themselves_and_each_loaded_model_tells_its_room(
    tmp_path: Path, browser: Browser
) -> None:
    """A new installation is led to its first chat; from then on the first view tells how many turns are left."""
    async with SimulatedLMStudio([SimulatedModel(QWEN, loaded_context_length=4096)]) as studio:
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            async with opened(browser, served.url) as page:
                steps = page.get_by_role("region", name="Three steps").get_by_role("listitem")
                await expect(steps.filter(has_text=", done")).to_have_count(1)
                await expect(page.get_by_text("Start it, load a model")).to_be_hidden()
                await expect(page.get_by_role("region", name=QWEN)).to_contain_text("All free")
                agent = {"id": "writer", "model": QWEN}
                async with served.http.post(f"{served.url}/api/agents", json=agent) as response:
                    assert response.status == 201
                await expect(page.locator(".step.done")).to_have_count(2)
                await served.chat("writer", "How long is a tide?")
                await expect(page.locator(".step.done")).to_have_count(3)
                model = page.get_by_role("region", name=QWEN)
                await expect(model).to_contain_text(re.compile("About .* turns left"))
                await expect(model.get_by_role("meter")).to_have_attribute("aria-valuemax", "4096")
                await expect(page.get_by_role("list", name="Last used")).to_contain_text("without a chat id")
                saved = page.get_by_role("region", name="Saved")
                await expect(saved).to_contain_text("Nothing had to be compacted")
                await milk(served.app[SHARED].store.conversations, at=1_700_000_000.0)
                await page.reload()
                await saved.get_by_text("By day and month").click()
                await expect(saved.get_by_role("row", name="November 2023")).to_contain_text("4,000")


async def test_conversations_of_a_program_lead_back_to_it(tmp_path: Path, browser: Browser) -> None:
    """The list leaves those of one program or model, and a conversation opens where it came from."""
    url = "http://127.0.0.1:8080/c/chat-1"
    headers = {"X-Conversation-Id": "chat-1", "X-Elbowroom-Message-Id": "m", "X-Elbowroom-Chat-Url": url}
    async with small_window(tmp_path) as (served, _):
        for text, sent in (("How long is a tide?", headers), ("When is the frost?", {})):
            body = {"model": "writer", "messages": [{"role": "user", "content": text}]}
            async with served.http.post(served.chat_url, json=body, headers=sent) as response:
                assert response.status == 200
        async with opened(browser, f"{served.url}/#/conversations") as page:
            titles = page.locator(".card-title")
            await expect(titles).to_have_count(2)
            await page.get_by_label("Begun by").select_option("Open WebUI")
            await expect(titles).to_have_text(["How long is a tide?"])
            await page.get_by_label("Begun by").select_option("All programs")
            await expect(titles).to_have_count(2)
            await page.get_by_label("Model", exact=True).select_option(MODEL)
            await expect(titles).to_have_count(2)
            await titles.filter(has_text="tide").click()
            there = page.get_by_role("link", name="Open in Open WebUI")
            await expect(there).to_have_attribute("href", url)


async def test_home_of_a_server_without_models(tmp_path: Path, browser: Browser) -> None:
    """It claims nothing that is not so, and says what of the settings is left out."""
    wrong = "[compaction]\nthreshold_ratio = 5\n"
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        served.settings.write_text(settings_for("http://127.0.0.1:9") + wrong, encoding="utf-8")
        async with opened(browser, served.url) as page:
            await expect(page.get_by_text("No server of models answers")).to_be_visible()
            await expect(page.get_by_role("region", name="Three steps")).to_contain_text("Start LM Studio")
            await expect(page.get_by_role("main")).not_to_contain_text(re.compile("LM Studio found|Models found"))
            await expect(page.locator("#banner")).to_contain_text("compaction.threshold_ratio = 5 is not accepted")


async def test_a_running_chat_stands_once(tmp_path: Path, browser: Browser) -> None:
    """While it is answered it is among those that run now, and not among the last used as well."""
    held = asyncio.Event()
    async with small_window(tmp_path) as (served, studio):
        await served.chat("writer", "How long is a tide?")
        studio.enqueue(Script("Six ", WaitFor(held), "hours."))
        asking = asyncio.create_task(served.chat_frames("writer", "When is the frost?"))
        async with opened(browser, served.url) as page:
            runs, used = (page.get_by_role("list", name=name) for name in ("Running now", "Last used"))
            await expect(runs).to_contain_text("When is the frost?")
            await expect(used).to_contain_text("How long is a tide?")
            await expect(used).not_to_contain_text("When is the frost?")
            held.set()
            await asking
            await expect(used).to_contain_text("When is the frost?")
            await expect(runs).to_have_count(0)


async def test_a_long_log_is_light(tmp_path: Path, browser: Browser) -> None:
    """Its fields are drawn once a line is unfolded: 500 lines take at most seven elements each."""
    async with lived_in(tmp_path, talks=[]) as (served, _):
        environ = {"ELBOWROOM_DATA_DIR": str(tmp_path)}
        with logging_to_file(LiveSettings(served.settings, environ, {}).current(), environ):
            for number in range(600):
                logging.getLogger("elbowroom").warning(
                    "Line %d.", number, extra={FIELDS: {"event": "x", "number": number}}
                )
            async with opened(browser, f"{served.url}/#/logs") as page:
                lines = page.locator(".log li")
                await expect(lines).to_have_count(500)
                assert await page.locator(".log *").count() <= 7 * 500
                await lines.first.locator("summary").click()
                await expect(lines.first.get_by_text("number", exact=True)).to_be_visible()


async def test_log_is_followed_filtered_and_unfolded(
    tmp_path: Path, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    """New lines come by themselves without the page's own, and a line shows all its fields."""
    caplog.set_level(logging.INFO)
    async with lived_in(tmp_path, talks=[]) as (served, _):
        environ = {"ELBOWROOM_DATA_DIR": str(tmp_path)}
        with logging_to_file(LiveSettings(served.settings, environ, {}).current(), environ):
            async with opened(browser, f"{served.url}/#/logs") as page:
                await served.chat("writer", "Hello")
                line = page.locator(".log li").filter(has=page.get_by_text("tokens in,"))
                await line.locator("summary").click()
                await expect(line.get_by_text("tokens_out")).to_be_visible()
                await expect(page.locator(".log li").filter(has_text="/api/")).to_have_count(0)
                await page.get_by_label("Level").select_option("warning")
                await expect(line).to_have_count(0)


async def test_compactions_and_originals_are_shown(tmp_path: Path, browser: Browser) -> None:
    """A conversation's compactions stand in a row with sizes, way, time and summary, the originals one click away."""
    async with lived_in(tmp_path, talks=[LONG_TALK]) as (served, _):
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.get_by_role("link", name="What grows in bed 0?").click()
            entry = page.locator(".divider").first
            await expect(entry).to_contain_text("Compacted here")
            freed = await entry.locator("strong").inner_text()
            assert freed.endswith("tokens freed")
            await expect(page.locator(".divider").last).not_to_be_in_viewport()
            await page.goto(f"{page.url}?freed={freed.split()[0].replace(',', '')}")
            await expect(entry).to_be_in_viewport()
            await expect(entry).to_contain_text("by the pruning agent")
            await entry.get_by_text("The summary that stands for it").click()
            await expect(entry.locator(".summary")).to_contain_text("Agreed so far: peppers along the wall, peas from")
            await expect(entry.locator(".summary")).to_contain_text("What grows in bed 1?")
            await expect(entry.locator(".summary")).not_to_contain_text("2027-05-10")  # nobody has said that
            await entry.get_by_text("The originals, word for word").click()
            await expect(entry.locator(".message").first).to_contain_text("What grows in bed 0?")
            async with page.expect_download() as saving:
                await page.get_by_role("button", name="Export Markdown").click()
            assert "What grows in bed 0?" in (await (await saving.value).path()).read_text(encoding="utf-8")
            await page.get_by_role("button", name="Delete").click()
            await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
            await expect(page.get_by_text("No conversation yet")).to_be_visible()


@pytest.mark.threat("scripts in names", "shown as text")
async def test_hostile_text_stays_text(tmp_path: Path, browser: Browser) -> None:
    """Markup in questions, answers, titles and names of models is shown as it was written, and does nothing."""
    async with (
        SimulatedLMStudio([SimulatedModel(QWEN, loaded_context_length=4096), SimulatedModel(HOSTILE)]) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        studio.enqueue(f"Well: {HOSTILE}")
        await served.chat(f"lmstudio/{QWEN}", HOSTILE)
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.get_by_role("link", name=HOSTILE[:20]).click()
            await expect(page.locator(".message .said").last).to_have_text(f"Well: {HOSTILE}")
            await expect(page.locator("h1")).to_contain_text("<img src=x")
            assert await page.title() != "owned"
            await go(page, "models")
            await expect(page.locator(".models")).to_contain_text("onerror")
            assert await page.locator("main img, main script").count() == 0


async def test_odd_calls_of_a_client_do_not_hide_its_conversation(tmp_path: Path, browser: Browser) -> None:
    """Arguments of a tool that are no text, as a client may send them, are shown as JSON; the rest is there as ever."""
    async with (
        SimulatedLMStudio([SimulatedModel(QWEN)]) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        function = {"name": "f", "arguments": {"onclick": "x", "hidden": True}}
        messages = [
            {"role": "user", "content": "First?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "done"},
            {"role": "user", "content": "Second?"},
        ]
        body = {"model": f"lmstudio/{QWEN}", "messages": messages}
        async with served.http.post(served.chat_url, json=body) as response:
            assert response.status == 200
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.get_by_role("link", name="First?").click()
            await page.get_by_text("Called").click()
            await expect(page.get_by_text('{"onclick":"x","hidden":true}')).to_be_visible()
            await expect(page.locator(".call .result-body")).to_contain_text("done")
            await expect(page.get_by_text("Second?", exact=True)).to_be_visible()


async def test_the_whole_of_a_cut_result_is_one_click_away(tmp_path: Path, browser: Browser) -> None:
    """Beside what the model has got of a tool's result stands a button that shows all of it."""
    report = "".join(f"{number}: all was well\n" for number in range(9000))

    @own_tool
    async def look() -> str:
        """Look."""
        return report

    def says(body: dict[str, Any]) -> Script | str:
        return "Well." if body["messages"][-1]["role"] == "tool" else Script(ToolCall("look", {}))

    async with small_window(tmp_path, says, window=8192, toolbox=lambda target: [look]) as (served, _):
        body = {"model": "writer", "messages": [{"role": "user", "content": "How was it?"}]}
        async with served.http.post(served.chat_url, json=body) as response:
            assert response.status == 200
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.get_by_role("link", name="How was it?").click()
            await page.get_by_text("Called look").click()
            await page.get_by_role("button", name="Show the full output").click()
            await expect(page.get_by_text("4500: all was well")).to_be_visible()


async def test_a_long_message_stays_until_it_can_be_read(tmp_path: Path, browser: Browser) -> None:
    """One of a few words is gone after seven seconds, and an error of fifty words still there after twenty."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served, opened(browser, served.url) as page:
        await page.clock.install()
        for words, seconds, is_there in ((2, 7, False), (50, 20, True)):
            await page.evaluate(
                "text => import('/page/dom.js').then(({ toast }) => toast(text, 'bad'))", "word " * words
            )
            await expect(page.locator("#toast")).to_be_visible()
            await page.clock.fast_forward(seconds * 1000)
            await expect(page.locator("#toast")).to_be_visible(visible=is_there)


async def test_a_coding_agent_is_told_the_window(tmp_path: Path, browser: Browser) -> None:
    """Its settings have the address, the chosen model and its window, and the command beside them writes the same."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/connect") as page:
        await page.get_by_label("Program").select_option("codex")
        await page.get_by_label("Model").last.select_option("writer")
        told = page.get_by_role("region", name="~/.codex/config.toml")
        await expect(told).to_contain_text(f'base_url = "{served.url}/v1"')
        await expect(told).to_contain_text('model = "writer"')
        await expect(told).to_contain_text(re.compile(r"model_context_window = [0-9]{4,}\n"))
        assert "$" not in await told.inner_text()
        command = page.get_by_role("region", name="command", exact=True)
        await expect(command).to_have_text('elbowroom connect codex --write --model "writer"')


async def test_a_model_that_is_not_loaded_is_told_as_such(tmp_path: Path, browser: Browser) -> None:
    """A coding agent gets the window that the model had when it was loaded last, and the page says so."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        async with served.http.get(f"{served.url}/v1/models") as response:
            assert response.status == 200
        async with served.http.post(f"{served.url}/api/v1/models/unload", json={"instance_id": MODEL}) as response:
            assert response.status == 200
        async with opened(browser, f"{served.url}/#/connect") as page:
            await expect(page.get_by_text("writer is not loaded; 32,768 tokens is the window")).to_be_visible()


async def test_an_answer_says_what_was_read_again_for_it(tmp_path: Path, browser: Browser) -> None:
    """Where the system prompt has changed, the answer after it says so, with the tokens and the seconds."""
    async with small_window(tmp_path, window=8192) as (served, studio):
        studio.tells_cached = True
        asked = history(4)
        for system in ("Be kind.", "Today is Monday."):
            messages = [{"role": "system", "content": system}, *asked[1:]]
            body = {"model": "writer", "messages": messages}
            async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": "log"}) as response:
                assert response.status == 200
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await page.get_by_role("link", name="What was noted").click()
            line = page.locator(".message > .about")
            await expect(line).to_have_text(
                re.compile(r"\d+ tokens read again in [\d.]+ s: the system prompt has changed")
            )
            assert await line.count() == 1


async def test_test_button_tells_what_works(tmp_path: Path, browser: Browser) -> None:
    """With models it reports a stream, without their server what is wrong; neither is kept as a conversation."""
    async with lived_in(tmp_path, talks=[]) as (served, studio):
        async with opened(browser, f"{served.url}/#/connect") as page:
            assert f"{served.url}/v1/chat/completions" in await page.locator("main").inner_text()
            await page.get_by_role("button", name="Test").click()
            await expect(page.locator(".checks li")).to_have_count(3)
            await expect(page.locator(".checks li").last).to_contain_text("writer streams")
            await studio.stop()
            await page.get_by_role("button", name="Test").click()
            await expect(page.locator('.checks li[data-state="off"]')).to_contain_text("does not answer")
            await go(page, "conversations")
            await expect(page.get_by_text("No conversation yet")).to_be_visible()


async def test_everything_can_be_done_with_the_keyboard(tmp_path: Path, browser: Browser) -> None:
    """Tab, space, arrows, Enter and Escape are enough, the focus is always seen, and a dialog keeps it."""
    async with small_window(tmp_path) as (served, _), opened(browser, f"{served.url}/#/agents") as page:
        keys = page.keyboard
        await keys.press("Tab")
        await expect(page.locator(":focus")).to_have_text("Skip to content")
        await keys.press("Enter")
        await expect(page.locator("h1:focus")).to_have_count(1)
        await tab_to(page, "New agent")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="New agent")).to_be_focused()
        await tab_to(page, "Name")
        await keys.type("Typist")
        await tab_to(page, MODEL)
        await keys.press("Enter")
        await expect(page.get_by_role("link", name="Typist")).to_be_visible()
        await tab_to(page, "Typist is offered to clients")
        await keys.press("Space")
        await expect(page.locator("#toast")).to_contain_text("No longer offered")
        await page.get_by_role("link", name="Typist").focus()
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="Typist")).to_be_focused()
        await tab_to(page, "Delete")
        await keys.press("Enter")
        for _ in range(6):
            assert await page.evaluate(
                "document.activeElement === document.body || "
                "document.querySelector('dialog').contains(document.activeElement)"
            )
            await keys.press("Tab")
        await keys.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.locator("button:focus")).to_have_text("Delete")


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until what has this name is focused; the focus is marked all the way."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        found, mark = await page.evaluate(
            "() => { const now = document.activeElement; const style = getComputedStyle(now);"
            " return [now.ariaLabel ?? now.labels?.[0]?.textContent ?? now.textContent, style.outlineStyle]; }"
        )
        assert mark != "none", found
        if found == name:
            return
    raise AssertionError(f"Tab does not lead to {name!r}")


async def test_all_conversations_and_messages_can_be_reached_and_searched(tmp_path: Path, browser: Browser) -> None:
    """Longer lists come a page at a time, and the search finds what was said in any of them."""
    talks = [Talk("writer", f"short {number}", [f"Tell me about port {number}."], 1) for number in range(22)]
    long = Talk("writer", "long", [f"Name harbour {number}, please." for number in range(60)], 1)
    async with lived_in(tmp_path, talks=[*talks, long]) as (served, _):
        async with opened(browser, f"{served.url}/#/conversations") as page:
            cards = page.locator(".card")
            await expect(cards).to_have_count(20)
            await page.get_by_role("button", name="Show more").click()
            await expect(cards).to_have_count(23)
            await expect(page.locator(".day")).to_have_count(1)
            await expect(page.locator(".day")).to_have_text("Today")
            answered_by = page.get_by_label("Answered by")
            await answered_by.select_option("archivist")
            await expect(page.get_by_text("There is no conversation with archivist.")).to_be_visible()
            await answered_by.select_option("writer")
            await expect(cards).to_have_count(20)
            await page.get_by_role("searchbox").fill("harbour 17")
            await expect(cards).to_have_count(1)
            await page.get_by_role("searchbox").fill("no such words")
            await expect(page.get_by_text("Nothing found")).to_be_visible()
            await page.get_by_role("searchbox").fill("harbour 17")
            await page.get_by_role("link", name="Name harbour 0, please.").click()
            messages = page.locator(".message")
            await expect(messages).to_have_count(100)
            await expect(messages.first).to_contain_text("Name harbour 10, please.")
            await page.get_by_role("button", name="Earlier messages").click()
            await expect(messages).to_have_count(120)
            await expect(messages.first).to_contain_text("Name harbour 0, please.")
            await expect(page.get_by_role("button", name="Earlier messages")).to_have_count(0)


async def test_a_conversation_of_50_000_messages_opens_at_its_end(tmp_path: Path, browser: Browser) -> None:
    """Its first view takes one answer with the last hundred messages, and each earlier page one answer of that size."""
    async with lived_in(tmp_path, talks=[]) as (served, _):
        noted = Noted(served.app[SHARED].store.conversations, "conv_long").begin()
        for number in range(25_000):
            noted.ask(f"Question {number}?")
            noted.answer(f"Answer {number}.")
            if number % 1000 == 0:
                await noted.keep()
        await noted.keep()
        async with opened(browser, f"{served.url}/#/settings") as page:
            asked: list[tuple[str, int]] = []

            async def note(response: Response) -> None:
                if "/v1/conversations/" in response.url and not response.url.endswith("/queue"):
                    asked.append((response.url, len(await response.body())))

            page.on("response", note)
            await go(page, "conversations/conv_long")
            messages = page.locator(".message")
            await expect(messages).to_have_count(100)
            await expect(messages.last).to_contain_text("Answer 24999.")
            await page.get_by_role("button", name="Earlier messages").click()
            await expect(messages).to_have_count(200)
            await expect(messages.first).to_contain_text("Question 24900?")
            assert len(asked) == 2
            assert all(size < 50_000 for _, size in asked)


async def test_conversations_of_a_named_user_are_shown_when_that_user_is_named(
    tmp_path: Path, browser: Browser
) -> None:
    """Where several people use it the page says so and asks whose are meant, and then shows these alone."""
    async with lived_in(tmp_path, talks=[]) as (served, _):
        for name in ("ada", "bob"):
            body = {"model": "writer", "messages": [{"role": "user", "content": f"I am {name}."}]}
            async with served.http.post(served.chat_url, json=body, headers={"X-Elbowroom-User": name}) as response:
                assert response.status == 200
        async with opened(browser, f"{served.url}/#/conversations") as page:
            await expect(page.get_by_role("alert")).to_contain_text("Several people")
            await page.get_by_label("User", exact=True).fill("ada")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("link", name="I am ada.")).to_be_visible()
            await expect(page.locator(".card")).to_have_count(1)
            await page.get_by_role("link", name="I am ada.").click()
            await expect(page.locator(".message").first).to_contain_text("I am ada.")


async def test_memories_of_an_agent_are_seen_and_deleted(tmp_path: Path, browser: Browser) -> None:
    """The agent's page lists what it remembers; a memory is deleted by the keyboard alone, after a question."""
    async with lived_in(tmp_path, talks=[]) as (served, _):
        memories = served.app[SHARED].store.memories
        kept = await memories.save("", "gardener", HOSTILE, 2e9)
        await memories.save("", "gardener", "The garden is 12 by 8 metres.", 1e9)
        async with opened(browser, f"{served.url}/#/agents/gardener") as page:
            listed = page.get_by_role("list", name="Memories").get_by_role("listitem")
            await expect(listed).to_have_count(2)
            await expect(listed.first).to_contain_text("<img src=x")
            await page.get_by_role("button", name="Forget: The garden is").focus()
            await page.keyboard.press("Enter")
            question = page.get_by_role("dialog", name="Delete this memory?")
            await expect(question).to_contain_text("The garden is 12 by 8 metres.")
            await page.keyboard.press("Escape")
            await expect(listed).to_have_count(2)
            await page.keyboard.press("Enter")
            await question.get_by_role("button", name="Delete").press("Enter")
            await expect(listed).to_have_count(1)
            await expect(page.get_by_role("heading", name="Memories")).to_be_focused()
            assert await memories.all("", "gardener") == [kept]
            await page.get_by_role("button", name="Forget: <img").click()
            await question.get_by_role("button", name="Delete").click()
            await expect(page.get_by_text("Nothing is remembered.")).to_be_visible()
            assert await memories.all("", "gardener") == []


async def test_an_agent_that_remembers_nothing_has_no_list(tmp_path: Path, browser: Browser) -> None:
    """Without memory tools, and without a memory from earlier, there is nothing to show."""
    async with lived_in(tmp_path, talks=[]) as (served, _):
        async with opened(browser, f"{served.url}/#/agents/writer") as page:
            await expect(page.get_by_role("button", name="Save")).to_be_visible()
            await expect(page.get_by_role("heading", name="Memories")).to_have_count(0)
