"""Linux: a unit of the user's own systemd."""

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from elbowroom.autostart.service import Run, Service, TextFile, marked, run_or_fail
from elbowroom.errors import ElbowroomError

UNIT: Final = "elbowroom.service"
SYSTEMCTL: Final = ("systemctl", "--user")
STOP_SECONDS: Final = 30
"""elbowroom stops in less time than this."""
TEMPLATE: Final = """\
[Unit]
Description=elbowroom, an OpenAI-compatible server for local models
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
ExecStart={command}
{environment}Restart=on-failure
RestartSec=5
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={stop}

[Install]
WantedBy=default.target
"""
NOT_RUNNING: Final = """\
systemd does not run for you here ({reason}), so nothing is changed.
- In WSL: put `systemd=true` under `[boot]` in /etc/wsl.conf and start WSL again.
- After `su` or `sudo`: log in as yourself instead, so that your own systemd runs.
- In a container, or with another init system: let that start `elbowroom serve`.
`elbowroom autostart on --print` shows the unit, to use it elsewhere."""


def unit_text(service: Service) -> str:
    """Return the unit: systemd stops it with SIGTERM to the server alone, which stops the programs that it started."""
    program, *arguments = service.command
    # With a colon in front, systemd does not replace variables.
    command = " ".join(map(_quoted, [f":{program}", *arguments]))
    environment = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in service.environment)
    return marked("", TEMPLATE.format(command=command, environment=environment, stop=STOP_SECONDS))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


class SystemdUnit(TextFile):
    """`elbowroom.service` in the folder of the user's units."""

    def __init__(self, service: Service, environ: Mapping[str, str], home: Path, run: Run) -> None:
        config = environ.get("XDG_CONFIG_HOME", "")
        folder = Path(config) if Path(config).is_absolute() else home / ".config"  # the XDG rule: others are ignored
        super().__init__(folder / "systemd" / "user" / UNIT, unit_text(service))
        self._run = run

    @property
    def advice(self) -> str:
        """Return when it runs, how to have it run from boot on, and how to read its log."""
        return (
            "It starts when you log in and ends when you have logged out. To have it run from boot on, without you: "
            f"loginctl enable-linger {getpass.getuser()}\n"
            f"Its log: journalctl --user -u {UNIT}"
        )

    def check(self) -> None:
        """Raise ElbowroomError where no systemd runs for this user."""
        try:
            said = self._run([*SYSTEMCTL, "show", "--property=Version"])
        except ElbowroomError as error:
            raise ElbowroomError(NOT_RUNNING.format(reason=error.message.rstrip("."))) from error
        if not said.is_done:
            raise ElbowroomError(NOT_RUNNING.format(reason=said.reason.rstrip(".")))

    def install(self) -> None:
        """Write, enable and start the unit; a changed one is restarted."""
        is_new = self.installed() != self.text
        if is_new:
            self.write()
        run_or_fail(self._run, [*SYSTEMCTL, "daemon-reload"], f"{self.path} is written, but systemd does not read it.")
        run_or_fail(self._run, [*SYSTEMCTL, "enable", UNIT], f"{self.path} is written, but cannot be enabled.")
        run_or_fail(
            self._run,
            [*SYSTEMCTL, "restart" if is_new else "start", UNIT],
            f"It is on from the next log-in, but does not start now. If an elbowroom is running already, end that one "
            f"and say `systemctl --user start {UNIT}`; `journalctl --user -u {UNIT}` says what is wrong.",
        )

    def remove(self) -> None:
        """Stop, disable and delete the unit."""
        run_or_fail(self._run, [*SYSTEMCTL, "disable", "--now", UNIT], f"{self.path} cannot be disabled; it is left.")
        self.delete()
        run_or_fail(self._run, [*SYSTEMCTL, "daemon-reload"], f"{self.path} is deleted, but systemd does not notice.")

    def is_running(self) -> bool:
        """Tell whether the unit is active."""
        return self._run([*SYSTEMCTL, "is-active", "--quiet", UNIT]).is_done
