"""Tasks, such as the title of a chat, are answered beside the conversation: one plain request, whatever its length."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chatting import (
    AGENT,
    MODEL,
    RAW_MODEL,
    READERS,
    chat_body,
    chunks_of,
    elbowroom_with_studio,
    finish_of,
    stream_bytes,
)
from fake_upstream import fake_upstream, says
from own_tools import own_tool
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import text_of as content_of
from serving import Served, serve, settings_for, text_of
from small_window import WINDOW, ask_whole, history, small_window
from task_prompts import FOOT, HEAD, TITLE, title_body, title_order, told, wait_less_for_chats

from elbowroom.agents.catalog import Target
from elbowroom.agents.task_history import MARK
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Reply, Script
from elbowroom.demo.overflow import wording

TASK = {"X-Elbowroom-Task": "title_generation"}
CHAT = {"X-Elbowroom-Task": ""}
WHOLE = 'task_history = "whole"'
INSTRUCTIONS = "You help with notes."
EVERYONE = pytest.mark.parametrize("model", ["writer", RAW_MODEL])


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    wait_less_for_chats(monkeypatch)


def names_it(body: dict[str, Any]) -> str:
    """Answer every order with the title."""
    return TITLE


@own_tool
async def read_note(path: str) -> str:
    """Read a note."""
    raise AssertionError(f"{path} was read for a task")


def toolbox(target: Target) -> Sequence[ServerTool]:
    """Give every agent a tool."""
    return [read_note]


async def ask_with(served: Served, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Ask without streaming and with these headers; return status and parsed body."""
    async with served.http.post(served.chat_url, json=body, headers=headers) as response:
        return response.status, await response.json()


@EVERYONE
async def test_the_title_of_a_long_chat(tmp_path: Path, model: str) -> None:
    """Where all is wanted, a history that fills the window several times is cut in its middle; the order stays."""
    async with small_window(tmp_path, names_it, server=WHOLE) as (served, studio):
        status, answer = await ask_whole(served, title_body(60, model=model))
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"] == TITLE
        [chat] = studio.chats
        assert_fits(chat)
        assert chat.counted_tokens is not None
        assert chat.counted_tokens + WINDOW // 4 > WINDOW * 0.95, "more was left out than had to be"
        [message] = chat.body["messages"]
        assert message["role"] == "user"
        history = message["content"].removeprefix(HEAD).removesuffix(FOOT)
        assert len(message["content"]) == len(HEAD) + len(history) + len(FOOT)
        first, last = history.split(MARK)
        whole = f"{told(60)}\n"
        assert whole.startswith(first)
        assert whole.endswith(last)
        assert abs(len(first) - len(last)) <= 1
        assert answer["usage"]["prompt_tokens"] == chat.counted_tokens


@EVERYONE
async def test_what_fits_goes_as_it_is(tmp_path: Path, model: str) -> None:
    """Where all is wanted, nothing that fits is left out, not even where a chat of this length would be compacted."""
    async with small_window(tmp_path, names_it, server=WHOLE) as (served, studio):
        body = title_body(10, model=model)
        assert (await ask_whole(served, body))[0] == 200
        [chat] = studio.chats
        assert chat.counted_tokens is not None
        assert chat.counted_tokens + WINDOW // 4 > WINDOW * 0.8
        assert chat.body["messages"] == body["messages"]
        assert chat.body["max_tokens"] == WINDOW - chat.counted_tokens


@EVERYONE
async def test_a_title_is_made_from_the_ends(tmp_path: Path, model: str) -> None:
    """It gets the first and the last exchange, long texts by their ends, and the order around them to the letter."""
    async with small_window(tmp_path, names_it, window=8192) as (served, studio):
        long = f"\nUSER: {'Sail! ' * 1000}\nASSISTANT: Aye."
        for told_now, expected in (
            (told(60), f"{told(1)}\n{MARK.lstrip()}USER: {told(60).rpartition('USER: ')[2]}"),
            (told(2), told(2)),
            (
                long,
                f"\nUSER: {'Sail! ' * 1000}"[:801] + MARK + f"\nUSER: {'Sail! ' * 1000}\n"[-400:] + "ASSISTANT: Aye.",
            ),
        ):
            body = {**title_body(1, model=model), "messages": [{"role": "user", "content": title_order(told_now)}]}
            assert (await ask_whole(served, body))[0] == 200
            assert content_of(studio.chats[-1].body["messages"][-1]) == title_order(expected)


async def test_what_a_chat_waits_for_gets_all_of_it(tmp_path: Path) -> None:
    """Search queries are about all that was said: nothing is left out that fits."""
    async with small_window(tmp_path, names_it, window=8192) as (served, studio):
        body = title_body(10)
        await ask_with(served, body, {"X-Elbowroom-Task": "query_generation"})
        assert studio.chats[-1].body["messages"] == body["messages"]


async def test_without_a_limit_of_the_client_the_reserve_is_one(tmp_path: Path) -> None:
    """An answer to a task is short: it gets the room that is kept for a reply, not the rest of the window."""
    async with small_window(tmp_path, names_it, agents=f"{AGENT}sampling = {{ max_tokens = 7, stop = '}}' }}") as both:
        served, studio = both
        await ask_whole(served, title_body(2, max_tokens=None))
        [chat] = studio.chats
        assert chat.counted_tokens is not None
        assert chat.body["max_tokens"] == max(WINDOW // 8, (WINDOW - chat.counted_tokens) // 5)
        assert "stop" not in chat.body


async def test_an_agent_answers_without_its_instructions_and_tools(tmp_path: Path) -> None:
    """What an agent is told and given for conversations would only stand between the order and its answer."""
    async with elbowroom_with_studio(tmp_path, toolbox=toolbox) as (served, studio):
        body = title_body(2)
        await ask_with(served, body, {})
        [chat] = studio.chats
        assert "tools" not in chat.body
        assert chat.body["messages"] == body["messages"]
        await ask_with(served, chat_body("Hello"), {})
        assert [tool["function"]["name"] for tool in studio.chats[1].body["tools"]] == ["read_note", *READERS]


async def test_a_streamed_task(tmp_path: Path) -> None:
    """The header marks a task whatever its form; in a stream, too, there is no notice."""
    async with small_window(tmp_path, names_it, server=WHOLE) as (served, studio):
        body = title_body(60, stream_options={"include_usage": True})
        chunks = chunks_of(await stream_bytes(served, body, **TASK))
        assert text_of(chunks) == TITLE
        assert finish_of(chunks) == "stop"
        assert not [chunk for chunk in chunks if "event" in chunk or "elbowroom" in chunk]
        [chat] = studio.chats
        assert_fits(chat)
        assert [chunk["usage"]["prompt_tokens"] for chunk in chunks if "usage" in chunk] == [chat.counted_tokens]


@pytest.mark.parametrize("content", ["Name this chat.", title_order(told(1))])
async def test_the_header_decides(tmp_path: Path, content: str) -> None:
    """A value makes a task of any text; an empty one makes a chat of it, even of one that begins like a task."""
    async with small_window(tmp_path, names_it) as (served, studio):
        for headers in (TASK, CHAT):
            await ask_with(served, chat_body(content), headers)
        task, chat = studio.chats
        assert task.body["messages"] == [{"role": "user", "content": content}]
        assert chat.body["messages"] == [{"role": "system", "content": INSTRUCTIONS}, *task.body["messages"]]
        assert "X-Elbowroom-Task" not in task.headers


async def test_a_template_that_was_not_filled_in_says_nothing(tmp_path: Path) -> None:
    """A client that does not know the template sends its name; then the form decides, as without a header."""
    async with small_window(tmp_path, names_it) as (served, studio):
        for body in (chat_body("Hello"), title_body(1)):
            await ask_with(served, body, {"X-Elbowroom-Task": "{{TASK}}"})
        assert [len(chat.body["messages"]) for chat in studio.chats] == [2, 1]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_order_that_cannot_fit(tmp_path: Path, stream: bool) -> None:
    """Where the order alone fills the window, the error names the sizes; the model is not asked."""
    async with small_window(tmp_path, names_it) as (served, studio):
        content = title_order(told(3)).replace("### Guidelines:", "### Guidelines:\n" + "- Be brief.\n" * 300)
        body = chat_body(content, stream=stream)
        status, answer = await ask_with(served, body, TASK)
        assert status == 400
        assert answer["error"]["code"] == "context_length_exceeded"
        assert f"maximum context length is {WINDOW} tokens" in answer["error"]["message"]
        assert studio.chats == []


async def test_an_engine_with_a_smaller_window_than_it_said(tmp_path: Path) -> None:
    """A refusal that names another window is answered with a prompt for that one."""
    smaller = WINDOW - 300
    sizes: list[int] = []

    def has_less_room(body: dict[str, Any]) -> Script | str:
        sizes.append(len(content_of(body["messages"][0])))
        return TITLE if len(sizes) > 1 else Script(Reply(400, {"error": wording("C", 900, smaller, "qwen2")}))

    async with small_window(tmp_path, has_less_room, server=WHOLE) as (served, studio):
        status, answer = await ask_whole(served, title_body(60))
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"] == TITLE
        _, chat = studio.chats
        assert chat.counted_tokens is not None
        assert chat.counted_tokens + chat.body["max_tokens"] <= smaller
        assert content_of(chat.body["messages"][0]).startswith(HEAD)


async def test_a_window_that_was_learned_is_known_to_tasks_and_chats_alike(tmp_path: Path) -> None:
    """What a chat was refused is not tried again with a title."""
    real = 550
    refusals = [Script(Reply(400, {"error": wording("C", 640, real, "qwen2")}))]
    async with small_window(tmp_path, lambda body: refusals.pop() if refusals else TITLE) as (served, studio):
        assert (await ask_whole(served, {"model": RAW_MODEL, "messages": history(4)}))[0] == 200
        before = len(studio.chats)
        assert (await ask_whole(served, title_body(60, model=RAW_MODEL)))[0] == 200
        [task] = studio.chats[before:]
        assert (task.counted_tokens or 0) < real


async def test_an_engine_that_always_refuses(tmp_path: Path) -> None:
    """After two shorter prompts its refusal reaches the client as the error that it is."""

    def refuses(body: dict[str, Any]) -> Script:
        return Script(Reply(400, {"error": wording("E", 0, 0, "qwen2")}))

    async with small_window(tmp_path, refuses) as (served, studio):
        status, answer = await ask_whole(served, title_body(60))
        assert status == 400
        assert answer["error"]["code"] == "context_length_exceeded"
        lengths = [len(content_of(chat.body["messages"][0])) for chat in studio.chats]
        assert len(lengths) == 3
        assert lengths == sorted(set(lengths), reverse=True), "a prompt was sent again that was not shorter"


async def test_a_model_without_a_window_is_refused_like_a_chat(tmp_path: Path) -> None:
    """Where the window is not known, nothing is sent unchecked: a task no more than a chat."""
    agents = f'[[agents]]\nid = "writer"\nprovider = "openai"\nmodel = "{MODEL}"\n'
    async with fake_upstream({"/v1/models": says({"data": [{"id": MODEL}]})}) as upstream:
        settings = settings_for(upstream.url, kind="openai", provider="manage_context = true", agents=agents)
        async with serve(tmp_path, settings) as served:
            answers = [await ask_whole(served, body) for body in (title_body(1), chat_body("Hello"))]
            assert [status for status, _ in answers] == [503, 503]
            assert [answer["error"]["code"] for _, answer in answers] == ["window_unknown"] * 2
            assert not upstream.asked_at("/v1/chat/completions")


async def test_a_provider_that_is_passed_through(tmp_path: Path) -> None:
    """A raw model there gets the client's own body; an agent's task goes at any length, but for its instructions."""
    agents = AGENT.replace(f'model = "{MODEL}"', f'model = "{MODEL}"\nprovider = "openai"')
    async with elbowroom_with_studio(tmp_path, agents=agents, kind="openai") as (served, studio):
        studio.enqueue(TITLE, repeat=True)
        for model in (f"openai/{MODEL}", "writer"):
            body = title_body(200, model=model)
            status, answer = await ask_whole(served, body)
            assert status == 200, answer
            assert answer["choices"][0]["message"]["content"] == TITLE
            assert studio.chats[-1].body["messages"] == body["messages"]
        assert studio.chats[0].body == {**title_body(200), "model": MODEL}
