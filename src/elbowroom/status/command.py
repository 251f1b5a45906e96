"""The command line of `elbowroom status`."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from elbowroom.errors import ElbowroomError
from elbowroom.settings.load import Flags, usable_settings
from elbowroom.status.asking import Place, Snapshot, ask
from elbowroom.status.gauge import Terminal, drawn

USUAL_SECONDS: Final = 1.0
LEAST_SECONDS: Final = 0.2
HOME, TO_LINE_END, TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"


def add_status(
    add_parser: Callable[..., argparse.ArgumentParser],
    parents: Sequence[argparse.ArgumentParser],
    place: Callable[[argparse.Namespace], tuple[Path, bool]],
    flags: Callable[[argparse.Namespace], Flags],
) -> None:
    """Add the command. `place` returns the settings file and whether a person named it, `flags` what flags set."""
    status = add_parser("status", parents=list(parents), help="show how full the windows of running chats are")
    status.add_argument(
        "--watch",
        nargs="?",
        type=float,
        const=USUAL_SECONDS,
        metavar="SECONDS",
        help="show it anew every second, or after so many, until Ctrl-C",
    )
    status.add_argument("--user", default="", metavar="NAME", help="whose conversations, where several people use it")
    status.add_argument("--json", action="store_true", help="print it as JSON, one object a line")
    status.set_defaults(
        run=lambda options: run(
            *place(options), flags(options), user=options.user, as_json=options.json, every=options.watch
        ),
        log_level="warning",
    )


def run(path: Path, is_named: bool, flags: Flags, *, user: str, as_json: bool, every: float | None) -> int:
    """Show the state of the server of these settings; return 0 if healthy, 1 without an upstream, 2 without a server.

    With `every`, show it again after so many seconds until Ctrl-C. Raises ElbowroomError if the server cannot be asked.
    """
    loaded = usable_settings(path, os.environ, flags, must_exist=is_named)
    place = Place.of(loaded, os.environ, user)
    if every is None:
        snapshot = ask(place)
        show(_text(snapshot, as_json=as_json), sys.stdout)
        return snapshot.exit_code
    if not every >= LEAST_SECONDS:
        raise ElbowroomError(f"--watch takes at least {LEAST_SECONDS} seconds, not {every:g}.")
    return _watch(place, every, as_json=as_json)


def _watch(place: Place, every: float, *, as_json: bool) -> int:
    """Show the state every so many seconds, also while the server is down."""
    snapshot = ask(place)
    text, is_first = _text(snapshot, as_json=as_json), True
    try:
        while True:
            show(text, sys.stdout, is_over=not as_json, is_first=is_first or as_json)
            time.sleep(every)
            is_first = False
            try:
                snapshot = ask(place)
                text = _text(snapshot, as_json=as_json)
            except ElbowroomError as error:  # it may be starting, or ending
                text = json.dumps({"error": error.message}) + "\n" if as_json else f"{error}\n"
    except KeyboardInterrupt:
        return snapshot.exit_code


def _text(snapshot: Snapshot, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(snapshot.as_json()) + "\n"
    return drawn(snapshot, Terminal.of(sys.stdout, os.environ))


def show(
    text: str, stream: TextIO, *, is_over: bool = False, is_first: bool = True, environ: Mapping[str, str] = os.environ
) -> None:
    """Write a text; with `is_over` it replaces the previous one, if the terminal can do that."""
    if is_over and Terminal.of(stream, environ).is_screen:
        text = HOME + text.replace("\n", f"{TO_LINE_END}\n") + TO_SCREEN_END
    elif not is_first:
        text = f"\n{text}"
    stream.write(text)
    stream.flush()
