"""Answers that were compacted while they were written: the next turn has the compacted state and the rest, unpaid."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count, product
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import AGENT_WITHOUT_CACHE, RAW_MODEL, chunks_of, eventually, stream_bytes
from own_tools import own_tool
from patient_counting import wait_for_counts
from request_checks import assert_fits, assert_paired
from scripted_pruner import rest_of
from scripted_pruner import text_of as content_of
from serving import Served, text_of
from small_window import QUESTION, history, orders_of, small_window, turns_of
from spread_variants import spread

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Pause, Script, SimulatedLMStudio, ToolCall
from elbowroom.server.state import Timing

Body = dict[str, Any]
Message = dict[str, Any]
NOUNS: Final = ("boat", "sea", "man", "rope", "lamp", "dog")
LINES: Final = [f"The {one} and the {two} saw the {three}.\n" for one, two, three in product(NOUNS, repeat=3)]
LOG: Final = "\n  " + "".join(LINES[:60])
"""An answer with white space around it that does not fit beside its conversation."""
LONGER: Final = "\n  " + "".join(LINES[:92])
NEXT: Final = "And tomorrow?"
THANKS: Final = "The same again."
FIRST: Final = history(5)
IN_TURN: Final = "background = false"


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def writes_the_log(body: Body) -> str:
    """Write the log, go on with it where it was stopped, and answer all else shortly."""
    last = content_of(body["messages"][-1])
    if last == QUESTION:
        return LOG
    return THANKS if last == NEXT else rest_of(LOG, content_of(body["messages"][-2]))


def then(answer: Message, messages: Sequence[Message] = FIRST) -> Body:
    """Return the request one turn later."""
    return {"model": RAW_MODEL, "messages": [*messages, answer, {"role": "user", "content": NEXT}]}


def said(text: str, **more: Any) -> Message:
    """Return an answer as a client sends it back."""
    return {"role": "assistant", "content": text, **more}


async def ask(served: Served, body: Body, **headers: str) -> str:
    """Ask for a stream and return the answer's text."""
    return text_of(chunks_of(await stream_bytes(served, body, **headers)))


def check(studio: SimulatedLMStudio) -> tuple[list[Message], list[Message]]:
    """Fail where the last turn was paid for or is not the state that the turn before it ended with.

    Return both prompts, which end with the order to go on and with the next question.
    """
    for chat in studio.chats:
        assert_fits(chat)
        assert_paired(chat.body["messages"])
    before, last = (chat.body["messages"] for chat in turns_of(studio)[-2:])
    assert studio.chats[-2:] == turns_of(studio)[-2:], "the next turn was paid for"
    state = before[:-2]
    assert last[: len(state)] == state
    assert len(last) == len(state) + 2
    assert last[-1]["content"] == NEXT
    return before, last


AS_SENT_BACK: Final[dict[str, Callable[[str], Message]]] = {
    "as it came": said,
    "stripped": lambda text: said(text.strip()),
    "with thoughts": lambda text: said(text.strip(), reasoning_content="Hm.", reasoning_details=[{"data": "x"}]),
    "in parts": lambda text: said("", content=[{"type": "text", "text": text}]),
}


@pytest.mark.parametrize("way", AS_SENT_BACK)
async def test_the_rest_of_an_answer_that_went_on(tmp_path: Path, way: str) -> None:
    """The next turn has the compacted state and the rest of the answer word for word, however it comes back."""
    async with small_window(tmp_path, writes_the_log, compaction=IN_TURN) as (served, studio):
        text = await ask(served, {"model": RAW_MODEL, "messages": FIRST})
        assert text == LOG
        assert len(turns_of(studio)) == 2
        assert await ask(served, then(AS_SENT_BACK[way](text))) == THANKS
        before, last = check(studio)
    assert content_of(last[-2]).startswith(content_of(before[-2]))
    assert LOG.endswith(content_of(last[-2]))
    assert len(content_of(last[-2])) < len(LOG), "the beginning of the answer has not been compacted"


async def test_notices_in_the_text(tmp_path: Path) -> None:
    """A client that sends the lines of notices back within the answer is known all the same."""
    notices = 'background = false\nnotices = "content"'
    async with small_window(tmp_path, writes_the_log, compaction=notices) as (served, studio):
        text = await ask(served, {"model": RAW_MODEL, "messages": FIRST}, Origin="app://obsidian.md")
        assert "> *elbowroom: " in text
        await ask(served, then(said(text.strip())), Origin="app://obsidian.md")
        _, last = check(studio)
    assert LOG.endswith(content_of(last[-2]))


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [True, False], ids=["behind a restart", "without one"])
async def test_stopped_by_the_person(tmp_path: Path, *, restarts: bool) -> None:
    """The client closes the socket and sends back what it has, with white space at its end: nothing is paid twice."""
    shown = f"{LOG[:2000] if restarts else LOG[:60]} \n"

    def tells(body: Body) -> Script | str:
        last = content_of(body["messages"][-1])
        if last == NEXT:
            return THANKS
        rest = shown if last == QUESTION else rest_of(shown, content_of(body["messages"][-2]))
        return Script(rest, Pause(60))

    exchanges = history(5 if restarts else 9)
    async with small_window(tmp_path, tells, compaction=IN_TURN) as (served, studio):
        got = await left_after(served, {"model": RAW_MODEL, "messages": exchanges, "stream": True}, shown)
        await eventually(lambda: studio.open_requests == 0, "the upstream is not closed")
        orders = len(orders_of(studio))
        assert orders >= 1
        assert len(turns_of(studio)) == (2 if restarts else 1)
        await ask(served, then(said(got), exchanges))
        assert len(orders_of(studio)) == orders
        before, last = (chat.body["messages"] for chat in turns_of(studio)[-2:])
    assert last[-1]["content"] == NEXT
    assert shown.strip().endswith(content_of(last[-2]).strip())
    assert (len(content_of(last[-2])) < len(shown)) is restarts
    state = before[: -2 if restarts else None]
    assert last[:-2] == state


async def left_after(served: Served, body: Body, shown: str) -> str:
    """Read the stream until this text is there, close the socket, and return the text."""
    stream = b""
    async with served.http.post(served.chat_url, json=body) as response:
        async for line in response.content:
            stream += line
            if line == b"\n" and len(text := streamed(stream)) >= len(shown):
                response.close()
                return text
    raise AssertionError(f"the stream ended with {streamed(stream)[-100:]!r}")


def streamed(stream: bytes) -> str:
    """Return the text of as much of a stream as has come."""
    return text_of(chunks_of(stream + b"data: [DONE]\n\n"))


@pytest.mark.parametrize("has_text", [True, False], ids=["behind text", "behind nothing"])
async def test_continue(tmp_path: Path, *, has_text: bool) -> None:
    """A history that ends with the answer: the new text comes right behind the old, and both are one from then on."""
    begun = "The log of this year begins here" if has_text else ""
    whole = begun + LOG

    def goes_on(body: Body) -> str:
        last = body["messages"][-1]
        if last["role"] == "assistant":
            return LOG
        return THANKS if content_of(last) == NEXT else rest_of(whole, content_of(body["messages"][-2]))

    begun_history = [*FIRST, said(begun)]
    async with small_window(tmp_path, goes_on, compaction=IN_TURN) as (served, studio):
        text = await ask(served, {"model": RAW_MODEL, "messages": begun_history})
        assert text == LOG
        assert len(turns_of(studio)) == 2
        await ask(served, then(said(begun + text)))
        _, last = check(studio)
    assert whole.endswith(content_of(last[-2]))


async def test_what_the_servers_tools_have_read(tmp_path: Path) -> None:
    """A compaction within a run takes in calls of the server's tools: the next turn knows of them, unpaid and once."""

    @own_tool
    async def read_log(part: int) -> str:
        """Read a part of the log."""
        return f"Part {part}: " + "".join(LINES[part * 14 : part * 14 + 14])

    def toolbox(target: Target) -> list[ServerTool]:
        return [read_log]

    def reads(body: Body) -> Script | str:
        if content_of(body["messages"][-1]) == NEXT:
            return THANKS
        part = next(parts)
        return Script("I look.\n", ToolCall("read_log", {"part": part})) if part < 5 else "All is read. \n"

    parts = count(1)
    async with small_window(tmp_path, reads, agents=AGENT_WITHOUT_CACHE, compaction=IN_TURN, toolbox=toolbox) as (
        served,
        studio,
    ):
        text = await ask(served, {"model": "writer", "messages": history(2)})
        assert text.count("I look.") == 4
        orders = len(orders_of(studio))
        assert orders >= 1
        await ask(served, {**then(said(text.strip()), history(2)), "model": "writer"})
        assert len(orders_of(studio)) == orders
        *_, before, last = (chat.body["messages"] for chat in turns_of(studio))
    assert not any("Part 1: " in content_of(message) for message in before if message["role"] == "tool")
    assert last == [*before, said("All is read. \n"), {"role": "user", "content": NEXT}]
    for chat in studio.chats:
        assert_fits(chat)
        assert_paired(chat.body["messages"])


@pytest.mark.slow
@pytest.mark.parametrize(("way", "continues"), spread(["stripped", "with thoughts"], [False, True]))
async def test_nothing_is_dropped_behind_the_answer(tmp_path: Path, way: str, *, continues: bool) -> None:
    """Where only a summary could be dropped to make room behind a long answer, it stays, and the next turn has it."""
    begun = "The log of this year begins here" if continues else ""
    whole = begun + LONGER

    def goes_on(body: Body) -> str:
        last = body["messages"][-1]
        if content_of(last) == QUESTION or last["role"] == "assistant":
            return LONGER
        return THANKS if content_of(last) in (NEXT, "...") else rest_of(whole, content_of(body["messages"][-2]))

    messages = [*FIRST, said(begun)] if continues else FIRST
    async with small_window(tmp_path, goes_on, timing=Timing(quiet=0.02)) as (served, studio):
        text = await ask(served, {"model": RAW_MODEL, "messages": messages})
        assert text == LONGER
        await asyncio.sleep(0.3)
        await ask(served, then(AS_SENT_BACK[way](begun + text)))
        last = turns_of(studio)[-1].body["messages"]
        assert last[-1]["content"] == NEXT
        assert any("<elbowroom-summary>" in content_of(message) for message in last)
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])
