"""Whatever a pruning agent answers, or does not, the conversation goes on and its requests fit."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, RAW_MODEL, eventually, stream_bytes
from long_conversations import Conversation, conversation
from patient_counting import wait_for_counts
from quick_models import take_models_for_quick
from request_checks import assert_fits, assert_paired, assert_pinned, is_shortened
from scripted_pruner import KnowsByHeart, is_prune_order, listed_groups, text_of, valid_plan
from serving import Served, serve, settings_for
from watched_stream import statuses_of

from elbowroom.demo import (
    Cut,
    Error,
    Pause,
    Reasoning,
    Reply,
    Script,
    SimulatedLMStudio,
    SimulatedModel,
    SimulatedTokenizer,
    ToolCall,
    WaitFor,
)
from elbowroom.providers import upstream

WINDOW = 4096
TURNS = 30
ASKED_FROM = 26
MOST_ORDERS = 8
LEFT_OUT = r"(; \d+ of \d+ sentences of the user left out; lost is \".*\")?"
TOKENIZER = SimulatedTokenizer()
TALK = conversation("plain", TURNS, WINDOW, lambda text: len(TOKENIZER.split(text)))
Prune = Callable[[dict[str, Any]], Script | str]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    take_models_for_quick(monkeypatch)


def inflated(body: dict[str, Any]) -> str:
    """Return a plan that is longer than what it stands for."""
    return json.dumps(
        {"retain": "All of it matters. " * 40, "summary": "It was long and it went on. " * 900, "keep": []}
    )


def echo(body: dict[str, Any]) -> str:
    """Return the form that the order shows, not filled in."""
    return text_of(body["messages"][-1]).rpartition("\n")[2]


def everything_kept(body: dict[str, Any]) -> str:
    """Return a plan that removes nothing."""
    return json.dumps({"retain": "Everything has to stay.", "summary": "Nothing goes.", "keep": [*listed_groups(body)]})


def rewritten_larger(body: dict[str, Any]) -> str:
    """Return a rewritten conversation that is none the smaller."""
    messages = [{"role": "user", "content": exchange.user * 2} for exchange in TALK.exchanges[:ASKED_FROM]]
    return json.dumps({"prunedConversation": messages, "summary": "Rewritten.", "originalTokens": 9, "prunedTokens": 1})


def wrong_ids(body: dict[str, Any]) -> str:
    """Return a good plan with ids that are none."""
    return json.dumps({**json.loads(valid_plan(body)), "keep": [9999, -1, "eleven", None, {"id": 2.5}, 10**30]})


UNUSABLE: dict[str, Prune] = {
    "garbage": lambda body: "qpwoe %% ]]] {{{ \\u00 lorem <retain ipsum " * 20,
    "empty": lambda body: Script(),
    "white space": lambda body: "\n \n",
    "inflated": inflated,
    "reasoning only": lambda body: Script(Reasoning("I should shorten this. " * 40)),
    "thinking without end": lambda body: "<think>" + "Let me see. " * 2000,
    "echo of the form": echo,
    "everything kept": everything_kept,
    "rewritten larger": rewritten_larger,
    "tool call": lambda body: Script(ToolCall("read_note", {"path": "a.md"})),
    "tool call in text": lambda body: '<tool_call>{"name": "read_note", "arguments": {"path": "a.md"}}</tool_call>',
    "refusal": lambda body: "I'm sorry, but I can't help with that.",
    "refusal in JSON": lambda body: '{"retain": "", "summary": "I cannot help with that.", "keep": []}',
    "status 500": lambda body: Script(Reply(500, {"error": "The model has crashed."})),
    "status 400": lambda body: Script(Reply(400, {"error": {"message": "Invalid 'response_format'."}})),
    "no JSON at all": lambda body: Script(Reply(502, "<html>Bad gateway</html>")),
    "error in the stream": lambda body: Script('{"retain": "the l', Error("Out of memory.")),
    "error at once": lambda body: Script(Error("Out of memory.")),
    "cut stream": lambda body: Script('{"retain": "the log", "summary": "the fer', Pause(0.01), Cut()),
    "cut at once": lambda body: Script(Cut()),
    "end without finish": lambda body: Script('{"retain": "the l', finish_reason=None, done=False),
}


TEXTS = (
    *("white space", "inflated", "echo of the form", "everything kept", "rewritten larger"),
    *("tool call in text", "refusal", "refusal in JSON"),
)
"""What is the same to a server as garbage; the ladder's own tests have each of them in the quick suite."""
FAILURES = ("status 500", "error at once", "cut at once", "end without finish")
"""What fails as another one here does; the tests of providers have each of them in the quick suite."""


@asynccontextmanager
async def asked_to_prune(
    folder: Path, prune: Prune, compaction: str = ""
) -> AsyncIterator[tuple[Served, SimulatedLMStudio, KnowsByHeart]]:
    """Run elbowroom in front of a model that knows the conversation, and prunes it in this way."""
    script = KnowsByHeart(TALK, prune)
    studio = SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=WINDOW)], on_request=script)
    tables = f"[compaction]\n{compaction}\n{AGENT}"
    async with studio, serve(folder, settings_for(studio.base_url, agents=tables)) as served:
        yield served, studio, script
        await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")


def history(talk: Conversation, number: int) -> list[dict[str, Any]]:
    """Return what a client sends as its request of this number: all before it, and the user's message."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": talk.system}]
    for exchange in talk.exchanges[: number - 1]:
        messages.append({"role": "user", "content": exchange.user})
        messages.append({"role": "assistant", "content": exchange.reply})
    return [*messages, {"role": "user", "content": talk.exchanges[number - 1].user}]


async def ask(served: Served, number: int, model: str = RAW_MODEL) -> None:
    """Send the request of this number and check that its answer arrives whole."""
    body = {"model": model, "messages": history(TALK, number)}
    async with served.http.post(served.chat_url, json=body) as response:
        answer = await response.json()
        assert response.status == 200, answer
        assert answer["choices"][0]["message"]["content"] == TALK.exchanges[number - 1].reply


async def statuses(served: Served, number: int) -> list[str]:
    """Send the request of this number with a stream; return what the person is told beside the answer."""
    body = {"model": RAW_MODEL, "messages": history(TALK, number), "stream": True}
    return [str(status["description"]) for status in statuses_of(await stream_bytes(served, body))]


def check_turns(studio: SimulatedLMStudio, numbers: list[int]) -> None:
    """Check the requests that were turns of the conversation: these numbers, one request each, all shortened."""
    turns = [chat for chat in studio.chats if not is_prune_order(chat.body)]
    assert len(turns) == len(numbers)
    for chat, number in zip(turns, numbers, strict=True):
        messages = chat.body["messages"]
        assert_fits(chat)
        assert_paired(messages)
        assert_pinned(messages, TALK.system, TALK.exchanges[number - 1].user)
        assert is_shortened(messages, history(TALK, number))


@pytest.mark.fault(
    ("cut stream", "error in the stream", "empty answer", "odd tool calls", "page instead of an answer"),
    "compaction",
    "the next rung; answer whole",
)
@pytest.mark.parametrize(
    "prune",
    [
        pytest.param(UNUSABLE[kind], marks=pytest.mark.long if kind in TEXTS + FAILURES else (), id=kind)
        for kind in UNUSABLE
    ],
)
async def test_unusable_answers(tmp_path: Path, prune: Prune) -> None:
    """The next rung does it: the answer arrives, the request fits, and the pruning agent is not asked for ever."""
    async with asked_to_prune(tmp_path, prune) as (served, studio, script):
        await ask(served, ASKED_FROM)
        assert 1 <= len(script.orders) <= MOST_ORDERS
        await ask(served, ASKED_FROM + 1, "writer")
        check_turns(studio, [ASKED_FROM, ASKED_FROM + 1])
        words = "\n".join(text_of(message) for message in studio.chats[-1].body["messages"])
        assert not any(
            said in words for said in ("Out of memory", "has crashed", "Bad gateway", "can't help", "think>")
        )


async def test_wrong_ids(tmp_path: Path) -> None:
    """Ids that no group has are passed over; what else the plan says is used, and no second one is asked for."""
    async with asked_to_prune(tmp_path, wrong_ids) as (served, studio, script):
        await ask(served, ASKED_FROM)
        check_turns(studio, [ASKED_FROM])
        assert "nothing is promised in a storm" in json.dumps(studio.chats[-1].body["messages"])
        asked = [listed_groups(order) for order in script.orders]
        assert len({str(groups) for groups in asked}) == len(asked), "the same order was sent twice"


async def test_valid_plan(tmp_path: Path) -> None:
    """A plan that passes is asked for once: no order lists the same groups again, and its words are used."""
    async with asked_to_prune(tmp_path, valid_plan) as (served, studio, script):
        await ask(served, ASKED_FROM)
        check_turns(studio, [ASKED_FROM])
        assert "nothing is promised in a storm" in json.dumps(studio.chats[-1].body["messages"])
        listed = [number for order in script.orders for number in listed_groups(order)]
        assert len(listed) == len(set(listed)), "a group was listed twice"


async def test_second_answer_is_used(tmp_path: Path) -> None:
    """After one bad answer the pruning agent is asked once more, with the reason, and its plan is used."""
    spoilt: list[dict[str, Any]] = []

    def prune(body: dict[str, Any]) -> str:
        if not spoilt:
            spoilt.append(body)
            return "I'm sorry, but I can't help with that."
        return valid_plan(body)

    async with asked_to_prune(tmp_path, prune) as (served, studio, script):
        await ask(served, ASKED_FROM)
        check_turns(studio, [ASKED_FROM])
        assert "nothing is promised in a storm" in json.dumps(studio.chats[-1].body["messages"])
        assert "refusal" in text_of(script.orders[1]["messages"][-1])


@pytest.mark.slow
@pytest.mark.fault("silence in mid-stream", "compaction", "left, the next rung; answer whole")
@pytest.mark.parametrize(
    "words",
    [pytest.param("", id="silent", marks=pytest.mark.long), pytest.param('{"retain": "the log is', id="in the middle")],
)
async def test_hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """A pruning agent that falls silent is given up, and the conversation goes on without it."""
    monkeypatch.setattr(upstream, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(upstream, "FIRST_BYTE_SECONDS", 0.5)
    never = asyncio.Event()
    async with asked_to_prune(tmp_path, lambda body: Script(words, WaitFor(never))) as (served, studio, _):
        async with asyncio.timeout(60):
            await ask(served, ASKED_FROM)
        check_turns(studio, [ASKED_FROM])


@pytest.mark.slow
@pytest.mark.fault("silence before the headers", "compaction", "left, the next rung; answer whole")
async def test_silent(tmp_path: Path) -> None:
    """One that sends nothing as long as the settings let a person wait is asked only once, and the person is told."""
    never, most = asyncio.Event(), "max_pruning_seconds = 1"
    async with asked_to_prune(tmp_path, lambda body: Script(WaitFor(never)), most) as (served, studio, script):
        told = await statuses(served, ASKED_FROM)
        check_turns(studio, [ASKED_FROM])
        assert len(script.orders) == 1
        assert any(re.search(rf"; by code: the pruning agent sent nothing{LEFT_OUT}\)$", text) for text in told)


@pytest.mark.slow
@pytest.mark.fault("endless pruning", "compaction", "a person waits no longer than the settings say")
async def test_slow(tmp_path: Path) -> None:
    """A person waits for a pruning agent as long as the settings say, however much it writes."""
    never = asyncio.Event()
    slow = Script('{"retain": "the log is', WaitFor(never))
    most = "max_pruning_seconds = 1"
    async with asked_to_prune(tmp_path, lambda body: slow, most) as (served, studio, script):
        told = await statuses(served, ASKED_FROM)
        check_turns(studio, [ASKED_FROM])
        assert len(script.orders) == 1
        assert re.search(rf"; by code: the pruning agent took too long{LEFT_OUT}\)$", told[-1])


@pytest.mark.slow
async def test_what_a_late_plan_has_said(tmp_path: Path) -> None:
    """The complete lines of a plan that takes too long stand in the summary; it is not asked for again."""
    never = asyncio.Event()
    begun = '{"retain": "The log is kept in full sentences.", "summary": "The ferry went out twice.\\nIt came ba'
    most = "max_pruning_seconds = 1"
    async with asked_to_prune(tmp_path, lambda body: Script(begun, WaitFor(never)), most) as (served, studio, script):
        await statuses(served, ASKED_FROM)
        check_turns(studio, [ASKED_FROM])
        assert len(script.orders) == 1
        [summary] = [
            text_of(each) for each in studio.chats[-1].body["messages"] if "elbowroom-summary" in text_of(each)
        ]
        assert "The log is kept in full sentences." in summary
        assert "The ferry went out twice." in summary
        assert "It came ba" not in summary


@pytest.mark.fault("client leaves", "compaction", "the pruning agent stopped")
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_client_leaves_during_a_compaction(tmp_path: Path, *, stream: bool) -> None:
    """The pruning agent is stopped at once; the same request sent again is answered as if nothing had been."""
    never = asyncio.Event()
    hanging: list[bool] = [True]

    def prune(body: dict[str, Any]) -> Script | str:
        return Script('{"retain": "', WaitFor(never)) if hanging.pop() else valid_plan(body)

    async with asked_to_prune(tmp_path, prune) as (served, studio, script):
        body = {"model": RAW_MODEL, "messages": history(TALK, ASKED_FROM), "stream": stream}
        client = asyncio.create_task(_read(served, body))
        await eventually(lambda: script.orders and studio.chats[-1].phase == "streaming", "nobody was asked to prune")
        client.cancel()
        await asyncio.wait([client])
        await eventually(lambda: studio.disconnects, "the pruning agent works on for a client that left")
        hanging[:] = [False] * 20
        await ask(served, ASKED_FROM)
        check_turns(studio, [ASKED_FROM])
        assert "nothing is promised in a storm" in json.dumps(studio.chats[-1].body["messages"])


async def _read(served: Served, body: dict[str, Any]) -> bytes:
    async with served.http.post(served.chat_url, json=body) as response:
        return await response.read()
