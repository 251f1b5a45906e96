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
    config_folder,
    described,
    installation,
    known_vaults,
    removal,
)
from elbowroom.errors import Forbidden, NotFound, RequestError
from elbowroom.server.guard import arrival, for_own_page
from elbowroom.server.request import read_json
from elbowroom.server.state import ENVIRONMENT, SETTINGS
from elbowroom.settings.doubts import is_loopback, own_address

ROUTE: Final = "/api/obsidian"
MOST_BYTES: Final = 65_536
Planned = Callable[[Path], Plan]


def add_obsidian_routes(app: web.Application) -> None:
    """Add the routes."""
    app.router.add_get(ROUTE, for_own_page(show))
    app.router.add_post(f"{ROUTE}/install", for_own_page(install))
    app.router.add_post(f"{ROUTE}/remove", for_own_page(remove))


async def show(request: web.Request) -> web.Response:
    """Answer `{"data": [vaults], "problems": [sentences]}`."""
    _check_computer(request)
    return web.json_response(await asyncio.to_thread(_shown, request.app[ENVIRONMENT]))


async def install(request: web.Request) -> web.Response:
    """Install the plugin in `vault`, switched on with `enable`, or bring it up to date there."""
    _check_computer(request)
    body = await _read(request, "enable")
    address = own_address(request.app[SETTINGS].current().settings.server.host, arrival(request)[1])
    return await _carried_out(request, body, lambda config: installation(config, address, enable=body["enable"]))


async def remove(request: web.Request) -> web.Response:
    """Remove the plugin from `vault`, with its own settings where `all` is true."""
    _check_computer(request)
    body = await _read(request, "all")
    return await _carried_out(request, body, lambda config: removal(config, with_data=body["all"]))


def _shown(environ: Mapping[str, str]) -> dict[str, Any]:
    known = known_vaults(environ)
    return {"data": [described(vault) for vault in known.vaults], "problems": [*known.problems]}


async def _carried_out(request: web.Request, body: Mapping[str, Any], planned: Planned) -> web.Response:
    """Answer `{"changes": [lines], "notes": [sentences], "vault": ...}`; what was begun is finished in its thread."""
    return web.json_response(await asyncio.to_thread(_carry_out, request.app[ENVIRONMENT], body["vault"], planned))


def _carry_out(environ: Mapping[str, str], vault_id: str, planned: Planned) -> dict[str, Any]:
    vault = _listed(environ, vault_id)
    plan = planned(config_folder(vault))
    plan.make()
    return {"changes": plan.lines, "notes": [*plan.notes], "vault": described(vault)}


def _listed(environ: Mapping[str, str], vault_id: str) -> Vault:
    """Return the vault with this name in Obsidian's list. Raises NotFound."""
    for vault in known_vaults(environ).vaults:
        if vault.id == vault_id:
            return vault
    raise NotFound("Obsidian's list has no such vault. Load the page again.", code="vault_not_found", param="vault")


async def _read(request: web.Request, switch: str) -> dict[str, Any]:
    """Return the body's `vault` and a switch, which is false where it is missing. Raises RequestError."""
    body = await read_json(request, MOST_BYTES)
    if not isinstance(body, dict) or not isinstance(body.get("vault"), str) or not body["vault"]:
        raise RequestError("The body has to be a JSON object with vault, an id from the list.", param="vault")
    if not isinstance(body.setdefault(switch, False), bool):
        raise RequestError(f"{switch} has to be true or false.", param=switch)
    return body


def _check_computer(request: web.Request) -> None:
    """Refuse other computers: the vaults are those of this one. Raises Forbidden."""
    if not is_loopback(request.remote or "") and request.remote != arrival(request)[0]:
        raise Forbidden(
            "The vaults of a computer are seen from this computer alone: open elbowroom's page on the one that "
            "elbowroom runs on."
        )
