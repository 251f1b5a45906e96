"""The same overflow a third time within a minute is answered at once, and whatever has changed is asked anew."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, function_spec
from patient_counting import wait_for_counts
from scripted_pruner import valid_plan
from serving import Served
from small_window import WINDOW, history, orders_of, small_window

from elbowroom.agents.refusals import SECONDS
from elbowroom.agents.turn import fit
from elbowroom.agents.turn.room import overflow_error
from elbowroom.errors import ContextOverflow

Body = dict[str, Any]
LONG = "word " * 4000
TOOLS = [function_spec(f"read_{number}") for number in range(60)]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each refusal that is worked out."""
    done: list[str] = []

    async def noted(*args: Any, **fields: Any) -> Any:
        done.append("worked out")
        return await overflow_error(*args, **fields)

    monkeypatch.setattr(fit, "overflow_error", noted)
    return done


def too_long(exchanges: int = 1, **fields: Any) -> Body:
    """Return a request whose last call is larger than the window: nothing can free that."""
    return {"model": "writer", "messages": [*history(exchanges), *called(LONG)], **fields}


def called(text: str) -> list[Body]:
    """Return a call that writes this text, and its result."""
    function = {"name": "write_note", "arguments": json.dumps({"text": text})}
    said = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call00001", "type": "function", "function": function}],
    }
    return [said, {"role": "tool", "tool_call_id": "call00001", "content": "Written."}]


async def refused(served: Served, body: Body, headers: dict[str, str] | None = None) -> tuple[Body, str | None]:
    """Ask, which has to be refused; return the error and when to ask again."""
    async with served.http.post(served.chat_url, json=body, headers=headers or {}) as response:
        answer = await response.json()
        assert response.status == 400, answer
        return answer["error"], response.headers.get("Retry-After")


@pytest.mark.parametrize(
    ("body", "code"),
    [(too_long(), "context_length_exceeded"), ({**too_long(), "tools": TOOLS}, "window_too_small")],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_third_time(tmp_path: Path, worked_out: list[str], body: Body, code: str, *, stream: bool) -> None:
    """It has the same sentence, says how long that is remembered, and is counted as a metric; nobody is asked."""
    async with small_window(tmp_path) as (served, studio):
        errors = [await refused(served, {**body, "stream": stream}) for _ in range(4)]
        assert len(worked_out) == 2
        assert not studio.chats
        assert [wait for _, wait in errors[:2]] == [None, None]
        first = errors[0][0]
        for number, (error, wait) in enumerate(errors[2:], start=3):
            assert (error["code"], error["param"]) == (code, first["param"])
            assert error["message"].startswith(first["message"])
            assert f"was asked {number} times within a minute" in error["message"]
            assert f"remembers this for {wait} s" in error["message"]
            assert wait is not None
            assert 0 < int(wait) <= SECONDS
        async with served.http.get(f"{served.url}/metrics") as response:
            told = await response.text()
        assert 'elbowroom_remembered_refusals_total{model="lmstudio/qwen2.5-7b-instruct"} 2.0' in told


async def test_a_client_that_drops_messages(tmp_path: Path, worked_out: list[str]) -> None:
    """A client that makes its history shorter each time asks the same: its last call is what is too long."""
    async with small_window(tmp_path) as (served, studio):
        for exchanges in (9, 6, 3, 1):
            await refused(served, too_long(exchanges))
        assert len(worked_out) == 2
        assert len(orders_of(studio)) <= 2


CHANGES: dict[str, Callable[[Body], Body]] = {
    "last call": lambda body: {
        **body,
        "messages": [*body["messages"][:-1], {"role": "user", "content": LONG + "!"}],
    },
    "system message": lambda body: {
        **body,
        "messages": [{"role": "system", "content": "Else."}, *body["messages"][1:]],
    },
    "tools": lambda body: {**body, "tools": TOOLS[:1]},
    "limit of the answer": lambda body: {**body, "max_tokens": 50},
    "model": lambda body: {**body, "model": MODEL},
    "user": lambda body: {**body, "user": "ada"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=[*CHANGES])
async def test_what_has_changed_is_asked_anew(
    tmp_path: Path, worked_out: list[str], change: Callable[[Body], Body]
) -> None:
    """Another call, system message, tool, limit, model or person: nothing is known of that."""
    async with small_window(tmp_path) as (served, _):
        for _ in range(3):
            await refused(served, too_long())
        assert len(worked_out) == 2
        await refused(served, change(too_long()))
        assert len(worked_out) == 3


async def test_a_question_that_fits(tmp_path: Path) -> None:
    """Between two refusals, a chat of the same person that fits is answered."""
    async with small_window(tmp_path) as (served, studio):
        for _ in range(3):
            await refused(served, too_long())
        async with served.http.post(served.chat_url, json={"model": "writer", "messages": history(1)}) as response:
            assert response.status == 200
        assert len(studio.chats) == 1


async def test_a_larger_window(tmp_path: Path) -> None:
    """Once the model is loaded with a window that has room, the same request is answered."""
    async with small_window(tmp_path) as (served, studio):
        for _ in range(3):
            await refused(served, too_long())
        studio.reload(MODEL, 20 * WINDOW)
        async with served.http.post(served.chat_url, json=too_long()) as response:
            assert response.status == 200, await response.text()


async def test_settings_that_change(tmp_path: Path, worked_out: list[str]) -> None:
    """Another setting of what a prompt may hold is a reason to work it out anew."""
    async with small_window(tmp_path) as (served, _):
        for _ in range(3):
            await refused(served, too_long())
        text = served.settings.read_text(encoding="utf-8")
        served.settings.write_text(text.replace("[compaction]\n", "[compaction]\nretain_last_turns = 3\n"), "utf-8")
        await refused(served, too_long())
        assert len(worked_out) == 3


async def test_a_history_that_is_not_compacted(tmp_path: Path, worked_out: list[str]) -> None:
    """Where compaction is off, a shorter history is another request: it may fit."""
    async with small_window(tmp_path, valid_plan, compaction="enabled = false") as (served, _):
        for _ in range(3):
            await refused(served, {"model": "writer", "messages": history(20)})
        assert len(worked_out) == 2
        await refused(served, {"model": "writer", "messages": history(19)})
        assert len(worked_out) == 3
        async with served.http.post(served.chat_url, json={"model": "writer", "messages": history(1)}) as response:
            assert response.status == 200


async def test_edits_that_make_it_fit(tmp_path: Path) -> None:
    """A history that was refused is answered once the client wants the old results in it cleared."""
    history: list[Body] = [{"role": "user", "content": "What do the notes say?"}]
    for number in range(8):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "read_note", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "The pier was dry. " * 30}
        history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    asked: Body = {"model": "writer", "max_tokens": 50, "messages": history}
    clear = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 500},
        "keep": {"type": "tool_uses", "value": 1},
    }
    async with small_window(tmp_path, compaction="enabled = false") as (served, _):

        async def status(**fields: Any) -> int:
            async with served.http.post(f"{served.url}/v1/messages", json={**asked, **fields}) as response:
                await response.read()
                return response.status

        assert [await status() for _ in range(3)] == [400] * 3
        assert await status(context_management={"edits": [clear]}) == 200


@pytest.mark.slow
async def test_a_refusal_keeps_no_request(tmp_path: Path) -> None:
    """What is remembered of a refusal are its words and figures; the request that was refused is let go."""
    async with small_window(tmp_path) as (served, _):
        for _ in range(2):
            await refused(served, too_long())
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, ContextOverflow)]
        assert kept
        assert [each.__traceback__ for each in kept] == [None] * len(kept)
