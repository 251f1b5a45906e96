"""Secrets go into the settings and never come out, and who may not change settings does not."""

import asyncio
import json
import logging
import os
import stat
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fake_upstream import fake_upstream, says
from raw_http import ask as ask_raw
from raw_http import request_bytes
from serving import serve, settings_for
from settings_calls import NOBODY, WRITER, ask, change, in_file, values

TOKEN, NEXT, KEY, VARIABLE, HEADER = (f"canary-{name}-7f3a" for name in ("token", "next", "key", "variable", "header"))
CANARIES = (TOKEN, NEXT, KEY, VARIABLE, HEADER)


async def test_secrets_are_never_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither answers, refusals, the log nor the settings file and its backup hold a secret that was given."""
    caplog.set_level(logging.DEBUG, "elbowroom")
    heard: list[Any] = []
    patches: list[dict[str, Any]] = [
        {"server": {"token": TOKEN}},
        {"providers": {"lmstudio": {"api_key": KEY}}},
        {"mcp_servers": {"m": {"command": ["m"], "env": {"API_KEY": VARIABLE}, "headers": {"Authorization": HEADER}}}},
        {"server": {"token": NEXT}},
        {"server": {"token": NEXT, "port": "x"}},
        {"server": {"token": f"{NEXT}\nx"}},
        {"server": {"token": [NEXT]}},
        {"server": {"token": {"set": True, "from": NEXT, "x": NEXT}}},
        {"server": {"token": NEXT, "tokn": NEXT}},
        {"providers": {"lmstudio": {"api_key": {"a": KEY}}}},
        {"providers": [{"id": "p", "kind": "openai", "api_key": KEY}]},
        {"mcp_servers": {"m": {"env": [VARIABLE]}}},
        {"mcp_servers": {"m": {"env": {"X": {"y": VARIABLE}}}}},
        {"mcp_servers": {"m": {"env": VARIABLE, "headers": HEADER}}},
        {"mcp_servers": {"m": {"url": f"http://u:{HEADER}@h/?k={HEADER}", "command": None}}},
        {"providers": {"lmstudio": {"base_url": f"http://u:{KEY}@h/?k={KEY}"}}},
    ]
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER)) as served:
        statuses = []
        for patch in patches:
            status, answer = await change(served, patch)
            statuses.append(status)
            if status == 200 and "server" in patch:
                served.http.headers["Authorization"] = f"Bearer {patch['server']['token']}"
            heard += [
                answer,
                (await ask(served, "GET", "/api/settings"))[1],
                (await ask(served, "GET", "/api/providers")),
            ]
    assert statuses == [200] * 4 + [422] * 12
    written = "".join(served.settings.with_name(name).read_text() for name in ("settings.toml", "settings.toml.bak"))
    told = json.dumps(heard) + written + caplog.text + "".join(capfd.readouterr())
    assert [canary for canary in CANARIES if canary in told] == []
    kept = {file.read_text().strip() for file in (tmp_path / "secrets").iterdir()}
    assert kept == set(CANARIES)


async def test_the_page_goes_on_with_a_new_token(tmp_path: Path) -> None:
    """The change of the token is answered; from then on the new one counts, and a removed one is asked for no more."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        status, answer = await change(served, {"server": {"token": TOKEN}})
        assert status == 200
        shown = answer["values"]["server"]["token"]
        assert shown == {"set": True, "from": in_file(served)["server"]["token"]}
        assert (await ask(served, "GET", "/api/settings"))[0] == 401
        status, _ = await ask(
            served, "PATCH", "/api/settings", {"server": {"token": NEXT}}, Authorization=f"Bearer {TOKEN}"
        )
        assert status == 200
        assert (await ask(served, "GET", "/api/settings", Authorization=f"Bearer {TOKEN}"))[0] == 401
        served.http.headers["Authorization"] = f"Bearer {NEXT}"
        status, _ = await change(served, {"server": {"token": None}})
        assert status == 200
        del served.http.headers["Authorization"]
        assert (await values(served))["server"]["token"] == {"set": False, "from": "env:ELBOWROOM_TOKEN"}


@pytest.mark.threat("secrets at rest", "secrets in files of their own")
@pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")
async def test_secrets_are_the_owners(tmp_path: Path) -> None:
    """The files are for the owner alone; one that neither the settings nor their backup names is deleted."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        for key in (KEY, NEXT, VARIABLE):
            await change(served, {"providers": {"lmstudio": {"api_key": key}}})
        files = list((tmp_path / "secrets").iterdir())
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
        assert {file.read_text() for file in files} == {f"{NEXT}\n", f"{VARIABLE}\n"}
        own = tmp_path / "secrets" / "mine"
        own.write_text("x", encoding="utf-8")
        await change(served, {"providers": {"lmstudio": {"api_key": "file:secrets/mine"}}})
        for port in (None, "env:KEY", None):
            await change(served, {"providers": {"lmstudio": {"api_key": port}}})
        assert list((tmp_path / "secrets").iterdir()) == [own]


async def test_a_new_key_is_sent_with_the_next_request(tmp_path: Path) -> None:
    """A provider is asked with its new key at once, also where it had one before."""
    answer = says({"data": [{"id": "m"}]})
    async with fake_upstream({"/v1/models": answer}) as upstream:
        async with serve(tmp_path, settings_for(f"{upstream.url}/v1", kind="openai")) as served:
            for key in (KEY, NEXT):
                await change(served, {"providers": {"openai": {"api_key": key}}})
                _, listed = await ask(served, "GET", "/api/providers")
                assert listed["data"][0]["reachable"] is True
                assert upstream.asked_at("/v1/models")[-1].headers["Authorization"] == f"Bearer {key}"


ROUTES = [
    ("GET", "/api/settings"),
    ("PATCH", "/api/settings"),
    ("GET", "/api/agents"),
    ("POST", "/api/agents"),
    ("PATCH", "/api/agents/writer"),
    ("DELETE", "/api/agents/writer"),
    ("GET", "/api/providers"),
    ("GET", "/api/tools"),
    ("GET", "/api/logs"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_is_behind_the_gates(tmp_path: Path, method: str, path: str) -> None:
    """Another host name, another web page, no token and no JSON are refused; nothing has changed then."""
    server = f'token = "{TOKEN}"\nallowed_origins = ["*", "https://chat.example"]'
    async with serve(tmp_path, settings_for(NOBODY, agents=WRITER, server=server)) as served:
        before = served.settings.read_text(encoding="utf-8")
        own, key = f"127.0.0.1:{served.port}", f"Authorization: Bearer {TOKEN}"
        has_body = method in ("PATCH", "POST")
        json_type, evil = "Content-Type: application/json", "Origin: https://chat.example"

        async def status_of(*headers: str) -> int:
            length = ["Content-Length: 1"] if has_body else []
            request = request_bytes(f"{method} {path} HTTP/1.1", *headers, *length, body=b"{" if has_body else b"")
            return (await ask_raw(served.port, request)).status

        assert await status_of("Host: evil.example", key, json_type) == 403
        assert await status_of(f"Host: {own}", evil, key, json_type) == 403
        for odd in ("null", "http://[", "http://"):
            assert await status_of(f"Host: {own}", f"Origin: {odd}", key, json_type) == 403
        assert await status_of(f"Host: {own}", json_type) == 401
        if has_body:
            assert await status_of(f"Host: {own}", key, "Content-Type: text/plain") == 415
            assert await status_of(f"Host: {own}", key, json_type) == 400
        assert served.settings.read_text(encoding="utf-8") == before
        origin = {"Origin": f"http://{own}", "Authorization": f"Bearer {TOKEN}"}
        status, _ = await ask(served, method, path, {} if has_body else None, **origin)
        assert status in (200, 204, 422)


async def test_the_own_page_behind_a_proxy(tmp_path: Path) -> None:
    """A browser that says itself that the page is elbowroom's own is believed, under whatever name it is reached."""
    async with serve(tmp_path, settings_for(NOBODY, server='allowed_origins = ["https://nas.example"]')) as served:
        named = {"Origin": "https://nas.example"}
        assert (await ask(served, "GET", "/api/settings", **named))[0] == 403
        assert (await ask(served, "GET", "/api/settings", Sec_Fetch_Site="same-origin", **named))[0] == 200


@pytest.mark.parametrize("body", [b"5", b"[]", b'"x"', b"null"])
async def test_a_body_that_is_no_object(tmp_path: Path, body: bytes) -> None:
    """Only an object can be a change."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        kind = {"Content-Type": "application/json"}
        async with served.http.patch(f"{served.url}/api/settings", data=body, headers=kind) as response:
            assert response.status == 400


async def test_a_body_that_is_too_large(tmp_path: Path) -> None:
    """A change may have a megabyte."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        kind = {"Content-Type": "application/json"}
        async with served.http.patch(
            f"{served.url}/api/settings", data=BytesIO(b" " * 1_100_000), headers=kind
        ) as response:
            assert response.status == 413
            assert "larger than the 1 MiB" in (await response.json())["error"]["message"]


async def test_who_leaves_leaves_whole_settings(tmp_path: Path) -> None:
    """A client that goes away in the middle of a change leaves it done or not done; the next one works."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        for turns in range(2, 12):
            leaving = asyncio.create_task(change(served, {"compaction": {"retain_last_turns": turns}}))
            await asyncio.sleep(0.002 * turns)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            assert ((await values(served))["compaction"]["retain_last_turns"] or 0) <= turns
        status, answer = await change(served, {"compaction": {"retain_last_turns": 20}})
        assert (status, answer["values"]["compaction"]["retain_last_turns"]) == (200, 20)
