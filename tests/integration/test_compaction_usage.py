"""The usage that a client is told after a compaction: that of the request really sent, so that gauges fall."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT_WITHOUT_CACHE, RAW_MODEL, chunks_of, eventually, stream_bytes
from own_tools import own_tool
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import rest_of, valid_plan
from scripted_pruner import text_of as content_of
from small_window import ANSWER, QUESTION, WINDOW, answers, ask_whole, history, orders_of, small_window, turns_of
from spread_variants import spread

from elbowroom.demo import Script, SimulatedLMStudio, ToolCall

Body = dict[str, Any]
NOUNS = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain", "sun", "bell")
LOG = "".join(f"The {one} and the {two} saw the {three}.\n" for one, two, three in product(NOUNS, repeat=3))[:3600]
"""About a thousand tokens: more than a window that is half full has room for."""
WAYS = ["whole", "streamed", "finish"]
MODELS = pytest.mark.parametrize(("way", "model"), spread(WAYS, [RAW_MODEL, "writer"]))
REPORTS = pytest.mark.parametrize(("way", "reports"), spread(WAYS, [True, False]))


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


async def usage_of(served: Any, body: Body, way: str) -> Body:
    """Ask, and return the one usage in the answer: of the whole, of its own chunk, or of the finish chunk."""
    if way == "whole":
        status, answer = await ask_whole(served, body)
        assert status == 200, answer
        return dict(answer["usage"])
    options = {"stream_options": {"include_usage": True}} if way == "streamed" else {}
    headers = {"X-OpenWebUI-Chat-Id": "c1"} if way == "finish" else {}
    chunks = chunks_of(await stream_bytes(served, {**body, **options}, **headers))
    [told] = [chunk for chunk in chunks if "usage" in chunk]
    assert told is chunks[-1]
    assert bool(told["choices"]) == (way == "finish")
    return dict(told["usage"])


def assert_is_of_the_last_turn(usage: Body, studio: SimulatedLMStudio) -> None:
    """Check that the usage is that of the last turn, as the engine counted it, and that this one fitted."""
    last = turns_of(studio)[-1]
    assert_fits(last)
    assert usage["prompt_tokens"] == last.prompt_tokens
    assert usage["completion_tokens"] == last.completion_tokens
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"] < WINDOW


@MODELS
async def test_gauge_falls_with_a_compaction(tmp_path: Path, way: str, model: str) -> None:
    """A history larger than the window is told as what was sent of it, the pruning agent's requests left out."""
    async with small_window(tmp_path) as (served, studio):
        before = await usage_of(served, {"model": model, "messages": history(4)}, way)
        assert orders_of(studio) == []
        after = await usage_of(served, {"model": model, "messages": history(12)}, way)
        assert orders_of(studio)
        assert_is_of_the_last_turn(after, studio)
        assert after["prompt_tokens"] < WINDOW * 4 // 5
        assert before["prompt_tokens"] > 100


def writes(body: Body, *, reports: bool) -> Script:
    """Write the log, and go on with it where it was stopped."""
    last = content_of(body["messages"][-1])
    text = LOG if last == QUESTION else rest_of(LOG, content_of(body["messages"][-2]))
    return Script(text, usage="counted" if reports else None)


@REPORTS
async def test_after_an_answer_that_went_on(tmp_path: Path, way: str, *, reports: bool) -> None:
    """All that was written counts, and the prompt of the last request: that is what fills the window."""
    async with small_window(tmp_path, lambda body: writes(body, reports=reports)) as (served, studio):
        studio.tokens_per_second = 1e6  # one by one: what it writes before it hears that it is stopped is told nowhere
        usage = await usage_of(served, {"model": RAW_MODEL, "messages": history(4)}, way)
        assert len(turns_of(studio)) > 1
        assert orders_of(studio)
        assert usage.pop("elbowroom", None) == (None if reports else {"counted": True})
        assert usage["prompt_tokens"] == turns_of(studio)[-1].prompt_tokens
        generated = sum(turn.completion_tokens for turn in turns_of(studio))  # a part that was stopped is counted here
        assert usage["completion_tokens"] == pytest.approx(generated, rel=0.01)
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@own_tool
async def read_note(path: str) -> str:
    """Read a note."""
    return f"The note {path} says: " + "water the plants of the ferry's captain. " * 30


@REPORTS
async def test_over_several_steps_with_tools(tmp_path: Path, way: str, *, reports: bool) -> None:
    """The last step is told as it was sent, and beside it the sums of all steps, without the compaction's requests."""

    def calls_then_answers(body: Body) -> Script:
        results = [message for message in body["messages"] if message["role"] == "tool"]
        usage: Any = "counted" if reports else None
        if len(results) < 2 and len(turns_of(studio)) < 3:
            return Script(ToolCall("read_note", {"path": f"{len(turns_of(studio))}.md"}), usage=usage)
        return Script(ANSWER, usage=usage)

    async with small_window(
        tmp_path, calls_then_answers, agents=AGENT_WITHOUT_CACHE, toolbox=lambda target: [read_note]
    ) as (served, studio):
        usage = await usage_of(served, {"model": "writer", "messages": history(12)}, way)
        turns = turns_of(studio)
        assert len(turns) > 1
        assert orders_of(studio)
        told = usage.pop("elbowroom")
        assert_is_of_the_last_turn(usage, studio)
        assert told.pop("counted", False) is not reports
        assert told["steps"] == len(turns)
        assert told["prompt_tokens"] == sum(turn.prompt_tokens or 0 for turn in turns)
        generated = sum(turn.completion_tokens for turn in turns)
        if reports:
            assert told["completion_tokens"] == generated
        else:  # what a model writes around a call is not seen here
            assert usage["completion_tokens"] < told["completion_tokens"] <= generated


@MODELS
async def test_engine_that_reports_nothing(tmp_path: Path, way: str, model: str) -> None:
    """The numbers are counted here, they are the engine's own, and they say whose they are."""

    def silent(body: Body) -> Script:
        return Script(ANSWER, usage=None)

    async with small_window(tmp_path, silent, prune=lambda body: Script(valid_plan(body), usage=None)) as (
        served,
        studio,
    ):
        usage = await usage_of(served, {"model": model, "messages": history(12)}, way)
        assert usage.pop("elbowroom") == {"counted": True}
        assert_is_of_the_last_turn(usage, studio)


async def test_own_numbers_teach_nothing(tmp_path: Path) -> None:
    """What was counted here is not compared with the count as if the engine had said it: the next count is the same."""
    silent = True

    def says(body: Body) -> Script | str:
        return Script(ANSWER, usage=None) if silent else answers(body)

    async with small_window(tmp_path, says) as (served, studio):
        body = {"model": RAW_MODEL, "messages": history(3)}
        counted = [(await usage_of(served, body, "whole"))["prompt_tokens"] for _ in range(3)]
        silent = False
        reported = await usage_of(served, body, "whole")
        assert counted == [reported["prompt_tokens"]] * 3
        assert "elbowroom" not in reported
        assert all(turn.prompt_tokens == counted[0] for turn in studio.chats)


@pytest.mark.parametrize("reports", [True, False], ids=["reported", "counted"])
async def test_totals_of_a_conversation_include_the_calls_of_pruning(tmp_path: Path, *, reports: bool) -> None:
    """Their tokens are among all others, and shown apart as well; a failed order counts too."""

    def prunes(body: Body) -> Script:
        is_first = "Your last attempt" not in content_of(body["messages"][-1])
        return Script("Nothing." if is_first else valid_plan(body), usage="counted" if reports else None)

    def says(body: Body) -> Script:
        return Script(ANSWER, usage="counted" if reports else None)

    async with small_window(tmp_path, says, prune=prunes) as (served, studio):
        body = {"model": "writer", "messages": history(12)}
        status, answer = await ask_whole(served, body)
        assert status == 200, answer
        await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            [row] = (await response.json())["data"]
        async with served.http.get(f"{served.url}/v1/conversations/{row['id']}") as response:
            usage = (await response.json())["usage"]
        async with served.http.get(f"{served.url}/v1/conversations/{row['id']}/export?format=markdown") as response:
            exported = await response.text()
        async with served.http.get(f"{served.url}/metrics") as response:
            metrics = await response.text()
    orders, turns = orders_of(studio), turns_of(studio)
    assert len(orders) > 1
    assert (usage["pruning"]["steps"], usage["steps"]) == (len(orders), len(orders) + len(turns))
    pruning = sum((chat.prompt_tokens or 0) + (chat.completion_tokens or 0) for chat in orders)
    others = sum((chat.prompt_tokens or 0) + (chat.completion_tokens or 0) for chat in turns)
    if reports:
        assert (usage["pruning"]["total"], usage["total"]) == (pruning, pruning + others)
        assert f"{pruning:,} of them in {len(orders)} of the pruning agent" in exported
    assert usage["total"] > usage["pruning"]["total"] > 0.8 * pruning
    told = re.findall(r"^elbowroom_pruning_tokens_total\{.*\} ([\d.]+)$", metrics, re.MULTILINE)
    assert sum(map(float, told)) == usage["pruning"]["total"]


async def test_totals_include_the_calls_of_a_pruning_by_hand(tmp_path: Path) -> None:
    """A compaction that a person asked for belongs to no turn, and its calls count all the same."""
    async with small_window(tmp_path) as (served, studio):
        body = {"model": "writer", "messages": history(3)}
        status, answer = await ask_whole(served, body)
        assert (status, orders_of(studio)) == (200, [])
        said = {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}
        more = {**body, "messages": [*history(3), said, {"role": "user", "content": QUESTION}]}
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            [row] = (await response.json())["data"]
        async with served.http.post(f"{served.url}/v1/conversations/{row['id']}/compact", json=more) as response:
            assert (response.status, (await response.json())["compacted"]) == (200, True)
        async with served.http.get(f"{served.url}/v1/conversations/{row['id']}") as response:
            shown = await response.json()
    orders = orders_of(studio)
    used = sum((order.prompt_tokens or 0) + (order.completion_tokens or 0) for order in orders)
    assert shown["usage"]["pruning"]["total"] == used > 0
    assert shown["usage"]["total"] > row["usage"]["total"]
    assert (shown["message_count"], shown["usage"]["pruning"]["steps"]) == (len(history(3)) + 1, len(orders))
