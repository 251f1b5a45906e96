"""`GET /api/doctor`: what `elbowroom doctor` finds, asked of the running server."""

import asyncio
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from elbowroom.agents.running import ServerStopping
from elbowroom.server.event_stream import unkept
from elbowroom.server.guard import for_paired
from elbowroom.server.state import ENVIRONMENT, SETTINGS

if TYPE_CHECKING:
    from elbowroom.doctor.subject import Finding, Severity

STATES: Final[Mapping["Severity", str]] = {"ok": "ok", "warn": "warning", "fail": "problem"}


def add_doctor_route(app: web.Application) -> None:
    """Add the route."""
    route = DoctorRoute()
    app.router.add_get("/api/doctor", for_paired(route.show))
    app.on_shutdown.append(route.end)


class DoctorRoute:
    """Has the examination that runs, of which there is one at most: who asks meanwhile gets the same."""

    def __init__(self) -> None:
        self._running: asyncio.Task[list[Finding]] | None = None

    async def show(self, request: web.Request) -> web.Response:
        """Answer with the findings of all checks in their order; each check has a time limit of its own."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(_examined(request.app))
        running = self._running
        await asyncio.wait([running])
        if running.cancelled():
            raise ServerStopping
        findings = running.result()
        return unkept({"data": [_described(found) for found in findings]})

    async def end(self, app: web.Application) -> None:
        """End the examination, since the server ends."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])


async def _examined(app: web.Application) -> "list[Finding]":
    examination = await asyncio.to_thread(importlib.import_module, "elbowroom.doctor.examination")
    live = app[SETTINGS]
    findings: list[Finding] = await examination.examine(live.path, app[ENVIRONMENT], live.flags)
    return findings


def _described(found: "Finding") -> dict[str, Any]:
    where = f"{found.where}: " if found.where and found.severity != "ok" else ""
    return {
        "name": found.check,
        "state": STATES[found.severity],
        "told": f"{where}{found.what}",
        "remedy": found.remedy,
    }
