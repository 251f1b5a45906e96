"""The command line of `elbowroom connect`, and what it does for Open WebUI."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elbowroom.connect.agents import NO_TOKEN, connect_agent
from elbowroom.connect.asking import asked
from elbowroom.connect.clients import CLIENTS, OPEN_WEBUI, USER_HEADERS
from elbowroom.connect.files import Records
from elbowroom.connect.open_webui import (
    WHERE_KEYS_ARE,
    Connection,
    OpenWebUI,
    leading_back,
    taken_back,
    wanted,
    with_connection,
)
from elbowroom.errors import ElbowroomError, own_command
from elbowroom.settings.doubts import own_address, reached_host
from elbowroom.settings.fields import data_dir
from elbowroom.settings.load import Flags, usable_settings

KEY_VARIABLE: Final = "OPEN_WEBUI_KEY"
MOST_NAMED: Final = 5
FILE: Final = "connected.json"
WIDE: Final = 32_768  # tokens; in smaller windows tools that nobody uses are felt
DOCKER: Final = "http://host.docker.internal:2345/v1"


def add_connect(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether it was named, `flags` what flags set."""
    command = add_parser("connect", parents=list(parents), help="set a chat program or a coding agent up for elbowroom")
    command.add_argument(
        "client",
        nargs="?",
        choices=list(CLIENTS),
        metavar="PROGRAM",
        help=f"{', '.join(CLIENTS)} (without: what it does)",
    )
    command.add_argument("--write", action="store_true", help="write its settings, in the place of showing them")
    command.add_argument("--undo", action="store_true", help="put its settings back as they were")
    command.add_argument(
        "--address",
        default="",
        metavar="URL",
        help=f"where the program finds elbowroom, such as {DOCKER} for one in Docker (default: this machine's own)",
    )
    agent = command.add_argument_group("coding agents")
    agent.add_argument("--model", default="", metavar="ID", help="an agent or a model (default: the loaded one)")
    agent.add_argument("--window", type=int, metavar="TOKENS", help="its window, if elbowroom is not running")
    webui = command.add_argument_group("Open WebUI, which is written without --write")
    webui.add_argument("--url", help="where it is, such as http://127.0.0.1:8080")
    webui.add_argument("--key", default="", help=f"the key of an admin there (default: ${KEY_VARIABLE})")
    webui.add_argument("--people", action="store_true", help="several people use it: keep their chats apart")
    webui.add_argument(
        "--tools", choices=["off", "on"], help="switch its Builtin Tools off, for small windows, or on again"
    )
    webui.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    command.set_defaults(run=lambda options: run(options, *place(options), flags(options)), log_level="warning")


def run(options: argparse.Namespace, path: Path, is_named: bool, flags: Flags) -> int:
    """Set a program up, or take that back; print what changes. Raises ElbowroomError."""
    if options.client is None:
        say(*_overview())
        return 0
    loaded = usable_settings(path, os.environ, flags, must_exist=is_named)
    server = loaded.settings.server
    token = server.token.reveal(loaded.folder, os.environ) or ""
    here = own_address(reached_host(server.host), server.port)
    records = Records(data_dir(os.environ) / FILE)
    client = CLIENTS[options.client]
    if client is OPEN_WEBUI:
        return _connect_webui(options, options.address or here + client.path, token, records)
    address = (options.address or here).rstrip("/").removesuffix(client.path)
    for line in connect_agent(client, options, address, token, os.environ, records):
        say(line)
    return 0


def _connect_webui(options: argparse.Namespace, address: str, token: str, records: Records) -> int:
    """Set the connection up, or take it back. Raises ElbowroomError."""
    if not options.url:
        raise ElbowroomError("Say where Open WebUI is with --url, such as http://127.0.0.1:8080.")
    key = options.key or os.environ.get(KEY_VARIABLE, "")
    if not key:
        raise ElbowroomError(f"Give the key of an admin with --key or in {KEY_VARIABLE}. {WHERE_KEYS_ARE}")
    there = OpenWebUI(options.url.rstrip("/"), key)
    kept = KeptConnection(records, options.url, address)
    connections, are_on = there.connections()
    before = _at(connections, address)
    if options.undo:
        after, will_be_on = taken_back(connections, address, kept.before), kept.were_on
    else:
        headers = {
            **OPEN_WEBUI.headers,
            **leading_back(options.url),
            **(USER_HEADERS if options.people else {}),
        }
        new = wanted(before, before.url if before else address, token or NO_TOKEN, headers)
        after, will_be_on = with_connection(connections, new), True
    lines = list(changes(before, _at(after, address)))
    tools = list(_tools_told(there, options, address, token))
    say(*(lines or [f"{OPEN_WEBUI.name} at {there.url} is set up as it should be."]), *tools)
    if not options.dry_run and options.tools and tools:
        there.give_builtin_tools(are_on=options.tools == "on")
    if options.dry_run or not lines:
        return 0
    if not options.undo:
        kept.keep(before, were_on=are_on)
    there.set_connections(after, are_on=will_be_on)
    if options.undo:
        kept.forget()
        say("Put back as it was.")
        return 0
    return _tell_models(there, [one.is_at(address) for one in after].index(True), address)


def _overview() -> Iterator[str]:
    """Yield what can be connected, and how."""
    yield "Sets a program up so that it chats through elbowroom, and knows the model's window."
    yield ""
    width = max(map(len, CLIENTS))
    for client in CLIENTS.values():
        how = (
            "set up over its own API"
            if client is OPEN_WEBUI
            else "--write sets it up"
            if client.is_written
            else "shown"
        )
        yield f"  {own_command()} connect {client.id:<{width}}  {client.name}: {how}"
    yield ""
    yield f"Any other program: paste the base address, http://127.0.0.1:2345/v1. More: {own_command()} connect --help"


def _tools_told(there: OpenWebUI, options: argparse.Namespace, address: str, token: str) -> Iterator[str]:
    """Yield what changes about Open WebUI's own tools, or an offer to switch them off where a window is small."""
    if options.undo:
        return
    if options.tools:
        if there.has_builtin_tools() is not (options.tools == "on"):
            yield f"~ Builtin Tools of all models: {options.tools}"
        return
    try:
        rows = asked(address, token or NO_TOKEN, "/v1/models", ".").get("data")
        windows = [row.get("loaded_context_length") or row.get("context_length") for row in rows or ()]
        smallest = min(filter(None, windows))
        is_tight = smallest < WIDE and there.has_builtin_tools()
    except (ElbowroomError, ValueError):  # elbowroom does not run now, or no window is known
        return
    if is_tight:
        yield (
            f"Its Builtin Tools take some 5,000 tokens of every chat, and the smallest window has {smallest:,}: run "
            "this again with --tools off to switch them off (Settings, Admin, Models, Model Defaults, Capabilities)."
        )


def say(*lines: str) -> None:
    """Print lines."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _at(connections: Sequence[Connection], address: str) -> Connection | None:
    return next((one for one in connections if one.is_at(address)), None)


def changes(before: Connection | None, now: Connection | None) -> Iterator[str]:
    """Yield in words what is different; keys are not shown."""
    if now is None:
        if before is not None:
            yield f"- connection {before.url}"
        return
    if before is None:
        yield f"+ connection {now.url}"
    old, new = dict((before.config if before else None) or {}), dict(now.config or {})
    if before is not None and before.key != now.key:
        yield "~ its key"
    old_headers, new_headers = old.pop("headers", None) or {}, new.pop("headers", None) or {}
    yield from _different("header ", old_headers, new_headers)
    yield from _different("", old, new)


def _different(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            sign = "+" if name not in old else "-" if name not in new else "~"
            value = old[name] if name not in new else new[name]
            yield f"{sign}   {what}{name}: {value if isinstance(value, str) else json.dumps(value)}"


def _tell_models(there: OpenWebUI, number: int, address: str) -> int:
    """Say which models arrive; return 1 where none does."""
    try:
        models = there.models_of(number)
    except ElbowroomError:
        models = []
    if models:
        say(f"Done. {OPEN_WEBUI.name} finds {len(models)} models of elbowroom: {', '.join(models[:MOST_NAMED])}.")
        return 0
    say(
        f"Done, but {OPEN_WEBUI.name} finds no models at {address}. Start elbowroom; where {OPEN_WEBUI.name} runs in "
        "Docker, name it with --address http://host.docker.internal:2345/v1."
    )
    return 1


@dataclass(frozen=True, slots=True)
class KeptConnection:
    """How a connection was before the first change of it."""

    records: Records
    url: str
    address: str

    @property
    def before(self) -> Connection | None:
        """Return the connection as it was; None where there was none. Raises ElbowroomError where it is not kept."""
        before = self._row()["before"]
        return Connection.of(before) if before else None

    @property
    def were_on(self) -> bool:
        """Tell whether connections were switched on."""
        return bool(self._row()["were_on"])

    def keep(self, before: Connection | None, *, were_on: bool) -> None:
        """Keep how it was; a second change leaves that as it is."""
        if self._name not in self.records.rows():
            self.records.put(self._name, {"before": before.as_json() if before else None, "were_on": were_on})

    def forget(self) -> None:
        """Forget it: it is as it was."""
        self.records.forget(self._name)

    @property
    def _name(self) -> str:
        return f"{self.url.rstrip('/')} {self.address}"

    def _row(self) -> dict[str, Any]:
        row: dict[str, Any] | None = self.records.rows().get(self._name)
        if row is None:
            raise ElbowroomError(
                f"Nothing was set up for {self.address} in {self.url} from here, so there is nothing to undo."
            )
        return row
