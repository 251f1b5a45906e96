"""The command line of `elbowroom memories`: lists and deletes what agents remember, whether the server runs or not."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from elbowroom.errors import ElbowroomError, NotFound
from elbowroom.logs.formats import escaped
from elbowroom.settings.load import Flags, LoadedSettings, usable_settings
from elbowroom.status.asking import Place, ask_once, check_name, environ_of, no_elbowroom, told

if TYPE_CHECKING:
    from elbowroom.context.memories import Memories

ROUTE = "/api/memories"
OPENING_SECONDS = 60.0
"""How long the store may take to open, which brings a file of an older version up to date."""


def add_memories(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether it was named, `flags` what flags set."""
    command = add_parser("memories", help="list and delete what agents remember")
    whose = argparse.ArgumentParser(add_help=False)
    whose.add_argument("--agent", default="", metavar="ID", help="only this agent, also one that was removed since")
    whose.add_argument("--user", default="", metavar="NAME", help="whose memories, where several people use it")
    whose.add_argument("--data-dir", metavar="FOLDER", help="where the store is kept, as `serve` was told")
    actions = command.add_subparsers(title="actions", metavar="ACTION", dest="action")
    listing = actions.add_parser("list", parents=[*parents, whose], help="show them, the newest first")
    listing.add_argument("--json", action="store_true", help="print them as JSON, one object a line")
    deleting = actions.add_parser("delete", parents=[*parents, whose], help="delete one")
    deleting.add_argument("id", metavar="ID", help="its id, as `list` shows it")
    for action in (listing, deleting):
        action.set_defaults(run=lambda options: run(options, *place(options), flags(options)))
    command.set_defaults(run=lambda options: told(command), log_level="warning")


def run(options: argparse.Namespace, path: Path, is_named: bool, flags: Flags) -> int:
    """Do what the options say: by the server where one runs, in its store otherwise. Raises ElbowroomError."""
    environ = environ_of(options)
    loaded = usable_settings(path, environ, flags, must_exist=is_named)
    place = Place.of(loaded, environ, options.user)
    wish = Wish(options.action == "delete", getattr(options, "id", ""), options.agent, options.user)
    for argument, name in (("--user", wish.user), ("--agent", wish.agent), ("ID", wish.id)):
        check_name(argument, name)
    rows = _ask(place, wish)
    if rows is None:
        rows = _in_store(loaded, environ, wish)
    if wish.deletes:
        sys.stdout.write("Deleted.\n")
    elif rows or options.json:
        sys.stdout.writelines(f"{json.dumps(row) if options.json else _line(row)}\n" for row in rows)
    else:
        sys.stderr.write("Nothing is remembered.\n")
    return 0


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: a list of a user's memories, those of one agent where it is named, or that one is deleted."""

    deletes: bool
    id: str
    agent: str
    user: str


def _line(row: Mapping[str, Any]) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(row["saved"]))
    return f"{row['id']}  {row['agent']}  {day}  {escaped(' '.join(row['text'].split()))}"


def _ask(place: Place, wish: Wish) -> list[dict[str, Any]] | None:
    """Let the server there do it; return the memories that it lists, or None where no server runs."""
    query = f"?{urlencode({'agent': wish.agent})}" if wish.agent else ""
    method, path = ("DELETE", f"{ROUTE}/{quote(wish.id, safe='')}") if wish.deletes else ("GET", ROUTE)
    try:
        answer = ask_once(place, path + query, method)
    except NotFound as error:
        raise (_no_such_memory(wish) if wish.deletes else error) from None
    if answer is None:
        return None
    rows = [] if wish.deletes else answer.get("data")
    if answer.get("object") != ("memory.deleted" if wish.deletes else "list") or not isinstance(rows, list):
        raise no_elbowroom(place)
    return rows


def _in_store(loaded: LoadedSettings, environ: Mapping[str, str], wish: Wish) -> list[dict[str, Any]]:
    """Do it in the store, which no server may have open meanwhile."""
    from elbowroom.server.request import USER, named_user
    from elbowroom.store import only_process, open_store, store_place

    async def work() -> list[dict[str, Any]]:
        store = open_store(loaded.settings.store, environ)
        try:
            await store.ready(OPENING_SECONDS)
            agents = [wish.agent] if wish.agent else [agent.id for agent in loaded.settings.agents]
            done = await _done(store.memories, wish, named_user({USER: wish.user}), agents)
            if store.is_failing:
                raise ElbowroomError(f"The database {database} cannot be used now; the log above says why.")
            return done
        finally:
            await store.aclose()

    database = store_place(loaded.settings.store, environ)
    if database is None or (isinstance(database, Path) and not database.exists()):
        return _nothing_there(wish)
    with only_process(database if isinstance(database, Path) else None):
        return asyncio.run(work())


async def _done(memories: "Memories", wish: Wish, owner: str, agents: Sequence[str]) -> list[dict[str, Any]]:
    from elbowroom.context.memories import delete_memory, described, memories_of

    if wish.deletes:
        return [] if await delete_memory(memories, owner, agents, wish.id) else _nothing_there(wish)
    return [described(agent, memory) for agent, memory in await memories_of(memories, owner, agents)]


def _nothing_there(wish: Wish) -> list[dict[str, Any]]:
    if wish.deletes:
        raise _no_such_memory(wish)
    return []


def _no_such_memory(wish: Wish) -> NotFound:
    return NotFound(
        f"There is no memory {wish.id!r}. `elbowroom memories list` shows those that there are; for an agent that "
        "was removed from the settings, name it with --agent, and with --user the person whose memory it is."
    )
