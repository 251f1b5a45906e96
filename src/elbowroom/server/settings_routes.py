"""`/api/settings`, `/api/agents`, `/api/providers` and `/api/tools`."""

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from aiohttp import web

from elbowroom.errors import NotFound, RequestError
from elbowroom.server.body import read_json
from elbowroom.server.own_page import for_own_page
from elbowroom.server.provider_states import list_providers
from elbowroom.settings.agent_changes import add_agent, change_agent, remove_agent
from elbowroom.settings.changing import SettingsChanger
from elbowroom.settings.keys import key_text
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.model import Settings
from elbowroom.settings.shown import restart_needed, shown_sources, shown_values
from elbowroom.settings.tool_descriptions import TOOL_DESCRIPTIONS

MAX_SETTINGS_BYTES: Final = 1024 * 1024


def add_settings_routes(app: web.Application, live: LiveSettings, environ: Mapping[str, str]) -> None:
    """Add the routes; `environ` holds the secrets that the settings refer to."""
    routes = SettingsRoutes(live, environ)
    app.router.add_get("/api/settings", for_own_page(routes.show))
    app.router.add_patch("/api/settings", for_own_page(routes.change))
    app.router.add_get("/api/agents", for_own_page(routes.list_agents))
    app.router.add_post("/api/agents", for_own_page(routes.add_agent))
    app.router.add_patch("/api/agents/{id}", for_own_page(routes.change_agent))
    app.router.add_delete("/api/agents/{id}", for_own_page(routes.remove_agent))
    app.router.add_get("/api/providers", for_own_page(list_providers))
    app.router.add_get("/api/tools", for_own_page(list_tools))


class SettingsRoutes:
    """Shows and changes the settings of a running server.

    Changes are made in threads, which go on when the client leaves: each is made wholly or not at all.
    """

    def __init__(self, live: LiveSettings, environ: Mapping[str, str]) -> None:
        self._live = live
        self._environ = environ
        self._changer = SettingsChanger(live, environ)

    async def show(self, request: web.Request) -> web.Response:
        """Answer with the values in force, where each comes from, and what may be set."""
        loaded = self._live.current()
        return web.json_response(
            {
                "path": str(loaded.path),
                "values": shown_values(loaded, self._environ),
                "sources": shown_sources(loaded),
                "locked": {key_text(key): source for key, source in self._live.locked.items()},
                "schema": _schema(),
                "warnings": list(loaded.warnings),
                "restart_needed": restart_needed(self._live.started, loaded.settings),
            }
        )

    async def change(self, request: web.Request) -> web.Response:
        """Merge a patch into the settings file and answer as `show` does."""
        patch = await _read_object(request)
        await asyncio.to_thread(self._changer.change, lambda _: patch)
        return await self.show(request)

    async def list_agents(self, request: web.Request) -> web.Response:
        """List all agents, those that are switched off too."""
        return web.json_response({"data": self._agents()})

    async def add_agent(self, request: web.Request) -> web.Response:
        """Add an agent and answer with it."""
        agent = await _read_object(request)
        agent_id = await asyncio.to_thread(add_agent, self._changer, agent)
        return web.json_response(self._agent(agent_id), status=201)

    async def change_agent(self, request: web.Request) -> web.Response:
        """Merge a patch into an agent and answer with it."""
        patch = await _read_object(request)
        agent_id = await asyncio.to_thread(change_agent, self._changer, request.match_info["id"], patch)
        return web.json_response(self._agent(agent_id))

    async def remove_agent(self, request: web.Request) -> web.Response:
        """Remove an agent that nothing needs."""
        await asyncio.to_thread(remove_agent, self._changer, request.match_info["id"])
        return web.Response(status=204)

    def _agents(self) -> list[dict[str, Any]]:
        agents: list[dict[str, Any]] = shown_values(self._live.current(), self._environ)["agents"]
        return agents

    def _agent(self, agent_id: str) -> dict[str, Any]:
        """Return an agent that has just been written. Raises NotFound where somebody has removed it since."""
        for agent in self._agents():
            if agent["id"] == agent_id:
                return agent
        raise NotFound(f"The agent {agent_id!r} has been removed meanwhile.", code="agent_not_found")


async def list_tools(request: web.Request) -> web.Response:
    """List what may stand in an agent's `tools`."""
    rows = [{"name": name, "description": text} for name, text in TOOL_DESCRIPTIONS.items()]
    return web.json_response({"data": rows})


async def _read_object(request: web.Request) -> dict[str, Any]:
    body = await read_json(request, MAX_SETTINGS_BYTES)
    if not isinstance(body, dict):
        raise RequestError("The body has to be a JSON object.")
    return body


@cache
def _schema() -> dict[str, Any]:
    return Settings.model_json_schema()
