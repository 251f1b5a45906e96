"""`/api/obsidian`: the vaults on Obsidian's list, and the plugin installed in one or removed from it.

Only a vault on that list can be named, by its name there: a page never says which folder is written.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from elbowroom.connect.obsidian import (
    KnownVaults,
    Plan,
    Vault,
    choosing,
    config_folder,
    described,
    installation,
    leaving,
    listed_vaults,
    removal,
    unknown,
)
from elbowroom.elsewhere import NotAnswering, look
from elbowroom.errors import Forbidden, NotFound, RequestError
from elbowroom.server.guard import arrival, for_owner
from elbowroom.server.request import is_from_here, read_json
from elbowroom.server.state import ENVIRONMENT, SETTINGS
from elbowroom.settings.doubts import own_address
from elbowroom.settings.fields import expanded
from elbowroom.settings.model import Settings

ROUTE: Final = "/api/obsidian"
LIST: Final = "Obsidian's list of vaults"
MOST_BYTES: Final = 65_536
Planned = Callable[[Vault, Path], Plan]


def add_obsidian_routes(router: web.UrlDispatcher) -> None:
    """Add the routes."""
    router.add_get(ROUTE, for_owner(show))
    router.add_post(f"{ROUTE}/install", for_owner(install))
    router.add_post(f"{ROUTE}/remove", for_owner(remove))


async def show(request: web.Request) -> web.Response:
    """Answer `{"data": [vaults], "problems": [sentences], "agents_vault": path}`, which is empty where none is set."""
    _check_computer(request)
    settings = request.app[SETTINGS].current().settings
    listed = await _lists(request.app[ENVIRONMENT])
    chosen = await _chosen(settings)
    found = await asyncio.gather(*(_row(vault, chosen) for vault in listed.vaults))
    rows = {row.pop("real"): row for row in reversed(found) if row is not None}  # of two names of a folder the first
    data = list(reversed(rows.values()))
    return web.json_response({"data": data, "problems": [*listed.problems], "agents_vault": settings.vault.path})


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


async def _lists(environ: Mapping[str, str]) -> KnownVaults:
    """Return the vaults on Obsidian's lists, be their folders there or not."""
    return await look(LIST, lambda: listed_vaults(environ))


async def _chosen(settings: Settings) -> str:
    """Return the folder in which agents work, without links as far as it answers; empty for none."""
    path = settings.vault.path
    if not path:
        return ""
    folder = expanded(path)
    try:
        return await look(folder, lambda: os.path.realpath(folder))
    except NotAnswering:
        return str(folder)


async def _row(vault: Vault, chosen: str) -> dict[str, Any] | None:
    """Return how the plugin stands in a vault, and its `real` folder; None where it is not there."""

    def seen() -> dict[str, Any] | None:
        if not os.path.isdir(vault.folder):
            return None
        real = os.path.realpath(vault.folder)
        return {**described(vault), "agents": real == chosen, "real": real}

    try:
        return await look(vault.folder, seen)
    except NotAnswering as error:
        folder = str(vault.folder)
        return {**unknown(vault, error), "agents": folder == chosen, "real": folder}


async def _carried_out(request: web.Request, vault_id: str, planned: Planned) -> web.Response:
    """Answer `{"changes": [lines], "notes": [sentences], "vault": ...}`; what was begun is finished in its thread."""
    vault = await _listed(request.app[ENVIRONMENT], vault_id)

    def carry_out() -> Plan:
        if not os.path.isdir(vault.folder):
            raise _not_there()
        plan = planned(vault, config_folder(vault))
        plan.make()
        return plan

    plan = await look(vault.folder, carry_out)
    row = await _row(vault, await _chosen(request.app[SETTINGS].current().settings))
    if row is None:
        raise _not_there()
    del row["real"]
    return web.json_response({"changes": plan.lines, "notes": [*plan.notes], "vault": row})


async def _listed(environ: Mapping[str, str], vault_id: str) -> Vault:
    """Return the vault with this name in Obsidian's list. Raises NotFound."""
    for vault in (await _lists(environ)).vaults:
        if vault.id == vault_id:
            return vault
    raise _not_there()


def _not_there() -> NotFound:
    return NotFound("Obsidian's list has no such vault. Load the page again.", code="vault_not_found", param="vault")


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
