"""The command line of `elbowroom mcp`: the Model Context Protocol by pipes, answered by the running server."""

import argparse
import asyncio
import http.client
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from elbowroom.errors import ElbowroomError, what_failed
from elbowroom.settings.load import Flags, load_settings
from elbowroom.status.asking import Place, check_name, other_token, request_json

PATIENCE_SECONDS = 60.0
"""How long a search may take."""


def add_mcp(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether it was named, `flags` what flags set."""
    told = "let another program search your conversations, by the Model Context Protocol"
    command = add_parser("mcp", parents=list(parents), help=told)
    command.add_argument("--user", default="", help="whose conversations (default: those without a name)")
    command.set_defaults(run=lambda options: run(options, *place(options), flags(options)), log_level="error")


def run(options: argparse.Namespace, path: Path, is_named: bool, flags: Flags) -> int:
    """Speak the protocol on standard input and output until the other program ends. Raises ElbowroomError."""
    loaded = load_settings(path, os.environ, flags, must_exist=is_named)
    check_name("--user", options.user)
    asyncio.run(_serve(Place.of(loaded, os.environ, options.user)))
    return 0


async def _serve(place: Place) -> None:
    from mcp.server.stdio import stdio_server

    from elbowroom.server.mcp.protocol import mcp_server

    async def call(_: Any, name: str, written: Mapping[str, Any]) -> str:
        return await asyncio.to_thread(called, place, name, written)

    server = mcp_server(call)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def called(place: Place, name: str, written: Mapping[str, Any]) -> str:
    """Return what a tool of the server at a place answers. Raises ElbowroomError, which says what to do."""
    connection = http.client.HTTPConnection(place.host, place.port, timeout=PATIENCE_SECONDS)
    try:
        status, answer = request_json(connection, place, f"/api/recall/{quote(name, safe='')}", "POST", dict(written))
    except (OSError, http.client.HTTPException) as error:
        raise ElbowroomError(
            f"No elbowroom answers at {place.address} ({what_failed(error)}). Start it with `elbowroom serve`, or name "
            "where it is with --host and --port."
        ) from error
    finally:
        connection.close()
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise other_token(place)
    if status != http.HTTPStatus.OK or not isinstance(answer.get("text"), str):
        told = (answer.get("error") or {}).get("message")
        raise ElbowroomError(str(told) if told else f"What listens at {place.address} is no elbowroom with `mcp`.")
    return str(answer["text"])
