"""LM Studio's websocket calls as elbowroom makes them: logins, answers good and bad, losses and silence."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from chatting import eventually
from fake_upstream import Answer, fake_upstream, says
from sample_chat import READ_NOTE, TOOL_CHAT

from elbowroom.demo import Overflow, SimulatedLMStudio, SimulatedModel, SimulatedTokenizer
from elbowroom.providers.failures import Source
from elbowroom.providers.lmstudio import rpc as lmstudio_rpc
from elbowroom.providers.lmstudio.counting import RpcCounter
from elbowroom.providers.lmstudio.rpc import LMStudioRpc, Patience, RpcError
from elbowroom.providers.upstream import LARGE_ANSWER, Upstream
from elbowroom.tokens.count import CannotCount, TokenCount

MODEL = "qwen/qwen3-8b"
TOKEN = "sk-lm-abcdefgh:0123456789abcdefghij"
HASTY = Patience(connect=0.2, answer=0.2, pause=0.2)
HELLO = ({"role": "user", "content": "Hello"},)
Talk = Callable[[dict[str, Any]], Any]


def loaded(**fields: Any) -> SimulatedLMStudio:
    """Return a simulated LM Studio with the model loaded."""
    return SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)], **fields)


@asynccontextmanager
async def rpc_to(url: str, api_key: str | None = None, patience: Patience | None = None) -> AsyncIterator[LMStudioRpc]:
    """Return a client; at the end no task of its own may be left."""
    before = asyncio.all_tasks()
    async with aiohttp.ClientSession() as http:
        rpc = LMStudioRpc(Upstream(http, Source("LM Studio", url, key=api_key)), f"{url}/llm", patience=patience)
        try:
            yield rpc
        finally:
            await rpc.aclose()
        await eventually(
            lambda: not {task for task in asyncio.all_tasks() - before if "RpcSocket" in repr(task)},
            "a socket is still being read",
        )


def speaks(talk: Talk, greeting: Any = None) -> Answer:
    """Answer as a websocket: `talk` returns a frame for each call, None for silence, Ellipsis for hanging up."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_str(json.dumps({"success": True} if greeting is None else greeting))
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            frame = talk(message.json())
            if frame is ...:
                await socket.close()
            elif isinstance(frame, bytes):
                await socket.send_bytes(frame)
            elif frame is not None:
                await socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))
        return socket

    return answer


def result(call: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Return the frame that answers a call."""
    return {"type": "rpcResult", "callId": call["callId"], "result": value}


def studio_like(call: dict[str, Any]) -> dict[str, Any]:
    """Answer both calls as an LM Studio with a very simple model does: a word's token is its length."""
    if call["endpoint"] == "tokenize":
        return result(call, {"tokens": [len(word) for word in call["parameter"]["inputString"].split()]})
    return result(call, {"formatted": json.dumps(call["parameter"]["history"])})


async def test_a_guest_and_a_token() -> None:
    """A token opens an LM Studio that asks for one; without one a guest is let in where nobody asks."""
    async with loaded() as studio, rpc_to(studio.base_url) as guest:
        assert await guest.tokenize(MODEL, "Hello there")
        studio.api_token = TOKEN
        async with rpc_to(studio.base_url, TOKEN) as known:
            assert await known.tokenize(MODEL, "Hello there")
        for key in (None, "sk-lm-abcdefgh:wrong6789abcdefghij0", "no token at all"):
            async with rpc_to(studio.base_url, key) as stranger:
                with pytest.raises(RpcError, match=r"refuses elbowroom \(Failed to authenticate"):
                    await stranger.tokenize(MODEL, "Hello")


async def test_prompts_and_tokens_are_lm_studios_own() -> None:
    """System, calls, results and tools arrive as they were; the prompt and its tokens are what LM Studio makes."""
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        messages, tools = TOOL_CHAT["messages"], TOOL_CHAT["tools"]
        prompt = await rpc.render(MODEL, messages, tools)
        assert prompt == SimulatedTokenizer().render(messages, tools)
        assert await rpc.tokenize(MODEL, prompt) == SimulatedTokenizer().encode(prompt)
        sent = studio.rpc_calls[0].parameter
        assert sent["specifier"] == {"type": "query", "query": {"identifier": MODEL}}
        assert sent["opts"] == {"omitBosToken": True, "toolDefinitions": [READ_NOTE]}
        call, answer = (message["content"] for message in sent["history"]["messages"][2:])
        assert call[1]["toolCallRequest"]["arguments"] == {"path": "garden.md"}
        assert answer == [{"type": "toolCallResult", "content": "Beans and peas.", "toolCallId": "abcdefghi"}]


async def test_a_large_answer_is_parsed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt of a long conversation comes back in one frame, which the event loop does not wait for."""
    threads = dict[bool, int]()

    def noted(message: aiohttp.WSMessage) -> dict[str, Any]:
        threads[len(message.data) > LARGE_ANSWER] = threading.get_ident()
        return parsed(message)

    parsed = lmstudio_rpc._parsed
    monkeypatch.setattr(lmstudio_rpc, "_parsed", noted)
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        prompt = await rpc.render(MODEL, [{"role": "user", "content": "word " * 200_000}], ())
    assert len(prompt) > LARGE_ANSWER
    assert threads[False] == threading.get_ident() != threads[True]


def tool_call(arguments: Any) -> dict[str, Any]:
    """Return an assistant message that calls a tool."""
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}


@pytest.mark.parametrize("arguments", ["", "{}", {}, '{"a": [1]}'])
async def test_arguments_are_sent_as_objects(arguments: Any) -> None:
    """LM Studio takes objects only; nothing at all is an empty one."""
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        await rpc.render(MODEL, [*HELLO, tool_call(arguments)], ())
        [request] = studio.rpc_calls[0].parameter["history"]["messages"][1]["content"]
        assert isinstance(request["toolCallRequest"]["arguments"], dict)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    "message",
    [{"role": "user", "content": [IMAGE]}, tool_call("[1]"), tool_call("{oops"), tool_call(7)],
    ids=["an image", "a list", "no JSON", "a number"],
)
async def test_what_it_cannot_carry_is_refused_before_it_is_sent(message: dict[str, Any]) -> None:
    """Images and arguments that are no object are counted in another way."""
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        with pytest.raises(RpcError, match=r"no images|no JSON object"):
            await rpc.render(MODEL, [message], ())
        assert not studio.rpc_calls


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "text"}, "a str", {"text": 7}]},
        {"role": "assistant", "content": "", "tool_calls": [{}]},
        {"role": "assistant", "tool_calls": [{"function": "f"}]},
        {"role": "tool", "content": None},
        {"role": "function", "name": "f", "content": "x"},
    ],
    ids=str,
)
async def test_messages_of_every_shape(message: dict[str, Any]) -> None:
    """Whatever a client may send is rendered, never a mistake of ours."""
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        assert await rpc.render(MODEL, [message], ())


async def test_equal_pieces_of_a_prompt_are_asked_for_once() -> None:
    """A long history of the same words takes a few calls, and no task for each message."""
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        counter = RpcCounter(rpc, MODEL)
        messages = [{"role": "user", "content": "a"}] * 3000
        once = await counter.count_chat(messages[:1], (), {})
        both = await counter.count_chat(messages[:2], (), {})
        before = len(studio.rpc_calls)
        tasks = set[asyncio.Task[Any]]()
        asyncio.get_running_loop().set_task_factory(lambda loop, coro, **k: _noted(tasks, loop, coro, **k))
        many = await counter.count_chat(messages, (), {})
        assert many.tokens == once.tokens + 2999 * (both.tokens - once.tokens)
        assert len(studio.rpc_calls) - before < 10
        assert len(tasks) < 200


def _noted(tasks: set[asyncio.Task[Any]], loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
    task = asyncio.Task(work, loop=loop, **options)
    tasks.add(task)
    return task


async def test_what_no_window_holds_is_not_sent() -> None:
    """A prompt of millions of letters is left to the next way of counting: sending it would hold up the loop."""
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        with pytest.raises(CannotCount, match=r"more than 4,000,000 characters is too long"):
            await RpcCounter(rpc, MODEL).count_chat([{"role": "user", "content": "a" * 4_000_001}], (), {})
        tool = {"type": "function", "function": {"name": "t", "description": "d" * 4_000_001, "parameters": {}}}
        with pytest.raises(CannotCount, match=r"more than 4,000,000 characters is too long"):
            await RpcCounter(rpc, MODEL).count_chat([{"role": "user", "content": "a"}], [tool], {})
        assert not studio.rpc_calls


async def test_a_model_that_is_not_loaded_is_not_loaded() -> None:
    """Counting names loaded models only: the answer is an error, and nothing is loaded for it."""
    async with SimulatedLMStudio([SimulatedModel(MODEL)]) as studio, rpc_to(studio.base_url) as rpc:
        for call in (rpc.tokenize(MODEL, "Hello"), rpc.render(MODEL, HELLO, ()), rpc.prediction_config(MODEL)):
            with pytest.raises(RpcError, match="No model found"):
                await call
        assert not studio.residency.instances


async def test_the_overflow_policy() -> None:
    """What LM Studio does with too long a prompt can be read; settings of other shapes are passed over."""
    async with loaded(overflow=Overflow(policy="rollingWindow")) as studio, rpc_to(studio.base_url) as rpc:
        assert await rpc.prediction_config(MODEL) == {"llm.prediction.contextOverflowPolicy": "rollingWindow"}
    fields: list[Any] = [None, 7, {}, {"key": 7}, {"key": "a"}, {"key": "b", "value": 1}]
    answers: list[Any] = [{"fields": fields}, {"fields": 7}, {}]
    async with fake_upstream({"/llm": speaks(lambda call: result(call, answers.pop(0)))}) as fake:
        async with rpc_to(fake.url) as rpc:
            assert await rpc.prediction_config(MODEL) == {"a": None, "b": 1}
            assert await rpc.prediction_config(MODEL) == {}
            assert await rpc.prediction_config(MODEL) == {}


async def test_many_calls_at_once_on_one_socket() -> None:
    """Answers find their calls, in whatever order they come."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_json({"success": True})
        calls = [await socket.receive_json() for _ in range(50)]
        for call in reversed(calls):
            await socket.send_json({"type": "keepAliveAck"})
            await socket.send_json(result(call, {"tokens": [int(call["parameter"]["inputString"])]}))
        return socket

    async with fake_upstream({"/llm": answer}) as fake, rpc_to(fake.url) as rpc:
        calls = [rpc.tokenize(MODEL, str(number)) for number in range(50)]
        assert await asyncio.gather(*calls) == [[number] for number in range(50)]
        assert len(fake.asked) == 1


NOT_RESULTS: dict[str, Any] = {
    "nothing": {},
    "null": None,
    "a list": [],
    "a text": "tokens",
    "tokens are a number": {"tokens": 7, "formatted": 7},
    "tokens are null": {"tokens": None, "formatted": None},
}


@pytest.mark.parametrize("value", NOT_RESULTS.values(), ids=NOT_RESULTS.keys())
async def test_results_of_another_shape(value: Any) -> None:
    """An answer without what was asked for is an error of LM Studio's, in words."""
    async with fake_upstream({"/llm": speaks(lambda call: result(call, value))}) as fake:
        async with rpc_to(fake.url) as rpc:
            for call in (rpc.tokenize(MODEL, "Hello"), rpc.render(MODEL, HELLO, ())):
                with pytest.raises(RpcError, match="LM Studio answered"):
                    await call


@pytest.mark.parametrize("error", [{"title": "Bad"}, {"rootTitle": "Bad", "title": "x"}, "Bad", ["Bad"], None, {}])
async def test_error_answers(error: Any) -> None:
    """What LM Studio says is passed on; an error without words is one all the same."""

    def fails(call: dict[str, Any]) -> dict[str, Any]:
        return {"type": "rpcError", "callId": call["callId"], "error": error}

    async with fake_upstream({"/llm": speaks(fails)}) as fake, rpc_to(fake.url) as rpc:
        with pytest.raises(RpcError, match="LM Studio: .*Bad" if error else "LM Studio: "):
            await rpc.tokenize(MODEL, "Hello")
        assert len(fake.asked) == 1


WRONG_FRAMES: dict[str, Any] = {
    "no JSON": "{oops",
    "a list": "[1]",
    "a number": "7",
    "bytes": b"\x00\x01",
    "nested deeply": "[" * 200_000,
    "a huge number": "9" * 10_000,
    "hanging up": ...,
}


@pytest.mark.parametrize("frame", WRONG_FRAMES.values(), ids=WRONG_FRAMES.keys())
async def test_a_socket_that_breaks_is_replaced(frame: Any) -> None:
    """All calls on it fail at once and in words; the next call opens another socket and is answered."""
    calls: list[dict[str, Any]] = []

    def first_wrong(call: dict[str, Any]) -> Any:
        calls.append(call)
        if len(calls) < 3:
            return None
        return frame if len(calls) == 3 else studio_like(call)

    async with fake_upstream({"/llm": speaks(first_wrong)}) as fake, rpc_to(fake.url) as rpc:
        failures = await asyncio.gather(*(rpc.tokenize(MODEL, "a b") for _ in range(3)), return_exceptions=True)
        assert all(isinstance(failure, RpcError) for failure in failures), failures
        assert await rpc.tokenize(MODEL, "a b") == [1, 1]
        assert len(fake.asked) == 2


@pytest.mark.parametrize("call_id", [999, "1", None, [], {}, 1.5, True])
async def test_an_answer_to_a_call_that_nobody_made(call_id: Any) -> None:
    """It is passed over, and the call that was made is still answered."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_json({"success": True, "more": 1})
        call = await socket.receive_json()
        await socket.send_json({"type": "rpcResult", "callId": call_id, "result": {"tokens": []}})
        await socket.send_json({"type": "rpcResult"})
        await socket.send_json(studio_like(call))
        return socket

    async with fake_upstream({"/llm": answer}) as fake, rpc_to(fake.url) as rpc:
        assert await rpc.tokenize(MODEL, "a b") == [1, 1]


@pytest.mark.parametrize("greeting", ["hi", [], {}, {"success": False}, {"success": False, "error": {"a": 1}}], ids=str)
async def test_a_login_that_is_not_accepted(greeting: Any) -> None:
    """No call is made on such a socket, and it is not left open."""
    async with fake_upstream({"/llm": speaks(studio_like, greeting=greeting)}) as fake, rpc_to(fake.url) as rpc:
        for _ in range(2):
            with pytest.raises(RpcError, match="cannot be used"):
                await rpc.tokenize(MODEL, "Hello")


@pytest.mark.parametrize("answer", [says("no", 404), says({"error": "Unexpected endpoint"}), says("no", 500)])
async def test_where_there_is_no_such_interface(answer: Answer) -> None:
    """An LM Studio without websockets says so in its own way; that is an RpcError, at once."""
    async with fake_upstream({"/llm": answer}) as fake, rpc_to(fake.url) as rpc:
        with pytest.raises(RpcError, match="cannot be used"):
            await rpc.tokenize(MODEL, "Hello")


async def test_lm_studio_that_comes_back() -> None:
    """After a stop and a start the next call connects again, by itself."""
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        tokens = await rpc.tokenize(MODEL, "Hello there")
        await studio.stop()
        with pytest.raises(RpcError, match="cannot be used"):
            await rpc.tokenize(MODEL, "Hello there")
        await studio.start()
        assert await rpc.tokenize(MODEL, "Hello there") == tokens


@pytest.mark.slow
async def test_silence_is_waited_for_once() -> None:
    """Of calls that are not answered only the first ones wait; until the pause is over the rest fail at once."""
    asked: list[Any] = []
    talking = False

    def silent(call: dict[str, Any]) -> Any:
        asked.append(call)
        return studio_like(call) if talking else None

    async with fake_upstream({"/llm": speaks(silent)}) as fake:
        patience = Patience(connect=5, answer=0.1, pause=1.0)
        async with rpc_to(fake.url, patience=patience) as rpc:
            with pytest.raises(RpcError, match="did not answer tokenize at"):
                await rpc.tokenize(MODEL, "Hello")
            with pytest.raises(RpcError, match="left alone for now"):
                await rpc.tokenize(MODEL, "Hello")
            assert len(asked) == 1
            talking = True
            await asyncio.sleep(patience.pause + 0.1)
            assert await rpc.tokenize(MODEL, "a b") == [1, 1]
            assert len(fake.asked) == 2


async def test_a_login_without_an_answer() -> None:
    """A server that takes the socket and says nothing costs the time to connect, once, for all who wait."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await asyncio.sleep(30)
        return socket

    async with fake_upstream({"/llm": answer}) as fake, rpc_to(fake.url, patience=HASTY) as rpc:
        waiting = [rpc.tokenize(MODEL, "Hello") for _ in range(5)]
        async with asyncio.timeout(10):
            failures = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(failure, RpcError) for failure in failures)


async def test_a_caller_that_leaves_takes_nothing_along() -> None:
    """One call that is given up leaves the socket to the others."""
    calls: list[dict[str, Any]] = []

    def second_only(call: dict[str, Any]) -> Any:
        calls.append(call)
        return studio_like(call) if len(calls) > 1 else None

    async with fake_upstream({"/llm": speaks(second_only)}) as fake, rpc_to(fake.url) as rpc:
        leaver = asyncio.create_task(rpc.tokenize(MODEL, "Hello"))
        await eventually(lambda: calls, "the call did not arrive")
        leaver.cancel()
        assert await rpc.tokenize(MODEL, "a b") == [1, 1]
        assert len(fake.asked) == 1
        assert leaver.cancelled()


async def test_counts_are_the_length_of_the_whole_prompt() -> None:
    """Piece by piece, each asked once: a conversation that has grown costs only what is new."""
    tokenizer = SimulatedTokenizer()
    async with loaded() as studio, rpc_to(studio.base_url) as rpc:
        counter = RpcCounter(rpc, MODEL)
        messages = list(TOOL_CHAT["messages"])
        for text in ("Thanks <s> for </s> <|im_end|> <|nothing|> that!", "And more [INST] x <end_of_turn> ok."):
            messages.append({"role": "user", "content": text})
            count = await counter.count_chat(messages, TOOL_CHAT["tools"], {})
            assert count == TokenCount(tokenizer.count_tokens(messages, TOOL_CHAT["tools"]), "engine")
        calls = len(studio.rpc_calls)
        await counter.count_chat(messages, TOOL_CHAT["tools"], {})
        assert [call.endpoint for call in studio.rpc_calls[calls:]] == ["applyPromptTemplate"]
        assert (await counter.count_text("Hello there")).tokens == len(tokenizer.encode("Hello there"))


async def test_texts_that_only_look_like_special_tokens() -> None:
    """A prompt is cut only where this model's tokens end: a tag that it cuts into parts may be joined to its left."""

    def pairs(call: dict[str, Any]) -> dict[str, Any]:
        """Cut into pairs of letters: no text may be cut at an odd place; only the real mark is one token."""
        if call["endpoint"] == "applyPromptTemplate":
            return result(call, {"formatted": "abc<s>abc<|end|>abc</s>abc<|end|>"})
        parts = call["parameter"]["inputString"].split("<|end|>")
        tokens = [part[at : at + 2] for part in parts for at in range(0, len(part), 2)]
        return result(call, {"tokens": tokens + ["<|end|>"] * (len(parts) - 1)})

    async with fake_upstream({"/llm": speaks(pairs)}) as fake, rpc_to(fake.url) as rpc:
        count = await RpcCounter(rpc, MODEL).count_chat(HELLO, (), {})
    assert count.tokens == 5 + 1 + 5 + 1


async def test_begin_of_text_is_counted_once() -> None:
    """An LM Studio that puts it before every text it cuts does not have it counted for every piece."""

    def with_bos(call: dict[str, Any]) -> dict[str, Any]:
        if call["endpoint"] == "applyPromptTemplate":
            return result(call, {"formatted": "<|user|> a b <|user|> c"})
        return result(call, {"tokens": ["BOS", *call["parameter"]["inputString"].split()]})

    async with fake_upstream({"/llm": speaks(with_bos)}) as fake, rpc_to(fake.url) as rpc:
        count = await RpcCounter(rpc, MODEL).count_chat(HELLO, (), {})
    assert count.tokens == 6


async def test_a_count_that_fails_says_so_as_one_that_cannot_be_had() -> None:
    """Every failure of the socket is CannotCount to those who count, so that they go on to the next way."""
    async with fake_upstream({"/llm": speaks(lambda call: "{oops")}) as fake, rpc_to(fake.url) as rpc:
        counter = RpcCounter(rpc, MODEL)
        for count in (counter.count_text("Hello"), counter.count_chat(HELLO, (), {})):
            with pytest.raises(CannotCount, match="not JSON"):
                await count
