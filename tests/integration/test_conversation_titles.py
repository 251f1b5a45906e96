"""`PATCH /v1/conversations/{id}`: a person gives a conversation another title, which every place then shows."""

from pathlib import Path
from typing import Any

import pytest
from cases import case
from chatting import RAW_MODEL, elbowroom_with_studio
from serving import Served
from settings_calls import ask

OBSIDIAN = {"Origin": "app://obsidian.md"}
QUESTION = "Which way to the harbour?"


async def begun(served: Served, user: str = "") -> str:
    """Begin a conversation, or go on with it, and return its id."""
    body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": QUESTION}]}
    headers = {"X-Conversation-Id": "chat-1", **({"X-Elbowroom-User": user} if user else {})}
    async with served.http.post(served.chat_url, json=body, headers=headers) as response:
        assert response.status == 200
        return response.headers["X-Conversation-Id"]


async def rename(served: Served, conversation: str, body: Any, **headers: str) -> tuple[int, Any]:
    """Send another title."""
    return await ask(served, "PATCH", f"/v1/conversations/{conversation}", body, **headers)


async def title_of(served: Served, conversation: str) -> str:
    """Return the title that is shown."""
    title: str = (await ask(served, "GET", f"/v1/conversations/{conversation}"))[1]["title"]
    return title


async def test_a_title_is_shown_everywhere(tmp_path: Path) -> None:
    """In the answer, the list, a search for it, both exports and their names; it stays over turns and a restart."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        conversation = await begun(served)
        assert await title_of(served, conversation) == QUESTION
        status, answer = await rename(served, conversation, {"title": "  Boats\n and  harbours "}, **OBSIDIAN)
        assert (status, answer["id"], answer["title"]) == (200, conversation, "Boats and harbours")
        await begun(served)
        for path in ("", "?q=boats+AND", "?q=harbour?"):
            [row] = (await ask(served, "GET", f"/v1/conversations{path}"))[1]["data"]
            assert row["title"] == "Boats and harbours"
        for form in ("json", "markdown"):
            url = f"{served.url}/v1/conversations/{conversation}/export?format={form}"
            async with served.http.get(url) as response:
                assert "Boats%20and%20harbours" in response.headers["Content-Disposition"]
                assert "Boats and harbours" in await response.text()
    async with elbowroom_with_studio(tmp_path) as (served, _):
        assert await title_of(served, conversation) == "Boats and harbours"


@pytest.mark.parametrize("nothing", ["", "   ", None])
async def test_without_a_title_the_first_question_is_back(tmp_path: Path, nothing: str | None) -> None:
    """Also under the name that the client has given."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        conversation = await begun(served)
        await rename(served, "chat-1", {"title": "Boats"})
        assert await title_of(served, conversation) == "Boats"
        status, answer = await rename(served, "chat-1", {"title": nothing})
        assert (status, answer["title"]) == (200, QUESTION)
        assert (await ask(served, "GET", "/v1/conversations?q=boats"))[1]["data"] == []


NO_TITLES: list[tuple[Any, str]] = [
    ([], "such as"),
    ({}, "such as"),
    ({"name": "x"}, "such as"),
    ({"title": 5}, "title has to be a text"),
    ({"title": ["x"]}, "title has to be a text"),
    ({"title": "x" * 201}, "at most 200 characters, not 201"),
    ({"title": "a\0b"}, "control character"),
]


async def test_what_is_no_title_is_refused(tmp_path: Path) -> None:
    """A 400 says what belongs there, and the title stays; the longest is accepted, in any script."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        conversation = await begun(served)
        longest = "👩‍🚀 船" + "x" * 195
        assert (await rename(served, conversation, {"title": longest}))[1]["title"] == longest
        for body, said in NO_TITLES:
            with case(body):
                status, answer = await rename(served, conversation, body)
                assert (status, answer["error"]["param"]) == (400, "title")
                assert said in answer["error"]["message"]
                assert await title_of(served, conversation) == longest


async def test_a_conversation_of_somebody_else_is_not_renamed(tmp_path: Path) -> None:
    """It is not there for others, nor is one that never was."""
    adam, eve = {"X_Elbowroom_User": "adam"}, {"X_Elbowroom_User": "eve"}
    async with elbowroom_with_studio(tmp_path) as (served, _):
        conversation = await begun(served, user="adam")
        for named in (conversation, "chat-1", "nothing"):
            assert (await rename(served, named, {"title": "Mine"}, **eve))[0] == 404
        assert (await rename(served, conversation, {"title": "Mine"}))[0] == 403
        assert (await ask(served, "GET", f"/v1/conversations/{conversation}", **adam))[1]["title"] == QUESTION


async def test_a_plugin_may_delete_it(tmp_path: Path) -> None:
    """From Obsidian's origin, with an answer that its page can read."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        conversation = await begun(served)
        url = f"{served.url}/v1/conversations/{conversation}"
        async with served.http.delete(url, headers=OBSIDIAN) as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == OBSIDIAN["Origin"]
        assert (await ask(served, "GET", f"/v1/conversations/{conversation}"))[0] == 404


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ('{ "title": "Ways to the harbour" }', "Ways to the harbour"),
        ('```json\n{"title": "Ways to the harbour"}\n```', "Ways to the harbour"),
        ("Ways to the harbour", "Ways to the harbour"),
        ("I cannot\ndo that.", QUESTION),
        ('{"tags": ["boats"]}', QUESTION),
    ],
)
async def test_the_title_that_a_program_has_made_is_its_title(tmp_path: Path, said: str, title: str) -> None:
    """Open WebUI asks for one with the chat's id; what a person calls the conversation goes before it."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        conversation = await begun(served)
        studio.enqueue(said)
        task = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "### Task:\nGenerate a title."}]}
        headers = {"X-Conversation-Id": "chat-1", "X-Elbowroom-Task": "title_generation"}
        async with served.http.post(served.chat_url, json=task, headers=headers) as response:
            assert response.status == 200
        assert await title_of(served, conversation) == title
        await rename(served, conversation, {"title": "Boats"})
        assert await title_of(served, conversation) == "Boats"
