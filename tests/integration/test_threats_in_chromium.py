"""Pages of others in a real browser: a name that leads here, posts without preflight, and markup in every name."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chatting import MODEL, RAW_MODEL
from chromium import chromium, go, opened
from fake_upstream import FakeUpstream, fake_upstream
from playwright.async_api import Browser, Page, expect
from serving import Served, serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
EVIL = "evil.example"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
ASK = """async ([url, options]) => {
    try { const response = await fetch(url, options); return [response.status, await response.text()]; }
    catch (error) { return [0, String(error)]; }
}"""


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Run a Chromium for which a foreign name leads to this machine, as after DNS rebinding."""
    async with chromium(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as browser:
        yield browser


async def asked(page: Page, url: str, **options: Any) -> tuple[int, str]:
    """Ask from within a page; the status is 0 where the page may not read the answer."""
    status, text = await page.evaluate(ASK, [url, options])
    return status, text


async def blank(request: web.Request) -> web.StreamResponse:
    """Answer with a page of nothing."""
    return web.Response(text="<!doctype html><title>fine</title>", content_type="text/html")


def body_of(text: str) -> str:
    """Return a chat request as a page would write it."""
    return f'{{"model": "{RAW_MODEL}", "messages": [{{"role": "user", "content": "{text}"}}]}}'


@pytest.mark.threat("DNS rebinding", "in a real browser: neither page nor API under the foreign name")
async def test_a_name_that_leads_here_gets_nothing(tmp_path: Path, browser: Browser) -> None:
    """The foreign name has the very port, so that the browser takes both for one origin; the Host header tells."""
    async with one_model() as studio, serve(tmp_path, settings_for(studio.base_url)) as served:
        page = await browser.new_page()
        answer = await page.goto(f"http://{EVIL}:{served.port}/")
        assert answer is not None
        assert answer.status == 403
        for path in ("/v1/models", "/api/settings", "/v1/conversations", "/api/logs", "/metrics"):
            status, text = await asked(page, path)
            assert (status, MODEL in text) == (403, False), path
        json = {"Content-Type": "application/json"}
        status, _ = await asked(page, "/v1/chat/completions", method="POST", headers=json, body=body_of("Hi"))
        assert status == 403
        assert studio.chats == []


@pytest.mark.threat(("CSRF", "foreign origins"), "in a real browser: nothing is read, asked or changed")
async def test_a_foreign_page_reads_and_changes_nothing(tmp_path: Path, browser: Browser) -> None:
    """With and without preflight, with a form, from a frame without origin: no chat reaches the model."""
    async with (
        one_model() as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
        fake_upstream({"/": blank}) as evil,
    ):
        before = served.settings.read_text(encoding="utf-8")
        page = await browser.new_page()
        await page.goto(evil.url.replace("127.0.0.1", EVIL))
        json = {"Content-Type": "application/json"}
        for path in ("/v1/models", "/api/settings", "/v1/conversations", "/health"):
            assert (await asked(page, f"{served.url}{path}"))[0] == 0, path
        for options in ({"headers": json}, {"mode": "no-cors"}, {"headers": {"Content-Type": "text/plain"}}):
            assert (await asked(page, served.chat_url, method="POST", body=body_of("Hi"), **options))[0] == 0, options
        patch = '{"mcp_servers": [{"name": "x", "command": ["touch", "owned"]}]}'
        assert (await asked(page, f"{served.url}/api/settings", method="PATCH", headers=json, body=patch))[0] == 0
        await in_a_frame(page, served)
        await by_a_form(page, served, evil)
        assert studio.chats == []
        assert served.settings.read_text(encoding="utf-8") == before


async def in_a_frame(page: Page, served: Served) -> None:
    """Post from a sandboxed frame, whose origin is `null`, and wait until it has been answered."""
    script = f"fetch('{served.chat_url}', {{method: 'POST', body: '{{}}'}}).catch(() => parent.postMessage('no', '*'))"
    said = await page.evaluate(
        """script => new Promise(done => {
            addEventListener('message', event => done(event.data), {once: true});
            const frame = document.createElement('iframe');
            frame.sandbox = 'allow-scripts';
            frame.srcdoc = `<script>${script}<\\/script>`;
            document.body.append(frame);
        })""",
        script,
    )
    assert said == "no"


async def by_a_form(page: Page, served: Served, evil: FakeUpstream) -> None:
    """Post a form whose one field is JSON, as browsers let any page do."""
    async with page.expect_navigation() as navigation:
        await page.evaluate(
            """([url, name]) => {
                const form = document.createElement('form'), field = document.createElement('input');
                Object.assign(form, {method: 'POST', action: url, enctype: 'text/plain'});
                field.name = name;
                form.append(field);
                document.body.append(form);
                form.submit();
            }""",
            [served.chat_url, body_of("Hi")],
        )
    assert (await navigation.value).status == 403
    assert evil.asked


@pytest.mark.threat("scripts in names", "in a real browser: names of agents, tools, files and conversations are text")
async def test_markup_in_every_name_is_text(tmp_path: Path, browser: Browser) -> None:
    """An agent, a conversation, a tool, its arguments and the file in its result are shown, and nothing runs."""
    agents = f"[[agents]]\nid = \"odd\"\nname = '''{HOSTILE}'''\ninstructions = '''{HOSTILE}'''\nmodel = \"{MODEL}\"\n"
    function = {"name": HOSTILE, "arguments": f'{{"path": {HOSTILE!r}}}'}
    messages = [
        {"role": "user", "content": f"Title {HOSTILE}"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "name": HOSTILE, "content": f"{HOSTILE}.md"},
        {"role": "user", "content": "And now?"},
    ]
    async with one_model() as studio, serve(tmp_path, settings_for(studio.base_url, agents=agents)) as served:
        body = {"model": RAW_MODEL, "messages": messages}
        headers = {"X-Conversation-Id": f"name {HOSTILE}", "X-Conversation-Title": HOSTILE}
        async with served.http.post(served.chat_url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
        async with opened(browser, f"{served.url}/#/conversations") as page:
            for view in ("agents", "agents/odd", "models", "settings", "log"):
                await go(page, view)
                await shows_no_markup(page, view)
            await go(page, "conversations")
            await page.get_by_role("link", name="Title").click()
            await page.get_by_text("Called").click()
            await expect(page.locator(".call .result-body")).to_contain_text("onerror")
            await shows_no_markup(page, "conversation")
            refused = await page.evaluate(
                """() => {
                    const script = document.createElement('script');
                    script.textContent = "document.title = 'owned'";
                    document.body.append(script);
                    return document.title;
                }"""
            )
            assert refused != "owned", "the page's policy lets written scripts run"


async def shows_no_markup(page: Page, view: str) -> None:
    """Check that nothing of the markup has become an element or has run."""
    assert await page.title() != "owned", view
    assert await page.locator("main img, main script").count() == 0, view


def one_model() -> SimulatedLMStudio:
    """Return an LM Studio with one loaded model."""
    return SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=4096)])
