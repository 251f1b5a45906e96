"""People with a token each: what is whose, what a header can say, what each may, and what is kept of it."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from chatting import RAW_MODEL
from command_line import run
from fake_upstream import fake_upstream, says
from people import DOCUMENT, EMBEDDER, KEY, OWNER, heard, outcomes, say, server_of_people, table, token_of, written
from raw_http import ask as ask_raw
from raw_http import request_bytes
from serving import Served, serve, settings_for
from settings_calls import NOBODY, WRITER, ask
from several_servers import several_servers

from elbowroom.demo import Script, WaitFor
from elbowroom.server.state import SHARED
from elbowroom.status.users import ROLES as OFFERED
from elbowroom.store import ROLES

SECRET = "a-secret-of-open-webui-that-is-long-enough"
NAMED = {"X-Elbowroom-User": "anna"}
ENVIRON = {"ELBOWROOM_TOKEN": KEY}


def signed(secret: str = SECRET, seconds: float = 300, **claims: Any) -> dict[str, str]:
    """Return the header by which Open WebUI names a user who is signed."""
    now = int(time.time())
    told = {"sub": "anna", "iss": "open-webui", "iat": now, "exp": int(now + seconds), **claims}
    return {"X-OpenWebUI-User-Jwt": jwt.encode(told, secret, algorithm="HS256")}


async def users(served: Served) -> list[dict[str, Any]]:
    """Return who has a token."""
    rows: list[dict[str, Any]] = (await ask(served, "GET", "/api/users", **OWNER))[1]["data"]
    return rows


def files_with(word: str, folder: Path) -> list[Path]:
    """Return the files in a folder that hold a word."""
    return [file for file in folder.rglob("*") if file.is_file() and word.encode() in file.read_bytes()]


async def revoke(served: Served, name: str) -> None:
    """Revoke a person's token."""
    [row] = [row for row in await users(served) if row["name"] == name]
    assert (await ask(served, "DELETE", f"/api/users/{row['id']}", **OWNER))[0] == 204


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_what_each_may_ask_of_every_route(tmp_path: Path) -> None:
    """The page has what every route says to nobody, a member, another one, the owner and a revoked token."""
    found = await outcomes(tmp_path)
    page = DOCUMENT.read_text(encoding="utf-8")
    assert written(page, table(found)) == page, "scripts/people --write"
    own = [said for (_, path), said in found.items() if path.startswith(("/v1/conversations/", "/v1/responses/{"))]
    assert set(own) == {("401", "yes", "404", "404", "401")}


@pytest.mark.threat("people", "no header names another person than the token does")
@pytest.mark.parametrize(
    "named",
    [
        NAMED,
        {"X-OpenWebUI-User-Id": "anna"},
        signed(),
        {"X-OpenWebUI-User-Id": "anna", **signed("another-secret-that-is-long-enough")},
    ],
    ids=["ours", "open webui", "signed", "both"],
)
async def test_a_header_makes_nobody_another_person(tmp_path: Path, named: Mapping[str, str]) -> None:
    """What a member says is the member's, whoever is named in headers and body; so are lists and what is remembered."""
    async with server_of_people(tmp_path) as (served, _):
        anna, ben = await token_of(served, "anna"), await token_of(served, "ben")
        assert (await say(served, "I am Anna.", anna))[0] == 200
        assert (await say(served, "I am Ben.", {**ben, **named}, user="anna", safety_identifier="anna"))[0] == 200
        assert await heard(served, {**ben, **named}) == ["I am Ben."]
        assert await heard(served, anna) == ["I am Anna."]
        await served.app[SHARED].store.memories.save("anna", "writer", "Anna likes tea.", 1.0)
        for headers, kept in ((ben, 0), ({**ben, **named}, 0), (anna, 1)):
            assert len((await ask(served, "GET", "/api/memories", **headers))[1]["data"]) == kept
        status, found = await ask(served, "POST", "/api/recall/search_conversations", {"query": "Anna"}, **ben, **named)
        assert (status, "I am Anna" in found["text"]) == (200, False)


async def test_a_paired_program_is_its_person(tmp_path: Path) -> None:
    """It has what is of the owner who paired it and of nobody whom it names, and goes with that owner's token."""
    async with server_of_people(tmp_path) as (served, _):
        olga, anna = await token_of(served, "olga", "owner"), await token_of(served, "anna")
        await say(served, "I am Olga.", olga)
        await say(served, "I am Anna.", anna)
        paired = []
        for headers in (olga, OWNER):
            code = (await ask(served, "POST", "/api/pairing", {}, **headers))[1]["code"]
            made = (await ask(served, "POST", "/api/pairing/claim", {"code": code, "name": "Phone"}))[1]
            paired.append({"Authorization": f"Bearer {made['token']}"})
        assert [await heard(served, {**program, **NAMED}) for program in paired] == [["I am Olga."], []]
        assert (await ask(served, "GET", "/api/users", **paired[0]))[1]["error"]["code"] == "not_for_paired"
        await revoke(served, "olga")
        assert [(await ask(served, "GET", "/v1/models", **program))[0] for program in paired] == [401, 200]


async def test_a_gateway_speaks_for_those_whom_it_names(tmp_path: Path) -> None:
    """As the server's own token does; whom it does not name, it is itself. It sees no settings."""
    async with server_of_people(tmp_path) as (served, _):
        webui, anna = await token_of(served, "Open WebUI", "gateway"), await token_of(served, "anna")
        await say(served, "I am Anna.", anna)
        for named in (NAMED, {"X-OpenWebUI-User-Id": "anna"}, signed()):
            assert await heard(served, {**webui, **named}) == ["I am Anna."]
            assert await heard(served, {**OWNER, **named}) == ["I am Anna."]
        assert await heard(served, webui) == []
        assert (await ask(served, "GET", "/api/settings", **webui))[1]["error"]["code"] == "not_for_members"


@pytest.mark.threat("people", "with a secret a gateway names only users who are signed")
async def test_open_webui_proves_its_users(tmp_path: Path) -> None:
    """With its secret only its web token names a user: not the plain headers, and none with another signature."""
    async with server_of_people(tmp_path, f'open_webui_secret = "{SECRET}"') as (served, _):
        webui, anna = await token_of(served, "Open WebUI", "gateway"), await token_of(served, "anna")
        await say(served, "I am Anna.", anna)
        assert await heard(served, {**webui, **signed()}) == ["I am Anna."]
        for plain in (NAMED, {"X-OpenWebUI-User-Id": "anna"}):
            assert await heard(served, {**webui, **plain}) == []
        without_end = jwt.encode({"sub": "anna"}, SECRET, algorithm="HS256")
        unsigned = jwt.encode({"sub": "anna", "exp": 1 << 40}, "", algorithm="none")
        wrong = [signed("another-secret-that-is-long-enough"), signed(seconds=-60)]
        wrong += [{"X-OpenWebUI-User-Jwt": text} for text in (without_end, unsigned, "no token")]
        for headers in wrong:
            for who in (webui, OWNER):
                status, answer = await ask(served, "GET", "/v1/conversations", **who, **headers)
                assert (status, answer["error"]["code"]) == (401, "invalid_api_key"), headers
                assert (await say(served, "Hi", {**who, **headers}))[0] == 401
        assert await heard(served, {**anna, **wrong[0]}) == ["I am Anna."]


async def test_a_secret_that_is_not_there_is_no_secret(tmp_path: Path) -> None:
    """A variable that is not set stops the start, so that nobody is taken at his word by mistake."""
    path = tmp_path / "settings.toml"
    path.write_text('[server]\nopen_webui_secret = "env:NOT_SET"\n', encoding="utf-8")
    outcome = await asyncio.to_thread(run, tmp_path, "config", "check", "--config", str(path))
    assert outcome.returncode != 0
    assert "server.open_webui_secret = env:NOT_SET names a variable that is not set" in outcome.stderr


async def test_no_people_without_a_token_of_the_server(tmp_path: Path) -> None:
    """Where nobody is asked for a token there is nobody to tell apart: the answer says what to do first."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        status, answer = await ask(served, "POST", "/api/users", {"name": "anna"})
        assert (status, answer["error"]["code"]) == (409, "token_needed")
        assert (await ask(served, "GET", "/api/users"))[1] == {"data": []}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None),
        ({}, "name"),
        ({"name": " "}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 81}, "name"),
        ({"name": "🦫" * 10_000}, "name"),
        ({"name": "a\u202egpj"}, "name"),
        ({"name": "anna", "role": "paired"}, "role"),
        ({"name": "anna", "role": None}, "role"),
        ({"name": "anna", "role": []}, "role"),
    ],
)
async def test_a_person_has_a_name_and_a_role(tmp_path: Path, body: Any, param: str | None) -> None:
    """What is none is a 400 that names the field."""
    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON) as served:
        status, answer = await ask(served, "POST", "/api/users", body, **OWNER)
        assert (status, answer["error"]["param"]) == (400, param)


async def test_people_outlive_the_server(tmp_path: Path) -> None:
    """A token is shown once and kept as a hash; it counts after a restart, also before the database is open."""
    settings = settings_for(NOBODY)
    async with serve(tmp_path, settings, environ=ENVIRON) as served:
        anna = await token_of(served, "anna")
        assert (await ask(served, "POST", "/api/users", {"name": "anna"}, **OWNER))[1]["error"]["code"] == "has_token"
        [row] = await users(served)
        assert row.keys() == {"id", "name", "role", "created", "last_used"}
        assert (row["name"], row["role"], row["last_used"]) == ("anna", "member", None)
    token = anna["Authorization"].removeprefix("Bearer ")
    assert not files_with(token, tmp_path)
    async with serve(tmp_path, settings, environ=ENVIRON) as served:
        assert (await ask(served, "GET", "/api/live", **anna))[0] == 200
        await served.app[SHARED].store.tasks.finished()
        assert (await users(served))[0]["last_used"] is not None
        await revoke(served, "anna")
        assert (await ask(served, "GET", "/api/live", **anna))[0] == 401
        assert (await ask(served, "DELETE", f"/api/users/{row['id']}", **OWNER))[0] == 404
        again = await token_of(served, "anna", "owner")
        assert (await ask(served, "GET", "/api/settings", **again))[0] == 200


async def test_a_person_gets_another_role(tmp_path: Path) -> None:
    """It counts at once, with the same token; what an owner has paired goes, so that no member changes settings."""
    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON) as served:
        olga, ben = await token_of(served, "olga", "owner"), await token_of(served, "ben")
        code = (await ask(served, "POST", "/api/pairing", {}, **olga))[1]["code"]
        made = (await ask(served, "POST", "/api/pairing/claim", {"code": code, "name": "Phone"}))[1]
        phone = {"Authorization": f"Bearer {made['token']}"}
        assert [(await ask(served, "GET", "/api/settings", **who))[0] for who in (olga, ben, phone)] == [200, 403, 200]
        ids = {row["name"]: row["id"] for row in await users(served)}
        for name, role in (("ben", "owner"), ("olga", "member")):
            status, row = await ask(served, "PATCH", f"/api/users/{ids[name]}", {"role": role}, **olga)
            assert (status, row["name"], row["role"]) == (200, name, role)
        assert [(await ask(served, "GET", "/api/settings", **who))[0] for who in (olga, ben, phone)] == [403, 200, 401]
        assert (await ask(served, "GET", "/api/pairing", **OWNER))[1] == {"data": []}
        for body, status in (({}, 400), ({"role": "paired"}, 400), ({"role": "owner"}, 404)):
            path = f"/api/users/{ids['ben'] if status == 400 else made['id']}"
            assert (await ask(served, "PATCH", path, body, **ben))[0] == status
        acts = (await ask(served, "GET", "/api/acts", **OWNER))[1]["data"]
        assert [(act["by"], act["did"], act["what"], act["keys"]) for act in acts[:2]] == [
            ("olga", "changed", "member olga", ["role"]),
            ("olga", "changed", "owner ben", ["role"]),
        ]


async def test_a_new_token_ends_the_one_before(tmp_path: Path) -> None:
    """The old one is answered no more, also by a server that knows it; role and conversations stay."""
    async with server_of_people(tmp_path) as (served, _):
        anna, ben = await token_of(served, "anna"), await token_of(served, "ben")
        await say(served, "I am Anna.", anna)
        [row] = [row for row in await users(served) if row["name"] == "anna"]
        path = f"/api/users/{row['id']}/token"
        assert (await ask(served, "POST", path, {}, **ben))[1]["error"]["code"] == "not_for_members"
        status, made = await ask(served, "POST", path, {}, **OWNER)
        assert (status, made["name"], made["role"], made["last_used"]) == (201, "anna", "member", None)
        again = {"Authorization": f"Bearer {made['token']}"}
        assert (await ask(served, "GET", "/api/live", **anna))[0] == 401
        assert await heard(served, again) == ["I am Anna."]
        assert not files_with(made["token"], tmp_path)
        assert (await ask(served, "POST", "/api/users/nobody/token", {}, **OWNER))[0] == 404
        act = (await ask(served, "GET", "/api/acts", **OWNER))[1]["data"][0]
        assert (act["by"], act["did"], act["what"], act["keys"]) == (None, "changed", "member anna", ["token"])


async def test_owners_change_what_is_their_own(tmp_path: Path) -> None:
    """Who renews or revokes the token that the request came with gets the answer before it ends."""
    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON) as served:
        olga = await token_of(served, "olga", "owner")
        [row] = await users(served)
        status, made = await ask(served, "POST", f"/api/users/{row['id']}/token", {}, **olga)
        olga = {"Authorization": f"Bearer {made['token']}"}
        assert (status, (await ask(served, "DELETE", f"/api/users/{row['id']}", **olga))[0]) == (201, 204)
        assert (await ask(served, "GET", "/api/users", **olga))[0] == 401


async def test_a_revoked_person_is_answered_no_more(tmp_path: Path) -> None:
    """The connection is closed in the middle of an answer, and the model stopped."""
    async with server_of_people(tmp_path) as (served, studio):
        studio.enqueue(Script("Hello ", WaitFor(asyncio.Event()), "there."))
        anna = await token_of(served, "anna")
        asked = asyncio.create_task(say(served, "Hi", anna))
        await studio.wait_until(lambda: studio.open_requests == 1)
        await revoke(served, "anna")
        with pytest.raises(aiohttp.ClientError):
            await asked
        await studio.wait_until(lambda: studio.open_requests == 0)


async def test_as_many_chats_of_a_person_at_once_as_may(tmp_path: Path) -> None:
    """One more is a 429; tasks, other people and those whom nobody names are not counted."""
    async with server_of_people(tmp_path, "chats_at_once = 2") as (served, studio):
        goes_on = asyncio.Event()
        studio.enqueue(Script("Hello ", WaitFor(goes_on), "there."), repeat=True)
        anna, ben = await token_of(served, "anna"), await token_of(served, "ben")
        task = {**anna, "X-Elbowroom-Task": "title_generation"}
        callers = (anna, anna, ben, OWNER, OWNER, OWNER)
        asked = [asyncio.create_task(say(served, f"Hi {n}", headers)) for n, headers in enumerate(callers)]
        await studio.wait_until(lambda: studio.open_requests == len(callers))
        for stream in (True, False):
            body = {"model": "lmstudio/qwen2.5-7b-instruct", "messages": [{"role": "user", "content": "One more"}]}
            async with served.http.post(served.chat_url, json={**body, "stream": stream}, headers=anna) as response:
                assert (response.status, response.headers["Retry-After"]) == (429, "2")
                assert (await response.json())["error"]["code"] == "too_many_at_once"
        titled = asyncio.create_task(say(served, "A title", task))
        goes_on.set()
        assert [status for status, _ in await asyncio.gather(*asked, titled)] == [200] * 7
        assert (await say(served, "And now", anna))[0] == 200


MESSAGES = [{"role": "user", "content": "Hi"}]
SUMMARIZE = {"type": "summarize"}
ASKING: Mapping[str, Any] = {
    "/v1/completions": {"model": RAW_MODEL, "prompt": "Once", "max_tokens": 9},
    "/v1/embeddings": {"model": f"lmstudio/{EMBEDDER}", "input": "Once"},
    "/v1/messages": {"model": RAW_MODEL, "max_tokens": 9, "messages": MESSAGES},
    "/v1/messages#compacted": {"model": RAW_MODEL, "max_tokens": 9, "messages": MESSAGES, "compaction": SUMMARIZE},
    "/v1/responses": {"model": RAW_MODEL, "input": MESSAGES},
    "/v1/responses#compacted": {"model": RAW_MODEL, "input": [*MESSAGES, {"type": "compaction_trigger"}]},
    "/v1/responses/compact": {"model": RAW_MODEL, "input": MESSAGES},
    "/v1/conversations/chat/compact": {"model": RAW_MODEL, "messages": MESSAGES},
}
"""What each route that asks a model gets, some twice."""


async def test_every_route_that_asks_a_model_counts(tmp_path: Path) -> None:
    """While a person's chat is answered none of them asks one more, streamed or not; for other people each does."""
    async with server_of_people(tmp_path, "chats_at_once = 1") as (served, studio):
        goes_on, said = asyncio.Event(), {}
        studio.enqueue(Script("Hello ", WaitFor(goes_on), "there."))
        anna, ben = await token_of(served, "anna"), await token_of(served, "ben")
        asked = asyncio.create_task(say(served, "Hi", anna))
        await studio.wait_until(lambda: studio.open_requests == 1)
        for path, body in ASKING.items():
            for stream in (False, True):
                given = body if path.endswith(("compact", "embeddings")) else {**body, "stream": stream}
                url = served.url + path.partition("#")[0]
                async with served.http.post(url, json=given, headers=anna) as response:
                    said[path, stream] = response.status, "chats_at_once" in await response.text()
        status, _ = await ask(served, "POST", "/v1/completions", ASKING["/v1/completions"], **ben)
        goes_on.set()
        assert (status, (await asked)[0]) == (200, 200)
        assert said == {(path, stream): (429, True) for path in ASKING for stream in (False, True)}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
async def test_a_person_waits_for_what_is_passed_on(tmp_path: Path, path: str) -> None:
    """While a continuation or a vector is made, the person's next request is refused, and answered after that."""
    arrived, goes_on = asyncio.Event(), asyncio.Event()
    answered = says({"object": "list", "data": [], "choices": []})

    async def slow(request: web.Request) -> web.StreamResponse:
        arrived.set()
        await goes_on.wait()
        return await answered(request)

    async with fake_upstream({path: slow}) as upstream:
        settings = settings_for(f"{upstream.url}/v1", kind="openai", server="chats_at_once = 1")
        async with serve(tmp_path, settings, environ=ENVIRON) as served:
            anna, body = await token_of(served, "anna"), {"model": "openai/m", "prompt": "Once", "input": "Once"}
            first = asyncio.create_task(ask(served, "POST", path, body, **anna))
            await arrived.wait()
            for model in ("openai/m", "openai/other"):
                status, answer = await ask(served, "POST", path, {**body, "model": model}, **anna)
                assert (status, answer["error"]["code"]) == (429, "too_many_at_once")
            goes_on.set()
            assert (await first)[0] == (await ask(served, "POST", path, body, **anna))[0] == 200


async def test_who_changed_what_is_kept(tmp_path: Path) -> None:
    """Settings by their keys, agents, people and pairing, with who did it, and no value; also after a restart."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER), environ=ENVIRON) as served:
        olga = await token_of(served, "olga", "owner")
        patch = {"compaction": {"auto": False, "threshold_ratio": 0.7}, "server": {"allowed_hosts": ["nas.local"]}}
        assert (await ask(served, "PATCH", "/api/settings", patch, **olga))[0] == 200
        assert (await ask(served, "PATCH", "/api/settings", {"compaction": {"auto": 5}}, **olga))[0] == 422
        await ask(served, "POST", "/api/agents", {"id": "reader", "model": "small"}, **OWNER)
        await ask(served, "PATCH", "/api/agents/reader", {"instructions": "Be brief."}, **olga)
        await ask(served, "DELETE", "/api/agents/reader", **olga)
        code = (await ask(served, "POST", "/api/pairing", {}, **olga))[1]["code"]
        await ask(served, "POST", "/api/pairing/claim", {"code": code, "name": "Phone"})
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER), environ=ENVIRON) as served:
        await revoke(served, "olga")
        rows = (await ask(served, "GET", "/api/acts", **OWNER))[1]["data"]
        assert [(row["by"], row["did"], row["what"], row["keys"]) for row in rows] == [
            (None, "removed", "owner olga", []),
            ("olga", "added", "paired Phone", []),
            ("olga", "removed", "agent reader", []),
            ("olga", "changed", "agent reader", ["instructions"]),
            (None, "added", "agent reader", []),
            ("olga", "changed", "settings", ["compaction.auto", "compaction.threshold_ratio", "server.allowed_hosts"]),
            (None, "added", "owner olga", []),
        ]
        assert "nas.local" not in json.dumps(rows)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
async def test_users_from_a_terminal(tmp_path: Path, *, runs: bool) -> None:
    """A token is made, listed and revoked by the command, whether the server runs or not."""
    path, environ = tmp_path / "settings.toml", {**ENVIRON, "ELBOWROOM_DATA_DIR": str(tmp_path)}

    async def command(*arguments: str, port: int = 1, **more: str) -> Any:
        given = ("users", *arguments, "--config", str(path), "--port", str(port))
        return await asyncio.to_thread(run, tmp_path, *given, **{**environ, **more})

    async def all_commands(port: int) -> str:
        made = await command("add", "anna", "--role", "gateway", port=port)
        assert made.returncode == 0, made.stderr
        assert (await command("add", "anna", port=port)).returncode == 1
        assert (await command("add", "ben", port=port)).returncode == 0
        assert (await command("revoke", "ben", port=port)).stdout == "Revoked.\n"
        assert "'ben' has no token" in (await command("revoke", "ben", port=port)).stderr
        assert (await command("list", port=port)).stdout == "anna  gateway  never used\n"
        [row] = [json.loads(line) for line in (await command("list", "--json", port=port)).stdout.splitlines()]
        assert (row["name"], row["role"]) == ("anna", "gateway")
        token: str = made.stdout.strip()
        return token

    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON) as served:
        token = await all_commands(served.port) if runs else ""
    if not runs:
        refused = await command("add", "anna", ELBOWROOM_TOKEN="")
        assert "Set server.token first" in refused.stderr
        token = await all_commands(1)
    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON) as served:
        assert (await ask(served, "GET", "/api/live", Authorization=f"Bearer {token}"))[0] == 200
        assert len((await ask(served, "GET", "/api/acts", **OWNER))[1]["data"]) == 3


def test_the_command_offers_every_role() -> None:
    """The command names the roles without loading the store, which has the same."""
    assert set(OFFERED) == set(ROLES)


async def test_a_token_of_odd_bytes_is_nobodys(tmp_path: Path) -> None:
    """It is looked up like any other, and is a 401."""
    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON) as served:
        request = request_bytes(
            "GET /v1/models HTTP/1.1", f"Host: 127.0.0.1:{served.port}", "Authorization: Bearer elbp_\xff\xfe"
        )
        assert (await ask_raw(served.port, request)).status == 401


async def test_people_of_several_servers(tmp_path: Path) -> None:
    """Made at one, known at all; revoked at one, no other one goes on with an answer or begins one."""
    async with several_servers(tmp_path, environ=ENVIRON) as ((one, other), studio):
        anna = await token_of(one, "anna")
        studio.enqueue(Script("Hello ", WaitFor(asyncio.Event()), "there."))
        assert (await ask(other, "GET", "/api/live", **anna))[0] == 200
        asked = asyncio.create_task(say(other, "Hi", anna, model="writer"))
        await studio.wait_until(lambda: studio.open_requests == 1)
        assert [row["name"] for row in await users(other)] == ["anna"]
        await revoke(one, "anna")
        with pytest.raises(aiohttp.ClientError):
            await asked
        for served in (one, other):
            assert (await ask(served, "GET", "/api/settings", **anna))[0] == 401
