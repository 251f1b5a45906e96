"""`/api/vault/changes`: what agents have changed in the user's notes, and taking it back."""

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from elbowroom.agents.offered import SettingsToolbox
from elbowroom.elsewhere import WORK_SECONDS, look
from elbowroom.errors import NotFound
from elbowroom.server.event_stream import unkept
from elbowroom.server.guard import for_paired

if TYPE_CHECKING:
    from elbowroom.vault.changes import Changes
    from elbowroom.vault.journal import Entry

ROUTE: Final = "/api/vault/changes"
MOST_LISTED: Final = 50


def add_vault_routes(app: web.Application, tools: SettingsToolbox) -> None:
    """Add the routes; `tools` has the vault of the settings."""
    routes = VaultRoutes(tools)
    app.router.add_get(ROUTE, for_paired(routes.show))
    app.router.add_post(f"{ROUTE}/{{id}}/undo", for_paired(routes.undo))


class VaultRoutes:
    """Asks the vault of the settings in threads: its room takes a moment to import, and its disk may be slow."""

    def __init__(self, tools: SettingsToolbox) -> None:
        self._tools = tools

    async def show(self, request: web.Request) -> web.Response:
        """List the changes of all agents that are not undone, the newest first. Raises NotFound without a vault."""
        return unkept({"data": await asyncio.to_thread(self._newest)})

    async def undo(self, request: web.Request) -> web.Response:
        """Undo one change. Raises NoSuchChange, Moved where a note has changed since, and NotFound without a vault."""
        notes = await asyncio.to_thread(self._notes)
        told = await look(notes.vault.root, lambda: notes.undo_change(request.match_info["id"]), WORK_SECONDS)
        return unkept({"id": request.match_info["id"], "told": told})

    def _newest(self) -> list[dict[str, Any]]:
        return [_described(entry) for entry in islice(self._notes().journal.newest(), MOST_LISTED)]

    def _notes(self) -> "Changes":
        notes = self._tools.notes()
        if notes is None:
            raise NotFound("No vault is set here: give its folder as vault.path in the settings.", code="no_vault")
        return notes


def _described(entry: "Entry") -> dict[str, Any]:
    """Return a change with the notes that it touched, as they are named now."""
    paths = [getattr(step, "to", step.path) for step in entry.steps]
    return {
        "id": entry.id,
        "agent": entry.agent,
        "what": entry.what,
        "when": entry.when,
        "notes": list(dict.fromkeys(paths)),
    }
