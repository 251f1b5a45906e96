"""Requests of one model share its window: whoever finds no room waits, chats before tasks, and nothing overflows."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import AGENT, MODEL, chunks_of, eventually, finish_of, stream_bytes
from patient_counting import wait_for_counts
from scripted_pruner import is_prune_order, valid_plan
from serving import Served, serve, settings_for, text_of
from small_window import ask_whole, history
from spread_variants import spread
from task_prompts import TITLE, title_body
from watched_stream import statuses_of, watched

from elbowroom.demo import Overflow, Script, SimulatedLMStudio, SimulatedModel, Text, WaitFor
from elbowroom.server.state import SHARED, Timing

Body = dict[str, Any]
WINDOW = 2000
LONG = 13
"""Exchanges of a chat that leaves no room for another one of its kind."""
EVERYONE = pytest.mark.parametrize("model", ["writer", f"lmstudio/{MODEL}"], ids=["agent", "raw model"])
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@asynccontextmanager
async def one_pool(
    folder: Path,
    says: Callable[[Body], Script | str],
    *,
    window: int = WINDOW,
    compaction: str = "",
    quiet: float = 0.02,
    server: str = "",
    **studio: Any,
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both; the model's four slots share one window, and all requests at work fail where it is full."""
    loaded = SimulatedModel(MODEL, loaded_context_length=window)
    pool = Overflow(shared_pool=True)
    async with SimulatedLMStudio([loaded], on_request=says, overflow=pool, **studio) as running:
        settings = settings_for(running.base_url, agents=f"[compaction]\n{compaction}\n{AGENT}", server=server)
        async with serve(folder, settings, timing=Timing(quiet=quiet)) as served:
            yield served, running
            await eventually(lambda: running.open_requests == 0, "requests are left open upstream")


def is_title(body: Body) -> bool:
    """Tell whether this request asks for a title."""
    return str(body["messages"][0]["content"]).startswith("### Task:")


def chat_body(number: int, *, model: str = f"lmstudio/{MODEL}", exchanges: int = 0, **fields: Any) -> Body:
    """Return the request of a chat that nobody else has."""
    messages = history(exchanges)
    messages[-1] = {"role": "user", "content": f"Chat {number}: count as far as you can."}
    return {"model": model, "messages": messages, **fields}


def counted(number: int, upto: int) -> str:
    """Return an answer in which every sentence is another one."""
    return "".join(f"In chat {number} boat {boat} left the harbour. " for boat in range(1, upto + 1))


async def streamed(served: Served, body: Body) -> str:
    """Ask for a stream and return the text of an answer that ended by itself."""
    chunks = chunks_of(await stream_bytes(served, body))
    assert finish_of(chunks) == "stop"
    return text_of(chunks)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "title_first"), spread(["writer", f"lmstudio/{MODEL}"], [False, True]))
async def test_a_chat_and_its_title(tmp_path: Path, model: str, title_first: bool) -> None:
    """Both at the same moment where only one has room: the chat is answered first, the title then, none overflows."""

    def says(body: Body) -> str:
        return TITLE if is_title(body) else counted(1, 20)

    whole = 'task_history = "whole"'
    async with one_pool(tmp_path, says, quiet=0.5, server=whole, tokens_per_second=400) as (served, studio):
        chat = chat_body(1, model=model, exchanges=LONG)
        title = title_body(18, model=model)

        async def ask_title() -> tuple[int, Body]:
            if not title_first:
                await eventually(lambda: studio.chats, "the chat is not sent", seconds=30)
            return await ask_whole(served, title)

        async def ask_chat() -> tuple[int, Body]:
            if title_first:
                await asyncio.sleep(0.02)
            return await ask_whole(served, chat)

        (title_status, titled), (status, answer) = await asyncio.gather(ask_title(), ask_chat())
        assert (title_status, status) == (200, 200)
        assert titled["choices"][0]["message"]["content"] == TITLE
        assert answer["choices"][0]["message"]["content"].strip() == counted(1, 20).strip()
        first, second = studio.chats
        assert not is_title(first.body)
        assert is_title(second.body)
        both = [sent.counted_tokens or 0 for sent in (first, second)]
        assert sum(both) > WINDOW, "both would have had room"


@pytest.mark.slow
@EVERYONE
@pytest.mark.parametrize("boats", [60, pytest.param(110, marks=pytest.mark.long)])
async def test_four_chats_that_outgrow_the_window_together(tmp_path: Path, model: str, boats: int) -> None:
    """All are answered to the last word, however often one had to stop for the others; the engine never overflows."""

    def says(body: Body) -> Script | str:
        if is_prune_order(body):
            return valid_plan(body)
        whole = " ".join(str(message.get("content")) for message in body["messages"])
        [number] = set(re.findall(r"Chat (\d): count", whole)) or {"0"}
        answer = counted(int(number), boats)
        said = re.findall(rf"In chat {number} boat (\d+) left the harbour\.", whole)
        return answer if not said else continued(answer, int(number), max(map(int, said)))

    async with one_pool(tmp_path, says, compaction="background = false", tokens_per_second=800) as (served, studio):
        bodies = [chat_body(number, model=model) for number in range(1, 5)]
        answers = await asyncio.gather(*(streamed(served, body) for body in bodies))
        for number, answer in enumerate(answers, start=1):
            assert answer.strip() == counted(number, boats).strip()
        assert len(studio.chats) > 4, "no answer had to stop for another"


def continued(answer: str, number: int, last: int) -> str:
    """Return what comes behind the last sentence that the model is shown of its answer."""
    return answer.split(f"In chat {number} boat {last} left the harbour. ", 1)[1]


@WAYS
async def test_too_many_wait(tmp_path: Path, stream: bool) -> None:
    """Beyond the limit a chat is told at once to come back, and when; those before it are answered."""
    ended = asyncio.Event()
    says = Script(WaitFor(ended), "Yes.")
    async with one_pool(tmp_path, lambda body: says, server="max_waiting = 1") as (served, studio):
        full = chat_body(1, exchanges=LONG)
        first = asyncio.create_task(ask_whole(served, full))
        await eventually(lambda: len(studio.chats) == 1, "the first is not sent")
        second = asyncio.create_task(ask_whole(served, chat_body(2, exchanges=LONG)))
        admission = served.app[SHARED].admission
        await eventually(lambda: admission.waiting(("lmstudio", MODEL)) == 1, "the second does not wait")
        third = chat_body(3, exchanges=LONG, stream=stream)
        async with served.http.post(served.chat_url, json=third) as response:
            assert response.status == 429
            assert int(response.headers["Retry-After"]) >= 1
            error = (await response.json())["error"]
            assert error["type"] == "rate_limit_error"
        ended.set()
        for status, answer in (await first, await second):
            assert status == 200
            assert answer["choices"][0]["message"]["content"] == "Yes."


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, pytest.param(300, marks=pytest.mark.long)])
async def test_hundreds_of_chats_at_once_are_all_answered(tmp_path: Path, count: int) -> None:
    """They wait as long as their clients do, in the order in which they came, and are told how many are before them."""
    ended, begun = asyncio.Event(), list[str]()

    def says(body: Body) -> Script:
        begun.append(body["messages"][-1]["content"])
        return Script(WaitFor(ended), "Yes.")

    connector = aiohttp.TCPConnector(limit=0)  # a client opens no more than 100 connections by itself
    async with (
        one_pool(tmp_path, says, compaction='notices = "event"') as (served, _),
        aiohttp.ClientSession(connector=connector) as http,
    ):
        at, admission = replace(served, http=http), served.app[SHARED].admission
        *bodies, last = [chat_body(number, exchanges=LONG) for number in range(count)]
        asking: list[asyncio.Task[bytes]] = []
        for body in bodies:
            asking.append(asyncio.create_task(stream_bytes(at, body)))
            come = len(asking)
            while len(begun) + admission.waiting(("lmstudio", MODEL)) < come:  # noqa: ASYNC110  # who waits tells nobody
                await asyncio.sleep(0.001)
        async with watched(at, last) as stream:
            told = (await stream.next_status())["event"]["data"]["description"]
            ended.set()
            await stream.rest()
        answers = await asyncio.gather(*asking)
    assert {text_of(chunks_of(answer)) for answer in answers} == {"Yes."}
    assert begun == [body["messages"][-1]["content"] for body in (*bodies, last)]
    assert told == f"Waiting for the model: {count - 1} requests are before this one."


async def test_who_waits_is_told(tmp_path: Path) -> None:
    """A person whose chat waits for another is told for what; the line goes when that one has ended."""
    ended = asyncio.Event()
    first_waits = iter([Script(WaitFor(ended), "Yes.")])
    async with one_pool(tmp_path, lambda body: next(first_waits, "No."), compaction='notices = "event"') as (
        served,
        studio,
    ):
        first = asyncio.create_task(ask_whole(served, chat_body(1, exchanges=LONG)))
        await eventually(lambda: len(studio.chats) == 1, "the first is not sent")
        async with watched(served, chat_body(2, exchanges=LONG)) as stream:
            status = await stream.next_status()
            said = "Waiting for the model: another chat is before this one."
            assert status["event"]["data"]["description"] == said
            assert len(studio.chats) == 1
            ended.set()
            received = await stream.rest()
        assert text_of(chunks_of(received)) == "No."
        assert statuses_of(received)[-1] == {"description": "The model is free.", "done": True, "hidden": True}
        assert (await first)[0] == 200


@pytest.mark.slow
async def test_who_waits_for_a_title_is_told(tmp_path: Path) -> None:
    """A title that streams is not taken back: the line names it, and goes once it is written."""
    ended = asyncio.Event()

    def says(body: Body) -> Script:
        return Script(Text("Ferry", whole=True), WaitFor(ended), " log") if is_title(body) else Script("Yes.")

    pool = one_pool(tmp_path, says, compaction='notices = "event"', server='task_history = "whole"')
    task = {"X-Elbowroom-Task": "title_generation"}
    async with pool as (served, _), watched(served, title_body(18), **task) as title:
        await title.until("Ferry")
        async with watched(served, chat_body(1, exchanges=LONG)) as stream:
            status = await stream.next_status()
            said = "Waiting for the model: a title, tags or the like are being written."
            assert status["event"]["data"]["description"] == said
            ended.set()
            received = await stream.rest()
        await title.rest()
    assert text_of(chunks_of(received)) == "Yes."
    assert statuses_of(received)[-1] == {"description": "The model is free.", "done": True, "hidden": True}


@pytest.mark.slow
async def test_a_cancelled_prompt_counts_until_it_is_read(tmp_path: Path) -> None:
    """The engine reads the prompt of a client that has left to its end; who comes next does not overflow it."""
    async with one_pool(tmp_path, lambda body: "Yes.", prefill_tokens_per_second=2400) as (served, studio):
        await ask_whole(served, chat_body(0, exchanges=LONG))
        studio.prefill_tokens_per_second = 3000  # so that a busy machine that is late does not look like a mistake
        left = asyncio.create_task(ask_whole(served, chat_body(1, exchanges=LONG)))
        await eventually(lambda: studio.chats[-1].phase == "prefill", "the prompt is not read")
        left.cancel()
        await asyncio.wait([left])
        status, answer = await ask_whole(served, chat_body(2, exchanges=LONG))
        assert status == 200
        assert answer["choices"][0]["message"]["content"] == "Yes."
        assert len(studio.disconnects) == 1
        assert len(studio.chats) == 3, "the engine has failed and was asked again"
