"""`/api/users`: makes, lists, changes and revokes the tokens of people; `/api/acts`: who has changed what."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from elbowroom.errors import NotFound, RequestError, TokenNeeded
from elbowroom.server.event_stream import unkept
from elbowroom.server.guard import RULES, for_owner, person_of
from elbowroom.server.request import read_json
from elbowroom.server.state import SHARED
from elbowroom.store import ROLES, Did, Role

ROUTE: Final = "/api/users"
MOST_BYTES: Final = 1 << 20
"""Of a body: a name of ten thousand letters is told at its field, too."""
LONGEST_NAME: Final = 80
ACTS_SHOWN: Final = 100


def add_people_routes(router: web.UrlDispatcher) -> None:
    """Add the routes."""
    router.add_get(ROUTE, for_owner(list_people))
    router.add_post(ROUTE, for_owner(add_person))
    router.add_patch(f"{ROUTE}/{{id}}", for_owner(change_person))
    router.add_delete(f"{ROUTE}/{{id}}", for_owner(revoke_person))
    router.add_post(f"{ROUTE}/{{id}}/token", for_owner(renew_token))
    router.add_get("/api/acts", for_owner(list_acts))


async def note(request: web.Request, did: Did, what: str, keys: Sequence[str] = ()) -> None:
    """Keep that whoever sends this request has done something, with the keys that were changed."""
    await request.app[SHARED].store.people.note(person_of(request), did, what, keys)


def keys_of(patch: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the names of all that a merge patch changes, such as `compaction.auto`."""
    for name, value in patch.items():
        if isinstance(value, Mapping) and value:
            yield from keys_of(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


async def list_people(request: web.Request) -> web.Response:
    """List people and programs that speak for people, the newest first."""
    tokens = await request.app[SHARED].store.people.all(ROLES)
    return unkept({"data": [token.described for token in tokens]})


async def add_person(request: web.Request) -> web.Response:
    """Make a token for a person, and answer with it; it is told only now."""
    body = await _read(request)
    name, role = body.get("name"), _role_of(body, "member")
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise RequestError(
            f"name has to be a name in one line, of at most {LONGEST_NAME} letters that can all be seen.", param="name"
        )
    if request.app[RULES].get().token is None:
        raise TokenNeeded
    made, token = await request.app[SHARED].store.people.add(name.strip(), role)
    await note(request, "added", f"{role} {made.name}")
    return unkept({"token": token, **made.described}, 201)


async def change_person(request: web.Request) -> web.Response:
    """Give a person another role."""
    role = _role_of(await _read(request), None)
    changed = await request.app[SHARED].store.people.give_role(request.match_info["id"], role)
    if changed is None:
        raise _nobody()
    await note(request, "changed", f"{role} {changed.name}", ["role"])
    return unkept(changed.described)


async def renew_token(request: web.Request) -> web.Response:
    """Make another token for a person in place of the one before, and answer with it; it is told only now."""
    renewed = await request.app[SHARED].store.people.renew(request.match_info["id"])
    if renewed is None:
        raise _nobody()
    made, token = renewed
    await note(request, "changed", f"{made.role} {made.name}", ["token"])
    return unkept({"token": token, **made.described}, 201)


async def revoke_person(request: web.Request) -> web.Response:
    """Revoke a person's token, and those of the programs that this person has paired."""
    gone = await request.app[SHARED].store.people.revoke(request.match_info["id"], ROLES)
    if gone is None:
        raise _nobody()
    await note(request, "removed", f"{gone.role} {gone.name}")
    return web.Response(status=204)


async def list_acts(request: web.Request) -> web.Response:
    """List who has changed what in settings, agents and people, the last one first."""
    acts = await request.app[SHARED].store.people.acts(ACTS_SHOWN)
    shown = [
        {"at": int(act.at), "by": act.person or None, "did": act.did, "what": act.what, "keys": act.keys}
        for act in acts
    ]
    return unkept({"data": shown})


async def _read(request: web.Request) -> dict[str, Any]:
    body = await read_json(request, MOST_BYTES)
    if not isinstance(body, dict):
        raise RequestError('The body has to be a JSON object, such as {"name": "Anna", "role": "member"}.')
    return body


def _role_of(body: Mapping[str, Any], usual: Role | None) -> Role:
    role: Role | None = body.get("role", usual)
    if role not in ROLES:
        raise RequestError(f"role has to be one of {', '.join(ROLES)}.", param="role")
    return role


def _nobody() -> NotFound:
    return NotFound("Nobody has a token with this id; it may have been revoked already.", code="no_such_user")
