"""A llama.cpp server whose slots do not do what they promise: every request is answered, and it is said once."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chatting import eventually
from fake_upstream import Asked, FakeUpstream, chunk, fake_upstream, says, streams
from serving import Served, serve, settings_for

from elbowroom.agents.admission import Admission
from elbowroom.agents.admission import slots as admission_slots
from elbowroom.context.costs import Moving
from elbowroom.providers import slot_files
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.openai_compatible import OpenAICompatible
from elbowroom.providers.slot_files import file_name
from elbowroom.providers.upstream import open_session
from elbowroom.server.state import SHARED
from elbowroom.store.base import Servers

CHAT = "/v1/chat/completions"
Body = dict[str, Any]
Cached = Callable[[Body], int]
LISTING = {"data": [{"id": "m", "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 8192}}]}
NO_ACTION = {"error": {"code": 400, "message": "Invalid action"}}
LONG = "The ferry left the pier. " * 60


def size_of(body: Body) -> int:
    """Return about how many tokens the messages have."""
    return len(json.dumps(body["messages"])) // 4


def reads(cached: Cached) -> Callable[[web.Request], Any]:
    """Answer chats as llama.cpp does, which says first how much it had in its cache."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt, found = size_of(body), cached(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        progress = {"total": prompt, "cache": found, "processed": found, "time_ms": 0}
        details = {"cached_tokens": found}
        usage = {"prompt_tokens": prompt, "completion_tokens": 2, "prompt_tokens_details": details}
        await response.write(chunk({}, prompt_progress=progress))
        await asyncio.sleep(0.01)
        await response.write(chunk({"content": "So it is."}))
        await response.write(chunk({}, "stop", usage=usage) + b"data: [DONE]\n\n")
        return response

    return answer


def slot(request: web.Request, sizes: dict[str, int], last: list[int]) -> web.Response:
    """Save or restore what was read last."""
    action, name = request.query["action"], request.query.get("model", "")
    if action == "save":
        sizes[name] = last[-1]
        return web.json_response({"n_saved": last[-1], "timings": {"save_ms": 0}})
    if action == "restore":
        return web.json_response({"n_restored": sizes[name], "timings": {"restore_ms": 0}})
    return web.json_response(NO_ACTION, status=400)


@asynccontextmanager
async def llama(
    folder: Path, slots: int, chat: Any, move: Any, busy: Collection[int] = (), slots_status: int = 200
) -> AsyncIterator[tuple[FakeUpstream, Served]]:
    """Run elbowroom before a server with so many slots."""
    answers = {"/v1/models": says(LISTING), "/props": says({"total_slots": slots}), CHAT: chat}
    answers |= {f"/slots/{number}": move for number in range(slots)}
    rows = [{"id": number, "is_processing": number in busy} for number in range(slots)]
    answers["/slots"] = says(rows, status=slots_status)
    async with fake_upstream(answers) as fake:
        settings = settings_for(fake.url, kind="openai", provider="manage_context = true")
        async with serve(folder, settings) as served:
            yield fake, served


async def ask(served: Served, name: str, turn: int) -> None:
    """Ask in a conversation for the so-manieth time."""
    said = [{"role": "user", "content": f"{name} {LONG}"}]
    for number in range(turn):
        said += [{"role": "assistant", "content": "So it is."}, {"role": "user", "content": f"And then {number}?"}]
    body = {"model": "openai/m", "messages": said, "max_tokens": 8}
    async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": name}) as response:
        answer = await response.json()
        assert response.status == 200, answer
        assert answer["choices"][0]["message"]["content"] == "So it is."


async def take_turns(served: Served, rounds: int) -> None:
    """Have two conversations take turns."""
    for turn in range(rounds):
        for name in ("A", "B"):
            await ask(served, name, turn)


def moves(fake: FakeUpstream) -> list[Asked]:
    """Return the requests that were to save or restore a slot."""
    return [one for one in fake.asked if one.path.startswith("/slots/") and "filename" in one.json]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was said of slots as news."""
    logger = admission_slots.__name__
    return [one.getMessage() for one in caplog.records if one.name == logger and one.levelno == logging.INFO]


async def test_a_restore_without_effect_is_switched_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An engine that says it has restored a slot and reads all the same is asked for it once, and no more."""
    caplog.set_level(logging.INFO)
    last = [0]

    def cached(body: Body) -> int:
        last.append(size_of(body) + 2)
        return 0

    async def move(request: web.Request) -> web.Response:
        return slot(request, sizes, last)

    sizes: dict[str, int] = {}
    async with llama(tmp_path, 1, reads(cached), move) as (fake, served):
        await take_turns(served, 2)
        done = len(moves(fake))
        await take_turns(served, 4)
        assert len(moves(fake)) == done
    assert ["gains nothing" in line for line in told(caplog)] == [True], told(caplog)


@pytest.mark.parametrize("status", [500, 501, 200])
async def test_a_slot_that_cannot_be_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int) -> None:
    """A server that fails to save, or answers something else, is left in peace after it was tried."""
    caplog.set_level(logging.INFO)

    async def move(request: web.Request) -> web.Response:
        if request.query["action"] == "save":
            return web.json_response({"error": "no space"}, status=status)
        return web.json_response(NO_ACTION, status=400)

    async with llama(tmp_path, 1, reads(lambda body: 0), move) as (fake, served):
        await take_turns(served, 4)
        assert len(moves(fake)) == 1
    assert len(told(caplog)) == 1, told(caplog)


async def test_a_save_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person who waits does so no longer than it takes to read the conversation again."""

    async def move(request: web.Request) -> web.Response:
        if request.query["action"] == "save":
            await asyncio.sleep(60)
        return web.json_response(NO_ACTION, status=400)

    monkeypatch.setattr(Moving, "patience", lambda *_: 0.05)
    async with llama(tmp_path, 1, reads(lambda body: 0), move) as (fake, served):
        await take_turns(served, 3)
        assert len(moves(fake)) == 1


async def test_a_server_that_refuses_to_be_told_a_slot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A request that was refused for its slot is sent without, and so are those after it."""
    caplog.set_level(logging.INFO)
    answers = reads(lambda body: 0)

    async def chat(request: web.Request) -> web.StreamResponse:
        if "id_slot" in await request.json():
            return web.json_response({"error": {"message": "Unknown field id_slot."}}, status=400)
        answer: web.StreamResponse = await answers(request)
        return answer

    async with llama(tmp_path, 2, chat, says(NO_ACTION, status=400)) as (fake, served):
        await take_turns(served, 3)
        assert ["id_slot" in one.json for one in fake.asked_at(CHAT)] == [True] + [False] * 6
    [line] = told(caplog)
    assert "refuses to be told a slot" in line


async def test_a_server_that_tells_only_at_the_end(tmp_path: Path) -> None:
    """What an older server had in its cache is known only when it has answered: nothing is asked twice for that."""
    last, sizes = [0], dict[str, int]()

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        last.append(size_of(body) + 2)
        usage = {"prompt_tokens": size_of(body), "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
        stop = chunk({}, "stop", usage=usage) + b"data: [DONE]\n\n"
        return await streams(chunk({"content": "So it is."}), stop)(request)

    async def move(request: web.Request) -> web.Response:
        return slot(request, sizes, last)

    async with llama(tmp_path, 1, chat, move) as (fake, served):
        await take_turns(served, 2)
        assert len(fake.asked_at(CHAT)) == 4
        assert moves(fake)


async def test_a_client_that_chooses_its_slot(tmp_path: Path) -> None:
    """A request that names a slot itself is sent as it is."""
    no_folder = says({"error": {"code": 501, "message": "Start it with --slot-save-path"}}, status=501)
    async with llama(tmp_path, 2, reads(lambda body: 0), no_folder) as (fake, served):
        body = {"model": "openai/m", "messages": [{"role": "user", "content": "Hello"}], "id_slot": 1}
        async with served.http.post(served.chat_url, json=body) as response:
            assert response.status == 200
        assert [one.json.get("id_slot") for one in fake.asked_at(CHAT)] == [1]


async def test_requests_of_one_conversation_at_once(tmp_path: Path) -> None:
    """Each gets a slot of its own; a third is not sent before one of them has ended."""
    both_there = asyncio.Event()
    answers = reads(lambda body: 0)

    async def chat(request: web.Request) -> web.StreamResponse:
        if len(fake.asked_at(CHAT)) == 2:
            both_there.set()
        await both_there.wait()
        answer: web.StreamResponse = await answers(request)
        return answer

    async with llama(tmp_path, 2, chat, says(NO_ACTION, status=400)) as (fake, served):
        asked = [ask(served, "A", 0) for _ in range(3)]
        await asyncio.wait_for(asyncio.gather(*asked), 10)
        assert [one.json["id_slot"] for one in fake.asked_at(CHAT)][:2] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 2])
async def test_nothing_waits_in_the_engine(tmp_path: Path, slots: int) -> None:
    """It is never asked for more at once than it has slots for, moves included: it forgets some of what waits there."""
    last, sizes, at_once = [0], dict[str, int](), [0]

    def cached(body: Body) -> int:
        last.append(size_of(body) + 2)
        return 0

    def counted(handler: Callable[[web.Request], Any]) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            at_once.append(at_once[-1] + 1)
            try:
                await asyncio.sleep(0.02)
                answer: web.StreamResponse = await handler(request)
                return answer
            finally:
                at_once.append(at_once[-1] - 1)

        return handle

    async def move(request: web.Request) -> web.Response:
        return slot(request, sizes, last)

    async with llama(tmp_path, slots, counted(reads(cached)), counted(move)) as (fake, served):
        for turn in range(3):
            await asyncio.gather(*(ask(served, name, turn) for name in ("A", "B", "C", "D")))
        assert len(fake.asked_at(CHAT)) >= 12
        assert moves(fake)
    assert max(at_once) == slots


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_request_that_a_server_has_forgotten(
    tmp_path: Path, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a request is silent and no slot works, it is sent again, later each time; who asked is answered."""
    monkeypatch.setattr(slot_files, "LOOK_SECONDS", 0.02)
    answers = reads(lambda body: 0)

    async def chat(request: web.Request) -> web.StreamResponse:
        if len(fake.asked_at(CHAT)) < 3:
            await asyncio.sleep(60)
        answer: web.StreamResponse = await answers(request)
        return answer

    async with llama(tmp_path, slots, chat, says(NO_ACTION, status=400)) as (fake, served):
        await asyncio.wait_for(ask(served, "A", 0), 20)
        first, *again = fake.asked_at(CHAT)
        assert [one.json for one in again] == [first.json] * 2


@pytest.mark.parametrize(("busy", "status"), [({1}, 200), ((), 501)], ids=["works", "does not tell"])
async def test_a_request_that_a_server_may_be_at_work_on(
    tmp_path: Path, busy: Collection[int], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent once, however long it is silent: while a slot works or the server does not tell."""
    monkeypatch.setattr(slot_files, "LOOK_SECONDS", 0.02)
    answers = reads(lambda body: 0)

    async def chat(request: web.Request) -> web.StreamResponse:
        looks = len(fake.asked_at("/slots"))
        await eventually(lambda: len(fake.asked_at("/slots")) >= looks + 6, "it was not looked")
        answer: web.StreamResponse = await answers(request)
        return answer

    move = says(NO_ACTION, status=400)
    async with llama(tmp_path, 2, chat, move, busy=busy, slots_status=status) as (fake, served):
        await asyncio.wait_for(ask(served, "A", 0), 20)
        assert len(fake.asked_at(CHAT)) == 1


async def test_a_server_without_a_folder_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It chooses its slots itself; it is said once what to start it with."""
    caplog.set_level(logging.INFO)
    no_folder = says({"error": {"code": 501, "message": "Start it with --slot-save-path"}}, status=501)
    async with llama(tmp_path, 2, reads(lambda body: 0), no_folder) as (fake, served):
        await take_turns(served, 3)
        assert not [one for one in fake.asked_at(CHAT) if "id_slot" in one.json]
        assert len(fake.asked_at("/slots/0")) == 1
        assert not moves(fake)
    [line] = told(caplog)
    assert "--slot-save-path" in line


async def test_a_slot_that_is_busy_for_others_is_not_chosen(tmp_path: Path) -> None:
    """Who else has the engine answer is seen by what it says of its slots."""
    async with llama(tmp_path, 2, reads(lambda body: 0), says(NO_ACTION, status=400), busy={0}) as (fake, served):
        await ask(served, "A", 0)
        assert [one.json.get("id_slot") for one in fake.asked_at(CHAT)] == [1]


async def test_a_conversation_from_before_a_restart(tmp_path: Path) -> None:
    """What goes on and is not known is sent to no slot: the engine finds it. What begins has one."""
    async with llama(tmp_path, 2, reads(lambda body: 0), says(NO_ACTION, status=400)) as (fake, served):
        await ask(served, "A", 2)
        await ask(served, "B", 0)
        assert ["id_slot" in one.json for one in fake.asked_at(CHAT)] == [False, True]


async def test_an_answer_in_one_write_is_asked_for_once(tmp_path: Path) -> None:
    """What tells with its last word what it had in its cache is no reason to throw the words away."""
    last, sizes = [0], dict[str, int]()

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        last.append(size_of(body) + 2)
        usage = {"prompt_tokens": size_of(body), "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
        whole = chunk({"content": "So it is."}) + chunk({}, "stop", usage=usage) + b"data: [DONE]\n\n"
        return await streams(whole)(request)

    async def move(request: web.Request) -> web.Response:
        return slot(request, sizes, last)

    async with llama(tmp_path, 1, chat, move) as (fake, served):
        await take_turns(served, 2)
        assert len(fake.asked_at(CHAT)) == 4


async def test_a_refusal_that_is_about_something_else(tmp_path: Path) -> None:
    """It is told as it is, and the request is not sent once more."""
    refuses = says({"error": {"message": "This schema is none."}}, status=400)
    async with llama(tmp_path, 2, refuses, says(NO_ACTION, status=400)) as (fake, served):
        body = {"model": "openai/m", "messages": [{"role": "user", "content": "Hello"}]}
        async with served.http.post(served.chat_url, json=body) as response:
            assert response.status == 400
        assert len(fake.asked_at(CHAT)) == 1


async def test_a_server_that_does_not_tell_of_its_slots(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of several it chooses one itself, and it is said once how it would tell; a single slot is known."""
    caplog.set_level(logging.INFO)
    for slots in (1, 2):
        folder = tmp_path / str(slots)
        folder.mkdir()
        async with llama(folder, slots, reads(lambda body: 0), says(NO_ACTION, status=400), slots_status=501) as (
            fake,
            served,
        ):
            await take_turns(served, 1)
            assert len(moves(fake)) == (1 if slots == 1 else 0)
            assert not [one for one in fake.asked_at(CHAT) if "id_slot" in one.json]
    [line] = [line for line in told(caplog) if "--no-slots" in line]
    assert "left the choice" in line


async def test_who_leaves_while_a_slot_is_saved_takes_nothing_from_it(tmp_path: Path) -> None:
    """The conversation that is there goes on, and is saved when it leaves the slot indeed."""
    last, sizes, hangs = [0], dict[str, int](), asyncio.Event()

    def cached(body: Body) -> int:
        before = last[-1]
        last.append(size_of(body) + 2)
        return before

    async def move(request: web.Request) -> web.Response:
        if request.query["action"] == "save" and not hangs.is_set():
            hangs.set()
            await asyncio.sleep(60)
        return slot(request, sizes, last)

    async with llama(tmp_path, 1, reads(cached), move) as (fake, served):
        await ask(served, "A", 0)
        leaving = asyncio.create_task(ask(served, "B", 0))
        await hangs.wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        await eventually(lambda: not served.app[SHARED].admission.held(("openai", "m")), "it still waits")
        await ask(served, "B", 0)
        assert [one.json["filename"] for one in moves(fake)] == [moves(fake)[0].json["filename"]] * 2


async def test_an_engine_that_was_started_anew(tmp_path: Path) -> None:
    """One that was left alone is looked at again after it was away: it may have a folder now."""
    answers = {"is_there": True}
    reading = reads(lambda body: 0)

    async def chat(request: web.Request) -> web.StreamResponse:
        if not answers["is_there"]:
            return web.json_response({"error": {"message": "No models loaded."}}, status=500)
        answer: web.StreamResponse = await reading(request)
        return answer

    no_folder = says({"error": {"code": 501, "message": "Start it with --slot-save-path"}}, status=501)
    async with llama(tmp_path, 2, chat, no_folder) as (fake, served):
        await ask(served, "A", 0)
        answers["is_there"] = False
        body = {"model": "openai/m", "messages": [{"role": "user", "content": "Hello"}]}
        async with served.http.post(served.chat_url, json=body) as response:
            assert response.status >= 500
        answers["is_there"] = True
        before = len(fake.asked_at("/slots/0"))
        await ask(served, "A", 1)
        assert len(fake.asked_at("/slots/0")) == before + 1


@pytest.mark.parametrize(("status", "can_save"), [(400, True), (501, False), (404, False), (200, False), (500, False)])
async def test_whether_a_server_can_save(status: int, can_save: bool) -> None:
    """A server that looks at the action has a folder for slots; to a router each request names its model."""
    answers = {"/v1/models": says(LISTING), "/props": says({"total_slots": 4})}
    answers["/slots/0"] = says({"error": {"message": "Invalid action"}}, status=status)
    async with fake_upstream(answers) as fake, open_session() as http:
        provider = OpenAICompatible("llama", f"{fake.url}/v1", http, manages_context=True)
        [info] = await provider.models()
        assert info.slots == 4
        assert provider.slot_files is not None
        assert await provider.slot_files.can_save(info.id) is can_save
        [asked] = fake.asked_at("/slots/0")
    assert asked.json == {"model": "m"}


def test_servers_with_one_folder_share_no_file() -> None:
    """The files of two servers, or of two models, have different names, which are the same after a restart."""
    places = [(address, model) for address in ("http://a:8080", "http://a:8081") for model in ("m", "n")]
    names = [file_name(*place, number) for place in places for number in range(2)]
    assert len({*names}) == 8
    assert names == [file_name(*place, number) for place in places for number in range(2)]


@pytest.mark.parametrize(("own", "has_slots"), [("", True), ("server-1", False)])
async def test_servers_that_share_a_database_choose_no_slots(own: str, has_slots: bool) -> None:
    """None of them sees where the others have their prompts read, and each would wait for another's slot."""
    servers = Servers()
    servers.id = own
    info = ModelInfo("m", "llama", "m", loaded_context=8192, slots=2)
    async with open_session() as http:
        provider = OpenAICompatible("llama", "http://127.0.0.1:9/v1", http, manages_context=True)
        assert (Admission(servers=servers).slots(provider, info) is not None) is has_slots
