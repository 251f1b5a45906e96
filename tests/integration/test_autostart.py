"""Switching the start at log-in on and off, on all three systems, with programs in the place of the systems' own."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from command_line import Program
from command_line import run as run_elbowroom
from fake_system import FakeSystem
from waiting import until

from elbowroom.autostart.command import starter_for, switch_off, switch_on, tell_status
from elbowroom.autostart.launchd import LaunchAgent
from elbowroom.autostart.service import Service, Starter, run, service_of
from elbowroom.autostart.systemd import SystemdUnit
from elbowroom.autostart.windows_task import ScheduledTask
from elbowroom.errors import ElbowroomError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs that stand in are scripts")
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the command takes the system that it runs on")
SERVICE = Service(("/opt/elbow room/python", "-m", "elbowroom", "serve"), (("PATH", "/bin"),))
OTHER = Service(("/opt/other/python", "-m", "elbowroom", "serve"))
PLATFORMS = ("linux", "darwin", "win32")
FILES = {
    "linux": "home/.config/systemd/user/elbowroom.service",
    "darwin": "home/Library/LaunchAgents/local.elbowroom.plist",
    "win32": "system/task.xml",
}


@dataclass(slots=True)
class Desktop:
    """A home folder and a system that starts programs for it; `said` is what a person has been told."""

    folder: Path
    platform: str
    system: FakeSystem
    said: list[str] = field(default_factory=list)

    def starter(self, service: Service = SERVICE) -> Starter:
        """Return the system's way, for this home folder."""
        home = self.folder / "home"
        if self.platform == "linux":
            return SystemdUnit(service, {}, home, run)
        if self.platform == "darwin":
            return LaunchAgent(service, home, 501, run, pause=0.01)
        return ScheduledTask(service, {"USERNAME": "me", "USERDOMAIN": "PC"}, run)

    def on(self, service: Service = SERVICE, *, force: bool = False) -> None:
        """Switch it on."""
        switch_on(self.starter(service), self.say, force=force)

    def off(self, service: Service = SERVICE, *, force: bool = False) -> None:
        """Switch it off."""
        switch_off(self.starter(service), self.say, force=force)

    def status(self, service: Service = SERVICE) -> str:
        """Return what is said about how it stands."""
        said: list[str] = []
        tell_status(self.starter(service), said.append)
        return "\n".join(said)

    def say(self, text: str) -> None:
        """Take a text for the person, with whether something was written by then."""
        self.said.append(f"{self.file.exists()} {text}")

    @property
    def file(self) -> Path:
        """Return the file that the system keeps the text in."""
        return self.folder / FILES[self.platform]

    @property
    def encoding(self) -> str:
        """Return that of the file."""
        return "utf-16" if self.platform == "win32" else "utf-8"

    def edit(self, before: str, after: str) -> None:
        """Change the file, as a person does."""
        text = self.file.read_text(self.encoding)
        assert before in text
        self.file.write_text(text.replace(before, after), self.encoding)


@pytest.fixture(params=PLATFORMS)
def desktop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desktop:
    """Give a desktop of each system, on which nothing is started yet."""
    system = FakeSystem.make(tmp_path / "system")
    monkeypatch.setenv("PATH", system.path)
    return Desktop(tmp_path, request.param, system)


def test_on_and_off(desktop: Desktop) -> None:
    """The text is shown before it is written; then the program runs. Off ends it, and no file is left."""
    desktop.on()
    shown, done = desktop.said
    assert shown.startswith("False ")
    assert desktop.starter().text in shown
    assert done.startswith("True ")
    assert desktop.file.read_text(desktop.encoding) == desktop.starter().text
    assert desktop.system.has("running")
    assert "it runs" in desktop.status()
    desktop.off()
    assert not desktop.system.has("running")
    assert not desktop.system.has("enabled")
    assert not desktop.file.exists()
    assert not [path for path in (desktop.folder / "home").rglob("*") if path.is_file()]
    assert desktop.status().startswith("off")


def test_on_twice_is_once(desktop: Desktop) -> None:
    """The same text is in the same place, and the program that runs goes on running."""
    desktop.on()
    text, when = desktop.file.read_bytes(), desktop.file.stat().st_mtime_ns
    desktop.system.told()
    desktop.on()
    assert (desktop.file.read_bytes(), desktop.file.stat().st_mtime_ns) == (text, when)
    assert not [told for told in desktop.system.told() if any(word in told for word in ("restart", "bootout", "/End"))]
    assert desktop.system.has("running")


def test_off_twice_is_once(desktop: Desktop) -> None:
    """Where nothing is on, nothing is done, and that is said."""
    desktop.off()
    assert not desktop.system.told()
    assert "not there" in desktop.said[0]


def test_another_command_takes_the_place_of_the_first(desktop: Desktop) -> None:
    """After an update, or with other files: status tells of the difference, and `on` starts the new one."""
    desktop.on()
    assert "would write" not in desktop.status()
    assert "would write" in desktop.status(OTHER)
    desktop.system.told()
    desktop.on(OTHER)
    told = " ".join(desktop.system.told())
    assert any(word in told for word in ("restart", "bootout", "/End"))
    assert "/opt/other/python" in desktop.file.read_text(desktop.encoding)
    assert desktop.system.has("running")
    desktop.off(SERVICE)
    assert not desktop.file.exists()


@pytest.mark.parametrize("switch", [Desktop.on, Desktop.off])
def test_what_a_person_changed_is_left(desktop: Desktop, switch: Callable[..., None]) -> None:
    """Neither on nor off touch it, and nothing is told to the system; with --force they do."""
    desktop.on()
    desktop.edit("/opt/elbow room/python", "/opt/mine/python")
    changed = desktop.file.read_bytes()
    desktop.system.told()
    with pytest.raises(ElbowroomError, match="--force"):
        switch(desktop)
    assert not desktop.system.told()
    assert desktop.file.read_bytes() == changed
    assert "changed since" in desktop.status()
    switch(desktop, force=True)
    assert not desktop.file.exists() or desktop.file.read_text(desktop.encoding) == desktop.starter().text


def test_what_a_person_wrote_is_left(desktop: Desktop) -> None:
    """A unit, agent or task of the same name without our line is somebody's own."""
    desktop.on()
    desktop.edit("ritten by `elbowroom autostart on`", "ritten by me")
    mine = desktop.file.read_bytes()
    with pytest.raises(ElbowroomError, match="was not written by"):
        desktop.off()
    assert desktop.file.read_bytes() == mine


@pytest.mark.parametrize(("platform", "state"), [("linux", "no systemd"), ("darwin", "no session")])
def test_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, state: str) -> None:
    """Where the system's service manager does not answer, that is said with its words and what to do, and no more."""
    system = FakeSystem.make(tmp_path / "system")
    monkeypatch.setenv("PATH", system.path)
    desktop = Desktop(tmp_path, platform, system)
    system.be(state)
    with pytest.raises(ElbowroomError, match="nothing is changed") as raised:
        desktop.on()
    assert "--print" in raised.value.message
    assert not system.told()
    assert not (tmp_path / "home").exists()
    assert not desktop.said


def test_a_system_without_systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is no such program is said in the same words."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ElbowroomError, match="systemd does not run for you here"):
        switch_on(SystemdUnit(SERVICE, {}, tmp_path, run), print, force=False)


def test_a_start_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on all the same, and the error says so, where to read why, and what systemd said."""
    system = FakeSystem.make(tmp_path / "system")
    monkeypatch.setenv("PATH", system.path)
    desktop = Desktop(tmp_path, "linux", system)
    system.be("broken")
    with pytest.raises(ElbowroomError, match="does not start now") as raised:
        desktop.on()
    assert "journalctl" in raised.value.message
    assert "Job for elbowroom.service failed." in raised.value.message
    assert system.has("enabled")
    assert "it does not run" in desktop.status()


def test_an_unknown_system() -> None:
    """The command to start is said."""
    with pytest.raises(ElbowroomError, match="/opt/elbow room/python -m elbowroom serve"):
        starter_for("sunos5", SERVICE, {})


@pytest.mark.slow
@ON_LINUX
def test_the_command_line(tmp_path: Path) -> None:
    """`on`, `status` and `off` as a person types them, with the settings and the data folder of that terminal."""
    system = FakeSystem.make(tmp_path / "system")
    (tmp_path / "my settings.toml").write_text("[server]\nport = 0\n", encoding="utf-8")
    variables = {
        "PATH": system.path,
        "ELBOWROOM_CONFIG": str(tmp_path / "my settings.toml"),
        "ELBOWROOM_DATA_DIR": str(tmp_path / "50 %"),
        "ELBOWROOM_TOKEN": "s3cret",
    }
    unit = tmp_path / ".config" / "systemd" / "user" / "elbowroom.service"
    printed = run_elbowroom(tmp_path, "autostart", "on", "--print", **variables)
    assert printed.returncode == 0, printed.stderr
    assert not unit.exists()
    assert not system.told()
    done = run_elbowroom(tmp_path, "autostart", "on", **variables)
    assert done.returncode == 0, done.stderr
    text = unit.read_text(encoding="utf-8")
    assert text == printed.stdout
    assert text in done.stdout
    assert "enable-linger" in done.stdout
    assert "variable ELBOWROOM_TOKEN" in done.stderr
    assert "s3cret" not in text + done.stdout + done.stderr
    command = f'"{sys.executable}" "-P" "-m" "elbowroom" "serve"'.replace('"', '":', 1)
    files = f'"--config" "{tmp_path}/my settings.toml" "--data-dir" "{tmp_path}/50 %%"'
    assert f"ExecStart={command} {files}\n" in text
    assert run_elbowroom(tmp_path, "autostart", "status", **variables).stdout.startswith(f"on: {unit}; it runs.")
    assert run_elbowroom(tmp_path, "autostart", "off", **variables).returncode == 0
    assert not unit.exists()


@ON_LINUX
def test_the_folder_of_units_follows_the_environment(tmp_path: Path) -> None:
    """XDG_CONFIG_HOME names the folder of the units; one that is not a full path is no folder, by that standard."""
    for written, folder in ((str(tmp_path / "c"), tmp_path / "c"), ("relative", tmp_path / ".config"), ("", None)):
        starter = SystemdUnit(SERVICE, {"XDG_CONFIG_HOME": written}, tmp_path, run)
        assert starter.path == (folder or tmp_path / ".config") / "systemd" / "user" / "elbowroom.service"


@ON_LINUX
def test_wrong_settings_are_not_started(tmp_path: Path) -> None:
    """What could not start now is not begun, and the mistake is said as `serve` says it."""
    system = FakeSystem.make(tmp_path / "system")
    for written, said in (("[server]\nhost = 5\n", "server.host = 5"), ("[server\n", "s.toml")):
        (tmp_path / "s.toml").write_text(written, encoding="utf-8")
        done = run_elbowroom(tmp_path, "autostart", "on", "--config", str(tmp_path / "s.toml"), PATH=system.path)
        assert done.returncode == 1
        assert said in done.stderr
        assert not system.told()
    assert run_elbowroom(tmp_path, "autostart", "off", "--print", PATH=system.path).returncode == 1


@ON_LINUX
def test_a_wrong_value_is_told_and_left_out(tmp_path: Path) -> None:
    """What the server starts without does not keep it from being begun, and is told as `serve` tells it."""
    system = FakeSystem.make(tmp_path / "system")
    (tmp_path / "s.toml").write_text("[server]\nport = 99999\n", encoding="utf-8")
    done = run_elbowroom(tmp_path, "autostart", "on", "--config", str(tmp_path / "s.toml"), PATH=system.path)
    assert done.returncode == 0, done.stderr
    assert "Warning: " in done.stderr
    assert "server.port = 99999" in done.stderr
    assert "It is left out until it is corrected." in done.stderr
    assert system.has("running")


@ON_LINUX
def test_wrong_settings_do_not_keep_it_on(tmp_path: Path) -> None:
    """`off` needs none, and removes what was begun before they were wrong."""
    system = FakeSystem.make(tmp_path / "system")
    settings = tmp_path / "s.toml"
    settings.write_text("[server]\nport = 0\n", encoding="utf-8")
    on, off = [("autostart", what, "--config", str(settings)) for what in ("on", "off")]
    assert run_elbowroom(tmp_path, *on, PATH=system.path).returncode == 0
    settings.write_text("[server\n", encoding="utf-8")
    done = run_elbowroom(tmp_path, *off, PATH=system.path)
    assert done.returncode == 0, done.stderr
    assert not system.has("running")


@pytest.mark.slow
async def test_what_is_written_starts_the_server(tmp_path: Path) -> None:
    """The command runs in the bare environment of a service, beside a folder of our name, on the files meant."""
    (tmp_path / "elbowroom").mkdir()
    (tmp_path / "elbowroom" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    settings = tmp_path / "my settings.toml"
    settings.write_text("[server]\nport = 0\n", encoding="utf-8")
    service = service_of(sys.executable, os.environ, config=settings, data=tmp_path / "50 %")
    process = await asyncio.create_subprocess_exec(
        *service.command,
        env={"HOME": str(tmp_path), **dict(service.environment)},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    program = Program(process)
    try:
        assert str(settings) in await program.line_with("settings: ")
        await program.address()
        await until((tmp_path / "50 %" / "elbowroom.db").exists)
        assert await program.end(signal.SIGTERM) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
