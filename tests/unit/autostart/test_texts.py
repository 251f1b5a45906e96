"""The texts that start elbowroom at log-in: each says, by the rules of its format, the very command that is meant."""

import os
import plistlib
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from cases import cases
from settings_file import load

from elbowroom.autostart.launchd import STOP_SECONDS, agent_text
from elbowroom.autostart.service import Service, doubts, is_as_written, service_of
from elbowroom.autostart.systemd import STOP_SECONDS as UNIT_STOP_SECONDS
from elbowroom.autostart.systemd import unit_text
from elbowroom.autostart.windows_task import SCHEMA, ScheduledTask, is_task_as_written, task_text
from elbowroom.errors import ElbowroomError
from elbowroom.server.app import longest_stop
from elbowroom.settings.model import ServerSettings

ODD = """/home/Jürgen Meier/50 %h "rooms" & <more> $HOME ${HOME} it's \\n é中/settings.toml"""
"""A path with everything that one of the formats takes for something else."""
ODD_SERVICE = Service(("/usr/bin/python3", "-m", "elbowroom", "serve", "--config", ODD), (("PATH", f"/bin:{ODD}"),))
NAMESPACE = {"t": SCHEMA}


def split_as_windows_does(line: str) -> list[str]:
    """Return the arguments of a command line, by the rules of Microsoft's C runtime."""
    arguments, current, is_quoted, is_begun, slashes = [], "", False, False, 0
    for character in line:
        if character == "\\":
            slashes += 1
            continue
        if character == '"':
            current += "\\" * (slashes // 2)
            if slashes % 2:
                current += '"'
            else:
                is_quoted = not is_quoted
            is_begun, slashes = True, 0
            continue
        current, slashes = current + "\\" * slashes, 0
        if character in " \t" and not is_quoted:
            if current or is_begun:
                arguments.append(current)
            current, is_begun = "", False
        else:
            current += character
    current += "\\" * slashes
    return [*arguments, current] if current or is_begun else arguments


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say about it, as it has about a unit with a wrong key."""
    unit = tmp_path / "elbowroom.service"
    verify = ["systemd-analyze", "--user", "--man=no", "verify", str(unit)]
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}

    def said() -> str:
        done = subprocess.run(verify, env=environ, capture_output=True, text=True, check=False)
        return f"{done.returncode} {done.stdout}{done.stderr}"

    unit.write_text(unit_text(ODD_SERVICE), encoding="utf-8")
    assert said() == "0 "
    unit.write_text(unit_text(ODD_SERVICE).replace("KillMode=", "KillMood="), encoding="utf-8")
    assert "KillMood" in said()


def test_the_unit_escapes_what_systemd_takes_for_something_else() -> None:
    """Quotes and backslashes stand behind a backslash, percent signs are doubled, and the colon keeps dollars."""
    lines = unit_text(Service(('/o"p\\t/py', "50 %h", "$HOME é"), (("PATH", '/a"b:/%c'),))).splitlines()
    assert 'ExecStart=":/o\\"p\\\\t/py" "50 %%h" "$HOME é"' in lines
    assert 'Environment="PATH=/a\\"b:/%%c"' in lines


def test_the_unit_leaves_time_for_the_stop() -> None:
    """systemd and launchd wait longer than a stop takes, the signal goes to the server alone, and a crash is mended."""
    lines = unit_text(ODD_SERVICE).splitlines()
    assert {"Type=notify", "Restart=on-failure", "KillMode=mixed", "KillSignal=SIGTERM"} <= set(lines)
    assert f"TimeoutStopSec={UNIT_STOP_SECONDS}" in lines
    assert longest_stop(ServerSettings()) < UNIT_STOP_SECONDS
    assert longest_stop(ServerSettings()) < STOP_SECONDS
    assert "WantedBy=default.target" in lines


def test_the_agent_of_launchd_is_a_property_list() -> None:
    """It says the command and the environment as they are; a crash is mended, an end that was wanted is not."""
    values = plistlib.loads(agent_text(ODD_SERVICE, Path("/home/Jürgen & Co/elbowroom.log")).encode())
    assert tuple(values["ProgramArguments"]) == ODD_SERVICE.command
    assert values["EnvironmentVariables"] == dict(ODD_SERVICE.environment)
    assert values["StandardErrorPath"] == "/home/Jürgen & Co/elbowroom.log"
    assert (values["RunAtLoad"], values["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert values["ExitTimeOut"] == STOP_SECONDS


def test_the_task_of_windows_is_xml() -> None:
    """It says the command as Windows reads it, for this person alone, at log-on, and runs on without a limit."""
    odd = 'C:\\Users\\Jürgen Meier\\50 %h "rooms" & <more>\\'
    text = task_text(Service(("C:\\Program Files\\py.exe", "-m", "elbowroom", "serve", "--config", odd)), "PC\\Jürgen")
    task = ET.fromstring(text.encode("utf-16"))
    command = task.findtext("t:Actions/t:Exec/t:Command", namespaces=NAMESPACE)
    arguments = task.findtext("t:Actions/t:Exec/t:Arguments", namespaces=NAMESPACE)
    assert command == "C:\\Program Files\\py.exe"
    assert arguments is not None
    assert split_as_windows_does(arguments) == ["-m", "elbowroom", "serve", "--config", odd]
    for place in ("Triggers/t:LogonTrigger", "Principals/t:Principal"):
        assert task.findtext(f"t:{place}/t:UserId", namespaces=NAMESPACE) == "PC\\Jürgen"
    settings = {child.tag.rpartition("}")[2]: child.text for child in task.iterfind("t:Settings/*", NAMESPACE)}
    assert (settings["ExecutionTimeLimit"], settings["DisallowStartIfOnBatteries"]) == ("PT0S", "false")


@pytest.mark.parametrize(
    "text", [unit_text(ODD_SERVICE), agent_text(ODD_SERVICE, Path("/log"))], ids=["systemd", "launchd"]
)
def test_a_change_shows(text: str) -> None:
    """Of the text as it was written it is known; any change, and a text without the marker, is somebody else's."""
    assert is_as_written(text)
    assert not is_as_written(text.replace("python3", "python4"))
    assert not is_as_written(f"{text}# mine\n")
    assert not is_as_written(f"# mine\n{text}")
    assert not is_as_written("\n".join(line for line in text.splitlines() if "Written by" not in line))


@cases(
    ("before", "after"),
    [
        ("<Arguments>serve", "<Arguments>serve --port 80"),
        ("C:\\py.exe", "C:\\other.exe"),
        ("<Enabled>true", "<Enabled>false"),
        ("</LogonTrigger>", "<Delay>PT5M</Delay></LogonTrigger>"),
        ("</LogonTrigger>", "</LogonTrigger><BootTrigger/>"),
        ("Written by", "Written for"),
        ("</Task>", ""),
    ],
)
def test_a_change_of_the_task_shows(before: str, after: str) -> None:
    """What is started and when is known again; the Task Scheduler may put its own defaults beside it."""
    text = task_text(Service(("C:\\py.exe", "serve")), "PC\\me")
    assert is_task_as_written(text)
    assert is_task_as_written(
        text.replace("<Settings>", "<Settings><Enabled>true</Enabled><WakeToRun>false</WakeToRun>")
    )
    assert before in text
    assert not is_task_as_written(text.replace(before, after))


def test_a_task_with_letters_that_its_console_has_not() -> None:
    """A path that comes back in another spelling is no change; what else is in the task still counts."""
    text = task_text(Service(("C:\\Jürgen\\py.exe", "serve")), "PC\\me")
    assert is_task_as_written(text.replace("Jürgen", "J?rgen"))
    assert not is_task_as_written(text.replace("<Arguments>serve", "<Arguments>demo"))


def test_windows_variables_are_refused() -> None:
    """A folder that is named like a variable would be another one; percent signs that name none are left alone."""

    def nothing_runs(command: object) -> None:
        raise AssertionError(command)

    environ = {"USERNAME": "me", "USERDOMAIN": "PC", "Temp": "C:\\Temp"}
    with pytest.raises(ElbowroomError, match="%TEMP%"):
        ScheduledTask(Service(("py", "C:\\%TEMP%\\x")), environ, nothing_runs)  # type: ignore[arg-type]
    assert "C:\\100 %\\50 %\\x" in ScheduledTask(Service(("py", "C:\\100 %\\50 %\\x")), environ, nothing_runs).text  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["/a\nExecStartPre=/bin/evil", "/a\0b", "/a\udcffb"])
def test_what_no_format_holds_is_refused(part: str) -> None:
    """A line break in a folder's name cannot become a line of its own."""
    with pytest.raises(ElbowroomError, match="cannot be written down"):
        Service(("/python", part))


def test_the_service_is_what_runs_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python with its full path, the named files in full, and of the environment only where files are found."""
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": "/opt/node:/bin", "XDG_DATA_HOME": "/d", "ELBOWROOM_TOKEN": "s3cret", "LM_API_TOKEN": "s3cret"}
    service = service_of("/venv/bin/python", environ, config=Path("my.toml"), data=Path("/data"))
    assert service.command == (
        *("/venv/bin/python", "-P", "-m", "elbowroom", "serve"),
        *("--config", str(tmp_path / "my.toml"), "--data-dir", "/data"),
    )
    assert service.environment == (("PATH", "/opt/node:/bin"), ("XDG_DATA_HOME", "/d"))


def test_doubts(tmp_path: Path) -> None:
    """Secrets and settings of this terminal's environment are named, never shown; so is a Python that may vanish."""
    text = '[server]\nhost = "0.0.0.0"\ntoken = "env:MY_TOKEN"\n'
    environ = {"MY_TOKEN": "s3cret", "ELBOWROOM_SERVER__PORT": "8080"}
    loaded = load(tmp_path, text, environ)
    secret, port, cache = doubts(loaded, environ, "/home/me/.cache/uv/archive-v0/x/bin/python")
    assert "server.token" in secret
    assert "MY_TOKEN" in secret
    assert 'server.token = "file:' in secret
    assert "s3cret" not in secret
    assert "ELBOWROOM_SERVER__PORT" in port
    assert "uv tool install" in cache
    in_a_file = tmp_path / "token"
    in_a_file.write_text("s3cret")
    loaded = load(tmp_path, f'[server]\ntoken = "file:{in_a_file}"\n', {})
    assert not [*doubts(loaded, {"MY_TOKEN": "s3cret"}, "/home/me/venv/bin/python")]
