"""The forms of the page in a real browser: what a person changes there takes effect, and nothing is lost."""

import tomllib
from pathlib import Path

import chromium
import pytest
from chromium import go, opened
from page_scene import LLAMA, LONG_TALK, QWEN, Talk, hold, lived_in
from playwright.async_api import Browser, Route, expect
from scripted_pruner import is_prune_order
from serving import Served, serve, settings_for

from elbowroom.demo import SimulatedLMStudio
from elbowroom.settings.model import Settings
from elbowroom.settings.references import VAULT_READERS

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
browser = chromium.browser


def orders(studio: SimulatedLMStudio) -> list[str]:
    """Return which models were ordered to prune, in this order."""
    return [chat.body["model"] for chat in studio.chats if is_prune_order(chat.body)]


async def test_pruning_agent_chosen_on_the_page_does_the_next_compaction(tmp_path: Path, browser: Browser) -> None:
    """The choice in the list is saved, and the next conversation that fills its window is pruned by that agent."""
    async with lived_in(tmp_path, talks=[LONG_TALK]) as (served, studio):
        before = len(orders(studio))
        assert set(orders(studio)) == {QWEN}
        async with opened(browser, f"{served.url}/#/agents") as page:
            choice = page.get_by_label("Pruning agent")
            await expect(choice.locator("option").first).to_have_text("Same as current agent")
            await expect(choice).to_have_value("same")
            await choice.select_option("archivist")
            await choice.locator("xpath=ancestor::form").get_by_role("button", name="Save").click()
            await expect(page.locator("#toast")).to_contain_text("Saved")
        assert 'pruning_agent = "archivist"' in served.settings.read_text(encoding="utf-8")
        await hold(served, Talk("gardener", "second", [f"And in bed {bed}?" for bed in range(12)], 26))
        assert set(orders(studio)[before:]) == {LLAMA}


async def test_wrong_value_shows_its_error_beside_the_field(tmp_path: Path, browser: Browser) -> None:
    """The message stands at the field and is tied to it, the focus is there, and nothing that was typed is lost."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/settings") as page:
        before = served.settings.read_bytes()
        field, other = page.get_by_label("Keep for"), page.get_by_label("Most space")
        await other.fill("4")
        await field.fill("36501")
        await field.press("Enter")
        await expect(field).to_have_attribute("aria-invalid", "true")
        await expect(field).to_be_focused()
        described = (await field.get_attribute("aria-describedby") or "").split()
        assert "36500" in await page.locator(f"#{described[-1]}").inner_text()
        await expect(field).to_have_value("36501")
        await expect(other).to_have_value("4")
        assert served.settings.read_bytes() == before
        await field.fill("many")
        await field.press("Enter")
        await expect(page.locator(f"#{described[-1]}")).to_contain_text("number")
        await field.fill("7")
        await field.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("Saved")
        await expect(page.locator("[aria-invalid]")).to_have_count(0)
        written = served.settings.read_text(encoding="utf-8")
        assert "retention_days = 7" in written
        assert "max_gb = 4" in written


async def test_agent_is_made_changed_switched_off_and_deleted(tmp_path: Path, browser: Browser) -> None:
    """All of it on the page, and clients see each step at once."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/agents/+new") as page:
        await page.get_by_label("Name", exact=True).fill("My Poet")
        await expect(page.get_by_label("ID", exact=True)).to_have_value("my-poet")
        models = page.get_by_role("radiogroup", name="Model")
        await expect(models).to_contain_text(f"{QWEN}loadedwindow 8,192up to 32,768qwen2")
        await page.get_by_label("Another model").last.fill(" ")
        await page.get_by_role("button", name="Create agent").click()
        await expect(models).to_have_attribute("aria-invalid", "true")
        await models.get_by_role("radio", name=QWEN).check()
        await page.get_by_label("Instructions").fill("You answer in rhymes.\nAlways.")
        await page.get_by_label("tool_output_cache", exact=True).check()
        await page.get_by_label("Archivist (archivist)").first.check()
        await page.get_by_role("button", name="Create agent").click()
        await expect(page.get_by_role("link", name="My Poet")).to_be_visible()
        [poet] = [agent for agent in await agents_of(served) if agent["id"] == "my-poet"]
        assert poet["instructions"] == "You answer in rhymes.\nAlways."
        assert (poet["tools"], poet["agent_tools"]) == (["tool_output_cache"], ["archivist"])
        assert "my-poet" in await models_of(served)

        await page.get_by_role("switch", name="My Poet").uncheck()
        await expect(page.locator("#toast")).to_contain_text("No longer offered")
        assert "my-poet" not in await models_of(served)

        await page.get_by_role("link", name="My Poet").click()
        await page.get_by_text("More settings").click()
        await page.get_by_label("Most model calls per request").fill("7")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("#toast")).to_contain_text("Saved")
        assert [agent["max_turns"] for agent in await agents_of(served) if agent["id"] == "my-poet"] == [7]

        await page.get_by_role("link", name="My Poet").click()
        await page.get_by_role("button", name="Delete").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Delete").click()
        await expect(page.locator("#toast")).to_contain_text("Deleted")
        await expect(page.get_by_role("heading", name="Agents")).to_be_visible()
        await expect(page.get_by_role("link", name="My Poet")).to_have_count(0)
        assert "my-poet" not in [agent["id"] for agent in await agents_of(served)]


async def test_a_new_agent_with_a_model_that_nobody_has_is_asked_about(tmp_path: Path, browser: Browser) -> None:
    """The nearest model is named before the agent is made; it is made only where the person wants it all the same."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/agents/+new") as page:
        await page.get_by_label("Name", exact=True).fill("My Poet")
        await page.get_by_label("Another model").last.fill(f"{QWEN}x")
        await page.get_by_role("button", name="Create agent").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text(f"did you mean {QWEN}?")
        await dialog.get_by_role("button", name="Cancel").click()
        assert "my-poet" not in [agent["id"] for agent in await agents_of(served)]
        await page.get_by_role("button", name="Create agent").click()
        await dialog.get_by_role("button", name="Create all the same").click()
        await expect(page.get_by_role("link", name="My Poet")).to_be_visible()
        await expect(page.locator(".card", has_text="My Poet")).to_contain_text("has no model")


async def test_an_agent_is_copied_exported_imported_and_tried(tmp_path: Path, browser: Browser) -> None:
    """A copy and a file make the same agent again, and the page shows how it answers a first message."""
    tools = "tools = [\"tool_output_cache\"]\nsampling = { temperature = 0.5, grammar = '5' }\n"
    agents = f'[[agents]]\nid = "odd"\nmodel = "{QWEN}"\ninstructions = "Be odd."\n{tools}'
    async with lived_in(tmp_path, talks=[], more=agents) as (served, _):
        async with opened(browser, f"{served.url}/#/agents/odd") as page:
            await page.get_by_label("Message").fill("Say hello, please.")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_role("group", name="Answer")).to_contain_text("Hello, how nice to see you!")
            await expect(page.get_by_text("Nothing of it is kept.")).to_be_visible()
            async with page.expect_download() as saving:
                await page.get_by_role("button", name="Export").click()
            await page.get_by_role("link", name="Duplicate").click()
            await expect(page.get_by_label("ID", exact=True)).to_have_value("odd-copy")
            await page.get_by_role("button", name="Create agent").click()
            await page.locator("input[type=file]").set_input_files(await (await saving.value).path())
            await expect(page.get_by_label("ID", exact=True)).to_have_value("odd-2")
            await page.get_by_role("button", name="Create agent").click()
            await expect(page.get_by_role("switch", name="odd-2")).to_be_visible()
        written = {row["id"]: row for row in tomllib.loads(served.settings.read_text(encoding="utf-8"))["agents"]}
        own = {key: value for key, value in written["odd"].items() if key != "id"}
        for copy in ("odd-copy", "odd-2"):
            assert own.items() <= written[copy].items()
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            assert (await response.json())["data"] == []


async def test_vault_tools_are_chosen_by_what_an_agent_may_do(tmp_path: Path, browser: Browser) -> None:
    """Reading means all tools that change nothing, writing all of them; single tools can still be chosen."""
    more = f"[vault]\npath = '{tmp_path}'\nwrite = true\n"
    async with lived_in(tmp_path, talks=[], more=more) as (served, _):
        async with opened(browser, f"{served.url}/#/agents") as page:
            for choice, expected in (("Read", VAULT_READERS), ("Read and write", ("vault",)), ("No access", ())):
                await go(page, "agents/writer")
                await page.get_by_role("radio", name=choice, exact=True).check()
                await page.get_by_role("button", name="Save").click()
                await expect(page.get_by_role("heading", name="Agents", exact=True)).to_be_visible()
                [writer] = [agent for agent in await agents_of(served) if agent["id"] == "writer"]
                assert writer["tools"] == [*expected]
            await go(page, "agents/writer")
            await page.get_by_text("Single vault tools").click()
            await page.get_by_label("vault.read", exact=True).check()
            await expect(page.get_by_role("radio", name="Single tools")).to_be_checked()


async def test_settings_are_found_by_their_words_and_a_slider_moves_the_mark(tmp_path: Path, browser: Browser) -> None:
    """The search leaves the settings with these words; the threshold is a mark on a gauge, which the keyboard moves."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/settings/server") as page:
        await expect(page.get_by_role("heading", name="Server", exact=True)).to_be_focused()
        await expect(page.locator(".panel h2").first).to_have_text("Compaction")
        await expect(page.locator(".panel h2").last).to_have_text("Server")
        await page.get_by_role("searchbox").fill("most continuations")
        await expect(page.locator("[data-key]:visible")).to_have_count(1)
        await page.get_by_role("searchbox").fill("no such thing")
        await expect(page.get_by_text("No such setting")).to_be_visible()
        await page.get_by_role("searchbox").fill("compact from")
        slider = page.get_by_role("slider", name="Compact from")
        await slider.press("ArrowLeft")
        await slider.press("ArrowLeft")
        await expect(slider).to_have_attribute("aria-valuetext", "78 % of the window")
        await page.locator("form.dirty").get_by_role("button", name="Save").click()
        await expect(page.locator("#toast")).to_contain_text("Saved")
        assert "threshold_ratio = 0.78" in served.settings.read_text(encoding="utf-8")


async def agents_of(served: Served) -> list[dict[str, object]]:
    """Return the agents as the API has them."""
    async with served.http.get(f"{served.url}/api/agents") as response:
        found: list[dict[str, object]] = (await response.json())["data"]
        return found


async def models_of(served: Served) -> list[str]:
    """Return the names under which clients see agents and models."""
    async with served.http.get(f"{served.url}/v1/models") as response:
        return [row["id"] for row in (await response.json())["data"]]


async def test_token_is_asked_for_once_and_kept_in_the_tab(tmp_path: Path, browser: Browser) -> None:
    """A wrong one is refused in words, the right one opens the page in any script, and only this tab keeps it."""
    settings = settings_for("http://127.0.0.1:9", server='token = "env:ELBOWROOM_TEST_TOKEN"')
    async with serve(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": "rïght→"}) as served:
        async with opened(browser, f"{served.url}/#/agents", waits=False) as page:
            dialog = page.get_by_role("dialog")
            await expect(page.get_by_role("textbox", name="Token")).to_be_focused()
            await page.get_by_role("textbox", name="Token").fill("wrong")
            await page.keyboard.press("Enter")
            await expect(dialog).to_contain_text("That is not the token.")
            await page.get_by_role("textbox", name="Token").fill("rïght→")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="Agents")).to_be_visible()
            await expect(dialog).to_have_count(0)
            assert await page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
            await page.reload()
            await expect(page.get_by_role("heading", name="Agents")).to_be_visible()


async def test_secret_is_set_and_removed_and_never_read(tmp_path: Path, browser: Browser) -> None:
    """What was typed as a secret is nowhere in the page again, and can be taken away."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/models/lmstudio") as page:
        await page.get_by_label("API key", exact=True).fill("sk-very-secret")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        await go(page, "models/lmstudio")
        await expect(page.locator(".secret")).to_contain_text("Set")
        assert "sk-very-secret" not in await page.content()
        await page.get_by_role("button", name="Remove API key").click()
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        assert "sk-very-secret" not in served.settings.read_text(encoding="utf-8")


async def test_value_of_the_environment_is_locked(tmp_path: Path, browser: Browser) -> None:
    """It is shown, cannot be changed, and says where it comes from."""
    settings = settings_for("http://127.0.0.1:9")
    async with serve(tmp_path, settings, environ={"ELBOWROOM_COMPACTION__NOTICES": "event"}) as served:
        async with opened(browser, f"{served.url}/#/settings") as page:
            field = page.get_by_label("Notices")
            await expect(field).to_be_disabled()
            await expect(field).to_have_value("event")
            await expect(page.get_by_text("ELBOWROOM_COMPACTION__NOTICES")).to_be_visible()


async def test_what_was_entered_is_not_lost_by_going_away(tmp_path: Path, browser: Browser) -> None:
    """Who leaves a form with changes is asked first, and finds them again where the answer was no."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/agents/writer") as page:
        await page.get_by_label("Instructions").fill("Something new.")
        await page.get_by_role("link", name="Models", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        await expect(page.get_by_label("Instructions")).to_have_value("Something new.")
        await expect(page).to_have_url(f"{served.url}/#/agents/writer")
        await page.get_by_role("link", name="Models", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="Leave").click()
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()


async def test_provider_and_mcp_server_are_added_changed_and_removed(tmp_path: Path, browser: Browser) -> None:
    """Rows of both lists are made in forms of their own; what a person did not touch is not written."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/models/+new") as page:
        await page.get_by_label("ID", exact=True).fill("desk")
        await page.get_by_label("Kind").select_option("openai")
        await page.get_by_role("button", name="Add", exact=True).last.click()
        await expect(page.get_by_text("needs base_url").first).to_be_visible()
        await page.get_by_label("Address", exact=True).fill("http://127.0.0.1:9/v1")
        await page.get_by_role("button", name="Add", exact=True).last.click()
        await expect(page.get_by_role("region", name="desk")).to_contain_text("does not answer")
        written = served.settings.read_text(encoding="utf-8")
        assert 'id = "desk"' in written
        assert "manage_context" not in written

        await go(page, "settings/mcp/+new")
        await page.get_by_label("Name", exact=True).fill("files")
        await page.get_by_label("Program and arguments").fill("files-server\n--root\n/notes")
        await page.get_by_label("Enabled").uncheck()
        await page.get_by_role("button", name="Add", exact=True).last.click()
        await page.get_by_role("link", name="files").click()
        await expect(page.get_by_role("heading", name="files")).to_be_visible()
        await page.get_by_text("More settings").click()
        await page.get_by_role("group", name="Environment").get_by_role("button", name="Add").click()
        await page.get_by_label("Environment: Variable").fill("KEY")
        await page.get_by_label("Environment: Value").fill("sk-secret")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="Settings")).to_be_visible()
        async with served.http.get(f"{served.url}/api/settings") as response:
            [server] = (await response.json())["values"]["mcp_servers"]
        assert server["command"] == ["files-server", "--root", "/notes"]
        assert server["enabled"] is False
        assert server["env"]["KEY"]["set"] is True
        await page.get_by_role("link", name="files").click()
        await expect(page.get_by_role("heading", name="files")).to_be_visible()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("None yet.")).to_be_visible()


async def test_what_waits_for_a_restart_is_said(tmp_path: Path, browser: Browser) -> None:
    """What does not count at once stands in a banner until then, in every view."""
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/settings") as page:
        await page.get_by_label("Keep conversations").uncheck()
        await page.locator("form.dirty").get_by_role("button", name="Save").click()
        await expect(page.locator("#banner")).to_contain_text("Restart elbowroom to apply: store.conversations")
        await go(page, "agents")
        await expect(page.locator("#banner")).to_be_visible()


async def test_every_setting_has_a_field_and_so_has_one_that_is_new(tmp_path: Path, browser: Browser) -> None:
    """The forms are made from the schema: none of its settings is missing, and nothing but it has to name a new one."""

    async def add_a_setting(route: Route) -> None:
        answer = await route.fetch()
        told = await answer.json()
        told["schema"]["$defs"]["StoreSettings"]["properties"]["brand_new"] = {"title": "Brand New", "type": "integer"}
        await route.fulfill(response=answer, json=told)

    schema = Settings.model_json_schema()["$defs"]
    async with lived_in(tmp_path, talks=[]) as (served, _), opened(browser, f"{served.url}/#/connect") as page:
        await page.route("**/api/settings", add_a_setting)
        shown = set()
        for view in ("agents", "agents/writer", "models/lmstudio", "models/own/+new", "settings", "settings/mcp/+new"):
            await go(page, view)
            shown |= set(await page.locator("[data-key]").evaluate_all("all => all.map((one) => one.dataset.key)"))
            if view == "settings":
                await expect(page.get_by_label("Brand New")).to_be_visible()
    tables = [name for name in schema if name not in ("AgentVault", "OwnToolOutput", "Sampling")]
    assert {key for table in tables for key in schema[table]["properties"]} <= shown


ODD = r"""
[[agents]]
id = "odd"
model = "m"
instructions = "One\r\nTwo"
tool_name = ""
name = "Two\nlines"
[agents.sampling]
grammar = "5"

[[mcp_servers]]
name = "files"
enabled = false
command = ["sh", "-c", "one\n two"]

[compaction]
summary_directives = ["One\ntwo", "three"]
"""


async def test_what_was_not_touched_is_not_written(tmp_path: Path, browser: Browser) -> None:
    """Line breaks and blanks that a control cannot show, and a text like a number, stay as a person wrote them."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9", agents=ODD)) as served:
        before = tomllib.loads(served.settings.read_text(encoding="utf-8"))
        async with opened(browser, f"{served.url}/#/settings") as page:
            await page.get_by_label("Turns kept word for word").fill("4")
            await page.locator("form.dirty").get_by_role("button", name="Save").click()
            await expect(page.locator("#toast")).to_contain_text("Saved")
            await go(page, "agents/odd")
            await page.get_by_text("More settings").click()
            await page.get_by_label("Most model calls per request").fill("7")
            await page.get_by_role("button", name="Save").click()
            await expect(page.get_by_role("heading", name="Agents", exact=True)).to_be_visible()
            await go(page, "settings/mcp/files")
            command = page.get_by_label("Program and arguments")
            await command.fill('["sh", "-c", "one\\n two", "-x"')
            await page.get_by_role("button", name="Save").click()
            await expect(command).to_have_attribute("aria-invalid", "true")
            await command.fill('["sh", "-c", "one\\n two", "-x"]')
            await page.get_by_role("button", name="Save").click()
            await expect(page.get_by_role("heading", name="Settings", exact=True)).to_be_visible()
        before["compaction"]["retain_last_turns"] = 4
        before["agents"][0]["max_turns"] = 7
        before["mcp_servers"][0]["command"].append("-x")
        assert tomllib.loads(served.settings.read_text(encoding="utf-8")) == before
