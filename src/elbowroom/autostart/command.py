"""`elbowroom autostart`: what the command line does with the system that it runs on."""

import os
import sys

from elbowroom.autostart.service import doubts, service_of
from elbowroom.autostart.switch import Say, What, starter_for, switch_off, switch_on, tell_status
from elbowroom.errors import ElbowroomError
from elbowroom.settings.layers import load_settings
from elbowroom.settings.paths import data_dir, expanded, settings_path


def autostart(what: What, config: str | None, say: Say, warn: Say, *, only_print: bool, force: bool) -> None:
    """Do it for this Python and this environment; `config` is the settings file that the person has named.

    Raises ElbowroomError; `on` also where the settings are wrong: what cannot start now is not started at log-in.
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
        loaded = load_settings(path, environ, {}, must_exist=is_named)
        for doubt in doubts(loaded, environ, sys.executable):
            warn(f"Warning: {doubt}")
    if only_print:
        say(starter.text.removesuffix("\n"))
    elif what == "on":
        switch_on(starter, say, force=force)
    elif what == "off":
        switch_off(starter, say, force=force)
    else:
        tell_status(starter, say)
