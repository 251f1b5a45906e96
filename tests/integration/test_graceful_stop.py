"""The program is asked to stop while it works: answers finish or are kept, nothing new is begun, nothing is left."""

import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, elbowroom_with_studio, eventually
from command_line import PATIENCE, Program, running
from mcp_sample import plain_server
from scripted_pruner import is_prune_order
from serving import parse_frames, settings_for, text_of
from small_window import history

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall, WaitFor
from elbowroom.server import app as stopping
from elbowroom.server.state import SHARED

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals for other processes")
NAMED = {"X-Conversation-Id": "notes"}
QUESTION = {"role": "user", "content": "What is in the vault?"}
WORDS = f"{'word ' * 40}last"
STOPPING = "Stopping: 1 answer may go on for 5 s."


@dataclass(slots=True)
class Serving:
    """A running program with its address, a session to ask it with, and the model behind it."""

    program: Program
    address: str
    http: aiohttp.ClientSession
    studio: SimulatedLMStudio

    async def ask(self, **fields: Any) -> aiohttp.ClientResponse:
        """Ask in the conversation; the response may still be streamed."""
        body = {"model": RAW_MODEL, "messages": [QUESTION], "stream": True, **fields}
        return await self.http.post(f"{self.address}/v1/chat/completions", json=body, headers=NAMED)

    async def kept(self) -> list[tuple[str, str, str]]:
        """Return role, text and status of the conversation's messages."""
        async with self.http.get(f"{self.address}/v1/conversations/notes/messages?limit=200") as response:
            rows = (await response.json())["data"]
        return [(row["message"]["role"], row["message"].get("content") or "", row["status"]) for row in rows]


@asynccontextmanager
async def serving(folder: Path, studio: SimulatedLMStudio, agents: str = "") -> AsyncIterator[Serving]:
    """Run the program on the folder's data."""
    settings = folder / "settings.toml"
    settings.write_text(settings_for(studio.base_url, agents=agents), encoding="utf-8")
    data = {"ELBOWROOM_DATA_DIR": str(folder / "data")}
    async with running(folder, "serve", "--config", str(settings), variables=data) as program:
        address = await program.address()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as http:
            yield Serving(program, address, http, studio)


def one_model(window: int = 32_768) -> SimulatedLMStudio:
    """Return a simulated LM Studio with one loaded model."""
    return SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=window)])


@contextmanager
def leaving_no_process(program: Program) -> Iterator[None]:
    """Check that what the program had started by the beginning of the block is gone at its end."""
    children = psutil.Process(program.process.pid).children(recursive=True)
    yield
    _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert not alive


@pytest.mark.slow
async def test_a_running_answer_finishes(tmp_path: Path) -> None:
    """It arrives whole and is kept as whole; then the program ends with exit code 0."""
    release = asyncio.Event()
    async with one_model() as studio:
        studio.enqueue(Script(WORDS, WaitFor(release), " and the end"))
        async with serving(tmp_path, studio) as served:
            response = await served.ask()
            await response.content.readuntil(b"last")
            served.program.process.send_signal(signal.SIGTERM)
            await served.program.line_with(STOPPING)
            release.set()
            frames = await response.read()
            assert frames.endswith(b"data: [DONE]\n\n")
            assert b"server_stopping" not in frames
            assert await served.program.ended() == 0
        async with serving(tmp_path, studio) as served:
            assert await served.kept() == [
                ("user", QUESTION["content"], "complete"),
                ("assistant", f"{WORDS} and the end", "complete"),
            ]
    assert "Traceback" not in served.program.said


async def test_new_requests_are_refused(tmp_path: Path) -> None:
    """While answers finish, whatever else is asked gets a 503 with a time to ask again, and `/health` says why."""
    release = asyncio.Event()
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(Script(WORDS, WaitFor(release), " and the end"))
        asking = asyncio.create_task(served.chat_frames("writer"))
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens > 3, "nothing is said", PATIENCE)
        running = served.app[SHARED].running
        finishing = asyncio.create_task(stopping.finish_answers(running, stopping.StopRequests(), PATIENCE))
        await eventually(lambda: running.is_closed, "it goes on as before")
        origin = {"Origin": "app://obsidian.md"}
        for method, path in (("POST", "chat/completions"), ("GET", "models"), ("GET", "nothing/here")):
            async with served.http.request(method, f"{served.url}/v1/{path}", json={}, headers=origin) as refused:
                assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
                assert refused.headers["Access-Control-Allow-Origin"] == origin["Origin"]
                error = (await refused.json())["error"]
            assert (error["code"], error["type"], error["param"]) == ("server_stopping", "server_error", None)
            assert "Ask again" in error["message"]
        async with served.http.get(f"{served.url}/health") as health:
            assert (health.status, (await health.json())["status"]) == (503, "stopping")
        assert not finishing.done()
        release.set()
        await finishing
        frames = await asking
        assert text_of(frames) == f"{WORDS} and the end"
        assert frames[-1] == "[DONE]"
        assert len(studio.chats) == 1


async def stopped_in_a_hurry(served: Serving) -> None:
    """Ask the program to stop, and once more to end now; check that it does, with exit code 0, and leaves nothing."""
    with leaving_no_process(served.program):
        served.program.process.send_signal(signal.SIGTERM)
        await served.program.line_with(STOPPING)
        assert await served.program.end(signal.SIGTERM) == 0
    assert "Traceback" not in served.program.said
    await eventually(lambda: served.studio.open_requests == 0, "a request is left open upstream")


@pytest.mark.long
async def test_a_second_signal_while_a_prompt_is_read(tmp_path: Path) -> None:
    """Nothing was said yet: the client has a status of its own, and the question is kept."""
    async with one_model() as studio:
        studio.enqueue(Script(WaitFor(asyncio.Event())))
        async with serving(tmp_path, studio) as served:
            asking = asyncio.create_task(served.ask())
            await eventually(lambda: studio.chats, "the model is not asked", PATIENCE)
            await stopped_in_a_hurry(served)
            response = await asking
            assert (response.status, response.headers["Retry-After"]) == (503, "5")
            assert (await response.json())["error"]["code"] == "server_stopping"
        async with serving(tmp_path, studio) as served:
            assert await served.kept() == [("user", QUESTION["content"], "complete")]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.long)], ids=["streamed", "whole"])
async def test_a_second_signal_while_it_is_answered(tmp_path: Path, *, stream: bool) -> None:
    """What was said is kept as interrupted, to the last word; the client is told why it ends."""
    async with one_model() as studio:
        studio.enqueue(Script(WORDS, WaitFor(asyncio.Event())))
        async with serving(tmp_path, studio) as served:
            asking = asyncio.create_task(served.ask(stream=stream))
            said = len(WORDS.split())
            await eventually(lambda: studio.chats and studio.chats[0].completion_tokens >= said, "no word", PATIENCE)
            if stream:
                await (await asking).content.readuntil(b"last")
            await stopped_in_a_hurry(served)
            response = await asking
            assert response.status == (200 if stream else 503)
            assert b'"code":"server_stopping"' in (await response.read()).replace(b'": "', b'":"')
        async with serving(tmp_path, studio) as served:
            assert await served.kept() == [
                ("user", QUESTION["content"], "complete"),
                ("assistant", WORDS, "interrupted"),
            ]


@pytest.mark.slow
async def test_a_second_signal_while_a_tool_works(tmp_path: Path) -> None:
    """The tool is cancelled and its program ended; what was said before it is kept."""
    journal = tmp_path / "journal"
    journal.touch()
    agents = f'{AGENT}mcp = ["sample/slow"]\n{plain_server("sample", journal)}'
    async with one_model() as studio:
        studio.enqueue(Script("I look.", ToolCall("slow", {"seconds": 300})))
        async with serving(tmp_path, studio, agents) as served:
            response = await served.ask(model="writer")
            await eventually(lambda: "slow begun" in journal.read_text(), "the tool is not called", PATIENCE)
            assert psutil.Process(served.program.process.pid).children()
            await stopped_in_a_hurry(served)
            frames = (await response.read()).decode()
            assert "I look." in text_of(parse_frames(frames.encode()))
            assert '"server_stopping"' in frames
        async with serving(tmp_path, studio, agents) as served:
            question, calling, *_ = await served.kept()
            assert question == ("user", QUESTION["content"], "complete")
            assert calling[:2] == ("assistant", "I look.")


@pytest.mark.long
async def test_a_second_signal_while_it_is_compacted(tmp_path: Path) -> None:
    """The compaction is given up, the pruning agent's request is closed, and the conversation is as it was."""
    async with one_model(window=4096) as studio:
        studio.enqueue(Script(WaitFor(asyncio.Event())), when=is_prune_order, repeat=True)
        async with serving(tmp_path, studio) as served:
            asking = asyncio.create_task(served.ask(messages=history(40)))
            await eventually(lambda: [c for c in studio.chats if is_prune_order(c.body)], "no compaction", PATIENCE)
            await stopped_in_a_hurry(served)
            assert b"server_stopping" in await (await asking).read()
        async with serving(tmp_path, studio) as served:
            kept = await served.kept()
            assert kept[-1][:2] == ("user", history(40)[-1]["content"])
            assert len(kept) == len(history(40))


@pytest.mark.long
async def test_work_behind_an_answer_does_not_hold_it_up(tmp_path: Path) -> None:
    """A compaction in the background is ended with the first signal: nobody waits for it."""
    long_answer = " ".join(["The ferry left at noon and came back in the evening."] * 20)
    async with one_model(window=4096) as studio:
        studio.enqueue(Script(WaitFor(asyncio.Event())), when=is_prune_order, repeat=True)
        studio.enqueue(long_answer, when=lambda body: not is_prune_order(body))
        async with serving(tmp_path, studio) as served:
            response = await served.ask(messages=history(31))
            assert b"[DONE]" in await response.read()
            await eventually(lambda: [c for c in studio.chats if is_prune_order(c.body)], "no compaction", PATIENCE)
            assert await served.program.end(signal.SIGTERM) == 0
            assert "Stopping." in served.program.said
            assert "Traceback" not in served.program.said
        await eventually(lambda: studio.open_requests == 0, "a request is left open upstream")
        async with serving(tmp_path, studio) as served:
            assert (await served.kept())[-1] == ("assistant", long_answer, "complete")


async def test_the_service_manager_is_told(tmp_path: Path) -> None:
    """It reads READY=1 once the server listens, and STOPPING=1 once it is asked to stop."""
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{short}/notify")
        manager.settimeout(PATIENCE)
        variables = {"NOTIFY_SOCKET": f"{short}/notify"}
        async with running(tmp_path, "serve", "--port", "0", variables=variables) as program:
            assert await asyncio.to_thread(manager.recv, 100) == b"READY=1"
            address = await program.address()
            async with aiohttp.ClientSession() as http, http.get(f"{address}/health") as response:
                assert response.status == 200
            assert await program.end(signal.SIGTERM) == 0
            assert await asyncio.to_thread(manager.recv, 100) == b"STOPPING=1"


SIGNALS = """
import asyncio, sys
from elbowroom.server.app import StopRequests

class WithoutHandlers(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *given):
        raise NotImplementedError

async def main():
    requests = StopRequests.listen()
    print("begun", flush=True)
    await requests.asked.wait()
    print("asked", flush=True)
    await requests.pressed.wait()
    print("pressed", flush=True)
    await asyncio.sleep(300)

factory = WithoutHandlers if "without" in sys.argv else None
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["with", "without"])
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
async def test_three_signals(loop: str, number: signal.Signals) -> None:
    """The first asks, the second presses, the third ends the process; also on loops that know no signals."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SIGNALS, loop), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        for word in ("begun", "asked", "pressed"):
            async with asyncio.timeout(PATIENCE):
                assert (await process.stdout.readline()).decode().strip() == word
            process.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 1
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


BLOCKED = """
import time
from elbowroom.server.app import bound_the_stop
bound_the_stop(0.2)
time.sleep(300)
"""


@pytest.mark.slow
async def test_a_stop_that_is_held_up(tmp_path: Path) -> None:
    """The process ends after its time, whatever it is doing, with an exit code that says so and a line in the log."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BLOCKED), stderr=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    async with asyncio.timeout(PATIENCE):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"something still running" in errors


@pytest.mark.parametrize(("before", "is_taken"), [(signal.SIG_IGN, False), (signal.SIG_DFL, True)])
async def test_a_terminal_that_is_closed(before: signal.Handlers, *, is_taken: bool) -> None:
    """It asks the program to stop, unless the program was started with nohup to outlive it."""
    loop, found = asyncio.get_running_loop(), signal.signal(signal.SIGHUP, before)
    requests = stopping.StopRequests.listen()
    try:
        assert (signal.getsignal(signal.SIGHUP) is not before) == is_taken
        signal.raise_signal(signal.SIGHUP)
        await asyncio.sleep(0)
        if is_taken:
            async with asyncio.timeout(PATIENCE):
                await requests.asked.wait()
        assert requests.asked.is_set() == is_taken
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGHUP, found)
