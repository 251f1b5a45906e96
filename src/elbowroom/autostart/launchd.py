"""macOS: an agent of launchd in the session of the person who is logged in."""

import plistlib
import time
from pathlib import Path
from typing import Any, Final

from elbowroom.autostart.service import Run, Service, TextFile, marked, run_or_fail
from elbowroom.errors import ElbowroomError

LABEL: Final = "local.elbowroom"
STOP_SECONDS: Final = 30
"""elbowroom stops in less time than this."""
UNLOADING_TRIES: Final = 30
"""How often loading is tried: launchd refuses while the program is still ending."""


def agent_text(service: Service, log: Path) -> str:
    """Return the property list: started at log-in, and restarted after a failure."""
    values: dict[str, Any] = {
        "Label": LABEL,
        "ProgramArguments": list(service.command),
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": STOP_SECONDS,
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }
    head, start, body = plistlib.dumps(values, sort_keys=False).decode().partition("<plist")
    return marked(head, start + body, "<!-- {} -->")


class LaunchAgent(TextFile):
    """A property list in `~/Library/LaunchAgents`; `user` is the number of the person's account."""

    def __init__(self, service: Service, home: Path, user: int, run: Run, pause: float = 1.0) -> None:
        self._log = home / "Library" / "Logs" / "elbowroom.log"
        super().__init__(home / "Library" / "LaunchAgents" / f"{LABEL}.plist", agent_text(service, self._log))
        self._session = f"gui/{user}"
        self._target = f"{self._session}/{LABEL}"
        self._run = run
        self._pause = pause

    @property
    def advice(self) -> str:
        """Return when it runs and where its log is."""
        return f"It starts when you log in and ends when you log out.\nIts log: {self._log}"

    def check(self) -> None:
        """Raise ElbowroomError where the person is not logged in at the screen."""
        if not (said := self._run(["launchctl", "print", self._session])).is_done:
            raise ElbowroomError(
                f"launchd has no session of yours ({said.reason}), so nothing is changed: log in at the screen of this "
                "Mac and run this there. `elbowroom autostart on --print` shows the agent."
            )

    def install(self) -> None:
        """Write and load the property list; a changed one is loaded again."""
        is_loaded = self._is_loaded()
        if self.installed() != self.text:
            self.write()
            if is_loaded:
                self._unload()
                is_loaded = False
        self._log.parent.mkdir(parents=True, exist_ok=True)
        run_or_fail(self._run, ["launchctl", "enable", self._target], f"{self.path} is written, but cannot be enabled.")
        if is_loaded:
            run_or_fail(self._run, ["launchctl", "kickstart", self._target], "It is on, but does not start now.")
        else:
            self._load()

    def remove(self) -> None:
        """Unload and delete the property list."""
        if self._is_loaded():
            self._unload()
        self.delete()

    def is_running(self) -> bool:
        """Tell whether the program runs now."""
        said = self._run(["launchctl", "print", self._target])
        return said.is_done and "state = running" in said.out

    def _is_loaded(self) -> bool:
        return self._run(["launchctl", "print", self._target]).is_done

    def _load(self) -> None:
        command = ["launchctl", "bootstrap", self._session, str(self.path)]
        for _ in range(UNLOADING_TRIES):
            if self._run(command).is_done:
                return
            time.sleep(self._pause)
        run_or_fail(
            self._run, command, f"{self.path} is written and counts from the next log-in, but cannot be loaded now."
        )

    def _unload(self) -> None:
        run_or_fail(
            self._run, ["launchctl", "bootout", self._target], f"{self.path} cannot be unloaded; it is left loaded."
        )
