"""Templates that nobody knows render in a worker that can be killed; hostile ones end in time with a clear error."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psutil
import pytest
import pytest_asyncio
from template_chats import CHATS, PLACE, call, user

from elbowroom.caches import HISTORY_LETTERS
from elbowroom.tokens.errors import ConversationNotContinuable, TemplateFailed, TemplateOverran, TemplateRefused
from elbowroom.tokens.renderer import CHANCES, INLINE_MESSAGES, TemplateRenderer, WorkerProcess, order_for
from elbowroom.tokens.templates import canonical_messages
from elbowroom.tokens.templates.known import KNOWN_TEMPLATES
from elbowroom.tokens.templates.prompt import ChatPrompt, ChatRequest
from elbowroom.tokens.templates.template import sha256_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CHATML = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
HELLO = ChatRequest([user("Hello")])
PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
GENEROUS = 30.0  # seconds, for work that takes some milliseconds on an idle machine


def worker_id(renderer: TemplateRenderer) -> int | None:
    """Return the process id of a renderer's worker, None while there is none."""
    return renderer._worker.process.pid if renderer._worker else None


def workers() -> set[int]:
    """Return the process ids of all workers of this process."""
    return {child.pid for child in psutil.Process().children() if "tokens.worker" in " ".join(child.cmdline())}


@pytest.fixture
async def renderer() -> AsyncIterator[TemplateRenderer]:
    """A renderer that knows no template and waits long."""
    async with aclosing(TemplateRenderer(deadline=GENEROUS, known=())) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_renderer() -> AsyncIterator[TemplateRenderer]:
    """A renderer like `renderer` for tests that leave its worker running: to start one takes most of their time."""
    async with aclosing(TemplateRenderer(deadline=GENEROUS, known=())) as running:
        yield running


@pytest.fixture
async def strict_renderer() -> AsyncIterator[TemplateRenderer]:
    """A renderer that knows no template and soon loses patience."""
    async with aclosing(TemplateRenderer(deadline=2.0, known=())) as running:
        yield running


async def test_unknown_template_renders_in_the_worker(renderer: TemplateRenderer) -> None:
    """The text is the one that this process would write, for every conversation."""
    prompt = ChatPrompt(CHATML, bos_token="<s>", clock=lambda: datetime(2024, 2, 29, tzinfo=UTC))
    assert worker_id(renderer) is None
    for name, chat in CHATS.items():
        request = ChatRequest(chat.messages, chat.tools, chat.arguments)
        if name in ("ends with a call", "ends with two"):
            with pytest.raises(ConversationNotContinuable):
                await renderer.render(prompt, request)
        else:
            assert await renderer.render(prompt, request) == prompt.text(request)
    assert worker_id(renderer) is not None


@pytest.mark.asyncio(loop_scope="module")
async def test_clock_reaches_the_worker(lasting_renderer: TemplateRenderer) -> None:
    """A template writes the date of the prompt's clock there too, and each time anew."""
    days = iter([1, 2])
    prompt = ChatPrompt("{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime(2024, 2, next(days), tzinfo=UTC))
    texts = [await lasting_renderer.render(prompt, HELLO) for _ in range(2)]
    assert texts == ["01 Feb 2024", "02 Feb 2024"]


@pytest.mark.asyncio(loop_scope="module")
async def test_lone_surrogates_and_nested_data_pass(lasting_renderer: TemplateRenderer) -> None:
    """Text that UTF-8 cannot hold comes back as it was."""
    assert await lasting_renderer.render(
        ChatPrompt("{{ messages[0].content }}"), ChatRequest([user("a\ud800\u2028b")])
    ) == ("a\ud800\u2028b")


async def test_known_template_renders_in_this_process() -> None:
    """A template on the list needs no worker, be the conversation short or long."""
    async with aclosing(TemplateRenderer(known={sha256_of(CHATML)})) as renderer:
        prompt = ChatPrompt(CHATML + "\n")
        assert await renderer.render(prompt, HELLO) == PROMPT
        assert await renderer.render(prompt, HELLO) == PROMPT
        long = ChatRequest([user("Hello")] * (INLINE_MESSAGES + 1))
        assert await renderer.render(prompt, long) == prompt.text(long)
        assert worker_id(renderer) is None


def test_list_of_known_templates_is_a_list_of_hashes() -> None:
    """What is on the list are SHA-256 hashes, some dozens."""
    assert len(KNOWN_TEMPLATES) > 60
    assert all(len(digest) == 64 and set(digest) <= set("0123456789abcdef") for digest in KNOWN_TEMPLATES)


@pytest.mark.slow
@pytest.mark.threat("chat templates", "a process of its own, killed in time")
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(ENDLESS, id="loops"),
        pytest.param("{{ 9 ** (9 ** 9) }}", id="a number that holds the interpreter's lock"),
        pytest.param(
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
            id="macros that double",
            marks=pytest.mark.long,
        ),
        pytest.param("{{ lipsum(n=10**9) }}", id="endless prose", marks=pytest.mark.long),
    ],
)
async def test_template_that_takes_too_long_is_killed(strict_renderer: TemplateRenderer, source: str) -> None:
    """It ends at the deadline with an error that names it, and the next template renders in a new worker."""
    assert await strict_renderer.render(ChatPrompt(CHATML), HELLO) == PROMPT
    first = worker_id(strict_renderer)
    with pytest.raises(TemplateOverran, match=r"of evil-7b was stopped: it took more than 2 seconds"):
        await strict_renderer.render(ChatPrompt(source, name="evil-7b"), HELLO)
    assert first is not None
    assert not psutil.pid_exists(first)
    assert await strict_renderer.render(ChatPrompt(CHATML), HELLO) == PROMPT
    assert worker_id(strict_renderer) != first


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.threat("chat templates", "with little memory")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**10 }}",
        "{{ 'a' | center(10**10) }}",
        "{{ '%99999999999d' | format(1) }}",
        "{% set ns = namespace(s='aaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s='aaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    ],
)
async def test_template_that_takes_too_much_memory_is_stopped(lasting_renderer: TemplateRenderer, source: str) -> None:
    """It fails for the memory it wants, and this process never holds any of it."""
    with pytest.raises(TemplateOverran, match="more memory"):
        await lasting_renderer.render(ChatPrompt(source), HELLO)
    assert await lasting_renderer.render(ChatPrompt(CHATML), HELLO) == PROMPT


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("source", "kind", "reason"),
    [
        ("{{ raise_exception('no tools here') }}", TemplateRefused, "no tools here"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", TemplateFailed, "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", TemplateFailed, "undefined"),
        ("{% for %}", TemplateFailed, "TemplateSyntaxError"),
        ("{% for i in range(10**9) %}{% endfor %}", TemplateFailed, "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", TemplateOverran, "calls itself"),
        ("{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}", TemplateOverran, "calls itself"),
        ("{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}", TemplateOverran, "characters"),
        ("{% set _ = messages.append(messages) %}{{ messages | tojson }}", TemplateOverran, "calls itself"),
    ],
)
async def test_errors_of_the_worker_are_the_templates(
    lasting_renderer: TemplateRenderer, source: str, kind: type[TemplateFailed], reason: str
) -> None:
    """What goes wrong there is raised here with class, name and reason, and the worker lives on."""
    await lasting_renderer.render(ChatPrompt(CHATML), HELLO)
    worker = worker_id(lasting_renderer)
    with pytest.raises(TemplateFailed, match=reason) as caught:
        await lasting_renderer.render(ChatPrompt(source, name="odd-model"), HELLO)
    assert type(caught.value) is kind
    assert caught.value.template == "odd-model"
    assert worker_id(lasting_renderer) == worker


@pytest.mark.slow
async def test_template_that_was_killed_twice_is_given_up() -> None:
    """It costs no third deadline; other templates are not concerned."""
    async with aclosing(TemplateRenderer(deadline=0.5, known=())) as renderer:
        for _ in range(CHANCES):
            with pytest.raises(TemplateOverran, match="took more than"):
                await renderer.render(ChatPrompt(ENDLESS), HELLO)
        with pytest.raises(TemplateOverran, match="not tried again"):
            await renderer.render(ChatPrompt(ENDLESS), HELLO)
        assert worker_id(renderer) is None


async def test_worker_that_died_is_replaced(renderer: TemplateRenderer) -> None:
    """A worker that something else has killed costs at most one request."""
    prompt = ChatPrompt(CHATML)
    await renderer.render(prompt, HELLO)
    first = worker_id(renderer)
    assert first is not None
    psutil.Process(first).kill()
    try:
        text = await renderer.render(prompt, HELLO)
    except TemplateOverran:
        text = await renderer.render(prompt, HELLO)
    assert text == PROMPT
    assert worker_id(renderer) != first


async def test_requests_at_the_same_time_share_one_worker(renderer: TemplateRenderer) -> None:
    """They take turns, and each gets its own text."""
    prompt, before = ChatPrompt("{{ messages[0].content }}"), workers()
    names = [str(number) for number in range(20)]
    texts = await asyncio.gather(*(renderer.render(prompt, ChatRequest([user(name)])) for name in names))
    assert texts == names
    assert workers() - before == {worker_id(renderer)}


@pytest.mark.slow
async def test_cancelled_request_leaves_nothing_behind(renderer: TemplateRenderer) -> None:
    """Whoever goes away in the middle takes the busy worker along; the next request gets its own answer."""
    await renderer.render(ChatPrompt(CHATML), HELLO)
    busy = worker_id(renderer)
    assert busy is not None
    task = asyncio.create_task(renderer.render(ChatPrompt(ENDLESS), HELLO))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(busy)
    assert await renderer.render(ChatPrompt(CHATML), HELLO) == PROMPT


@pytest.mark.slow
async def test_loop_goes_on_while_a_template_hangs(strict_renderer: TemplateRenderer) -> None:
    """A hostile template holds up nobody but those who wait for the worker."""
    await strict_renderer.render(ChatPrompt(CHATML), HELLO)
    task = asyncio.create_task(strict_renderer.render(ChatPrompt(ENDLESS), HELLO))
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.01)
        ticks += 1
    with pytest.raises(TemplateOverran):
        await task
    assert ticks > 10


async def test_close_ends_the_worker_and_a_later_request_starts_one() -> None:
    """Closing leaves no process; the renderer can be used again."""
    renderer = TemplateRenderer(known=())
    await renderer.aclose()
    for _ in range(2):
        assert await renderer.render(ChatPrompt(CHATML), HELLO) == PROMPT
        worker = worker_id(renderer)
        assert worker is not None
        await renderer.aclose()
        assert not psutil.pid_exists(worker)
        assert worker_id(renderer) is None


async def test_worker_that_does_not_start_is_a_failed_template(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a worker the template gives no prompt, and the reason is told; with one it does again."""
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", str(tmp_path / "no-python"))
        with pytest.raises(TemplateFailed, match="the process that renders it does not start"):
            await renderer.render(ChatPrompt(CHATML), HELLO)
    assert await renderer.render(ChatPrompt(CHATML), HELLO) == PROMPT


async def test_worker_sees_no_secrets(renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens and keys of this process's environment are not in the worker's."""
    monkeypatch.setenv("LM_API_TOKEN", "canary")
    await renderer.render(ChatPrompt(CHATML), HELLO)
    assert worker_id(renderer) is not None
    assert "LM_API_TOKEN" not in psutil.Process(worker_id(renderer)).environ()


PARENT = """
import asyncio, sys
from elbowroom.tokens.templates.prompt import ChatPrompt, ChatRequest
from elbowroom.tokens.renderer import TemplateRenderer

async def main():
    renderer = TemplateRenderer(deadline=float(sys.argv[2]), known=())
    hello = ChatRequest([{"role": "user", "content": "hi"}])
    await renderer.render(ChatPrompt("{{ 1 }}"), hello)
    print(renderer._worker.process.pid, flush=True)
    await renderer.render(ChatPrompt(sys.argv[1]), hello)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize(("source", "deadline"), [("{{ 1 }}", 60.0), (ENDLESS, 0.5)], ids=["idle", "busy"])
def test_worker_ends_with_a_killed_parent(source: str, deadline: float) -> None:
    """Even `kill -9` leaves no worker: an idle one sees its stdin end, a busy one ends itself past its deadline."""
    command = [sys.executable, "-c", PARENT, source, str(deadline)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        time.sleep(0.2)
        parent.send_signal(signal.SIGKILL)
    psutil.wait_procs([worker], timeout=GENEROUS)
    assert not worker.is_running()


@pytest.mark.parametrize("source", [CHATML, ENDLESS], ids=["known", "unknown"])
async def test_messages_nested_too_deeply_are_refused(source: str) -> None:
    """Arguments nested beyond what Python can follow are an error to report, in this process and in the worker."""
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    called = {**call(PLACE), "function": {"name": "f", "arguments": nested}}
    request = ChatRequest([user(), {"role": "assistant", "tool_calls": [called]}, user()])
    async with aclosing(TemplateRenderer(known={sha256_of(CHATML)})) as renderer:
        with pytest.raises(TemplateFailed, match="nested too deeply"):
            await renderer.render(ChatPrompt(source), request)


def test_images_do_not_travel() -> None:
    """A picture of some megabytes is no part of the order that the worker gets."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000_000}}
    request = ChatRequest([user([{"type": "text", "text": "Hello"}, picture])])
    messages = canonical_messages(request.messages)
    assert len(order_for(ChatPrompt(CHATML), request, messages, [], GENEROUS)) < 2000


async def test_what_has_grown_travels_once(renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a conversation that goes on only what is new goes through the pipes, both ways; each prompt is whole."""
    prompt, turns = ChatPrompt(CHATML), [user(f"{number} " + "word " * 200) for number in range(60)]
    sizes, ask = [], WorkerProcess.ask

    async def noted(worker: WorkerProcess, order: bytes) -> bytes:
        sizes.append(len(order))
        sizes.append(len(reply := await ask(worker, order)))
        return reply

    monkeypatch.setattr(WorkerProcess, "ask", noted)
    for end in (50, 51, 60, 40, 58):
        request = ChatRequest([dict(message) for message in turns[:end]])
        assert await renderer.render(prompt, request) == prompt.text(request)
    assert min(sizes[:2]) > 50_000
    assert max(sizes[2:4]) < 8_000
    other = ChatRequest([user("Another one."), *turns[1:9]])
    with pytest.raises(TemplateRefused):
        await renderer.render(ChatPrompt("{{ raise_exception('no') }}"), other)
    assert await renderer.render(prompt, other) == prompt.text(other)
    calls = [{"function": {"name": "f", "arguments": {"a": value}}} for value in (1, True, 1.0)]
    twins = [ChatRequest([{"role": "assistant", "tool_calls": [called]}, user()]) for called in calls]
    source = ChatPrompt("{{ messages | tojson }}")
    assert [await renderer.render(source, twin) for twin in twins] == [*map(source.text, twins)]


async def test_a_prompt_that_is_too_large_to_keep_travels_whole(renderer: TemplateRenderer) -> None:
    """It comes to its text each time, and neither process keeps it."""
    prompt, messages = ChatPrompt(CHATML), [user("word " * (HISTORY_LETTERS // 9)), user("Go on.")]
    for end in (1, 2):
        request = ChatRequest(messages[:end])
        assert await renderer.render(prompt, request) == prompt.text(request)
        assert renderer._worker is not None
        assert not renderer._worker.last.text


@pytest.mark.asyncio(loop_scope="module")
async def test_calls_reach_the_worker_as_they_are(lasting_renderer: TemplateRenderer) -> None:
    """Arguments given as an object or as JSON text render alike."""
    source = "{% for m in messages if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}"
    for arguments in (PLACE, '{"place": "Tōkyō <&\'>", "days": 2}'):
        called = {**call(PLACE), "function": {"name": "f", "arguments": arguments}}
        request = ChatRequest([user(), {"role": "assistant", "tool_calls": [called]}, user()])
        assert await lasting_renderer.render(ChatPrompt(source), request) == '{"place": "Tōkyō <&\'>", "days": 2}'
