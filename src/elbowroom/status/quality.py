"""`elbowroom quality`: which pruning agent to choose, measured with the models of this machine.

The running server measures. Where none runs, one is run for as long as it takes, for this machine alone.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from elbowroom.errors import ElbowroomError
from elbowroom.settings.load import Flags, LoadedSettings, usable_settings
from elbowroom.status.asking import Place, ask, ask_once, no_elbowroom
from elbowroom.status.gauge import Terminal
from elbowroom.status.table import progress_of, table_of

if TYPE_CHECKING:
    from elbowroom.server.app import StopRequests

ROUTE: Final = "/api/quality"
SECONDS_BETWEEN: Final = 0.5
AMOUNTS: Final[Mapping[str, Mapping[str, int]]] = {
    "quick": {"conversations": 1, "compactions": 2},
    "full": {"conversations": 9, "compactions": 5},
}
TO_LINE_START, TO_LINE_END = "\r", "\x1b[K"


def add_quality(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether a person named it, `flags` what flags set."""
    quality = add_parser("quality", parents=list(parents), help="measure which pruning agent keeps most")
    quality.add_argument(
        "--pruner", nargs="+", metavar="AGENT", help="agents or models to compare (default: those that are loaded)"
    )
    quality.add_argument("--model", metavar="ID", help="the model that answers (default: the one that is loaded)")
    quality.add_argument("--window", type=int, metavar="TOKENS", help="the largest window to fill (default: 8192)")
    amount = quality.add_mutually_exclusive_group()
    amount.add_argument("--quick", action="store_true", help="one conversation, compacted twice")
    amount.add_argument("--full", action="store_true", help="nine conversations, compacted five times each")
    amount.add_argument("--conversations", type=int, metavar="N", help="so many, compacted three times each")
    quality.add_argument("--stop", action="store_true", help="stop the study that runs, and show what it has")
    quality.add_argument("--json", action="store_true", help="print the table as JSON")
    quality.set_defaults(run=lambda options: run(*place(options), flags(options), options), log_level="error")


def run(path: Path, is_named: bool, flags: Flags, options: argparse.Namespace) -> int:
    """Measure and print the table; return 0, also where the person has stopped it, and 1 where it has failed.

    Raises ElbowroomError where nothing can be measured.
    """
    loaded = usable_settings(path, os.environ, flags, must_exist=is_named)
    state = asyncio.run(_stopped(loaded) if options.stop else _studied(loaded, path, _wanted(options)))
    text = json.dumps(state) if options.json else table_of(state, Terminal.of(sys.stdout, os.environ))
    sys.stdout.write(f"{text}\n")
    return 1 if state["state"] == "failed" else 0


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags want measured, as the route takes it."""
    amount = next((numbers for name, numbers in AMOUNTS.items() if getattr(options, name)), {})
    named = {name: getattr(options, name) for name in ("conversations", "window", "model")}
    given = {name: value for name, value in named.items() if value is not None}
    return {**amount, **given, **({"pruners": options.pruner} if options.pruner else {})}


async def _stopped(loaded: LoadedSettings) -> dict[str, Any]:
    """Stop the study of the running server, and return what it has."""
    place = Place.of(loaded, os.environ)
    if ask(place).version is None:
        raise ElbowroomError(f"No elbowroom runs at {place.address}, so no study does.")
    return await _asked(place, "DELETE")


async def _studied(loaded: LoadedSettings, path: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Have a server measure, and show how far it is; return its last state."""
    from elbowroom.server.app import StopRequests

    requests, place = StopRequests.listen(), Place.of(loaded, os.environ)
    if (await asyncio.to_thread(ask, place)).version is not None:
        return await _watched(place, wanted, requests)
    async with _server(path) as own:
        return await _watched(own, wanted, requests)


@asynccontextmanager
async def _server(path: Path) -> AsyncIterator[Place]:
    """Run a server with these settings that only this process knows of, and that keeps nothing."""
    from elbowroom.server.listen import listening
    from elbowroom.settings.live import LiveSettings

    with tempfile.TemporaryDirectory(prefix="elbowroom-quality-") as folder:
        environ = {**os.environ, "ELBOWROOM_DATA_DIR": folder}
        flags: dict[tuple[str, str], str | int | None] = {
            ("server", "host"): "127.0.0.1",
            ("server", "port"): 0,
            ("store", "url"): "",
        }
        live = LiveSettings(path, environ, flags)
        async with listening(live, environ) as (_, address):
            token = live.current().settings.server.token.reveal(path.parent, environ)
            yield Place.here("127.0.0.1", int(address.rpartition(":")[2]), token)


async def _watched(place: Place, wanted: Mapping[str, Any], requests: "StopRequests") -> dict[str, Any]:
    """Begin a study and return its state at the end, or when the person asks to stop it."""
    state = await _asked(place, "POST", wanted)
    screen = Terminal.of(sys.stderr, os.environ)
    try:
        while state["state"] == "running":
            _show(state, screen)
            state = await _next_state(place, state, requests)
    finally:
        _clear(screen)
    return state


async def _next_state(place: Place, state: dict[str, Any], requests: "StopRequests") -> dict[str, Any]:
    """Return how far the study is after a moment, or what it has where the person stops it or the server ends."""
    method = "DELETE"
    try:
        async with asyncio.timeout(SECONDS_BETWEEN):
            await requests.asked.wait()
    except TimeoutError:
        method = "GET"
    try:
        return await _asked(place, method)
    except ElbowroomError as error:
        return {**state, "state": "failed", "problem": error.message}


def _show(state: Mapping[str, Any], screen: Terminal) -> None:
    if screen.is_screen:
        sys.stderr.write(f"{TO_LINE_START}{progress_of(state, screen)}{TO_LINE_END}")
        sys.stderr.flush()


def _clear(screen: Terminal) -> None:
    if screen.is_screen:
        sys.stderr.write(f"{TO_LINE_START}{TO_LINE_END}")


async def _asked(place: Place, method: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the state of the study. Raises ElbowroomError with the server's words where it refuses."""
    answer = await asyncio.to_thread(ask_once, place, ROUTE, method, body)
    if answer is None:
        raise ElbowroomError(f"The server at {place.address} has ended, and its study with it.")
    if "state" not in answer:
        raise no_elbowroom(place)
    return answer
