"""`/api/pairing`: makes a code for a program, gives it a token in exchange, lists what is paired and revokes it."""

import logging
import time
from typing import Any, Final

from aiohttp import web

from elbowroom.connect.pairing import ROUTE, VALID_SECONDS, PairingCode
from elbowroom.errors import NotFound, RequestError
from elbowroom.server.event_stream import unkept
from elbowroom.server.guard import CLAIM, check_may_pair, for_owner, person_of
from elbowroom.server.people import note
from elbowroom.server.request import read_json
from elbowroom.server.state import SHARED

MOST_BYTES: Final = 4096
LONGEST_NAME: Final = 80
LONGEST_CODE: Final = 40
JOINER: Final = "\u200d"
"""Makes one emoji of several."""
log = logging.getLogger(__name__)


def add_pairing_routes(app: web.Application) -> None:
    """Add the routes."""
    routes = PairingRoutes()
    app.router.add_get(ROUTE, for_owner(list_devices))
    app.router.add_post(ROUTE, for_owner(routes.make_code))
    app.router.add_post(CLAIM, routes.claim)
    app.router.add_delete(f"{ROUTE}/{{id}}", for_owner(revoke))


class PairingRoutes:
    """Has the one code that is valid, and whose the program is that uses it."""

    def __init__(self) -> None:
        self._code = PairingCode()
        self._person = ""

    async def make_code(self, request: web.Request) -> web.Response:
        """Make a code; one that was made before is not valid any more."""
        expires, self._person = int(time.time()) + VALID_SECONDS, person_of(request)
        return unkept({"code": self._code.make(), "expires": expires}, 201)

    async def claim(self, request: web.Request) -> web.Response:
        """Pair the program that sends the code with whoever made it, and answer with its token, told only now.

        Needs no token. Raises Forbidden, Gone, TooManyTries, Conflict and StoreUnwritable.
        """
        check_may_pair(request)
        body = await read_json(request, MOST_BYTES)
        if not isinstance(body, dict):
            raise RequestError('The body has to be a JSON object, such as {"code": "ABCD-2345", "name": "Phone"}.')
        name = _name(body)
        self._code.use(_code(body))
        people = request.app[SHARED].store.people
        paired, token = await people.pair(self._person, name)
        await people.note(self._person, "added", f"paired {name}")
        log.info("%s was paired.", paired.name)
        return unkept({"token": token, "id": paired.id, "name": paired.name}, 201)


async def list_devices(request: web.Request) -> web.Response:
    """List what is paired, the one paired last first."""
    paired = await request.app[SHARED].store.people.all(["paired"])
    shown = ("id", "name", "created", "last_used")
    return unkept({"data": [{name: token.described[name] for name in shown} for token in paired]})


async def revoke(request: web.Request) -> web.Response:
    """Revoke the token of a paired program."""
    gone = await request.app[SHARED].store.people.revoke(request.match_info["id"], ["paired"])
    if gone is None:
        raise NotFound("Nothing is paired under this id; it may have been revoked already.", code="not_paired")
    await note(request, "removed", f"paired {gone.name}")
    return web.Response(status=204)


def _code(body: dict[str, Any]) -> str:
    code = body.get("code")
    if not isinstance(code, str) or not code.strip() or len(code) > LONGEST_CODE:
        raise RequestError("code has to be the code that elbowroom shows, such as ABCD-2345.", param="code")
    return code


def _name(body: dict[str, Any]) -> str:
    """Return what a program calls itself as one short line; vaults have names of any letters and length."""
    name = body.get("name", "Obsidian")
    if not isinstance(name, str):
        raise RequestError("name has to be a text.", param="name")
    line = "".join(letter for letter in " ".join(name.split()) if letter.isprintable() or letter == JOINER)
    if not line.strip(JOINER):
        raise RequestError("name has to have a letter that can be seen.", param="name")
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1].rstrip()}…"
