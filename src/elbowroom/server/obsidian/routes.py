"""`/api/obsidian`: the vaults on Obsidian's list, and the plugin installed in one or removed from it.

Only a vault on that list can be named, by its name there: a page never says which folder is written.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from elbowroom.connect.obsidian import (
    Plan,
    Vault,
    choosing,
    config_folder,
    described,
    installation,
    is_chosen,
    known_vaults,
    leaving,
    removal,
)
from elbowroom.errors import Forbidden, NotFound, RequestError
from elbowroom.server.guard import arrival, for_own_page
from elbowroom.server.request import is_from_here, read_json
from elbowroom.server.state import ENVIRONMENT, SETTINGS
from elbowroom.settings.doubts import own_address
from elbowroom.settings.model import Settings

ROUTE: Final = "/api/obsidian"
MOST_BYTES: Final = 65_536
Planned = Callable[[Vault, Path], Plan]


def add_obsidian_routes(app: web.Application) -> None:
    """Add the routes."""
    app.router.add_get(ROUTE, for_own_page(show))
    app.router.add_post(f"{ROUTE}/install", for_own_page(install))
    app.router.add_post(f"{ROUTE}/remove", for_own_page(remove))


async def show(request: web.Request) -> web.Response:
    """Answer `{"data": [vaults], "problems": [sentences], "agents_vault": path}`, which is empty where none is set."""
    _check_computer(request)
    settings = request.app[SETTINGS].current().settings
    return web.json_response(await asyncio.to_thread(_shown, request.app[ENVIRONMENT], settings))


async def install(request: web.Request) -> web.Response:
    """Install the plugin in `vault` or bring it up to date; `enable` switches it on, `agents_vault` lets agents in."""
    _check_computer(request)
    body = await _read(request, "enable", "agents_vault")
    live, environ = request.app[SETTINGS], request.app[ENVIRONMENT]
    address = own_address(live.current().settings.server.host, arrival(request)[1])

    def planned(vault: Vault, config: Path) -> Plan:
        chosen = choosing(vault, live, environ, force=False) if body["agents_vault"] else []
        plan = installation(config, address, enable=body["enable"])
        return Plan([*plan.changes, *chosen], plan.notes)

    return await _carried_out(request, body["vault"], planned)


async def remove(request: web.Request) -> web.Response:
    """Remove the plugin from `vault`; `all` deletes its own settings too, `agents_vault` lets no agent in any more."""
    _check_computer(request)
    body = await _read(request, "all", "agents_vault")
    live, environ = request.app[SETTINGS], request.app[ENVIRONMENT]
    live.current()

    def planned(vault: Vault, config: Path) -> Plan:
        left = leaving(vault, live, environ) if body["agents_vault"] else []
        plan = removal(config, with_data=body["all"])
        return Plan([*plan.changes, *left], plan.notes)

    return await _carried_out(request, body["vault"], planned)


def _shown(environ: Mapping[str, str], settings: Settings) -> dict[str, Any]:
    known = known_vaults(environ)
    rows = [_row(vault, settings) for vault in known.vaults]
    return {"data": rows, "problems": [*known.problems], "agents_vault": settings.vault.path}


def _row(vault: Vault, settings: Settings) -> dict[str, Any]:
    return {**described(vault), "agents": is_chosen(settings, vault)}


async def _carried_out(request: web.Request, vault_id: str, planned: Planned) -> web.Response:
    """Answer `{"changes": [lines], "notes": [sentences], "vault": ...}`; what was begun is finished in its thread."""
    environ = request.app[ENVIRONMENT]
    vault, plan = await asyncio.to_thread(_carry_out, environ, vault_id, planned)
    settings = request.app[SETTINGS].current().settings
    row = await asyncio.to_thread(_row, vault, settings)
    return web.json_response({"changes": plan.lines, "notes": [*plan.notes], "vault": row})


def _carry_out(environ: Mapping[str, str], vault_id: str, planned: Planned) -> tuple[Vault, Plan]:
    vault = _listed(environ, vault_id)
    plan = planned(vault, config_folder(vault))
    plan.make()
    return vault, plan


def _listed(environ: Mapping[str, str], vault_id: str) -> Vault:
    """Return the vault with this name in Obsidian's list. Raises NotFound."""
    for vault in known_vaults(environ).vaults:
        if vault.id == vault_id:
            return vault
    raise NotFound("Obsidian's list has no such vault. Load the page again.", code="vault_not_found", param="vault")


async def _read(request: web.Request, *switches: str) -> dict[str, Any]:
    """Return the body's `vault` and its switches, false where they are missing. Raises RequestError."""
    body = await read_json(request, MOST_BYTES)
    if not isinstance(body, dict) or not isinstance(body.get("vault"), str) or not body["vault"]:
        raise RequestError("The body has to be a JSON object with vault, an id from the list.", param="vault")
    for switch in switches:
        if not isinstance(body.setdefault(switch, False), bool):
            raise RequestError(f"{switch} has to be true or false.", param=switch)
    return body


def _check_computer(request: web.Request) -> None:
    """Refuse other computers: the vaults are those of this one. Raises Forbidden."""
    if not is_from_here(request):
        raise Forbidden(
            "The vaults of a computer are seen from this computer alone: open elbowroom's page on the one that "
            "elbowroom runs on."
        )
