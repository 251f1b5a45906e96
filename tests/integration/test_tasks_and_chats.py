"""Titles and tags never stand in front of a chat: they wait for it, give way to it, and are answered in the end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, eventually, stream_bytes
from serving import Served, text_of
from small_window import ANSWER, small_window
from task_prompts import TITLE, title_body, wait_less_for_chats
from watched_stream import watched

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, Text, WaitFor
from elbowroom.server.state import Timing

Body = dict[str, Any]
TITLES = {"X-Elbowroom-Task": "title_generation", "X-Conversation-Id": "chat-1"}
QUERIES = {"X-Elbowroom-Task": "query_generation", "X-Conversation-Id": "chat-1"}
CHAT = {"X-Elbowroom-Task": "", "X-Conversation-Id": "chat-1"}
OTHER_CHAT = {"X-Elbowroom-Task": "", "X-Conversation-Id": "chat-2"}
EVERYONE = pytest.mark.parametrize(
    ("kind", "model"),
    [("lmstudio", "writer"), ("lmstudio", RAW_MODEL), ("openai", "writer"), ("openai", f"openai/{MODEL}")],
    ids=["agent", "raw model", "agent, passed through", "relayed model"],
)


@pytest.fixture(autouse=True)
def _hasty_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_less_for_chats(monkeypatch)


def agents(kind: str) -> str:
    """Return an agent at a provider of this kind."""
    return AGENT.replace(f'model = "{MODEL}"', f'model = "{MODEL}"\nprovider = "{kind}"')


def is_title(body: Body) -> bool:
    """Tell whether this request asks for a title."""
    return str(body["messages"][-1]["content"]).startswith("### Task:")


async def ask(served: Served, body: Body, headers: dict[str, str]) -> str:
    """Ask without streaming and return the text of the answer."""
    async with served.http.post(served.chat_url, json=body, headers=headers) as response:
        answer = await response.json()
        assert response.status == 200, answer
        return str(answer["choices"][0]["message"]["content"])


def titles_of(studio: SimulatedLMStudio) -> int:
    """Return how many requests for titles have reached the model."""
    return sum(is_title(chat.body) for chat in studio.chats)


@EVERYONE
async def test_a_chat_does_not_wait_for_a_title(tmp_path: Path, kind: str, model: str) -> None:
    """The engine has one slot and a title in it: the chat is answered at once, and the title then, from anew."""
    one_slot = SimulatedModel(MODEL, loaded_context_length=32_768, parallel=1)
    async with elbowroom_with_studio(tmp_path, agents=agents(kind), kind=kind, model=one_slot) as (served, studio):
        never = asyncio.Event()
        studio.enqueue(Script(WaitFor(never)), when=is_title)
        studio.enqueue(TITLE, when=is_title, repeat=True)
        title = asyncio.create_task(ask(served, title_body(2, model=model), TITLES))
        await eventually(lambda: titles_of(studio) == 1, "the title is not asked for")
        text = text_of(chunks_of(await stream_bytes(served, chat_body("Hello", model=model), **CHAT)))
        assert "You wrote" in text
        assert [is_title(gone.request.body) for gone in studio.disconnects] == [True]
        assert await title == TITLE
        assert [is_title(chat.body) for chat in studio.chats] == [True, False, True]


@EVERYONE
async def test_a_title_waits_for_its_chat(tmp_path: Path, kind: str, model: str) -> None:
    """However long the answer takes; a chat of another name is not concerned."""
    async with elbowroom_with_studio(tmp_path, agents=agents(kind), kind=kind) as (served, studio):
        ended = asyncio.Event()
        studio.enqueue(Script("Well, ", WaitFor(ended), "yes."), when=lambda body: not is_title(body))
        studio.enqueue(TITLE, when=is_title, repeat=True)
        async with watched(served, chat_body("Hello", model=model), **CHAT) as stream:
            await stream.until("Well")
            title = asyncio.create_task(ask(served, title_body(2, model=model), TITLES))
            other = {**TITLES, "X-Conversation-Id": "chat-2"}
            assert await ask(served, title_body(2, model=model), other) == TITLE
            assert not title.done()
            assert titles_of(studio) == 1
            ended.set()
            await stream.rest()
        assert await title == TITLE


async def test_what_a_chat_waits_for_waits_for_nobody(tmp_path: Path) -> None:
    """Search queries come before the chat that is about to be asked: the title of that chat gives way to them too."""
    one_slot = SimulatedModel(MODEL, loaded_context_length=32_768, parallel=1)
    async with elbowroom_with_studio(tmp_path, model=one_slot) as (served, studio):
        never = asyncio.Event()
        studio.enqueue(Script(WaitFor(never)), when=is_title)
        studio.enqueue("{}", when=is_title, repeat=True)
        title = asyncio.create_task(ask(served, title_body(2), TITLES))
        await eventually(lambda: titles_of(studio) == 1, "the title is not asked for")
        asked = title_body(1, max_tokens=9)
        assert await ask(served, asked, QUERIES) == "{}"
        assert await title == "{}"
        sent = [chat.body["messages"] for chat in studio.chats]
        assert sent[1] == asked["messages"], "the queries are not the next that the model is asked for"
        assert sent[0] == sent[2]


async def test_a_title_that_streams_is_not_begun_anew(tmp_path: Path) -> None:
    """What the client has seen stands; the chat is answered beside it."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        ended = asyncio.Event()
        studio.enqueue(Script(Text("Harbour", whole=True), WaitFor(ended), Text(" log", whole=True)), when=is_title)
        async with watched(served, title_body(2), **TITLES) as stream:
            await stream.until("Harbour")
            assert "You wrote" in await ask(served, chat_body("Hello"), CHAT)
            ended.set()
            assert text_of(chunks_of(await stream.rest())) == "Harbour log"
        assert studio.disconnects == []
        assert titles_of(studio) == 1


async def test_a_person_who_leaves_takes_the_title_along(tmp_path: Path) -> None:
    """One whose client has gone while it gave way is not asked for again."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        never, ended = asyncio.Event(), asyncio.Event()
        studio.enqueue(Script(WaitFor(never)), when=is_title)
        studio.enqueue(Script(WaitFor(ended), "Yes."), when=lambda body: not is_title(body))
        title = asyncio.create_task(ask(served, title_body(2), TITLES))
        await eventually(lambda: titles_of(studio) == 1, "the title is not asked for")
        chat = asyncio.create_task(ask(served, chat_body("Hello"), OTHER_CHAT))
        await eventually(lambda: studio.disconnects, "the title does not give way")
        title.cancel()
        await asyncio.wait([title])
        ended.set()
        assert await chat == "Yes."
        assert titles_of(studio) <= 2, "it is asked for again and again"


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 4])
async def test_the_chat_is_read_again_after_a_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    """Where the engine has one slot, the title took the chat out of its cache: it is put back while nobody waits."""
    monkeypatch.undo()
    async with small_window(tmp_path, slots=slots, timing=Timing(quiet=0.02)) as (served, studio):
        asked = chat_body("Which pier?", model=RAW_MODEL)
        assert await ask(served, asked, CHAT) == ANSWER
        for _ in range(2):  # the second waits longer than the reading would
            await ask(served, title_body(2, model=RAW_MODEL), TITLES)
        await eventually(lambda: slots > 1 or len(studio.chats) == 5, "the engine does not read the chat again")
        warm = [chat.body for chat in studio.chats if chat.body["max_tokens"] == 1]
        assert len(warm) == (2 if slots == 1 else 0)
        for body in warm:
            assert body["messages"][:-1] == [*asked["messages"], {"role": "assistant", "content": ANSWER}]


async def test_a_new_chat_is_not_pushed_out_by_the_old(tmp_path: Path) -> None:
    """A message that comes before the engine has read the chat again takes its place: nothing is read after it."""
    async with small_window(tmp_path, slots=1, timing=Timing(quiet=0.1)) as (served, studio):
        await ask(served, chat_body("Which pier?", model=RAW_MODEL), CHAT)
        await ask(served, title_body(2, model=RAW_MODEL), TITLES)
        await ask(served, chat_body("And which ferry?", model=RAW_MODEL), OTHER_CHAT)
        await ask(served, title_body(2, model=RAW_MODEL), TITLES)
        assert [is_title(chat.body) for chat in studio.chats[:4]] == [False, True, False, True]
