"""The command line of `elbowroom autostart`: switches it on and off, and tells its status."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from elbowroom.autostart.launchd import LaunchAgent
from elbowroom.autostart.service import Run, Service, Starter, doubts, run, service_of
from elbowroom.autostart.systemd import SystemdUnit
from elbowroom.autostart.windows_task import ScheduledTask
from elbowroom.errors import ElbowroomError, in_own_words
from elbowroom.settings.fields import data_dir, expanded, settings_path
from elbowroom.settings.load import usable_settings

Say = Callable[[str], object]
What = Literal["on", "off", "status"]


def _systemd(service: Service, environ: Mapping[str, str], run: Run) -> Starter:
    return SystemdUnit(service, environ, Path.home(), run)


def _launchd(service: Service, environ: Mapping[str, str], run: Run) -> Starter:
    return LaunchAgent(service, Path.home(), os.getuid() if sys.platform != "win32" else 0, run)


STARTERS: Final[Mapping[str, Callable[[Service, Mapping[str, str], Run], Starter]]] = {
    "linux": _systemd,
    "darwin": _launchd,
    "win32": ScheduledTask,
}


def starter_for(platform: str, service: Service, environ: Mapping[str, str], run: Run = run) -> Starter:
    """Return the starter of a platform (`sys.platform`). Raises ElbowroomError where none is known."""
    if (starter := STARTERS.get(platform)) is None:
        raise ElbowroomError(
            f"elbowroom does not know how programs are started at log-in on {platform}; "
            f"have `{' '.join(service.command)}` started by what this system has for that."
        )
    return starter(service, environ, run)


def switch_on(starter: Starter, say: Say, *, force: bool) -> None:
    """Show the text, install it and start the program. Raises ElbowroomError, also if the text is foreign."""
    starter.check()
    _check_ours(starter, "on", force=force)
    say(f"For {starter.where}:\n\n{starter.text}")
    starter.install()
    on = f"elbowroom is on: it runs now, and starts by itself.\n{starter.advice}\n`elbowroom autostart off` ends that."
    say(in_own_words(on))


def switch_off(starter: Starter, say: Say, *, force: bool) -> None:
    """Stop the program and remove the text. Raises ElbowroomError, also instead of removing a foreign text."""
    if starter.installed() is None:
        say(f"elbowroom does not start by itself: {starter.where} is not there.")
        return
    starter.check()
    _check_ours(starter, "off", force=force)
    starter.remove()
    say(f"elbowroom is off: {starter.where} is removed.")


def tell_status(starter: Starter, say: Say) -> None:
    """Say whether autostart is on, whether the program runs, and whether `on` would write the same text now."""
    if (installed := starter.installed()) is None:
        say(f"off: {starter.where} is not there.")
        return
    say(f"on: {starter.where}; {'it runs' if starter.is_running() else 'it does not run'}.")
    if not starter.is_ours(installed):
        say("It was not written by `elbowroom autostart on`, or was changed since.")
    elif not starter.is_same(installed):
        say(
            "It is not what this terminal would write: another elbowroom is started, with other files or another PATH. "
            "`elbowroom autostart on` changes that."
        )


def _check_ours(starter: Starter, what: What, *, force: bool) -> None:
    installed = starter.installed()
    if installed is not None and not force and not starter.is_ours(installed):
        does = "replaces" if what == "on" else "removes"
        raise ElbowroomError(
            f"{starter.where} was not written by `elbowroom autostart on`, or was changed since, so it is left as it "
            f"is. `elbowroom autostart {what} --force` {does} it all the same."
        )


def autostart(what: What, config: str | None, say: Say, warn: Say, *, only_print: bool, force: bool) -> None:
    """Run the command for this Python and this environment; `config` is the settings file that the person has named.

    Raises ElbowroomError; for `on` also where the settings are wrong and the server could not start.
    """
    if only_print and what != "on":
        raise ElbowroomError("--print shows what `on` writes: elbowroom autostart on --print.")
    environ = os.environ
    is_named = bool(config or environ.get("ELBOWROOM_CONFIG"))
    path = expanded(config) if config else settings_path(environ)
    data = data_dir(environ) if environ.get("ELBOWROOM_DATA_DIR") else None
    service = service_of(sys.executable, environ, config=path if is_named else None, data=data)
    starter = starter_for(sys.platform, service, environ)
    if what == "on":
        loaded = usable_settings(path, environ, {}, must_exist=is_named)
        for doubt in (*loaded.warnings, *doubts(loaded, environ, sys.executable)):
            warn(f"Warning: {doubt}")
    if only_print:
        say(starter.text.removesuffix("\n"))
    elif what == "on":
        switch_on(starter, say, force=force)
    elif what == "off":
        switch_off(starter, say, force=force)
    else:
        tell_status(starter, say)
