"""The command line of `elbowroom users`: tokens of people, made and revoked whether the server runs or not."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from elbowroom.errors import ElbowroomError, NotFound, TokenNeeded
from elbowroom.logs.formats import escaped
from elbowroom.settings.load import Flags, LoadedSettings, usable_settings
from elbowroom.status.asking import Place, ask_once, check_name, environ_of, no_elbowroom, told

if TYPE_CHECKING:
    from elbowroom.store import People, Role

ROUTE: Final = "/api/users"
ROLES: Final[tuple["Role", ...]] = ("member", "owner", "gateway")
"""Those of the store, which is not loaded for a look at what the command takes."""
OPENING_SECONDS: Final = 60.0
"""How long the store may take to open, which brings a file of an older version up to date."""
Answer = TypeVar("Answer")


def add_users(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether it was named, `flags` what flags set."""
    command = add_parser("users", help="give several people a token each")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data-dir", metavar="FOLDER", help="where the store is kept, as `serve` was told")
    actions = command.add_subparsers(title="actions", metavar="ACTION", dest="action")
    adding = actions.add_parser("add", parents=[*parents, common], help="make a token, which is shown only now")
    adding.add_argument("name", metavar="NAME", help="whose it is")
    adding.add_argument(
        "--role",
        choices=ROLES,
        default="member",
        help="member: has what is their own; owner: settings and people too; gateway: a program such as Open WebUI "
        "that speaks for others",
    )
    listing = actions.add_parser("list", parents=[*parents, common], help="show who has one, the newest first")
    listing.add_argument("--json", action="store_true", help="print them as JSON, one object a line")
    revoking = actions.add_parser("revoke", parents=[*parents, common], help="end a token at once")
    revoking.add_argument("name", metavar="NAME", help="whose it is, as `list` shows it")
    for action in (adding, listing, revoking):
        action.set_defaults(run=lambda options: run(options, *place(options), flags(options)))
    command.set_defaults(run=lambda options: told(command), log_level="warning")


def run(options: argparse.Namespace, path: Path, is_named: bool, flags: Flags) -> int:
    """Do what the options say: by the server where one runs, in its store otherwise. Raises ElbowroomError."""
    environ = environ_of(options)
    loaded = usable_settings(path, environ, flags, must_exist=is_named)
    place = Place.of(loaded, environ)
    if options.action == "list":
        rows = _listed(place, loaded, environ)
        sys.stdout.writelines(f"{json.dumps(row) if options.json else _line(row)}\n" for row in rows)
        if not rows and not options.json:
            sys.stderr.write("Nobody has a token besides the server's own.\n")
        return 0
    check_name("NAME", options.name)
    if options.action == "revoke":
        _revoke(options.name, place, loaded, environ)
        sys.stdout.write("Revoked.\n")
        return 0
    if place.token is None:
        raise TokenNeeded
    made = _add(options.name.strip(), options.role, place, loaded, environ)
    sys.stderr.write("This is the token, which is shown only now and is sent as an API key:\n")
    sys.stdout.write(f"{made}\n")
    return 0


def _line(row: Mapping[str, Any]) -> str:
    used = time.strftime("%Y-%m-%d", time.gmtime(row["last_used"])) if row["last_used"] else "never used"
    return f"{escaped(row['name'])}  {row['role']}  {used}"


def _listed(place: Place, loaded: LoadedSettings, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    answered = ask_once(place, ROUTE)
    if answered is None:
        return [token.described for token in _in_store(loaded, environ, lambda people: people.all(ROLES))]
    rows = answered.get("data")
    if not isinstance(rows, list):
        raise no_elbowroom(place)
    return rows


def _add(name: str, role: "Role", place: Place, loaded: LoadedSettings, environ: Mapping[str, str]) -> str:
    answered = ask_once(place, ROUTE, "POST", {"name": name, "role": role})
    if answered is not None:
        return str(answered["token"])

    async def add(people: "People") -> str:
        _, token = await people.add(name, role)
        await people.note("", "added", f"{role} {name}")
        return token

    return _in_store(loaded, environ, add)


def _revoke(name: str, place: Place, loaded: LoadedSettings, environ: Mapping[str, str]) -> None:
    found = [row for row in _listed(place, loaded, environ) if row["name"] == name]
    if not found:
        raise NotFound(f"{name!r} has no token. `elbowroom users list` shows who has one.")
    [row] = found
    if ask_once(place, f"{ROUTE}/{row['id']}", "DELETE") is not None:
        return

    async def revoke(people: "People") -> None:
        await people.revoke(row["id"], ROLES)
        await people.note("", "removed", f"{row['role']} {name}")

    _in_store(loaded, environ, revoke)


def _in_store(
    loaded: LoadedSettings, environ: Mapping[str, str], work: Callable[["People"], Awaitable[Answer]]
) -> Answer:
    """Do something in the store, which no server may have open meanwhile, but for one on PostgreSQL."""
    from elbowroom.store import only_process, open_store, store_place

    async def opened() -> Answer:
        store = open_store(loaded.settings.store, environ)
        try:
            await store.ready(OPENING_SECONDS)
            return await work(store.people)
        finally:
            await store.aclose()

    database = store_place(loaded.settings.store, environ)
    if database is None:
        raise ElbowroomError("The store of these settings is in memory: start the server, and ask again.")
    with only_process(database if isinstance(database, Path) else None):
        return asyncio.run(opened())
