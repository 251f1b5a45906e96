"""Pairing over HTTP: who makes a code, who may use it, and what a token opens that a program gets for it."""

import asyncio
import logging
import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import RAW_MODEL, elbowroom_with_studio
from raw_http import ask as ask_raw
from raw_http import request_bytes
from serving import Served, serve, settings_for
from settings_calls import NOBODY, WRITER, ask, in_file

from elbowroom.connect.pairing import ask_for_code
from elbowroom.demo import Script, WaitFor
from elbowroom.errors import ElbowroomError

OBSIDIAN = "app://obsidian.md"
PHONE = "capacitor://localhost"
FOREIGN = "https://notes.example"
KEY = "right-token"
ENVIRON = {"ELBOWROOM_TOKEN": KEY}


async def new_code(served: Served, **headers: str) -> str:
    """Make a code as a program on the machine does."""
    status, made = await ask(served, "POST", "/api/pairing", {}, **headers)
    assert status == 201, made
    code: str = made["code"]
    return code


async def claim(served: Served, code: str, origin: str = OBSIDIAN, name: str = "Phone") -> tuple[int, Any]:
    """Send a code as the plugin does."""
    return await ask(served, "POST", "/api/pairing/claim", {"code": code, "name": name}, Origin=origin)


async def paired(served: Served, **headers: str) -> str:
    """Pair a program and return its token."""
    status, got = await claim(served, await new_code(served, **headers))
    assert status == 201, got
    token: str = got["token"]
    return token


def as_plugin(token: str, origin: str = OBSIDIAN) -> dict[str, str]:
    """Return the headers of a paired plugin."""
    return {"Origin": origin, "Authorization": f"Bearer {token}"}


def files_below(folder: Path) -> list[Path]:
    """Return everything in a folder and its folders."""
    return list(folder.rglob("*"))


def error_of(answer: tuple[int, Any]) -> tuple[int, str | None]:
    """Return the status and the code of an error."""
    return answer[0], answer[1]["error"]["code"]


@pytest.mark.parametrize("origin", [OBSIDIAN, PHONE, "http://localhost"])
async def test_a_plugin_is_paired(tmp_path: Path, origin: str) -> None:
    """A code of the machine and Obsidian's origin make a token, which is listed without what it is."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        status, got = await claim(served, await new_code(served), origin, "Anna's phone")
        assert status == 201
        assert got["token"].startswith("elbp_")
        assert got["name"] == "Anna's phone"
        for path in ("/api/settings", "/api/agents", "/api/providers"):
            assert (await ask(served, "GET", path, **as_plugin(got["token"], origin)))[0] == 200
        status, listed = await ask(served, "GET", "/api/pairing")
        [device] = listed["data"]
        assert device.keys() == {"id", "name", "created", "last_used"}
        assert device["id"] == got["id"]
        assert device["last_used"] >= device["created"]


async def test_a_terminal_asks_for_a_code(tmp_path: Path) -> None:
    """With the server's token where one is set; else it says what to do."""
    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON) as served:
        code, expires = await asyncio.to_thread(ask_for_code, served.url, KEY)
        assert 0 <= time.time() + 600 - expires < 60
        assert (await claim(served, code.lower()))[0] == 201
        with pytest.raises(ElbowroomError, match="asks for its token"):
            await asyncio.to_thread(ask_for_code, served.url, "wrong")
    with pytest.raises(ElbowroomError, match=r"No elbowroom answers at .*only a running one makes codes\. Start it"):
        await asyncio.to_thread(ask_for_code, NOBODY, "")


async def test_a_program_without_an_origin_can_be_paired(tmp_path: Path) -> None:
    """Obsidian's `requestUrl` names no origin."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        body = {"code": await new_code(served)}
        status, got = await ask(served, "POST", "/api/pairing/claim", body)
        assert (status, got["name"]) == (201, "Obsidian")


@pytest.mark.threat("pairing", "only elbowroom's own page and programs make codes, list what is paired and revoke it")
@pytest.mark.parametrize("origin", [OBSIDIAN, PHONE, "http://localhost:3000", FOREIGN, "null", "https://evil.example"])
async def test_a_page_cannot_pair_itself(tmp_path: Path, origin: str) -> None:
    """No other page makes a code, sees or revokes what is paired, be it in `allowed_origins` or have a paired token."""
    async with serve(tmp_path, settings_for(NOBODY, server='allowed_origins = ["https://notes.example"]')) as served:
        token = await paired(served)
        for headers in ({"Origin": origin}, as_plugin(token, origin), {"Authorization": f"Bearer {token}"}):
            for method, path in (("POST", ""), ("GET", ""), ("DELETE", "/x")):
                body: Any = {} if method == "POST" else None
                assert (await ask(served, method, f"/api/pairing{path}", body, **headers))[0] == 403


@pytest.mark.threat("pairing", "a page that only the settings let in can use no code, nor a stolen token for settings")
@pytest.mark.parametrize("allowed", [FOREIGN, "*"])
async def test_a_foreign_page_cannot_use_a_code(tmp_path: Path, allowed: str) -> None:
    """Neither the code nor the token of another program helps a page of `allowed_origins`, `*` included."""
    async with serve(tmp_path, settings_for(NOBODY, server=f'allowed_origins = ["{allowed}"]')) as served:
        code = await new_code(served)
        assert (await claim(served, code, FOREIGN))[0] == 403
        status, got = await claim(served, code)
        assert status == 201
        for path in ("/api/settings", "/api/agents", "/api/providers", "/api/doctor"):
            assert (await ask(served, "GET", path, **as_plugin(got["token"], FOREIGN)))[0] == 403
        change = {"compaction": {"auto": False}}
        assert (await ask(served, "PATCH", "/api/settings", change, **as_plugin(got["token"], FOREIGN)))[0] == 403


@pytest.mark.threat("pairing", "a code ends at five wrong tries, and is used once")
async def test_codes_cannot_be_guessed(tmp_path: Path) -> None:
    """A flood of wrong codes ends the right one; a new code is valid again, once."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        code = await new_code(served)
        answers = await asyncio.gather(*(claim(served, f"AAAA-{number:04}") for number in range(30)))
        assert sorted(map(error_of, answers)) == [(403, "wrong_code")] * 4 + [(429, "too_many_tries")] * 26
        assert error_of(await claim(served, code)) == (429, "too_many_tries")
        code = await new_code(served)
        assert (await claim(served, code))[0] == 201
        assert error_of(await claim(served, code)) == (410, "code_expired")
        assert len((await ask(served, "GET", "/api/pairing"))[1]["data"]) == 1


async def test_of_two_claims_at_once_one_wins(tmp_path: Path) -> None:
    """The code is used up before the token is written down."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        code = await new_code(served)
        answers = await asyncio.gather(*(claim(served, code, name=str(number)) for number in range(10)))
        assert sorted(status for status, _ in answers) == [201] + [410] * 9
        assert len((await ask(served, "GET", "/api/pairing"))[1]["data"]) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None),
        ({}, "code"),
        ({"code": 5}, "code"),
        ({"code": " "}, "code"),
        ({"code": "A" * 1000}, "code"),
        ({"code": "ABCD-2345", "name": ""}, "name"),
        ({"code": "ABCD-2345", "name": "\u200d\u200b\n"}, "name"),
        ({"code": "ABCD-2345", "name": None}, "name"),
    ],
)
async def test_a_claim_has_a_form(tmp_path: Path, body: Any, param: str | None) -> None:
    """What is no code or no name is a 400 in words, and no try."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        code = await new_code(served)
        for _ in range(6):
            status, answer = await ask(served, "POST", "/api/pairing/claim", body, Origin=OBSIDIAN)
            assert (status, answer["error"]["param"]) == (400, param)
        assert (await claim(served, code))[0] == 201


@pytest.mark.parametrize(
    ("vault", "shown"),
    [
        ("Notes", "Notes"),
        ("Wissen \U0001f469\u200d\U0001f4bb\ufe0f", "Wissen \U0001f469\u200d\U0001f4bb\ufe0f"),
        ("\u65e5\u8a18\u3000\u4ed5\u4e8b", "\u65e5\u8a18 \u4ed5\u4e8b"),
        ("N\u00a0o\u2009te\u00ads", "N o tes"),
        ("a\nb\u202ec", "a bc"),
        ("x" * 70, f"{'x' * 70} (Obsidia\u2026"),
        ("\u6f22" * 255, "\u6f22" * 79 + "\u2026"),
    ],
)
async def test_a_vault_of_any_name_is_paired(tmp_path: Path, vault: str, shown: str) -> None:
    """Emoji, spaces of other scripts and long names are one short line in the list, which nothing can turn around."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        status, got = await claim(served, await new_code(served), name=f"{vault} (Obsidian on Linux)")
        assert status == 201
        assert got["name"].removesuffix(" (Obsidian on Linux)") == shown


async def test_a_paired_token_stands_for_the_servers(tmp_path: Path) -> None:
    """Where a token is set, the code alone pairs, and the token that comes of it opens what the server's own does."""
    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON) as served:
        assert (await ask(served, "POST", "/api/pairing", {}))[0] == 401
        token = await paired(served, Authorization=f"Bearer {KEY}")
        for headers in (as_plugin(token), {"Authorization": f"Bearer {token}"}, {"X-Api-Key": token}):
            assert (await ask(served, "GET", "/v1/models", **headers))[0] == 200
            assert (await ask(served, "GET", "/api/settings", **headers))[0] == 200
        assert (await ask(served, "GET", "/v1/models", **as_plugin(token + "x")))[0] == 401
        assert (await ask(served, "GET", "/api/pairing/claim"))[0] == 401
        status, answer = await ask(served, "GET", "/api/settings", **as_plugin(KEY))
        assert (status, answer["error"]["code"]) == (403, "pairing_needed")


@pytest.mark.threat("pairing", "a revoked token opens nothing")
@pytest.mark.parametrize("has_token", [True, False])
async def test_a_revoked_token_opens_nothing(tmp_path: Path, *, has_token: bool) -> None:
    """It is a 401 that says how to pair anew; without a server's token chats go on, as with any key."""
    own = {"Authorization": f"Bearer {KEY}"}
    async with serve(tmp_path, settings_for(NOBODY), environ=ENVIRON if has_token else {}) as served:
        token = await paired(served, **own)
        [device] = (await ask(served, "GET", "/api/pairing", **own))[1]["data"]
        assert (await ask(served, "DELETE", f"/api/pairing/{device['id']}", **own))[0] == 204
        assert (await ask(served, "DELETE", f"/api/pairing/{device['id']}", **own))[0] == 404
        for headers in (as_plugin(token), {"Authorization": f"Bearer {token}"}):
            for path in ("/api/settings", "/api/agents", "/api/doctor", "/api/pairing", "/api/logs"):
                status, answer = await ask(served, "GET", path, **headers)
                assert status == 401
                assert "is not paired with elbowroom, or not any more. Make a code" in answer["error"]["message"]
            assert (await ask(served, "GET", "/v1/models", **headers))[0] == (401 if has_token else 200)


async def test_a_paired_program_has_its_conversations(tmp_path: Path) -> None:
    """Also where another program names its users, so that without a name nobody else is known; theirs stay theirs."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        plugin = as_plugin(await paired(served))
        body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Hello"}]}
        for headers in ({"X-OpenWebUI-User-Id": "adam"}, plugin):
            assert (await ask(served, "POST", "/v1/chat/completions", body, **headers))[0] == 200
        assert (await ask(served, "GET", "/v1/conversations", Origin=OBSIDIAN))[0] == 403
        status, listed = await ask(served, "GET", "/v1/conversations", **plugin)
        assert (status, len(listed["data"])) == (200, 1)
        search, wanted = "/api/recall/search_conversations", {"query": "Hello"}
        assert (await ask(served, "POST", search, wanted, Origin=OBSIDIAN))[0] == 403
        status, found = await ask(served, "POST", search, wanted, **plugin)
        assert (status, found["text"].count("[conversation ")) == (200, 1), found
        assert "Hello" in found["text"]


async def test_a_restart_knows_what_is_paired(tmp_path: Path) -> None:
    """The token is valid after it, the code is not."""
    settings = settings_for(NOBODY)
    async with serve(tmp_path, settings, environ=ENVIRON) as served:
        token = await paired(served, Authorization=f"Bearer {KEY}")
        code = await new_code(served, Authorization=f"Bearer {KEY}")
    async with serve(tmp_path, settings, environ=ENVIRON) as served:
        assert (await ask(served, "GET", "/api/settings", **as_plugin(token)))[0] == 200
        assert error_of(await claim(served, code)) == (410, "code_expired")


async def test_without_a_token_it_says_how_to_pair(tmp_path: Path) -> None:
    """Obsidian's origin alone opens no settings, and learns where the code is, in a form that its page can read."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        for method, path in (
            ("GET", "/api/settings"),
            ("PATCH", "/api/settings"),
            ("GET", "/api/agents"),
            ("PATCH", "/api/agents/writer"),
            ("GET", "/api/providers"),
            ("GET", "/api/doctor"),
        ):
            for origin in (OBSIDIAN, PHONE, "http://localhost:3000"):
                body: Any = {} if method == "PATCH" else None
                status, answer = await ask(served, method, path, body, Origin=origin)
                assert (status, answer["error"]["code"]) == (403, "pairing_needed")
                assert "`elbowroom obsidian pair`" in answer["error"]["message"]


async def test_a_paired_program_changes_compaction(tmp_path: Path) -> None:
    """All keys of `[compaction]`, and how an agent's tool results are pruned."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        plugin = as_plugin(await paired(served))
        patch = {"compaction": {"pruning_agent": "writer", "threshold_ratio": 0.7, "notices": "event"}}
        status, answer = await ask(served, "PATCH", "/api/settings", patch, **plugin)
        assert (status, answer["values"]["compaction"]["pruning_agent"]) == (200, "writer")
        patch = {"tool_output": {"clear_after_turns": 4}}
        status, answer = await ask(served, "PATCH", "/api/agents/writer", patch, **plugin)
        assert (status, answer["tool_output"]["clear_after_turns"]) == (200, 4)
        assert in_file(served)["compaction"]["threshold_ratio"] == 0.7


@pytest.mark.threat("pairing", "what is paired changes compactions and nothing else of the settings")
@pytest.mark.parametrize("origin", [OBSIDIAN, None])
async def test_a_paired_program_changes_nothing_else(tmp_path: Path, origin: str | None) -> None:
    """No program to start, address, token, agent or tool, not beside a change that it may make either."""
    patches: list[dict[str, Any]] = [
        {"mcp_servers": {"m": {"command": ["m"]}}},
        {"providers": {"lmstudio": {"base_url": "http://evil.example"}}},
        {"server": {"token": None}},
        {"agents": {"writer": None}},
        {"agents": [{"id": "new", "model": "m"}]},
        {"tool_output": {"enabled": False}},
        {"vault": {"write": True}},
        {"memory": {"enabled": True}},
        {"store": None},
        {"odd": 1},
    ]
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        before = served.settings.read_text(encoding="utf-8")
        plugin = as_plugin(await paired(served))
        headers = {name: value for name, value in plugin.items() if name != "Origin" or origin}
        for patch in patches:
            for asked in (patch, {"compaction": {"auto": False}, **patch}):
                status, answer = await ask(served, "PATCH", "/api/settings", asked, **headers)
                assert (status, answer["error"]["code"]) == (403, "not_for_paired")
                assert repr(next(iter(patch))) in answer["error"]["message"]
        for patch in ({"mcp": ["m"]}, {"id": "x", "tool_output": {}}, {"instructions": "x"}, {"provider": "x"}):
            answer = await ask(served, "PATCH", "/api/agents/writer", patch, **headers)
            assert error_of(answer) == (403, "not_for_paired")
        for method, path in (
            ("POST", "/api/agents"),
            ("DELETE", "/api/agents/writer"),
            ("GET", "/api/agents/writer/toml"),
            ("GET", "/api/tools"),
            ("GET", "/api/logs"),
            ("GET", "/api/memories"),
            ("POST", "/api/quality"),
        ):
            body = {"id": "new", "model": "m"} if method == "POST" else None
            assert (await ask(served, method, path, body, **headers))[0] == 403
        assert served.settings.read_text(encoding="utf-8") == before


@pytest.mark.threat("DNS rebinding", "no code is given or taken under another Host")
async def test_another_host_pairs_nothing(tmp_path: Path) -> None:
    """A page that rebinds its name can neither make a code, nor try one, nor use a token."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        token, code = await paired(served), await new_code(served)
        body = f'{{"code": "{code}"}}'.encode()
        json = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        for line in ("POST /api/pairing HTTP/1.1", "POST /api/pairing/claim HTTP/1.1", "GET /api/settings HTTP/1.1"):
            for headers in (["Host: evil.example"], ["Host: evil.example", f"Origin: {OBSIDIAN}"]):
                auth = f"Authorization: Bearer {token}"
                sent = request_bytes(line, *headers, auth, *(json if "POST" in line else []))
                assert (await ask_raw(served.port, sent + (body if "POST" in line else b""))).status == 403
        assert (await claim(served, code))[0] == 201


@pytest.mark.threat("secrets in logs", "nor a code or token of a pairing")
async def test_codes_and_tokens_stay_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the log, the list, refusals nor any file holds a code or a token."""
    caplog.set_level(logging.DEBUG, "elbowroom")
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        first, code = await new_code(served), await new_code(served)
        heard = [await claim(served, first)]
        status, got = await claim(served, code)
        assert status == 201
        heard += [await claim(served, code)]
        heard += [await ask(served, "GET", path, **as_plugin(got["token"])) for path in ("/api/settings", "/api/logs")]
        heard += [await ask(served, "GET", "/api/pairing")]
    files = b"".join(map(Path.read_bytes, filter(Path.is_file, files_below(tmp_path))))
    for secret in (first, code, got["token"], got["token"].removeprefix("elbp_")):
        assert secret not in f"{heard} {caplog.text}"
        assert secret.encode() not in files


async def test_the_preflight_lets_the_plugin_send(tmp_path: Path) -> None:
    """Its origin may send the methods and headers that it needs, and read those of the answer."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        for method in ("DELETE", "PATCH", "PUT"):
            asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "authorization,x-y"}
            async with served.http.options(f"{served.url}/api/settings", headers={"Origin": PHONE, **asked}) as answer:
                assert answer.status == 204
                assert method in answer.headers["Access-Control-Allow-Methods"]
                assert answer.headers["Access-Control-Allow-Headers"] == "authorization,x-y"
                exposed = answer.headers["Access-Control-Expose-Headers"]
                assert {"X-Conversation-Id", "X-Request-Id", "Retry-After"} <= set(exposed.split(", "))


FOR_PAIRED = {
    *(("GET", f"/api/{name}") for name in ("agents", "doctor", "hello", "live", "providers", "settings")),
    *(("GET", f"/api/{name}") for name in ("v1/models", "v1/models/download/status/x", "vault/changes")),
    *(("POST", f"/api/v1/models/{name}") for name in ("download", "load", "unload")),
    ("POST", "/api/recall/x"),
    ("PATCH", "/api/agents/x"),
    ("PATCH", "/api/settings"),
    ("POST", "/api/pairing/claim"),
    ("POST", "/api/vault/changes/x/undo"),
}
"""All that a paired program may ask for under `/api`; most of it anybody may who may chat."""


@pytest.mark.threat("pairing", "a token that pairing gave opens what is listed and no other route, also no new one")
@pytest.mark.parametrize("environ", [{}, ENVIRON])
async def test_a_paired_program_reaches_no_other_route(tmp_path: Path, environ: dict[str, str]) -> None:
    """Of all routes under `/api` a token of pairing opens those that are listed, with and without a server's token."""
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER), environ=environ) as served:
        token, opened = await paired(served, **({"Authorization": f"Bearer {KEY}"} if environ else {})), set()
        for route in served.app.router.routes():
            path = re.sub(r"\{[^}]*\}", "x", route.resource.canonical if route.resource else "")
            if not path.startswith("/api/") or route.method == "HEAD":
                continue
            body: Any = {} if route.method in ("POST", "PUT", "PATCH") else None
            status, answer = await ask(served, route.method, path, body, **as_plugin(token))
            if status == 403:
                assert answer["error"]["code"] == "not_for_paired", (route.method, path)
            else:
                opened.add((route.method, path))
        assert opened == FOR_PAIRED


@pytest.mark.threat("pairing", "what a program is being answered ends when its token is revoked")
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_revoked_token_ends_what_runs(tmp_path: Path, *, stream: bool) -> None:
    """The connection is closed and the model stopped, in the middle of an answer; another program's goes on."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        goes_on = asyncio.Event()
        studio.enqueue(Script("Hello ", WaitFor(goes_on), "there."), repeat=True)
        revoked, other = await paired(served), await paired(served)
        listed = (await ask(served, "GET", "/api/pairing"))[1]["data"]
        body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}

        async def answer(token: str) -> bytes:
            async with served.http.post(served.chat_url, json=body, headers=as_plugin(token)) as response:
                return await response.read()

        asked, beside = asyncio.create_task(answer(revoked)), asyncio.create_task(answer(other))
        await studio.wait_until(lambda: studio.open_requests == 2)
        assert (await ask(served, "DELETE", f"/api/pairing/{listed[-1]['id']}"))[0] == 204
        with pytest.raises(aiohttp.ClientError):
            await asked
        await studio.wait_until(lambda: studio.open_requests == 1)
        goes_on.set()
        assert b'"stop"' in await beside
