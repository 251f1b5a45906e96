"""What a person sees while a compaction takes its time, and that it comes to an end however the answer does."""

import asyncio
import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, chunks_of, eventually
from patient_counting import wait_for_counts
from raw_http import request_bytes
from request_checks import assert_fits
from scripted_pruner import is_prune_order, valid_plan
from scripted_pruner import text_of as content_of
from serving import Served, serve, settings_for, text_of
from small_window import ANSWER, WINDOW, answers, ask_whole, history, orders_of, small_window, turns_of
from spread_variants import spread
from watched_stream import WatchedStream, statuses_of, watched

from elbowroom.agents.answer import AnswerEvent, ClientLeft, Notice, Sink
from elbowroom.agents.answering import answer
from elbowroom.agents.prompt.counters import MANY
from elbowroom.agents.prompt.step_prompt import StepPrompt
from elbowroom.agents.request import NOBODY, parse_chat_request
from elbowroom.agents.turn import compactor as telling
from elbowroom.agents.turn.compactor import Compactor
from elbowroom.demo import Error, Pause, Reply, Script, SimulatedLMStudio, SimulatedModel, Text, WaitFor
from elbowroom.server.state import CATALOG, SHARED, run_settings_of

COMPACTING = "Compacting conversation history..."
COMPACTED = "Context compacted, continuing..."
OBSIDIAN = "app://obsidian.md"
LONG = {"model": RAW_MODEL, "messages": history(12)}
MODELS = pytest.mark.parametrize("model", [RAW_MODEL, "writer"])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    monkeypatch.setattr(telling, "SECONDS_BETWEEN", 0.005)


class Gates:
    """A pruning agent that answers an order only when it is let; `made` has one gate for each order."""

    def __init__(self) -> None:
        self.made: list[asyncio.Event] = []
        self._are_open = False

    def prune(self, body: dict[str, Any]) -> Script:
        """Wait at a gate of its own, then answer with a valid plan."""
        self.made.append(asyncio.Event())
        if self._are_open:
            self.made[-1].set()
        return Script(WaitFor(self.made[-1]), valid_plan(body))

    async def open(self, number: int) -> None:
        """Let the order of this number be answered, from 1 on, as soon as it is there."""
        await eventually(lambda: len(self.made) >= number, "the order never came", seconds=30)
        self.made[number - 1].set()

    def stay_open(self) -> None:
        """Let all orders be answered from now on."""
        self._are_open = True
        for gate in self.made:
            gate.set()


def data_of(status: dict[str, Any]) -> dict[str, Any]:
    """Return what Open WebUI shows of a status."""
    data = status["event"]["data"]
    assert isinstance(data, dict)
    return data


async def next_part(stream: WatchedStream) -> dict[str, Any]:
    """Return the numbers of the next status that tells of a part that is read; plans being written are passed over."""
    while "written" in (told := (await stream.next_status())["elbowroom"]):
        pass
    assert isinstance(told, dict)
    return told


async def through_all_parts(stream: WatchedStream, gates: Gates) -> int:
    """Read part after part as each is told, and return how many there were."""
    assert data_of(await stream.next_status())["description"] == COMPACTING
    parts = part = 1
    while part <= parts:
        told = await next_part(stream)
        parts = told["parts"]
        assert (told["kind"], told["attempt"], told["part"]) == ("compacting", 1, part)
        await gates.open(part)
        part += 1
    return parts


@pytest.mark.parametrize("origin", ["", OBSIDIAN, "http://localhost"])
async def test_parts_are_told_as_they_are_read(tmp_path: Path, origin: str) -> None:
    """The open status says which part of how many is read; the text has two lines at most, wherever it is shown."""
    gates = Gates()
    headers = {"Origin": origin} if origin else {}
    async with (
        small_window(tmp_path, prune=gates.prune) as (served, _),
        watched(served, LONG, **headers) as stream,
    ):
        parts = await through_all_parts(stream, gates)
        chunks = chunks_of(await stream.rest())
    assert parts > 2
    *told, closing = [status for status in statuses_of(stream.received) if "at most" not in status["description"]]
    words = [COMPACTING, *(f"{COMPACTING} (part {part} of {parts})" for part in range(1, parts + 1))]
    assert told == [{"description": each, "done": False} for each in words]
    assert closing["done"]
    assert closing["description"].startswith(COMPACTED)
    assert text_of(chunks).count("> *elbowroom: ") == (2 if origin else 0)
    assert text_of(chunks).endswith(ANSWER)


async def test_comments_tell_of_parts_too(tmp_path: Path) -> None:
    """A comment costs nobody anything, so it says the same."""
    gates = Gates()
    async with (
        small_window(tmp_path, prune=gates.prune, compaction='notices = "comment"') as (served, _),
        watched(served, LONG) as stream,
    ):
        await stream.until(f": {COMPACTING}")
        await stream.until(f": {COMPACTING} (part 1 of ")
        await gates.open(1)
        await stream.until(f": {COMPACTING} (part 2 of ")
        gates.stay_open()
        assert text_of(chunks_of(await stream.rest())) == ANSWER


async def test_length_of_the_plan_is_told_while_it_is_written(tmp_path: Path) -> None:
    """Half of a plan is there: the status says how many tokens of at most how many."""
    rest = asyncio.Event()

    def prune(body: dict[str, Any]) -> Script:
        plan = valid_plan(body)
        return Script(Text(plan[:80], whole=True), WaitFor(rest), Text(plan[80:], whole=True))

    async with (
        small_window(tmp_path, prune=prune) as (served, studio),
        watched(served, LONG) as stream,
    ):
        assert data_of(await stream.next_status())["description"] == COMPACTING
        while "written" not in (status := await stream.next_status())["elbowroom"]:
            pass
        told = status["elbowroom"]
        limit = orders_of(studio)[0].body["max_tokens"]
        assert 0 < told["written"] < told["limit"] == limit
        assert data_of(status)["description"].endswith(f"{told['written']} of at most {limit} tokens)")
        assert not data_of(status)["done"]
        rest.set()
        assert text_of(chunks_of(await stream.rest())) == ANSWER


async def test_second_attempt_is_told(tmp_path: Path) -> None:
    """An answer that is of no use is asked for once more, and the person knows."""
    gate = asyncio.Event()
    asked: list[dict[str, Any]] = []

    def prune(body: dict[str, Any]) -> Script:
        asked.append(body)
        return Script("lorem ipsum " * 9) if len(asked) == 1 else Script(WaitFor(gate), valid_plan(body))

    async with small_window(tmp_path, prune=prune) as (served, _), watched(served, LONG) as stream:
        while (status := await stream.next_status())["elbowroom"].get("attempt") != 2:
            assert data_of(status)["description"].startswith(COMPACTING)
        assert "attempt 2" in data_of(status)["description"]
        gate.set()
        assert text_of(chunks_of(await stream.rest())) == ANSWER
    assert statuses_of(stream.received)[-1]["done"]


@MODELS
async def test_person_is_told_before_the_pruning_agent_is_asked(tmp_path: Path, model: str) -> None:
    """When the order reaches the upstream, the first notice is on the client's socket already."""
    arrived: list[bytes] = []

    def prune(body: dict[str, Any]) -> str:
        if not arrived:
            arrived.append(client.recv(65536, socket.MSG_PEEK))
        return valid_plan(body)

    async with small_window(tmp_path, prune=prune) as (served, studio):
        body = json.dumps({**LONG, "model": model, "stream": True}).encode()
        lines = [
            f"Host: 127.0.0.1:{served.port}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        asked = request_bytes("POST /v1/chat/completions HTTP/1.1", *lines, body=body)
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(asked)
            client.setblocking(False)
            await eventually(lambda: turns_of(studio) and not studio.open_requests, "no answer", seconds=30)
    assert COMPACTING.encode() in arrived[0]


class LatePrompt:
    """A prompt whose first count takes its time."""

    def __init__(self, prompt: StepPrompt, gate: asyncio.Event) -> None:
        self._prompt = prompt
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prompt, name)

    async def most(self, messages: Sequence[Any]) -> int:
        """Wait at the gate and count."""
        await self._gate.wait()
        return await self._prompt.most(messages)


async def test_first_notice_does_not_wait_for_the_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine far away takes its time to count: the person is told meanwhile, and of the size at the end."""
    gate = asyncio.Event()
    compact = Compactor.compact

    async def compact_late(self: Any, climb: Any, prompt: StepPrompt, *args: Any, **fields: Any) -> Any:
        late: Any = LatePrompt(prompt, gate)
        return await compact(self, climb, late, *args, **fields)

    monkeypatch.setattr(Compactor, "compact", compact_late)
    async with small_window(tmp_path) as (served, studio), watched(served, LONG) as stream:
        opening = await stream.next_status()
        assert data_of(opening) == {"description": COMPACTING, "done": False}
        assert opening["elbowroom"] == {"kind": "compacting"}
        assert orders_of(studio) == []
        gate.set()
        assert text_of(chunks_of(await stream.rest())) == ANSWER
    assert statuses_of(stream.received)[-1]["done"]


async def test_silence_before_the_first_byte_of_the_plan(tmp_path: Path) -> None:
    """A pruning agent that reads for long: the notice is there all the while."""
    gates = Gates()
    async with small_window(tmp_path, prune=gates.prune) as (served, studio):
        async with watched(served, LONG) as stream:
            assert data_of(await stream.next_status()) == {"description": COMPACTING, "done": False}
            await eventually(lambda: orders_of(studio), "the order never came", seconds=30)
            assert turns_of(studio) == []
            gates.stay_open()
            await stream.rest()
        assert [status["done"] for status in statuses_of(stream.received)].count(True) == 1


async def answer_for(served: Served, sink: Sink) -> None:
    """Answer a long conversation for someone who reads in this way, without a socket between."""
    target = await served.app[CATALOG].get().resolve(RAW_MODEL)
    request = parse_chat_request({**LONG, "stream": True})
    async with asyncio.timeout(60):
        await answer(target, request, run_settings_of(served.app, NOBODY), sink)


@pytest.mark.fault("slow reader", "compaction", "goes on")
async def test_slow_reader_does_not_hold_up_the_compaction(tmp_path: Path) -> None:
    """No notice is read before an order has been answered: the compaction goes on all the same, in the same order."""
    order: list[str] = []

    async with small_window(tmp_path) as (served, studio):

        async def take(events: Sequence[AnswerEvent]) -> None:
            for event in events:
                if isinstance(event, Notice) and not event.is_done:
                    await eventually(lambda: any(asked.finished_at for asked in orders_of(studio)), "held up", 30)
                order.append(event.kind if isinstance(event, Notice) else "said")

        await answer_for(served, take)
    assert order[0] == "compacting"
    assert order.index("compacted") < order.index("said")


async def test_reader_who_has_left_ends_the_compaction(tmp_path: Path) -> None:
    """Where a notice cannot be told because its reader is gone, nothing is answered any more."""

    async def take(events: Sequence[AnswerEvent]) -> None:
        if any(isinstance(event, Notice) for event in events):
            raise ClientLeft

    async with small_window(tmp_path) as (served, studio):
        with pytest.raises(ClientLeft):
            await answer_for(served, take)
        assert turns_of(studio) == []


@MODELS
async def test_client_that_leaves_ends_the_compaction(tmp_path: Path, model: str) -> None:
    """The pruning agent's request is closed as soon as nobody waits for it, and no turn is asked for."""
    gates = Gates()
    async with small_window(tmp_path, prune=gates.prune) as (served, studio):
        async with watched(served, {**LONG, "model": model}) as stream:
            await stream.next_status()
            await eventually(lambda: gates.made, "the order never came", seconds=30)
        await eventually(lambda: studio.disconnects, "the order is answered for nobody", seconds=10)
        assert is_prune_order(studio.disconnects[0].request.body)
        assert turns_of(studio) == []


@pytest.mark.slow
@MODELS
async def test_parts_that_were_answered_outlive_a_client_that_leaves(tmp_path: Path, model: str) -> None:
    """The next request has the plan go on from there."""
    gates, question = Gates(), {**LONG, "model": model}
    async with small_window(tmp_path, prune=gates.prune) as (served, studio):
        async with watched(served, question) as stream:
            assert data_of(await stream.next_status())["description"] == COMPACTING
            parts = (await next_part(stream))["parts"]
            await gates.open(1)
            await eventually(lambda: len(gates.made) == 2, "the second part is not asked for", seconds=30)
        await eventually(lambda: studio.disconnects, "the order is answered for nobody", seconds=10)
        gates.stay_open()
        async with watched(served, question) as stream:
            assert text_of(chunks_of(await stream.rest())) == ANSWER
        assert len(gates.made) == 2 + parts - 1


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["I go on with the conversation.", '{"retain": "The user wa'])
async def test_an_answer_about_a_part_that_is_of_no_use_is_not_kept(tmp_path: Path, answer: str) -> None:
    """The client leaves after it: the next request asks about the first part again, as if nothing had been answered."""
    orders: list[dict[str, Any]] = []

    def prune(body: dict[str, Any]) -> Script:
        orders.append(body)
        return Script(answer) if len(orders) == 1 else Script(*([] if is_open else [WaitFor(gate)]), valid_plan(body))

    gate, is_open = asyncio.Event(), False
    async with small_window(tmp_path, prune=prune) as (served, studio):
        async with watched(served, LONG) as stream:
            await stream.next_status()
            await eventually(lambda: len(orders) == 2, "it is not asked again", seconds=30)
        await eventually(lambda: studio.disconnects, "the order is answered for nobody", seconds=10)
        is_open, before = True, len(orders)
        async with watched(served, LONG) as stream:
            assert text_of(chunks_of(await stream.rest())) == ANSWER
        assert orders[before]["messages"] == orders[0]["messages"]


def assert_closed(stream: bytes, error: str | None) -> None:
    """Check that what was opened is closed before the error frame, which is the last."""
    assert [status["done"] for status in statuses_of(stream)][-2:] == [False, True]
    last = stream.decode().removesuffix("\n\n").rpartition("\n\n")[2]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == error


@pytest.mark.parametrize(
    ("model", "script"),
    spread(["writer", RAW_MODEL], [Script(Reply(500, {"error": "crashed"})), Script(Error("Out of memory."))]),
)
async def test_error_after_a_compaction(tmp_path: Path, model: str, script: Script) -> None:
    """The status of the compaction is closed long before the model fails."""
    async with (
        small_window(tmp_path, lambda body: script) as (served, _),
        watched(served, {**LONG, "model": model}) as stream,
    ):
        await stream.rest()
    opened, *_, closing = statuses_of(stream.received)
    assert not opened["done"]
    assert closing["done"]
    assert closing["description"].startswith(COMPACTED)
    assert b'"error"' in stream.received
    assert b"[DONE]" not in stream.received


@MODELS
async def test_mistake_of_ours_in_a_compaction(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that is none of elbowroom's errors closes the status, and ends the stream in words."""

    async def choose(*args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(telling, "choose_pruner", choose)
    async with small_window(tmp_path) as (served, studio), watched(served, {**LONG, "model": model}) as stream:
        await stream.rest()
        assert turns_of(studio) == []
    assert_closed(stream.received, None)


@pytest.mark.parametrize(("model", "notices"), spread(["writer", RAW_MODEL], ["auto", "content"]))
async def test_server_that_stops_in_a_compaction(tmp_path: Path, model: str, notices: str) -> None:
    """The status is closed with the stream, and the pruning agent's request is closed too."""
    gates = Gates()

    def says(body: dict[str, Any]) -> Script | str:
        return gates.prune(body) if is_prune_order(body) else answers(body)

    loaded = SimulatedModel(MODEL, loaded_context_length=WINDOW)
    async with SimulatedLMStudio([loaded], on_request=says) as studio, aiohttp.ClientSession() as http:
        settings = settings_for(studio.base_url, agents=f'[compaction]\nnotices = "{notices}"\n{AGENT}')
        async with serve(tmp_path, settings) as served:
            response = await http.post(served.chat_url, json={**LONG, "model": model, "stream": True})
            stream = WatchedStream(response)
            await stream.until(COMPACTING)
            await eventually(lambda: gates.made, "the order never came", seconds=30)
        await stream.rest()
        await eventually(lambda: studio.open_requests == 0, "the upstream request is left open")
    if notices == "auto":
        assert_closed(stream.received, "server_stopping")
    else:
        assert b"> *elbowroom: Stopped.*" in stream.received


async def test_nothing_told_keeps_the_status_of_an_error(tmp_path: Path) -> None:
    """With `off` the headers wait for the answer: a model that fails behind a compaction has a status of its own."""

    def fails(body: dict[str, Any]) -> Script:
        return Script(Reply(500, {"error": "crashed"}))

    async with small_window(tmp_path, fails, compaction='notices = "off"') as (served, studio):
        async with served.http.post(served.chat_url, json={**LONG, "stream": True}) as response:
            assert response.status >= 500
            assert "error" in await response.json()
        assert orders_of(studio)


@pytest.mark.parametrize("stream", [True, False])
async def test_log_has_before_and_after(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, stream: bool) -> None:
    """Each compaction leaves one line with the sizes in tokens, whether or not somebody was told."""
    caplog.set_level("INFO", "elbowroom.agents.turn.compactor")
    async with (
        small_window(tmp_path, compaction='notices = "off"') as (served, studio),
        served.http.post(served.chat_url, json={**LONG, "stream": stream}) as response,
    ):
        await response.read()
        [turn] = turns_of(studio)
    [line] = [record.getMessage() for record in caplog.records if " compacted from " in record.getMessage()]
    assert f" to {turn.counted_tokens} tokens in " in line
    before = int(line.partition("compacted from ")[2].partition(" ")[0])
    assert before > WINDOW
    assert content_of(turn.body["messages"][-1])


@pytest.mark.slow
async def test_a_long_history_is_pruned_in_the_time_that_is_left(tmp_path: Path) -> None:
    """A history that is worked on outside the event loop compacts too, once it is known how fast its model writes."""
    async with small_window(tmp_path, window=16_384, compaction="max_pruning_seconds = 60") as (served, studio):
        studio.enqueue(Script(*(text for _ in range(40) for text in ("A word. ", Pause(0.002)))))
        await ask_whole(served, {"model": RAW_MODEL, "messages": history(1)})
        pool = served.app[SHARED].admission.pool(("lmstudio", MODEL))
        assert pool is not None
        assert pool.writing.is_known
        status, said = await ask_whole(served, {"model": RAW_MODEL, "messages": history(MANY)})
        assert status == 200, said
        assert orders_of(studio)
        assert_fits(turns_of(studio)[-1])
