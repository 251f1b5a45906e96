"""`GET /metrics`: what Prometheus reads of a running server, and that it says nothing of what people say."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from cancelling import PATIENCE, ask, stopped_when
from chatting import MODEL, RAW_MODEL, chat_body, elbowroom_with_studio, eventually
from own_tools import own_tool
from patient_counting import wait_for_counts
from prometheus_client.parser import text_string_to_metric_families
from raw_http import connected, request_bytes
from read_metrics import text_of_metrics, value
from serving import serve, settings_for
from small_window import history, small_window

from elbowroom.demo import Error, Script, ToolCall, WaitFor
from elbowroom.errors import ElbowroomError
from elbowroom.server.state import SHARED

Labels = dict[str, str]


async def test_a_new_server(tmp_path: Path) -> None:
    """All names begin alike, have a HELP and a type, and no units that are not base units."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        text = await text_of_metrics(served)
        families = list(text_string_to_metric_families(text))
        assert len(families) > 20
        for family in families:
            assert family.name.startswith("elbowroom_")
            assert family.documentation
            assert family.type in ("counter", "gauge", "histogram")
            assert not family.name.endswith(("_created", "_ms", "_milliseconds", "_percent"))
        assert await value(served, "start_time_seconds") > 1_500_000_000
        assert await value(served, "store_failing") == 0
        assert await value(served, "build_info") == 1


@pytest.mark.parametrize(("model", "kind", "agent"), [("writer", "agent", "writer"), (RAW_MODEL, "model", "")])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_an_answer(tmp_path: Path, model: str, kind: str, agent: str, stream: bool) -> None:
    """It is counted with its times, its tokens, how full the window was, and how well its prompt was counted."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Yes, it does.")
        await ask(served, chat_body("Does the ferry run?", model=model, stream=stream))
        assert await value(served, "answers_total", kind=kind, agent=agent, outcome="whole") == 1
        assert await value(served, "answer_duration_seconds_count", kind=kind) == 1
        assert await value(served, "time_to_first_token_seconds_count", kind=kind) == 1
        first = await value(served, "time_to_first_token_seconds_sum")
        assert 0 < first <= await value(served, "answer_duration_seconds_sum")
        assert await value(served, "tokens_total", model=RAW_MODEL, kind="output") == studio.chats[0].completion_tokens
        assert await value(served, "window_fill_ratio_count", model=RAW_MODEL) == 1
        assert 0 < await value(served, "window_fill_ratio_sum", model=RAW_MODEL) < 0.1
        assert await value(served, "window_tokens", model=RAW_MODEL) == 32_768
        assert await value(served, "prompt_count_ratio_count", model=RAW_MODEL) == 1
        assert 0.5 < await value(served, "prompt_count_ratio_sum", model=RAW_MODEL) < 2
        await eventually(lambda: not served.app[SHARED].running.phases(), "the turn has not ended")
        route = {"route": "/v1/chat/completions", "method": "POST", "status": "200"}
        assert await value(served, "http_requests_total", **route) == 1


async def test_what_runs_and_waits(tmp_path: Path) -> None:
    """Running answers by their phase, requests before a model, messages in queues: as of now."""
    end = asyncio.Event()
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(Script("Yes", WaitFor(end)))
        asking = asyncio.create_task(ask(served, chat_body(stream=True), name="chat-7"))
        await eventually(lambda: served.app[SHARED].running.phases() == ["streaming"], "it never began", PATIENCE)
        queued = {"content": "And tomorrow?", "mode": "follow_up"}
        async with served.http.post(f"{served.url}/v1/conversations/chat-7/queue", json=queued) as response:
            assert response.status in (200, 201, 202), await response.text()
        assert await value(served, "running_answers", phase="streaming") == 1
        assert await value(served, "running_answers") == 1
        assert await value(served, "waiting_requests", model=RAW_MODEL) == 0
        assert await value(served, "queued_messages") == 1
        end.set()
        await asking
        assert await value(served, "running_answers") == 0
        assert await value(served, "queued_messages") == 0


async def test_a_compaction(tmp_path: Path) -> None:
    """It is counted once, by its rung and its verdict, with the seconds that it took and the tokens that it freed.

    So small a window holds less than nine tenths of what the user said.
    """
    async with small_window(tmp_path) as (served, _):
        await ask(served, {"model": "writer", "messages": history(8), "stream": True})
        assert await value(served, "compactions_total", rung="plan") == 1
        verdicts = {
            verdict: await value(served, "compaction_verdicts_total", verdict=verdict)
            for verdict in ("pass", "soft fail", "hard fail")
        }
        assert verdicts == {"pass": 0, "soft fail": 1, "hard fail": 0}
        assert await value(served, "compaction_duration_seconds_count", rung="plan") == 1
        assert await value(served, "compaction_freed_tokens_total") > 100
        assert await value(served, "compaction_failures_total") == 0
        await served.app[SHARED].store.conversations.settled()
        assert await value(served, "store_commit_duration_seconds_count") > 0


async def test_an_engine_that_has_no_room(tmp_path: Path) -> None:
    """A prompt that fits by our count and is refused raises the alarm, once for each refusal; the answer comes."""
    refusal = "The number of tokens to keep from the initial prompt is greater than the context length (200)."
    refused: list[Any] = []

    def once(body: dict[str, Any]) -> Script | str:
        if refused:
            return "Yes."
        refused.append(body)
        return Script(Error(refusal))

    async with small_window(tmp_path, once) as (served, _):
        await ask(served, {"model": "writer", "messages": history(4), "stream": True})
        assert await value(served, "overflow_alarms_total", model=RAW_MODEL) == 1
        assert await value(served, "restarts_total") >= 1
        assert await value(served, "upstream_errors_total", provider="lmstudio") == 1
        assert await value(served, "answers_total", outcome="whole") == 1


async def test_an_engine_that_cuts_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it reports to have read less than it was sent raises the alarm, and shows in the ratio of the counts."""
    wait_for_counts(monkeypatch)
    async with small_window(tmp_path) as (served, studio):
        counted = studio.tokenizer.count_tokens
        studio.count_tokens = lambda messages, tools: min(counted(messages, tools), 500)
        await ask(served, {"model": RAW_MODEL, "messages": history(7), "stream": True})
        assert await value(served, "truncation_alarms_total", model=RAW_MODEL) == 1
        assert await value(served, "overflow_alarms_total") == 0
        assert await value(served, "prompt_count_ratio_count") == 1
        assert 1.1 < await value(served, "prompt_count_ratio_sum") < 2


async def test_tools(tmp_path: Path) -> None:
    """Calls are counted by whether they worked."""

    @own_tool
    async def works() -> str:
        """Work."""
        return "done"

    @own_tool
    async def fails() -> str:
        """Fail."""
        raise ElbowroomError("no")

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [works, fails]) as (served, studio):
        studio.enqueue(Script(ToolCall("works", "{}"), ToolCall("fails", "{}")))
        studio.enqueue(Script(ToolCall("works", "{}")))
        studio.enqueue("Done.")
        await ask(served, chat_body(stream=True))
        assert await value(served, "tool_calls_total", outcome="ok") == 2
        assert await value(served, "tool_calls_total", outcome="error") == 1


async def test_answers_that_are_not_whole(tmp_path: Path) -> None:
    """Stopped by a person, left by the client, ended by an error of the upstream: each is counted as what it was."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue("word " * 4000)
        await stopped_when(
            served, chat_body(stream=True), lambda: studio.chats and studio.chats[0].completion_tokens > 3
        )
        assert await value(served, "answers_total", outcome="stopped") == 1
        studio.enqueue("word " * 4000)
        body = b'{"model": "writer", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}'
        async with connected(served.port) as connection:
            head = f"Host: 127.0.0.1:{served.port}"
            request = request_bytes(
                "POST /v1/chat/completions HTTP/1.1",
                head,
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                body=body,
            )
            await connection.send(request)
            await eventually(lambda: len(studio.chats) == 2 and studio.chats[1].completion_tokens > 3, "no answer came")
        await eventually(lambda: not served.app[SHARED].running.phases(), "it was not ended")
        assert await value(served, "answers_total", outcome="left") == 1
        studio.enqueue(Script("Half", Error("The engine has failed.")))
        async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
            await response.read()
        assert await value(served, "answers_total", outcome="502") == 1
        assert await value(served, "upstream_errors_total") == 1


async def test_requests_that_are_refused(tmp_path: Path) -> None:
    """They are counted by their status; paths that nobody has leave no label behind."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        async with served.http.get(f"{served.url}/of/nobody/secret") as response:
            assert response.status == 404
        async with served.http.post(served.chat_url, json={"model": 7}) as response:
            assert response.status == 400
        assert await value(served, "http_requests_total", route="", method="", status="404") == 1
        assert await value(served, "http_requests_total", route="/v1/chat/completions", status="400") == 1
        assert "secret" not in await text_of_metrics(served)


async def test_no_words_and_no_ids(tmp_path: Path) -> None:
    """Neither what is said, nor whose it is, nor any id of a conversation can be read there."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("The password is swordfish.")
        body = chat_body("Tell me about the albatross", stream=True)
        received = await ask(served, body, name="chat-of-anna", **{"X-Elbowroom-User": "anna-the-owner"})
        text = (await text_of_metrics(served)).lower()
        for word in ("swordfish", "albatross", "anna", received.conversation):
            assert word not in text


async def test_the_token_is_asked_for(tmp_path: Path) -> None:
    """The gates of the API are in front of it."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9", server='token = "let me in"')) as served:
        async with served.http.get(f"{served.url}/metrics") as response:
            assert response.status == 401
        named = {"Authorization": "Bearer let me in"}
        async with served.http.get(f"{served.url}/metrics", headers=named) as response:
            assert response.status == 200


async def test_servers_count_for_themselves(tmp_path: Path) -> None:
    """Two servers of one process share nothing."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    async with (
        elbowroom_with_studio(folders[0]) as (one, studio),
        serve(folders[1], settings_for(studio.base_url)) as two,
    ):
        studio.enqueue("Yes.")
        await ask(one, chat_body(model=f"lmstudio/{MODEL}"))
        assert await value(one, "answers_total") == 1
        assert await value(two, "answers_total") == 0


async def test_a_store_that_fails(tmp_path: Path) -> None:
    """A database that cannot be opened is told of."""
    (tmp_path / "elbowroom.db").mkdir()
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Yes.")
        await ask(served, chat_body())
        assert await value(served, "store_failing") == 1
        assert await value(served, "store_failures_total") >= 1


async def test_the_documentation_names_them_all(tmp_path: Path) -> None:
    """And no other."""
    documented = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(elbowroom_\w+)`", documented, re.MULTILINE))
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        text = await text_of_metrics(served)
    assert set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) == named
