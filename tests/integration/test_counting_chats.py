"""What counting does to chats: the alarm for prompts that were cut, and nothing else, however it fails."""

import asyncio
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chatting import eventually
from counted_models import FileTokenizer, write_counted_model
from fake_upstream import Answer, fake_upstream, says, streams
from outcome import chat
from serving import Served, serve, settings_for
from spread_variants import spread

from elbowroom.agents.catalog import CatalogRow
from elbowroom.demo import Overflow, SimulatedLMStudio, SimulatedModel
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.lmstudio import rpc as lmstudio_rpc
from elbowroom.server.models import TokenizersAhead
from elbowroom.server.state import PROVIDERS, SETTINGS
from elbowroom.tokens import file_counter
from elbowroom.tokens.counter import TokenCounter

KEY = "tiny"
RAW = f"lmstudio/{KEY}"
IMPATIENT = lmstudio_rpc.Patience(connect=0.5, answer=0.5)
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the model."""
    return write_counted_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@asynccontextmanager
async def counted(
    folder: Path, file: Path, *, window: int = 8192, of: Path | None = None, **switches: Any
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run elbowroom with this model file in its settings, and a simulated LM Studio that counts with it, or `of`."""
    listed = SimulatedModel(KEY, loaded_context_length=window)
    async with SimulatedLMStudio([listed], tokenizer=FileTokenizer(of or file), **switches) as studio:
        files = f"model_files = {{ {KEY} = '{file}' }}"
        async with serve(folder, settings_for(studio.base_url, provider=files)) as served:
            yield served, studio


async def size_of(served: Served, text: str) -> int:
    """Return what elbowroom counts for a chat of one message, exactly."""
    body = {"model": RAW, "messages": [{"role": "user", "content": text}]}
    async with served.http.post(f"{served.chat_url}/input_tokens", json=body) as response:
        answer = await response.json()
        assert answer["exact"] is True, answer
        number: int = answer["input_tokens"]
        return number


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was warned of."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
async def test_no_alarm_for_a_prompt_that_was_read(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture, *, stream: bool
) -> None:
    """An engine that read everything, or 64 tokens less than was counted, is no reason for a warning."""
    async with counted(tmp_path, model) as (served, studio):
        assert (await chat(served, RAW, stream=stream, text="keri " * 300)).text
        size = await size_of(served, "keri " * 300)
        studio.count_tokens = lambda messages, tools: size - 64
        assert (await chat(served, RAW, stream=stream, text="keri " * 300)).text
    assert not warnings(caplog)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
async def test_the_alarm_names_the_numbers(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture, *, stream: bool
) -> None:
    """A window that shrinks as the request comes: LM Studio cuts the middle out silently, elbowroom says how much."""
    policy = Overflow(policy="truncateMiddle")
    turns = [{"role": ("user", "assistant")[turn % 2], "content": "bahudo keri " * 30} for turn in range(21)]
    async with counted(tmp_path, model, window=16_384, overflow=policy) as (served, studio):

        def shrink(body: dict[str, Any]) -> None:
            studio.reload("tiny", 2048)

        studio.on_request = shrink
        body = {"model": RAW, "messages": turns, "stream": stream}
        async with served.http.post(served.chat_url, json=body) as response:
            assert response.status == 200
            await response.read()
        [record] = studio.chats
        sent = FileTokenizer(model).count_tokens([dict(turn) for turn in turns])
    [warning] = warnings(caplog)
    assert warning.startswith(f"tiny: The model was sent {sent:,} tokens and read only ")
    read = int(warning.split("read only ")[1].split(":")[0].replace(",", ""))
    assert read <= 2048 < sent
    assert not record.fitted
    assert "larger context length" in warning


async def test_one_alarm_for_a_model(tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """65 tokens less is a warning; what is sent afterwards stays within what was read."""
    async with counted(tmp_path, model) as (served, studio):
        size = await size_of(served, "keri " * 300)
        studio.count_tokens = lambda messages, tools: size - 65
        assert (await chat(served, RAW, stream=True, text="keri " * 300)).text
    assert warnings(caplog) == [
        " ".join(
            (
                f"tiny: The model was sent {size:,} tokens and read only {size - 65:,}:",
                "the middle of the conversation was cut out silently (its overflow policy is truncateMiddle).",
                "From now on no more than that is sent to it. Load it with a larger context length to have more.",
            )
        )
    ]


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: None,
    "no model": lambda path: path.write_text("hello"),
    "cut off": lambda path: path.write_bytes(write_counted_model(path).read_bytes()[:1000]),
    "a broken template": lambda path: write_counted_model(path, "{% if %}"),
    "a template that refuses": lambda path: write_counted_model(path, "{{ raise_exception('never') }}"),
    "a template without end": lambda path: write_counted_model(path, ENDLESS),
    "a template of gigabytes": lambda path: write_counted_model(path, "{{ 'x' * 9999999999 }}"),
}


@pytest.mark.parametrize(("name", "rpc"), spread(BAD_FILES, [True, False]))
async def test_a_chat_goes_on_with_a_bad_file(
    tmp_path: Path,
    model: Path,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    rpc: bool,
) -> None:
    """It is answered as if nobody had counted; one warning tells of the file."""
    monkeypatch.setattr(file_counter, "TEMPLATE_SECONDS", 0.5)
    bad = tmp_path / "bad.gguf"
    BAD_FILES[name](bad)
    async with counted(tmp_path, bad, of=model, rpc=rpc) as (served, _):
        async with asyncio.timeout(30):
            for stream in (True, False, True):
                assert (await chat(served, RAW, stream=stream)).text
    assert sum("bad.gguf" in warning for warning in warnings(caplog)) in (1, 2)  # stopped once, then given up


def silent_socket() -> Answer:
    """Answer as a websocket that lets everybody in and then says nothing."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_json({"success": True})
        async for _ in socket:
            pass
        return socket

    return answer


def mute() -> Answer:
    """Answer by taking the request and saying nothing."""

    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError("nobody waits that long")

    return answer


def unframed() -> Answer:
    """Answer as a websocket that sends nonsense."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_json({"success": True})
        async for message in socket:
            await socket.send_str(f"[{message.data}]")
        return socket

    return answer


ROW = {
    "type": "llm",
    "key": KEY,
    "display_name": KEY,
    "loaded_instances": [{"id": KEY, "config": {"context_length": 8192}}],
}
CHUNK = (
    b'data: {"model": "tiny", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\n'
    b'data: {"model": "tiny", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 1}}\n\n'
    b"data: [DONE]\n\n"
)
SOCKETS: dict[str, Callable[[], Answer]] = {
    "silent": silent_socket,
    "mute": mute,
    "nonsense": unframed,
    "none": lambda: says("no", 404),
}


@asynccontextmanager
async def with_socket(folder: Path, socket: Answer, file: Path | None) -> AsyncIterator[Served]:
    """Run elbowroom in front of an LM Studio whose websocket is like this."""
    answers = {
        "/api/v1/models": says({"models": [ROW]}),
        "/v1/chat/completions": streams(CHUNK),
        "/llm": socket,
    }
    files = f"model_files = {{ {KEY} = '{file}' }}" if file else 'home = "/nowhere"'
    async with fake_upstream(answers) as fake, serve(folder, settings_for(fake.url, provider=files)) as served:
        yield served


@pytest.mark.slow
@pytest.mark.parametrize(("name", "has_file"), spread(SOCKETS, [False, True]))
async def test_a_chat_goes_on_with_a_bad_socket(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, has_file: bool
) -> None:
    """Whatever the websocket does, chats are answered; one that hangs is waited for once and not long."""
    assert lmstudio_rpc.Patience().answer <= 3.0
    monkeypatch.setattr(lmstudio_rpc, "Patience", lambda: IMPATIENT)
    async with with_socket(tmp_path, SOCKETS[name](), model if has_file else None) as served:
        async with asyncio.timeout(14):  # a moment for the first, none for the others
            for _ in range(5):
                assert (await chat(served, RAW, stream=True)).text == "Hi"


@pytest.mark.slow
async def test_a_comparison_is_not_waited_for(tmp_path: Path, model: Path) -> None:
    """With the file at hand the first word comes before a hanging LM Studio's time is over."""
    async with with_socket(tmp_path, silent_socket(), model) as served:
        assert (await chat(served, RAW, stream=True)).text == "Hi"
        tasks = [task for task in asyncio.all_tasks() if "_compare" in repr(task.get_coro())]
        assert len(tasks) == 1
    await eventually(tasks[0].done, "the comparison was left running")


@pytest.mark.slow
async def test_a_mistake_in_counting_stops_no_chat(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even a mistake of our own costs an answer, before it or after it; the log has where it was made."""

    async def breaks(*_: Any, **fields: Any) -> Any:
        raise KeyError("inner")

    async with counted(tmp_path, model) as (served, _):
        for name in ("observe", "count_chat"):
            monkeypatch.setattr(TokenCounter, name, breaks)
            assert (await chat(served, RAW, stream=True)).text
            assert (await chat(served, RAW, stream=False)).text
    told = Counter(re.sub(r" for tiny| of a conversation with tiny is", "", text) for text in warnings(caplog))
    assert told == {
        "What the engine counted could not be compared.": 2,
        "The prompt could not be counted: 'inner'": 2,
        "How full the window, cannot be counted.": 2,
    }
    assert all(record.exc_info for record in caplog.records if record.levelno >= logging.WARNING)


def lm_studio(served: Served) -> Provider:
    """Return the provider that a running server asks."""
    return served.app[PROVIDERS].of(served.app[SETTINGS].current())["lmstudio"]


async def test_warming_up(tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When a client lists the models, the tokenizers of loaded chat models are loaded, once, and nothing else."""
    embedding = ModelInfo("embed", "lmstudio", "embed", kind="embedding", loaded_context=512)
    async with counted(tmp_path, model) as (served, studio):
        provider, ahead = lm_studio(served), TokenizersAhead()
        rows = [CatalogRow("", "", "", "", info) for info in [embedding, None, *await provider.models()]]
        assert not studio.rpc_calls
        for _ in range(2):
            await asyncio.gather(*ahead.begin(rows, {"lmstudio": provider}))
        assert {call.parameter["specifier"]["query"]["identifier"] for call in studio.rpc_calls} == {KEY}
        studio.rpc_calls.clear()
        await size_of(served, "Hello")
        assert not studio.rpc_calls
    assert not warnings(caplog)


async def test_warming_up_survives_everything(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server does not end because a tokenizer cannot be loaded."""

    async def breaks(_: TokenCounter) -> None:
        raise KeyError("inner")

    monkeypatch.setattr(TokenCounter, "warm_up", breaks)
    async with counted(tmp_path, model) as (served, _):
        async with served.http.get(f"{served.url}/v1/models") as response:
            assert response.status == 200
        await eventually(lambda: warnings(caplog), "no warning about the tokenizer")
    assert ["cannot be loaded" in warning for warning in warnings(caplog)] == [True]


HISTORIES: dict[str, list[dict[str, Any]]] = {
    "one message": [{"role": "user", "content": "bahudo keri lo, 1.234; " * 18_000}],
    "many messages": [
        {"role": ("user", "assistant")[turn % 2], "content": f"{turn} bahudo keri lo; " * 20} for turn in range(1001)
    ],
    "no spaces": [{"role": "user", "content": "x" * 400_000}],
    "signs": [{"role": "user", "content": "<|" * 100_000 + "[[[" * 70_000}],
}


@pytest.mark.parametrize(("name", "way"), spread(HISTORIES, ["file", "family"]))
async def test_the_event_loop_goes_on(tmp_path: Path, model: Path, name: str, way: str) -> None:
    """While 400 KB are counted other chats go on: most of the work is done outside the event loop's thread."""
    async with counted(tmp_path, model, rpc=False) as (served, _):
        provider = lm_studio(served)
        [info] = await provider.models()
        counter = await provider.counter(info) if way == "file" else TokenCounter("llama-3-8b", "llama")
        await counter.count_chat([{"role": "user", "content": "Hello"}])
        loop, everything = time.thread_time(), time.process_time()
        count = await counter.count_chat(HISTORIES[name])
        loop, everything = time.thread_time() - loop, time.process_time() - everything
    assert count.tokens > 10_000
    assert (count.method == "exact") is (way == "file")
    assert loop < everything / 2, (loop, everything)


@pytest.fixture
def reached() -> Iterator[list[str]]:
    """The addresses that this process connects to or looks up, while the test runs."""
    addresses: list[str] = []
    is_on = True

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if is_on and event == "socket.connect" and isinstance(arguments[1], tuple):
            addresses.append(str(arguments[1][0]))
        if is_on and event == "socket.getaddrinfo":
            addresses.append(str(arguments[0]))

    sys.addaudithook(audit)
    yield addresses
    is_on = False


@pytest.mark.slow
async def test_nothing_but_loopback_is_reached(tmp_path: Path, model: Path, reached: list[str]) -> None:
    """Counting by file, by LM Studio and by every kind of family asks nobody outside this machine."""
    async with counted(tmp_path, model) as (served, _):
        assert (await chat(served, RAW, stream=True)).text
        for name in ("llama-3", "llama-2", "mistral", "mistral-nemo", "qwen3", "gpt-oss", "gemma", "unknown"):
            assert (await TokenCounter(name, None).count_chat([{"role": "user", "content": "Hello"}])).tokens
    assert reached
    assert set(reached) == {"127.0.0.1"}
