"""Several LM Studios that differ, hang, fail and change while answers run: nothing is lost, and every prompt fits."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, chunks_of, eventually, finish_of, function_spec
from own_tools import own_tool
from read_metrics import value
from serving import Served, parse_frames, text_of
from settings_calls import change
from several_machines import AGENT, NAME, Body, chats, machines, say
from watched_stream import watched

from elbowroom.agents.admission.pool import Pool, Ticket
from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Reply, Script, SimulatedLMStudio, SimulatedModel, ToolCall, WaitFor
from elbowroom.demo.tokenizer import SimulatedTokenizer
from elbowroom.providers import upstream
from elbowroom.server.state import PROVIDERS, SHARED

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


class Letters(SimulatedTokenizer):
    """Cuts text into single letters: the tokenizer of another build."""

    def split(self, text: str) -> list[str]:
        """Return the letters."""
        return list(text)


@own_tool
async def read_log(page: int) -> str:
    """Read a page of the log."""
    return f"Page {page}. " + "The sea was calm and the boat half full. " * 40


def toolbox(target: Target) -> Sequence[ServerTool]:
    """Give every agent the same tool."""
    return [read_log] if target.agent else []


async def answered(served: Served, body: Body) -> tuple[int, bytes]:
    """Return status and body of a chat."""
    async with served.http.post(served.chat_url, json=body) as response:
        return response.status, await response.read()


def first_asked(studios: Sequence[SimulatedLMStudio]) -> Sequence[SimulatedLMStudio]:
    """Return the machines, the one that was asked first."""
    return sorted(studios, key=lambda studio: not studio.chats)


def is_at_rest(served: Served) -> bool:
    """Tell whether nothing is held, claimed or waited for."""
    shared = served.app[SHARED]
    held = [shared.admission.held(pool) for pool in shared.admission.waiting_for_all()]
    return not shared.places.claims and not sum(held) and not sum(shared.admission.waiting_for_all().values())


async def test_a_turn_that_moves_between_two_tools_fits_the_smaller_window(tmp_path: Path) -> None:
    """Its machine goes away after some results of tools; the next step is compacted for the window of the other."""
    async with machines(tmp_path, 8192, 2048, agents=AGENT, toolbox=toolbox) as (served, (large, small)):
        gone = asyncio.Event()

        def calls(body: Body) -> Script | str:
            results = sum(message["role"] == "tool" for message in body["messages"])
            if results == 4:
                return Script(WaitFor(gone))
            return Script(ToolCall("read_log", {"page": results}))

        large.on_request = calls
        small.on_request = lambda body: "The log says that all is well."
        text = "Read the whole log. " * 120  # so that it begins where it fits
        body = {"model": "writer", "messages": [{"role": "user", "content": text}], "stream": True}
        asking = asyncio.create_task(answered(served, body))
        await eventually(lambda: len(large.chats) == 5, "the tools are not read")
        await large.stop()
        status, frames = await asking
        assert (status, text_of(parse_frames(frames))) == (200, "The log says that all is well.")
        assert b"error" not in frames
        assert (large.chats[-1].counted_tokens or 0) > 2048
        assert all(chat.fitted for studio in (large, small) for chat in studio.chats)
        await eventually(lambda: is_at_rest(served), "something is held")


async def test_tools_are_told_in_short_where_the_turn_has_moved_to_a_small_window(tmp_path: Path) -> None:
    """A client's tools fit the first machine whole; for the other one, they are told in short in the same turn."""
    tools = [function_spec(f"tool_{number}") for number in range(10)]
    for tool in tools:
        path = {"type": "string", "description": "Where the boats are kept that it works on. " * 40}
        tool["function"]["parameters"] = {"type": "object", "properties": {"path": path}}
    async with machines(tmp_path, 16_384, 4096) as (served, studios):
        never = asyncio.Event()
        for studio in studios:
            studio.enqueue(Script(WaitFor(never)))
        body = {"model": NAME, "messages": [{"role": "user", "content": " harbor" * 1450}], "tools": tools}
        asking = asyncio.create_task(answered(served, body))
        await eventually(lambda: studios[0].chats, "the large one is not asked")
        studios[1].scripts.clear()
        await studios[0].stop()
        status, text = await asking
        assert status == 200, text
        assert studios[1].chats[-1].fitted
        whole, short = (studio.chats[-1].body["tools"] for studio in studios)
        assert whole == tools
        assert len(str(short)) < len(str(tools)) / 2


@pytest.mark.slow
@STREAM
async def test_a_machine_that_hangs_over_a_prompt_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """It takes a prompt and says nothing for too long: another one answers, and it is left alone."""
    monkeypatch.setattr(upstream, "FIRST_BYTE_SECONDS", 0.3)
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        never = asyncio.Event()
        for studio in studios:
            studio.enqueue(Script(WaitFor(never)))
        body = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}], "stream": stream}
        asking = asyncio.create_task(answered(served, body))
        await eventually(lambda: sum(chats(studios)) == 1, "nobody was asked")
        hanging, sound = first_asked(studios)
        sound.scripts.clear()
        status, text = await asking
        assert status == 200
        assert b"error" not in text
        assert chats([hanging, sound]) == [1, 1]
        await say(served, [], "Hello")
        assert chats([hanging, sound]) == [1, 2]


async def test_where_all_hang_each_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that is too slow for every machine is not read a second time: that would take as long again."""
    monkeypatch.setattr(upstream, "FIRST_BYTE_SECONDS", 0.2)
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        for studio in studios:
            studio.enqueue(Script(WaitFor(asyncio.Event())), repeat=True)
        status, text = await answered(served, {"model": NAME, "messages": [{"role": "user", "content": "Hello"}]})
        assert status == 504, text
        assert chats(studios) == [1, 1]


@STREAM
async def test_a_machine_that_answers_500_is_left_alone(tmp_path: Path, *, stream: bool) -> None:
    """Each client is answered by the other one, and the failing machine is hardly asked."""
    async with machines(tmp_path, 8192, 8192) as (served, (broken, sound)):
        broken.enqueue(Script(Reply(500, {"error": "Internal error"})), repeat=True)
        for number in range(6):
            body = {"model": NAME, "messages": [{"role": "user", "content": f"Chat {number}"}], "stream": stream}
            status, text = await answered(served, body)
            assert status == 200, text
            assert b"error" not in text
        assert len(sound.chats) == 6
        assert await value(served, "machine_moves_total", why="UpstreamError") <= 3


@pytest.mark.slow
async def test_counts_are_those_of_the_machine_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two builds of a model that cut text otherwise: what is held for a prompt is exactly what its machine reads."""
    held: list[int] = []
    ask = Pool.ask

    def noted(pool: Pool, capacity: int, priority: Any, tokens: int, prompt: int, **slots: Any) -> Ticket:
        held.append(prompt)
        return ask(pool, capacity, priority, tokens, prompt, **slots)

    monkeypatch.setattr(Pool, "ask", noted)
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        studios[1].residency.models[MODEL] = replace(
            studios[1].residency.models[MODEL], size_bytes=1_000_000, tokenizer=Letters()
        )
        studios[1].reload(MODEL, 8192)
        messages: list[Body] = []
        for turn in range(6):
            away = studios[turn % 2]
            await away.stop()
            text = f"Question {turn}. " + "The boat sails on. " * 20
            await say(served, messages, text)
            await away.start()
        assert all(studio.chats for studio in studios)
        assert sorted(held) == sorted(chat.counted_tokens or 0 for studio in studios for chat in studio.chats)


async def test_machines_are_taken_away_and_added_while_answers_run(tmp_path: Path) -> None:
    """An answer goes on on a machine that the settings name no more; the next one goes to those that they name."""
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        go_on = asyncio.Event()
        for studio in studios:
            studio.enqueue(Script("Slowly ", WaitFor(go_on), "said."))
        body = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        async with watched(served, body) as answer:
            await answer.until("Slowly")
            first, second = first_asked(studios)
            second.scripts.clear()
            desk = {"id": "desk", "kind": "lmstudio"}
            for urls in ([second.base_url], [second.base_url, first.base_url], [second.base_url]):
                status, told = await change(served, {"providers": [{**desk, "base_urls": urls}]})
                assert status == 200, told
                await say(served, [], "Hello") if len(urls) == 1 else None
            go_on.set()
            assert finish_of(chunks_of(await answer.rest())) == "stop"
        assert chats([first, second]) == [1, 2]
        await eventually(lambda: is_at_rest(served), "something is held")


async def test_a_model_is_loaded_by_its_first_chat_on_one_machine(tmp_path: Path) -> None:
    """Where nobody has loaded it, the machine that is asked loads it; the chat stays, and new ones go there too."""
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        for studio in studios:
            studio.unload(MODEL)
        talks: list[list[Body]] = [[], []]
        for turn in range(2):
            for messages in talks:
                await say(served, messages, f"Question {turn}.")
        assert min(chats(studios)) == 0
        assert sorted(len(studio.residency.instances) for studio in studios) == [0, 1]
        assert all(chat.fitted for studio in studios for chat in studio.chats)


@pytest.mark.slow
async def test_a_silent_host_holds_nobody_up(tmp_path: Path) -> None:
    """A machine that takes connections and never says a word delays the first request by less than two seconds."""
    async with machines(tmp_path, 8192) as (served, (sound,)):
        connected = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set()
            await reader.read()
            writer.close()

        host = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = host.sockets[0].getsockname()[1]
        urls = [f"http://127.0.0.1:{port}", sound.base_url]
        status, told = await change(served, {"providers": [{"id": "desk", "kind": "lmstudio", "base_urls": urls}]})
        assert status == 200, told
        async with asyncio.timeout(4):
            for _ in range(5):
                await say(served, [], "Hello")
        assert connected.is_set()
        assert len(sound.chats) == 5
        host.close()


@pytest.mark.slow
async def test_a_pruning_model_that_fails_on_one_machine_is_asked_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is left alone there, compactions are made where it answers, though that machine lists its models."""
    monkeypatch.setattr("elbowroom.providers.machines.FIRST_PAUSE", 60.0)  # longer than this takes on a busy machine
    settings = '[compaction]\nmodel = "pruner"\nbackground = false\n'
    async with machines(tmp_path, 2048, 2048, agents=settings, answer="It is a long story. " * 20) as (served, studios):
        for studio in studios:
            studio.residency.models["pruner"] = SimulatedModel("pruner")
            studio.load("pruner", 4096)
        broken, sound = studios
        broken.enqueue(Script(Reply(500, {"error": "No."})), when=lambda body: body["model"] == "pruner", repeat=True)
        messages: list[Body] = []
        for turn in range(9):
            await say(served, messages, f"Question {turn}. " + "The boat goes on. " * 60)
        assert [chat for chat in sound.chats if chat.instance_id == "pruner"]
        assert sum(asked.body["model"] == "pruner" for asked in broken.chats) <= 2  # the first order is sent twice


@pytest.mark.parametrize("kind", ["lmstudio", "openai"])
async def test_a_list_from_before_a_failure_tells_nothing(tmp_path: Path, kind: str) -> None:
    """Whether a machine is back is asked of the machine, though its list was read a second before it went away."""
    async with machines(tmp_path, 8192, 8192) as (served, studios):
        desk = {"id": "desk", "kind": kind, "manage_context": False, "base_urls": [one.base_url for one in studios]}
        status, told = await change(served, {"providers": [desk]})
        assert status == 200, told
        body = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}]}
        assert (await answered(served, body))[0] == 200
        gone = first_asked(studios)[0]
        await gone.stop()
        for _ in range(2):  # the second one would go to the machine that was asked less
            assert (await answered(served, body))[0] == 200
        machine = next(one for one in served.app[PROVIDERS].machines() if one.address.startswith(gone.base_url))
        assert machine.trouble() is not None
        assert await machine.look() is False
