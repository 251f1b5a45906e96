"""`/v1/conversations`: what has been said can be listed, searched, read and deleted, by those it belongs to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from chatting import eventually
from kept_conversations import BEGUN
from noted_conversations import Noted, milk
from raw_http import ask, request_bytes
from serving import Served, serve, settings_for

from elbowroom.agents.request import parse_chat_request
from elbowroom.context.conversation import ConversationRow
from elbowroom.server.request.caller import caller_of
from elbowroom.server.state import SHARED
from elbowroom.store.questions import Conversations

NOBODY = "http://127.0.0.1:9"
IN_MEMORY = '[store]\nurl = "sqlite+aiosqlite:///:memory:"'
FIRST = f"conv_{1:024x}"
ODD = ["a/b", "a%2Fb", "Übung ☕", "...", "{id}", "a?b#c", "%", "a b", "x" * 120, "x" * 3000, "'; DROP TABLE x; --"]
ODD += ["%00", "a\0b\n", " padded ", ".."]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom with nothing upstream."""
    async with serve(tmp_path, settings_for(NOBODY, agents=IN_MEMORY)) as served:
        yield served


def store_of(served: Served) -> Conversations:
    """Return where its conversations are kept."""
    return served.app[SHARED].store.conversations


async def get(served: Served, path: str, status: int = 200, owner: str = "", **query: Any) -> dict[str, Any]:
    """Return what is answered, an error where another status is expected."""
    return await request(served, "GET", path, status, owner, **query)


async def request(
    served: Served, method: str, path: str, status: int = 200, owner: str = "", **query: Any
) -> dict[str, Any]:
    """Ask for something and return the parsed answer, which has to have this status."""
    headers = {"X-Elbowroom-User": owner} if owner else {}
    url = f"{served.url}/v1/conversations{path}"
    async with served.http.request(method, url, params=query, headers=headers) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        assert response.headers["Content-Type"].startswith("application/json")
    if status >= 400:
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert answer["error"]["type"] == "invalid_request_error"
    return answer


def ids_of(page: dict[str, Any]) -> list[str]:
    """Return the ids on a page."""
    return [item["id"] for item in page["data"]]


def said(page: dict[str, Any]) -> list[str | None]:
    """Return what the messages of a page say."""
    return [item["message"]["content"] for item in page["data"]]


async def test_nothing_yet(served: Served) -> None:
    """The list of a new server is empty."""
    empty: dict[str, Any] = {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
        "next": None,
    }
    assert await get(served, "") == empty
    assert await get(served, "/", q="milk") == empty


async def test_one(served: Served) -> None:
    """A conversation shows what it is, how full its window is, what it used and how it was compacted."""
    await milk(store_of(served), name="chat-7")
    shown = await get(served, f"/{FIRST}")
    at = int(BEGUN) + 100
    assert shown == {
        "id": FIRST,
        "object": "conversation",
        "name": "chat-7",
        "agent": "writer",
        "title": "What is in list 1?",
        "program": None,
        "url": None,
        "created": at,
        "updated": shown["updated"],
        "status": "idle",
        "context": {
            "tokens": 6100,
            "window": 8192,
            "fill": 0.7446,
            "trigger": 6553,
            "stop_at": 7372,
            "turn": 210,
            "turns_left": 2,
            "thresholds": {"trigger": 0.7999, "stop": 0.8999},
        },
        "usage": {
            "input": 1800,
            "output": 240,
            "cache_creation": 0,
            "cache_read": 600,
            "total": 2640,
            "steps": 2,
            "counted": False,
            "pruning": {
                "input": 0,
                "output": 0,
                "cache_creation": 0,
                "cache_read": 0,
                "total": 0,
                "steps": 0,
                "counted": False,
            },
        },
        "compaction_count": 1,
        "works_ahead": False,
        "compactions": [
            {
                "at": shown["updated"],
                "before": 7000,
                "after": 3000,
                "method": "plan",
                "rung": "plan",
                "seconds": 2.25,
                "kept": 4,
                "messages_kept": 6,
                "messages_removed": 20,
                "summary": "They spoke of ```lists```.",
                "original": None,
                "focus": None,
                "verdict": None,
                "undone": None,
            }
        ],
        "message_count": 5,
        "queue_length": 0,
    }
    assert shown["updated"] > at
    assert await get(served, "/chat-7") == shown
    [row] = (await get(served, ""))["data"]
    usage = {**row["usage"], "pruning": shown["usage"]["pruning"]}
    more = {"works_ahead": False, "compactions": shown["compactions"], "message_count": 5, "queue_length": 0}
    assert {**row, "usage": usage, **more} == shown


async def test_pages(served: Served) -> None:
    """Walking by `next` meets every conversation once, the one used last first, also those of one moment."""
    moments = [5, 4, 4, 4, 4, 3, 2, 2, 1]
    for number, moment in enumerate(moments):
        await Noted(store_of(served), f"conv_{number}", at=BEGUN + moment).begin().keep()
    for limit in range(1, 11):
        met: list[tuple[int, str]] = []
        query: dict[str, Any] = {"limit": limit}
        while True:
            page = await get(served, "", **query)
            met += [(-row["updated"], row["id"]) for row in page["data"]]
            assert page["data"]
            if not page["has_more"]:
                break
            query["before"] = page["next"]
        assert [moment for moment, _ in met] == sorted(moment for moment, _ in met)
        assert sorted(name for _, name in met) == [f"conv_{number}" for number in range(len(moments))]


async def test_search(served: Served) -> None:
    """The text may be anywhere in what was said or returned by a tool, in whatever case."""
    for number in (1, 2, 3):
        await milk(store_of(served), number)
    assert ids_of(await get(served, "", q="LIST 2")) == [f"conv_{2:024x}"]
    assert len(ids_of(await get(served, "", q="oat milk"))) == 3
    assert len(ids_of(await get(served, "", q="oat milk", limit=2))) == 2
    assert ids_of(await get(served, "", q="100%_")) == []
    assert ids_of(await get(served, "", q="\x00")) == []


async def test_those_of_an_agent_or_a_model(served: Served) -> None:
    """Only what one of them answered last is listed, also beside a search, and page by page."""
    for number in (1, 2, 3):
        await milk(store_of(served), number)
    (agent,) = {row["agent"] for row in (await get(served, ""))["data"]}
    assert len(ids_of(await get(served, "", agent=agent))) == 3
    assert ids_of(await get(served, "", agent=agent, q="LIST 2")) == [f"conv_{2:024x}"]
    first = await get(served, "", agent=agent, limit=2)
    assert len(ids_of(await get(served, "", agent=agent, limit=2, before=first["next"]))) == 1
    for other in (f"{agent}x", agent.upper() + "y", "lmstudio/any", "%"):
        assert ids_of(await get(served, "", agent=other)) == []


async def test_a_newer_search_ends_the_older_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older one is told so. A search of another owner goes on, and a list never waits."""
    await milk(store_of(served), owner="ada")
    await milk(store_of(served), 2, owner="bob")
    begun: list[str] = []
    ended: list[str] = []
    free, rows = asyncio.Event(), store_of(served).rows

    async def slow(owner: str, *, search: str = "", **query: Any) -> list[ConversationRow]:
        if search == "mil":
            begun.append(owner)
            try:
                await free.wait()
            except asyncio.CancelledError:
                ended.append(owner)
                raise
        return await rows(owner, search=search, **query)

    monkeypatch.setattr(store_of(served), "rows", slow)
    older = asyncio.create_task(get(served, "", 409, "ada", q="mil"))
    other = asyncio.create_task(get(served, "", owner="bob", q="mil"))
    await eventually(lambda: len(begun) == 2, "the searches did not begin")
    assert len(ids_of(await get(served, "", owner="ada"))) == 1
    assert ended == []
    assert len(ids_of(await get(served, "", owner="ada", q="milk"))) == 1
    assert (await older)["error"]["code"] == "search_replaced"
    assert ended == ["ada"]
    leaving = asyncio.create_task(get(served, "", owner="ada", q="mil"))
    await eventually(lambda: len(begun) == 3, "the search did not begin")
    leaving.cancel()
    await eventually(lambda: ended == ["ada", "ada"], "the search of a client that has left went on")
    free.set()
    assert len(ids_of(await other)) == 1


async def test_messages(served: Served) -> None:
    """The latest branch by default; other branches and what no client has seen where they are asked for."""
    await milk(store_of(served))
    latest = await get(served, f"/{FIRST}/messages")
    assert said(latest) == ["What is in list 1?", "Milk and bread"]
    assert [item["status"] for item in latest["data"]] == ["complete", "interrupted"]
    everything = await get(served, f"/{FIRST}/messages", branch="all")
    assert said(everything)[2:] == ["oat milk\n```bread```", "Milk.", "Milk and bread"]
    assert [item["hidden"] for item in everything["data"]] == [False, True, True, False, False]
    assert [item["number"] for item in everything["data"]] == [1, 2, 3, 4, 5]
    seen = await get(served, f"/{FIRST}/messages", branch="all", hidden="false")
    assert said(seen) == ["What is in list 1?", "Milk.", "Milk and bread"]


async def test_messages_of_each_conversation_are_numbered_from_1(served: Served) -> None:
    """In pages, alone and in exports, whatever was said in other conversations before; cursors fit the numbers."""
    await milk(store_of(served))
    second = f"conv_{2:024x}"
    noted = Noted(store_of(served), second).begin()
    for question in ("And eggs?", "And tea?"):
        noted.ask(question)
        noted.answer("Yes.")
    await noted.keep()
    everything = (await get(served, f"/{second}/messages", branch="all"))["data"]
    assert [item["number"] for item in everything] == [1, 2, 3, 4]
    assert [item["number"] for item in (await get(served, f"/{second}/messages", limit=2))["data"]] == [1, 2]
    after = await get(served, f"/{second}/messages", after=everything[1]["id"])
    assert [item["number"] for item in after["data"]] == [3, 4]
    assert (await get(served, f"/{second}/messages/{everything[2]['id']}"))["number"] == 3
    async with served.http.get(f"{served.url}/v1/conversations/{second}/export?format=json") as response:
        assert [item["number"] for item in (await response.json(content_type=None))["messages"]] == [1, 2, 3, 4]


async def test_one_message(served: Served) -> None:
    """A message shows what was said to the letter, and where it stands."""
    await milk(store_of(served))
    question, call, result, answer, _ = (await get(served, f"/{FIRST}/messages", branch="all"))["data"]
    assert await get(served, f"/{FIRST}/messages/{answer['id']}") == {
        "id": answer["id"],
        "object": "conversation.message",
        "number": 4,
        "created": answer["created"],
        "status": "complete",
        "agent": "writer",
        "turn": result["turn"],
        "turn_status": "complete",
        "calls": {},
        "hidden": False,
        "pinned": False,
        "key": answer["key"],
        "parent": question["key"],
        "reasoning": "Short.",
        "cache_lost": None,
        "full_output": None,
        "message": {"role": "assistant", "content": "Milk."},
    }
    assert (await get(served, f"/{FIRST}/messages/{call['id']}"))["message"]["tool_calls"] == [
        {
            "id": result["message"]["tool_call_id"],
            "type": "function",
            "function": {"name": "vault_read", "arguments": '{"path":"list.md"}'},
        }
    ]


async def test_messages_of_turn_behind_turn(served: Served) -> None:
    """A branch goes through the answers, with all that was looked up for them."""
    noted = Noted(store_of(served), FIRST).begin()
    for number in range(3):
        noted.ask(f"{number}?")
        noted.answer(f"{number}.", lookups=[("{}", f"note {number}")])
    await noted.keep()
    latest = await get(served, f"/{FIRST}/messages")
    assert said(latest) == [text for number in range(3) for text in (f"{number}?", "", f"note {number}", f"{number}.")]
    assert latest == await get(served, f"/{FIRST}/messages", branch="all")


async def test_queue(served: Served) -> None:
    """A conversation tells how many messages wait in it; with it they are deleted."""
    await milk(store_of(served))
    queue = served.app[SHARED].queue
    for text in ("and then?", "and after that?"):
        await queue.add(FIRST, {"role": "user", "content": text}, "follow_up")
    assert (await get(served, f"/{FIRST}"))["queue_length"] == 2
    await request(served, "DELETE", f"/{FIRST}")
    assert queue.waiting(FIRST) == []


async def test_messages_from_the_end(served: Served) -> None:
    """`order=desc` and `before` go backward; with `limit` a conversation shows its last messages."""
    await milk(store_of(served))
    newest = await get(served, f"/{FIRST}/messages", order="desc", limit=2, branch="all")
    assert [item["number"] for item in newest["data"]] == [5, 4]
    assert (newest["has_more"], newest["next"], newest["last_id"]) == (True, newest["data"][1]["id"], newest["next"])
    older = await get(served, f"/{FIRST}/messages", order="desc", limit=9, after=newest["next"], branch="all")
    assert ([item["number"] for item in older["data"]], older["has_more"]) == ([3, 2, 1], False)
    before = await get(served, f"/{FIRST}/messages", limit=2, before=newest["next"], branch="all")
    assert ([item["number"] for item in before["data"]], before["next"]) == ([2, 3], before["data"][0]["id"])
    newer = await get(served, f"/{FIRST}/messages", order="desc", limit=2, before=before["next"], branch="all")
    assert [item["number"] for item in newer["data"]] == [4, 3]
    shown = await get(served, f"/{FIRST}", limit=2, branch="all")
    assert [item["number"] for item in shown["messages"]["data"]] == [4, 5]
    assert {**shown, "messages": None} == {**await get(served, f"/{FIRST}"), "messages": None}


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
async def test_pages_of_messages(served: Served, limit: int) -> None:
    """Walking by `next` meets every message once, in order."""
    await milk(store_of(served))
    met: list[int] = []
    query: dict[str, Any] = {"limit": limit, "branch": "all"}
    while True:
        page = await get(served, f"/{FIRST}/messages", **query)
        met += [item["number"] for item in page["data"]]
        if not page["has_more"]:
            break
        query["after"] = page["next"]
    assert met == [1, 2, 3, 4, 5]


async def test_delete(served: Served) -> None:
    """What is deleted is gone; a second time there is nothing to delete."""
    await milk(store_of(served))
    await milk(store_of(served), 2)
    assert await request(served, "DELETE", f"/{FIRST}") == {
        "id": FIRST,
        "object": "conversation.deleted",
        "deleted": True,
    }
    assert ids_of(await get(served, "")) == [f"conv_{2:024x}"]
    for path in (f"/{FIRST}", f"/{FIRST}/messages", f"/{FIRST}/export"):
        assert FIRST in (await get(served, path, 404))["error"]["message"]
    await request(served, "DELETE", f"/{FIRST}", 404)


@pytest.mark.threat("other people's conversations", "not found")
async def test_owners(served: Served) -> None:
    """Nobody lists, finds, reads, exports or deletes what belongs to somebody else, by id or by name."""
    owners = ["ada", "bob", "sha256:ada"]
    for number, owner in enumerate(owners):
        await milk(store_of(served), number, owner=owner, name="diary")
    for number, owner in enumerate(owners):
        assert ids_of(await get(served, "", owner=owner, user="ada")) == [f"conv_{number:024x}"]
        assert ids_of(await get(served, "", owner=owner, q="milk")) == [f"conv_{number:024x}"]
        assert (await get(served, "/diary", owner=owner))["id"] == f"conv_{number:024x}"
        for other in {0, 1, 2} - {number}:
            for path in ("", "/messages", "/export", f"/messages/conv_{other:024x}-u1"):
                await get(served, f"/conv_{other:024x}{path}", 404, owner, user=owners[other])
            await request(served, "DELETE", f"/conv_{other:024x}", 404, owner)
    assert len((await get(served, "", owner="bob"))["data"]) == 1


async def test_who_gives_no_name(served: Served) -> None:
    """Alone on this computer they read what is kept without a name; once others are there, it could be anybody's."""
    await milk(store_of(served))
    assert ids_of(await get(served, "")) == [FIRST]
    async with served.http.get(f"{served.url}/v1/conversations", headers={"X-Forwarded-For": "10.0.0.7"}) as response:
        assert response.status == 403
    assert ids_of(await get(served, "", owner="ada")) == []
    for path in ("", f"/{FIRST}", f"/{FIRST}/messages", f"/{FIRST}/messages/x", f"/{FIRST}/export"):
        assert "X-Elbowroom-User" in (await get(served, path, 403))["error"]["message"]
    await request(served, "DELETE", f"/{FIRST}", 403)


async def test_with_a_token(tmp_path: Path) -> None:
    """Whoever has the server's token reads what is kept without a name; without it nothing is answered."""
    settings = settings_for(NOBODY, agents=IN_MEMORY, server='token = "env:ELBOWROOM_TEST_TOKEN"')
    async with serve(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": "secret"}) as served:
        await milk(store_of(served))
        for path in ("", f"/{FIRST}", f"/{FIRST}/messages", f"/{FIRST}/export"):
            async with served.http.get(f"{served.url}/v1/conversations{path}") as response:
                assert response.status == 401
            for headers in ({"X-Elbowroom-User": "ada"}, {}):
                served.http.headers["Authorization"] = "Bearer secret"
                async with served.http.get(f"{served.url}/v1/conversations{path}", headers=headers) as response:
                    assert response.status == (404 if headers and path else 200)
            del served.http.headers["Authorization"]


async def test_while_it_is_answered(served: Served) -> None:
    """A conversation that is being answered says so, and is not deleted."""
    await milk(store_of(served))
    with served.app[SHARED].running.entered() as turn:
        turn.conversation = FIRST
        assert (await get(served, f"/{FIRST}"))["status"] == "running"
        assert [row["status"] for row in (await get(served, ""))["data"]] == ["running"]
        refused = await request(served, "DELETE", f"/{FIRST}", 409)
    assert f"/v1/conversations/{FIRST}/cancel" in refused["error"]["message"]
    assert (await get(served, f"/{FIRST}"))["status"] == "idle"
    await request(served, "DELETE", f"/{FIRST}")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example", "Content-Type": "application/json"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "app://obsidian.md"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
        ({}, 200),
    ],
)
async def test_pages_of_others(served: Served, method: str, headers: dict[str, str], status: int) -> None:
    """A web page that may not call neither deletes nor reads, and does not learn by time what a search finds."""
    await milk(store_of(served))
    async with served.http.request(method, f"{served.url}/v1/conversations/{FIRST}", headers=headers) as response:
        assert response.status == status
    assert bool(await store_of(served).find("", FIRST)) == (status == 403 or method == "GET")


async def test_preflight_of_a_foreign_page(served: Served) -> None:
    """A foreign page is not told that it may delete."""
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "DELETE"}
    async with served.http.options(f"{served.url}/v1/conversations/{FIRST}", headers=headers) as response:
        assert response.status == 403
        assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("name", ODD)
async def test_odd_names(served: Served, name: str) -> None:
    """Whatever a client calls a conversation, it is found under that name; where there is none, that is said."""
    path = "/v1/conversations/" + quote(name.encode("utf-8", "surrogatepass"), safe="")
    read = request_bytes(f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{served.port}")
    unknown = await ask(served.port, read)
    assert unknown.status == 404, unknown
    assert set(unknown.json["error"]) == {"message", "type", "param", "code"}
    named = {"conversation_id": name}
    chat = parse_chat_request({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "metadata": named})
    await milk(store_of(served), name=caller_of({}, chat, "").chat_id)
    found = await ask(served.port, read)
    assert (found.status, found.json["id"]) == (200, FIRST)


@pytest.mark.parametrize("path", ["..", "%2E%2E", "%2e", "", "%20", "%FF", "%ED%A0%80", "%", "%G1", "messages/x/y"])
async def test_odd_paths(served: Served, path: str) -> None:
    """What is no name of anything finds nothing, and breaks nothing."""
    await milk(store_of(served))
    reply = await ask(
        served.port, request_bytes(f"GET /v1/conversations/x{path}/ HTTP/1.1", f"Host: 127.0.0.1:{served.port}")
    )
    assert reply.status == 404
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        ("limit=%D9%A3", "limit"),
        ("limit=1e1", "limit"),
        (f"limit={'9' * 5000}", "limit"),
        ("before=yesterday", "before"),
        ("before=nan", "before"),
        ("before=inf", "before"),
        ("before=", "before"),
        (f"q={'x' * 401}", "q"),
    ],
)
async def test_wrong_queries(served: Served, query: str, param: str) -> None:
    """They are refused in words, with the parameter's name."""
    async with served.http.get(f"{served.url}/v1/conversations?{query}") as response:
        answer = await response.json()
    assert response.status == 400
    assert answer["error"]["param"] == param
    assert param in answer["error"]["message"] or "search" in answer["error"]["message"]


async def test_wrong_queries_for_messages(served: Served) -> None:
    """Unknown choices, forms and messages are told as well."""
    await milk(store_of(served))
    for path, query in [
        ("messages", {"branch": "first"}),
        ("messages", {"hidden": "maybe"}),
        ("messages", {"limit": "201"}),
        ("messages", {"after": "nothing"}),
        ("messages", {"before": "nothing"}),
        ("messages", {"order": "newest"}),
        ("export", {"format": "pdf"}),
    ]:
        [param] = query
        assert (await get(served, f"/{FIRST}/{path}", 400, **query))["error"]["param"] == param
    assert "nothing" in (await get(served, f"/{FIRST}/messages/nothing", 404))["error"]["message"]


@pytest.mark.parametrize(
    "path",
    ["/v1/conversations", "/conversations/", "//v1//conversations", "/v1/v1/conversations/", "/v1/conversations//"],
)
async def test_base_addresses(served: Served, path: str) -> None:
    """Whatever people paste as a base address leads to the list."""
    await milk(store_of(served))
    reply = await ask(served.port, request_bytes(f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{served.port}"))
    assert reply.status == 200
    assert ids_of(reply.json) == [FIRST]


async def test_nothing_is_left_in_caches(served: Served) -> None:
    """No browser keeps what was said, nor takes it for another type of file."""
    await milk(store_of(served))
    for path in ("", f"/{FIRST}", f"/{FIRST}/messages", f"/{FIRST}/export"):
        async with served.http.get(f"{served.url}/v1/conversations{path}") as response:
            assert response.headers["Cache-Control"] == "no-store"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
