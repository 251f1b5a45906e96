"""An engine that fails in the midst of a longer turn: after a tool, in a compaction, in a flush, in the last words.

Each test tries the faults that its marks name; docs/develop/reliability.md shows them beside those of other tests.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cancelling import is_answering, last_turn, stopped_when
from chatting import AGENT, chat_body, elbowroom_with_studio
from flushes import FULL, is_flush, remembering, turn
from own_tools import own_tool
from patient_counting import wait_for_counts
from quick_models import take_models_for_quick
from serving import text_of
from small_window import ANSWER, history, orders_of, small_window

from elbowroom.demo import Cut, Error, Raw, Reply, Script, SimulatedLMStudio, ToolCall, WaitFor, wording
from elbowroom.providers import upstream

LONG = "word " * 4000


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    take_models_for_quick(monkeypatch)


@pytest.fixture
def faults(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Script]]:
    """Give what the engine does for each fault of the test's marks; silence is not waited for long."""
    monkeypatch.setattr(upstream, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(upstream, "FIRST_BYTE_SECONDS", 0.2)
    never = asyncio.Event()
    scripts = {
        "silence before the headers": Script(WaitFor(never)),
        "silence in mid-stream": Script("Half a", WaitFor(never)),
        "cut stream": Script("Half a", Cut()),
        "broken event": Script("Half a", Raw(b"data: {broken\n\n")),
        "overflow refused": Script(Reply(400, {"error": wording("C", 9000, 8192, "qwen2")})),
        "empty answer": Script(),
        "busy engine": Script(Reply(429, {"error": {"message": "Slow down."}}, {"Retry-After": "7"})),
        "model lost": Script("Half a", Error("Model is unloaded.")),
        "page instead of an answer": Script(Reply(200, "<html><body>Please log in.</body></html>")),
    }
    names = [name for mark in request.node.iter_markers("fault") for name in mark.args[0]]
    assert names
    yield {name: scripts[name] for name in names}
    never.set()


@own_tool
async def look() -> str:
    """Look at the pier."""
    return "The pier is open."


def about(name: str) -> dict[str, str]:
    """Return a first message that makes a history another conversation's."""
    return {"role": "user", "content": f"This is about a {name}."}


@pytest.mark.slow
@pytest.mark.fault(
    ("silence before the headers", "silence in mid-stream", "cut stream", "broken event", "overflow refused"),
    "tool",
    "words and result kept, error frame",
)
@pytest.mark.fault(("busy engine", "page instead of an answer"), "tool", "words and result kept, error frame")
async def test_in_the_step_after_a_tool(tmp_path: Path, faults: dict[str, Script]) -> None:
    """The words before the call have been shown: an error ends the stream; they are kept, and so is the result."""
    scripts = iter(faults.values())
    script = Script()

    def says(body: dict[str, Any]) -> Script:
        return script if body["messages"][-1]["role"] == "tool" else Script("I look.", ToolCall("look"))

    async with small_window(tmp_path, says, window=8192, toolbox=lambda target: [look]) as (served, _):
        for name in faults:
            script = next(scripts)
            headers = {"X-Conversation-Id": name}
            body = {**chat_body(f"Is there a {name}?"), "stream": True}
            async with served.http.post(served.chat_url, json=body, headers=headers) as response:
                answer = await response.text()
            assert '"I look' in answer or '"I"' in answer, name
            assert '"error"' in answer.rstrip().rpartition("\n")[2], name
            kept = [message.message for message in await last_turn(served, name)]
            assert kept[0]["content"] == "I look.", name
            assert kept[1]["content"] == "The pier is open.", name


@pytest.mark.fault("connection refused", "tool", "words and result kept, error frame")
async def test_engine_that_ends_while_a_tool_runs(tmp_path: Path) -> None:
    """Nobody is there any more for the next step: the answer ends with an error; the next one works again."""
    studio: SimulatedLMStudio

    @own_tool
    async def end() -> str:
        """Look at the pier."""
        await studio.stop()
        return "The pier is open."

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [end]) as (served, studio):
        studio.enqueue(Script("I look.", ToolCall("end")), "Now I see.")
        frames = await served.chat_frames("writer", "Look.")
        assert text_of(frames) == "I look."
        assert frames[-1]["error"]["code"] == "upstream_unreachable"
        await studio.start()
        assert text_of(await served.chat_frames("writer", "And now?")) == "Now I see."


@pytest.mark.fault(("broken event", "busy engine", "model lost"), "compaction", "the next rung; answer whole")
async def test_in_a_compaction(tmp_path: Path, faults: dict[str, Script]) -> None:
    """Code makes the summary that the engine has not made, and the answer comes whole."""
    script = Script()
    async with small_window(tmp_path, prune=lambda body: script, compaction="background = false") as (served, studio):
        for name, script in faults.items():  # noqa: B007  # the engine says it
            orders = len(orders_of(studio))
            assert await turn(served, [about(name), *history(8)]) == ANSWER, name
            assert len(orders_of(studio)) > orders, name


@pytest.mark.slow
@pytest.mark.fault(
    ("broken event", "busy engine", "model lost", "page instead of an answer"), "flush", "tried no more; answer whole"
)
async def test_in_a_flush(tmp_path: Path, faults: dict[str, Script]) -> None:
    """Nothing is remembered, and the answer comes whole."""
    script = Script()
    async with remembering(tmp_path, lambda body: script) as (served, studio):
        for name, script in faults.items():  # noqa: B007  # the engine says it
            asked = len(studio.chats)
            assert await turn(served, [about(name), *history(FULL)]) == ANSWER, name
            assert any(is_flush(chat.body) for chat in studio.chats[asked:]), name


@pytest.mark.slow
@pytest.mark.fault(
    ("silence before the headers", "cut stream", "broken event", "overflow refused", "empty answer", "busy engine"),
    "stop",
    "ends where it was stopped",
)
@pytest.mark.fault(("model lost", "page instead of an answer"), "stop", "ends where it was stopped")
async def test_in_the_last_words(tmp_path: Path, faults: dict[str, Script]) -> None:
    """Last words that fail are none: the stopped answer has a normal end."""
    async with elbowroom_with_studio(tmp_path, agents=AGENT) as (served, studio):
        studio.tokens_per_second = 200
        for name, script in faults.items():
            asked = len(studio.chats)

            def speaks(asked: int = asked) -> bool:
                return is_answering(served, studio, asked)

            studio.enqueue(LONG, script)
            received, answer = await stopped_when(
                served,
                chat_body(f"Tell me of a {name}.", stream=True),
                speaks,
                grace=True,
            )
            assert answer["status"] == "idle", name
            assert received.text.startswith("word"), name
            assert received.finish == "stop", name
