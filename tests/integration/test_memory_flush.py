"""Before a compaction takes a conversation away, its agent may save what must last; nobody ever sees it done."""

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from agent_teams import notices_of
from chatting import MODEL, chunks_of, stream_bytes
from compacting import used
from flushes import (
    FACT,
    FULL,
    NEARLY_FULL,
    REMEMBERS,
    WINDOW,
    WORDS,
    asked,
    background_ended,
    flushes_of,
    is_flush,
    kinds_of,
    remembering,
    saved,
    turn,
)
from own_tools import own_tool
from patient_counting import wait_for_counts
from scripted_pruner import rest_of, text_of
from serving import text_of as said_in
from small_window import ANSWER, QUESTION, ask_whole, history

from elbowroom.agents.turn.flush import ORDER, SILENT
from elbowroom.demo import Script, SimulatedLMStudio, ToolCall

Message = dict[str, Any]
OF_FLUSHES = (WORDS, SILENT, "system that runs you")
"""What nobody but the model in a flush may ever read."""
LOG = "".join(f"The boat {number} and the boat {number * 31} saw the rope.\n" for number in range(200))
CHATTY = " ".join(f"Boat {number} came back with {number * 31} passengers." for number in range(40))


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def without_system(messages: list[Message]) -> list[Message]:
    """Return messages without the first, in which instructions and memories stand."""
    assert messages[0]["role"] == "system"
    return messages[1:]


def stored_in(folder: Path) -> bytes:
    """Return all that a server has written."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def assert_flushed_whole(studio: SimulatedLMStudio, messages: list[Message]) -> None:
    """Check that one flush has got exactly these messages, behind the system's, and the order."""
    [flush] = flushes_of(studio)
    assert without_system(flush.body["messages"]) == [*messages, ORDER]


async def test_what_it_saves_is_told_after_the_compaction(tmp_path: Path) -> None:
    """The flush has what is about to go; the fact is in the memory, and is told from the compaction on."""
    sent = history(FULL)
    async with remembering(tmp_path) as (served, studio):
        assert await turn(served, [*sent]) == ANSWER
        assert kinds_of(studio) == ["flush", "flush", "prune", "turn"]
        assert_flushed_whole(studio, sent[1:])
        assert await saved(served) == [FACT]
        first, *_, last = studio.chats
        assert FACT not in text_of(first.body["messages"][0])
        assert FACT in text_of(last.body["messages"][0])
        assert not is_flush(last.body)


@pytest.mark.parametrize("names_one", [True, False])
async def test_a_choice_of_tools_keeps_no_memory_back(tmp_path: Path, *, names_one: bool) -> None:
    """A client that lets the model call its own tool alone, or none, has that in the answer; the flush saves."""
    now = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
    only = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [now]}}
    body = {"messages": history(FULL + 8), "tools": [now], "tool_choice": only if names_one else "none"}
    async with remembering(tmp_path) as (served, studio):
        status, answer = await ask_whole(served, {"model": "writer", **body})
        assert status == 200, answer
        [flush] = flushes_of(studio)
        assert "save_memory" in [tool["function"]["name"] for tool in flush.body["tools"]]
        assert await saved(served) == [FACT]
        told = [tool["function"]["name"] for tool in studio.chats[-1].body["tools"]]
        assert (told == ["now"]) == names_one


@pytest.mark.slow
@pytest.mark.parametrize("background", ["true", pytest.param("false", marks=pytest.mark.long)])
async def test_five_compactions_are_five_flushes(tmp_path: Path, background: str) -> None:
    """No client's text, no history, no stored byte and no later prompt has a word of them."""
    messages = history(0)
    done: list[str] = []
    compaction = f"background = {background}"
    async with remembering(tmp_path, compaction=compaction, model=lambda body: CHATTY) as (served, studio):
        for number in range(40):
            assert await turn(served, messages) == CHATTY.strip()
            await background_ended(served)
            done = [kind for kind, _ in groupby(kinds_of(studio)) if kind in ("flush", "prune")]
            if done.count("prune") == 5:
                break
            messages = asked(messages, f"And what of crossing {number}? Tell me all that you know of it.")
        assert done == ["flush", "prune"] * 5
        assert len(flushes_of(studio)) == 5
        others = [str(chat.body) for chat in studio.chats if not is_flush(chat.body)]
        assert not [body for body in others if any(words in body for words in OF_FLUSHES)]
    stored = stored_in(tmp_path)
    assert CHATTY[:80].encode() in stored
    assert not [words for words in OF_FLUSHES if words.encode() in stored]


@pytest.mark.parametrize("background", ["true", "false"])
async def test_below_the_trigger_it_is_done_behind_the_answer(tmp_path: Path, background: str) -> None:
    """Once in a cycle, with the answer in it; who asks on is told the same as before, and is not held up by another."""
    messages = history(NEARLY_FULL)
    async with remembering(tmp_path, compaction=f"background = {background}") as (served, studio):
        await turn(served, messages)
        await background_ended(served)
        if background == "false":
            assert kinds_of(studio) == ["turn"]
            return
        assert kinds_of(studio) == ["turn", "flush", "flush"]
        assert_flushed_whole(studio, messages[1:])
        messages = asked(messages, "And now?")
        await turn(served, messages)
        await background_ended(served)
        assert await turn(served, asked(messages[:-2], "And then?")) == ANSWER
        await background_ended(served)
        assert kinds_of(studio) == ["turn", "flush", "flush", "turn", "turn"]
        prompts = [chat.body["messages"][0] for chat in studio.chats]
        assert all(prompt == prompts[0] for prompt in prompts)


async def test_it_goes_on_with_the_bytes_of_the_prompt_before(tmp_path: Path) -> None:
    """Tools, sampling and messages are those of the turn, so that an engine reads the answer and the order anew."""
    messages = history(NEARLY_FULL)
    agents = f"{REMEMBERS}sampling = {{ temperature = 0.3, top_p = 0.9 }}\n"
    async with remembering(tmp_path, compaction="", agents=agents) as (served, studio):
        await turn(served, messages)
        await background_ended(served)
        asked_for, first, second = [chat.body for chat in studio.chats]
        for before, after in ((asked_for, first), (first, second)):
            assert after["messages"][: len(before["messages"])] == before["messages"]
            assert after["tools"] == before["tools"]
            sampling = {"temperature": 0.3, "top_p": 0.9, "model": MODEL}
            assert {name: after[name] for name in sampling} == sampling
            assert after["max_tokens"] <= 1024
            assert after.keys() == before.keys()


async def test_the_person_is_told(tmp_path: Path) -> None:
    """One status opens, another closes it; the answer's text is the answer alone, and so is its usage."""
    async with remembering(tmp_path) as (served, studio):
        body = {"model": "writer", "messages": history(FULL), "stream_options": {"include_usage": True}}
        chunks = chunks_of(await stream_bytes(served, body))
        kinds = [kind for kind, _ in notices_of(chunks)]
        assert kinds[:3] == ["remembering", "remembered", "compacting"]
        assert kinds[-1] == "compacted"
        assert said_in(chunks) == ANSWER
        assert chunks[-1]["usage"]["prompt_tokens"] == studio.chats[-1].counted_tokens
        assert "elbowroom" not in chunks[-1]["usage"]


async def test_compacted_by_hand(tmp_path: Path) -> None:
    """The same flush comes before a compaction that a person asks for, far below the trigger too."""
    sent = history(4)
    async with remembering(tmp_path, compaction="auto = false") as (served, studio):
        body = {"model": "writer", "messages": sent}
        async with served.http.post(f"{served.url}/v1/conversations/a/compact", json=body) as response:
            answer = await response.json()
        assert answer["compacted"] is True
        assert_flushed_whole(studio, sent[1:])
        assert await saved(served) == [FACT]
        assert not [words for words in OF_FLUSHES if words in str(answer)]


@pytest.mark.slow
async def test_an_answer_that_was_stopped(tmp_path: Path) -> None:
    """It is in the flush as far as it has come, and goes on after the compaction as if nothing had been."""
    sent = history(NEARLY_FULL)

    def writes(body: dict[str, Any]) -> str:
        last = text_of(body["messages"][-1])
        return LOG if last == QUESTION else rest_of(LOG, text_of(body["messages"][-2]))

    async with remembering(tmp_path, model=writes) as (served, studio):
        assert await turn(served, [*sent]) == LOG
        assert kinds_of(studio)[:4] == ["turn", "flush", "flush", "prune"]
        flush, *_ = flushes_of(studio)
        *before, said, order = without_system(flush.body["messages"])
        assert (before, order) == (sent[1:], ORDER)
        assert said["role"] == "assistant"
        assert len(text_of(said)) > 100
        assert LOG.startswith(text_of(said))


async def test_results_of_the_servers_tools(tmp_path: Path) -> None:
    """They stand in the flush whole, behind their calls, before the compaction makes room for them."""
    sent = history(FULL - 4)
    result = "".join(f"Boat {number} lies at quay {number * 7}.\n" for number in range(90))

    @own_tool
    async def read_list() -> str:
        """Read a list of boats."""
        return result

    @own_tool
    async def save_memory(text: str) -> str:
        """Remember one lasting fact."""
        raise AssertionError("the turn itself saves nothing")

    def reads(body: dict[str, Any]) -> Script | str:
        return ANSWER if body["messages"][-1]["role"] == "tool" else Script(ToolCall("read_list", {}))

    agents = f"{REMEMBERS}tool_output = {{ enabled = false }}\n"
    async with remembering(tmp_path, model=reads, agents=agents, toolbox=lambda target: [read_list, save_memory]) as (
        served,
        studio,
    ):
        assert await turn(served, [*sent]) == ANSWER
        assert kinds_of(studio)[:4] == ["turn", "flush", "flush", "prune"]
        [flush] = flushes_of(studio)
        *before, call, read, order = without_system(flush.body["messages"])
        assert (before, order) == (sent[1:], ORDER)
        assert call["tool_calls"][0]["function"]["name"] == "read_list"
        assert read["content"].strip() == result.strip()
        assert await saved(served) == [FACT]


async def test_old_results_are_whole_in_it(tmp_path: Path) -> None:
    """What is shortened to make room is shortened behind the flush, in the compaction alone."""
    agents = f"{REMEMBERS}tool_output = {{ recent_calls_to_keep = 0, keep_last_turns = 1, clear_after_turns = 90 }}\n"
    sent = history(FULL - 3)[:-1]
    result = "".join(f"Boat {line} lies at quay {line * 7}.\n" for line in range(35))
    for number in range(2):
        sent = [
            *asked(sent, f"Read list {number}."),
            *used("read_list", {"number": number}, result, f"call{number:05d}"),
        ]
        sent.append({"role": "assistant", "content": ANSWER})
    sent = asked([*asked(sent, "Good."), {"role": "assistant", "content": ANSWER}], QUESTION)
    async with remembering(tmp_path, agents=agents) as (served, studio):
        assert await turn(served, [*sent]) == ANSWER
        assert kinds_of(studio) == ["flush", "flush", "prune", "turn"]
        assert_flushed_whole(studio, sent[1:])
        order = studio.chats[2].body["messages"]
        shown = [message["content"] for message in order if message["role"] == "tool"]
        assert len(shown) == 2
        assert all(len(text) < len(result) // 3 for text in shown)


@pytest.mark.fault("window changed", "flush", "saved whole, then compacted")
async def test_a_window_that_has_shrunk(tmp_path: Path) -> None:
    """What fitted the larger window is flushed whole before it is compacted for the smaller one."""
    sent = history(FULL)
    async with remembering(tmp_path, window=32_768) as (served, studio):
        await turn(served, sent)
        studio.reload(MODEL, WINDOW)
        sent = asked(sent, "And the first one?")
        assert await turn(served, [*sent]) == ANSWER
        assert kinds_of(studio) == ["turn", "flush", "flush", "prune", "turn"]
        assert_flushed_whole(studio, sent[1:])


@pytest.mark.slow
async def test_what_leaves_no_room_is_compacted_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A conversation beyond the window is not flushed, and the log says so; the next cycle is."""
    messages = history(2 * FULL)
    async with remembering(tmp_path, model=lambda body: CHATTY) as (served, studio):
        with caplog.at_level("INFO"):
            await turn(served, messages)
        assert "flush" not in kinds_of(studio)
        assert "it leaves no room for that" in caplog.text
        for number in range(6):
            messages = asked(messages, f"And what of crossing {number}?")
            await turn(served, messages)
        assert kinds_of(studio).count("flush") >= 2


@pytest.mark.slow
async def test_conversations_and_agents_are_flushed_each_by_itself(tmp_path: Path) -> None:
    """The same words to another agent are another conversation, and what it saves is its own."""
    other = REMEMBERS.replace('"writer"', '"critic"').replace("The Writer", "The Critic")
    sent = history(FULL)
    async with remembering(tmp_path, agents=f"{REMEMBERS}{other}") as (served, studio):
        await turn(served, [*sent])
        await turn(served, [*sent], model="critic")
        await turn(served, [*sent])
        await turn(served, [sent[0], *asked([], "Another beginning."), *sent[1:]])
        assert len(flushes_of(studio)) == 3
        assert await saved(served) == [FACT]


async def test_what_it_costs_is_the_conversations(tmp_path: Path) -> None:
    """Its tokens are among those of the conversation, which has nothing else of it, and shows its compaction."""
    async with remembering(tmp_path) as (served, studio):
        await turn(served, history(FULL), conversation="ferry")
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            [kept] = (await response.json())["data"]
        async with served.http.get(f"{served.url}/v1/conversations/{kept['id']}/export") as response:
            exported = await response.text()
        sent = [chat.counted_tokens or 0 for chat in studio.chats]
        assert kept["usage"]["input"] == sum(sent)
        assert kept["usage"]["steps"] == len(sent) == 4
        assert kept["context"]["tokens"] < 2 * WINDOW // 3
        assert kept["compaction_count"] == 1
        assert ANSWER in exported
        assert not [words for words in OF_FLUSHES if words in exported]


async def test_a_reply_that_is_not_silent_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who runs the server sees that a model says more than it should, and how much, but not what."""
    caplog.set_level("INFO", logger="elbowroom")
    async with remembering(tmp_path, lambda body: Script(WORDS)) as (served, _):
        assert await turn(served, history(FULL)) == ANSWER
    dropped = [record.getMessage() for record in caplog.records if "reply to the memory flush" in record.getMessage()]
    assert dropped == [f"writer: the reply to the memory flush is dropped: {len(WORDS)} characters"]
    assert not [record for record in caplog.records if WORDS in record.getMessage()]
