"""`GET /api/doctor`: the findings of `elbowroom doctor`, for elbowroom's own page and programs that are paired."""

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from examined import AGENT
from serving import Served, serve, settings_for
from settings_calls import ask

from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.doctor.examination import examine
from elbowroom.doctor.subject import Finding
from elbowroom.server import guard
from elbowroom.server.state import SETTINGS

TINY = SimulatedModel("tiny", loaded_context_length=16_384)


async def findings(served: Served) -> list[dict[str, str]]:
    """Return what the doctor finds."""
    status, answer = await ask(served, "GET", "/api/doctor")
    assert status == 200, answer
    assert answer.keys() == {"data"}
    data: list[dict[str, str]] = answer["data"]
    return data


async def test_it_says_what_the_command_says(tmp_path: Path) -> None:
    """The same sentences in the same order, those of a problem with where it is."""
    agents = AGENT + '[vault]\npath = "/nowhere/at/all"\n'
    environ = {"ELBOWROOM_DATA_DIR": str(tmp_path)}
    async with SimulatedLMStudio([TINY]) as studio, serve(tmp_path, settings_for(studio.base_url, agents=agents)) as it:
        shown = await findings(it)
        told = await examine(it.app[SETTINGS].path, environ, {})
    words = {"ok": "ok", "warn": "warning", "fail": "problem"}
    assert [(each["name"], each["state"], each["remedy"]) for each in shown] == [
        (found.check, words[found.severity], found.remedy) for found in told
    ]
    assert all(found.what in each["told"] for each, found in zip(shown, told, strict=True))
    assert any(each["state"] != "ok" and each["name"] == "vault" for each in shown)


async def test_there_is_one_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks while checks run gets what they find, also where the first has left; the next one has them run anew."""
    examination = importlib.import_module("elbowroom.doctor.examination")
    runs, asked, all_ask, may_end = [], [], asyncio.Event(), asyncio.Event()
    judge = guard._check_own_page

    def watched(request: web.Request) -> None:
        asked.append(1)
        judge(request)
        if len(asked) == 4:
            all_ask.set()

    async def slow(*_: Any) -> list[Finding]:
        runs.append(1)
        await may_end.wait()
        return [Finding("warn", "clock", "It is late.", "here", "Sleep.")]

    monkeypatch.setattr(examination, "examine", slow)
    monkeypatch.setattr(guard, "_check_own_page", watched)
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        first = asyncio.create_task(findings(served))
        others = [asyncio.create_task(findings(served)) for _ in range(3)]
        await all_ask.wait()
        first.cancel()  # or one of the others was there before it
        await asyncio.wait([first])
        may_end.set()
        for other in others:
            assert await other == [
                {"name": "clock", "state": "warning", "told": "here: It is late.", "remedy": "Sleep."}
            ]
        assert len(runs) == 1
        await findings(served)
        assert len(runs) == 2


async def test_a_stop_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that hang do not keep the server from ending."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hangs(*_: Any) -> list[Finding]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    monkeypatch.setattr(importlib.import_module("elbowroom.doctor.examination"), "examine", hangs)
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        asking = asyncio.create_task(ask(served, "GET", "/api/doctor"))
        await begun.wait()
        await served.app.shutdown()
        assert ended.is_set()
        status, answer = await asking
        assert (status, answer["error"]["code"]) == (503, "server_stopping")
