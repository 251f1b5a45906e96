"""What coding agents ask beside a conversation: never stored, and their own compaction fits whatever its length."""

from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, function_spec
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import text_of as content_of
from small_window import ANSWER, WINDOW, ask_whole, history, orders_of, small_window
from spread_variants import spread

Body = dict[str, Any]
CODEX = "You are a coding agent running in the Codex CLI, and this is all that we say of it."
CODEX_ORDER = (
    "You are performing a CONTEXT CHECKPOINT COMPACTION. " + "Tell the next one of each pier and each boat. " * 20
)
CLAUDE = "You are Claude Code, Anthropic's official CLI for Claude."
CLAUDE_ORDER = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nTell of the piers."
OPENCODE = "You are a context summarization agent. Tell what was said."
TITLE = "You are a title generator. You output ONLY a thread title."
REMINDER = "<system-reminder>\nThe piers are numbered.\n</system-reminder>"
WORDS = "The sea was calm. " * 400


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def called(number: int, result: str) -> list[Body]:
    """Return a call of a tool and its result."""
    function = {"name": "read_note", "arguments": f'{{"path": "{number}.md"}}'}
    call = {"id": f"call{number:05}", "type": "function", "function": function}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [said, {"role": "tool", "tool_call_id": call["id"], "content": result}]


def with_system(system: str, messages: list[Body], order: str) -> list[Body]:
    """Return a chat with this system message and this order at its end."""
    said = [message for message in messages if message["role"] != "system"]
    return [{"role": "system", "content": system}, *said, {"role": "user", "content": order}]


CHATS = {
    "many messages": history(60)[:-1],
    "one large result": [*history(1)[:-1], *called(1, WORDS)],
    "large results": [*history(1), *(one for number in range(9) for one in called(number, f"{number}. {WORDS}"))],
    "a large call": [*history(9), *called(1, "Done."), *called(2, "Done.")],
    "short": history(1)[:-1],
}
CHATS["a large call"][-2]["tool_calls"][0]["function"]["arguments"] = f'{{"path": "{WORDS}"}}'


@pytest.mark.parametrize(("model", "chat"), spread(["writer", "qwen2.5-7b-instruct"], CHATS.values()))
async def test_a_compaction_fits(tmp_path: Path, model: str, chat: list[Body]) -> None:
    """Its order arrives to the letter after as much of the chat as fits, with room for the summary; no pruner works."""
    async with small_window(tmp_path) as (served, studio):
        body = {"model": model, "messages": with_system(CODEX, chat, CODEX_ORDER), "max_tokens": 20_000}
        status, answer = await ask_whole(served, body)
        assert status == 200, answer
        [sent] = studio.chats
        assert not orders_of(studio)
        assert_fits(sent)
        assert sent.counted_tokens is not None
        assert sent.body["max_tokens"] >= WINDOW // 4
        assert content_of(sent.body["messages"][-1]).endswith(CODEX_ORDER)
        assert content_of(sent.body["messages"][0]) == CODEX
        if chat is CHATS["short"]:
            assert sent.body["messages"] == body["messages"]


@pytest.mark.parametrize("count", [1, 40])
async def test_tools_beside_a_compaction(tmp_path: Path, count: int) -> None:
    """Tools stay while they leave the chat room, in short where that helps; else the model is told of none."""
    tools = [function_spec(f"read_{number}") for number in range(count)]
    tools[0]["function"]["description"] = WORDS
    async with small_window(tmp_path, window=2000) as (served, studio):
        messages = with_system(CLAUDE, history(60), CLAUDE_ORDER)
        status, answer = await ask_whole(served, {"model": "writer", "messages": messages, "tools": tools})
        assert status == 200, answer
        [sent] = studio.chats
        assert_fits(sent)
        assert len(sent.body.get("tools", ())) == (1 if count == 1 else 0)
        assert "tool_choice" not in sent.body


async def test_a_compaction_in_one_message(tmp_path: Path) -> None:
    """A chat that stands between tags in the one message is cut in its middle, and the order after it stays."""
    order = f"\n\nTell of it in order. {'Each pier counts. ' * 20}"
    asked = f"Here is the conversation so far:\n\n<conversation>\n[User]: {WORDS}\n</conversation>{order}"
    async with small_window(tmp_path) as (served, studio):
        status, answer = await ask_whole(
            served, {"model": "writer", "messages": with_system(OPENCODE, [], asked), "max_tokens": 32_000}
        )
        assert status == 200, answer
        [sent] = studio.chats
        assert_fits(sent)
        assert content_of(sent.body["messages"][-1]).endswith(f"</conversation>{order}")


async def test_only_the_order_is_too_long(tmp_path: Path) -> None:
    """Where the order alone is larger than the window, it loses its middle rather than being refused."""
    async with small_window(tmp_path) as (served, studio):
        messages = with_system(CODEX, history(3), CODEX_ORDER * 20)
        status, answer = await ask_whole(served, {"model": "writer", "messages": messages})
        assert status == 200, answer
        assert_fits(studio.chats[0])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("is_known", [True, False])
async def test_nothing_is_stored(tmp_path: Path, *, stream: bool, is_known: bool) -> None:
    """A title and a compaction leave no conversation; without the setting they are chats, and are kept."""
    server = "" if is_known else "side_requests = false"
    first = {"role": "user", "content": "Generate a title for this conversation:\n"}
    title = [{"role": "system", "content": TITLE}, first, {"role": "user", "content": "Which pier?"}]
    async with small_window(tmp_path, server=server, agents=AGENT) as (served, _):
        for messages in (title, with_system(CODEX, history(1), CODEX_ORDER)):
            body = {"model": "writer", "messages": messages, "stream": stream}
            async with served.http.post(served.chat_url, json=body) as response:
                assert response.status == 200
                assert "ninth" in await response.text()
                assert ("X-Conversation-Id" in response.headers) == (not is_known)
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            kept = (await response.json())["data"]
        assert len(kept) == (0 if is_known else 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_compaction_through_messages(tmp_path: Path, *, stream: bool) -> None:
    """Claude Code's order is the last block of its message, its system message the second block: it is known so too."""
    result = {"type": "tool_result", "tool_use_id": "a", "content": WORDS}
    blocks = [result, {"type": "text", "text": REMINDER}, {"type": "text", "text": CLAUDE_ORDER}]
    body: Body = {
        "model": "writer",
        "max_tokens": 20_000,
        "stream": stream,
        "system": [
            {"type": "text", "text": text} for text in ("x-anthropic-billing-header: a=1;", CLAUDE, "And more.")
        ],
        "messages": [
            {"role": "user", "content": "Which pier?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read_1", "input": {}}]},
            {"role": "user", "content": blocks},
        ],
        "tools": [{"name": "read_1", "description": "Reads.", "input_schema": {"type": "object"}}],
    }
    async with small_window(tmp_path) as (served, studio):
        async with served.http.post(f"{served.url}/v1/messages", json=body) as response:
            assert response.status == 200, await response.text()
            assert "ninth" in await response.text()
        [sent] = studio.chats
        assert_fits(sent)
        assert content_of(sent.body["messages"][-1]).endswith(CLAUDE_ORDER)
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            assert (await response.json())["data"] == []


async def test_a_chat_after_a_compaction(tmp_path: Path) -> None:
    """The chat that goes on with its client's summary is a chat like any other, with the session's name."""
    headers = {"Thread-Id": "t1"}
    async with small_window(tmp_path) as (served, studio):
        for messages in (
            with_system(CODEX, history(1)[:-1], "Which pier?"),
            with_system(CODEX, history(3)[:-1], CODEX_ORDER),
            with_system(CODEX, [{"role": "user", "content": f"Summary: {ANSWER}"}], "And then?"),
        ):
            async with served.http.post(
                served.chat_url, json={"model": "writer", "messages": messages}, headers=headers
            ) as response:
                assert response.status == 200
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            assert CODEX_ORDER not in await response.text()
        assert len(studio.chats) == 3
