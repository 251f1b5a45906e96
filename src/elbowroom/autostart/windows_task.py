"""Windows: a task of the Task Scheduler that runs at log-on, without a window."""

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Final
from xml.etree import ElementTree as ET

from elbowroom.autostart.service import Run, Service, run_or_fail
from elbowroom.errors import ElbowroomError

TASK: Final = "elbowroom"
SCHEMA: Final = "http://schemas.microsoft.com/windows/2004/02/mit/task"
WORDS: Final = "Starts elbowroom. Written by `elbowroom autostart on`, and removed by `off` unless it is changed; sum"
SUM: Final = re.compile(rf"{re.escape(WORDS)} (?P<parts>[CA]*):(?P<sum>[0-9a-f]{{32}})")
VARIABLE: Final = re.compile(r"%([^%]+)%")
SETTINGS: Final = {
    "MultipleInstancesPolicy": "IgnoreNew",
    "DisallowStartIfOnBatteries": "false",
    "StopIfGoingOnBatteries": "false",
    "ExecutionTimeLimit": "PT0S",
    "Hidden": "true",
    "Priority": "5",
}


def task_text(service: Service, user: str) -> str:
    """Return the task's XML: for this user and with their rights, on batteries too, without a time limit."""
    program, *arguments = service.command
    task = ET.Element("Task", {"version": "1.2", "xmlns": SCHEMA})
    about = ET.SubElement(ET.SubElement(task, "RegistrationInfo"), "Description")
    trigger = ET.SubElement(ET.SubElement(task, "Triggers"), "LogonTrigger")
    ET.SubElement(trigger, "Enabled").text = "true"
    ET.SubElement(trigger, "UserId").text = user
    principal = ET.SubElement(ET.SubElement(task, "Principals"), "Principal", {"id": "Author"})
    for name, value in (("UserId", user), ("LogonType", "InteractiveToken"), ("RunLevel", "LeastPrivilege")):
        ET.SubElement(principal, name).text = value
    settings = ET.SubElement(task, "Settings")
    for name, value in SETTINGS.items():
        ET.SubElement(settings, name).text = value
    again = ET.SubElement(settings, "RestartOnFailure")
    ET.SubElement(again, "Interval").text = "PT1M"
    ET.SubElement(again, "Count").text = "3"
    action = ET.SubElement(ET.SubElement(task, "Actions", {"Context": "Author"}), "Exec")
    ET.SubElement(action, "Command").text = program
    ET.SubElement(action, "Arguments").text = subprocess.list2cmdline(arguments)
    # schtasks may garble characters that are not ASCII: it writes in the code page of the console.
    parts = "".join(part for part, text in zip("CA", _action_of(task), strict=True) if text.isascii())
    about.text = f"{WORDS} {parts}:{_sum_of(task, parts)}"
    ET.indent(task)
    return '<?xml version="1.0" encoding="UTF-16"?>\n' + ET.tostring(task, encoding="unicode") + "\n"


def is_task_as_written(text: str) -> bool:
    """Tell whether a task, as the Task Scheduler returns it, has the command and triggers that were written."""
    try:
        task = _without_namespace(ET.fromstring(text))  # noqa: S314  # the system's own text
    except ET.ParseError:
        return False
    found = SUM.search(task.findtext("RegistrationInfo/Description") or "")
    return found is not None and _sum_of(task, found["parts"]) == found["sum"]


def _action_of(task: ET.Element) -> tuple[str, str]:
    return task.findtext("Actions/Exec/Command") or "", task.findtext("Actions/Exec/Arguments") or ""


def _sum_of(task: ET.Element, parts: str) -> str:
    """Return a checksum of what a person might change: the command, the triggers, and whether it is enabled."""
    seen = [text for part, text in zip("CA", _action_of(task), strict=True) if part in parts]
    for group in ("Triggers", "Actions"):
        seen += [child.tag for child in task.iterfind(f"{group}/*")]
    delays = [element.text or "" for element in task.iterfind("Triggers/*/Delay")]
    switches = [element.text or "true" for element in task.iterfind("Triggers/*/Enabled")]
    is_enabled = task.findtext("Settings/Enabled") or "true"
    return hashlib.sha256("\0".join([*seen, *delays, *switches, is_enabled]).encode()).hexdigest()[:32]


def _without_namespace(task: ET.Element) -> ET.Element:
    for element in task.iter():
        element.tag = element.tag.rpartition("}")[2]
    return task


def windowless(python: str) -> str:
    """Return the Python beside this one that opens no window, or this one if there is none."""
    beside = PureWindowsPath(python).with_name("pythonw.exe")
    return str(beside) if Path(beside).exists() else python


class ScheduledTask:
    """The task `elbowroom` of this user."""

    def __init__(self, service: Service, environ: Mapping[str, str], run: Run) -> None:
        program, *arguments = service.command
        for part in service.command:
            for name in VARIABLE.findall(part):
                if name.upper() in {known.upper() for known in environ}:
                    raise ElbowroomError(
                        f"{part} holds %{name}%, in whose place Windows would put a variable's value. Rename that "
                        "folder, and try again."
                    )
        self.text = task_text(Service((windowless(program), *arguments)), _user(environ))
        self._run = run

    @property
    def where(self) -> str:
        """Return the name of the task."""
        return f"the task {TASK!r} of the Task Scheduler"

    @property
    def advice(self) -> str:
        """Return when it runs."""
        return "It starts when you log on, without a window, and ends when you log off."

    def check(self) -> None:
        """Raise ElbowroomError where there is no Task Scheduler."""
        run_or_fail(self._run, ["schtasks", "/?"], "The Task Scheduler cannot be used.")

    def installed(self) -> str | None:
        """Return the XML of the installed task, None if there is none."""
        said = self._run(["schtasks", "/Query", "/TN", TASK, "/XML"])
        return said.out if said.is_done else None

    def is_ours(self, installed: str) -> bool:
        """Tell whether elbowroom wrote the task, and nobody changed its command or triggers since."""
        return is_task_as_written(installed)

    def is_same(self, installed: str) -> bool:
        """Tell whether elbowroom wrote the installed task with the same command."""
        found, wanted = SUM.search(installed), SUM.search(self.text)
        return self.is_ours(installed) and found is not None and wanted is not None and found[0] == wanted[0]

    def install(self) -> None:
        """Create the task and start it; a changed one is stopped before."""
        installed = self.installed()
        if installed is None or not self.is_same(installed):
            if installed is not None:
                _ = self._run(["schtasks", "/End", "/TN", TASK])
            with tempfile.TemporaryDirectory(prefix="elbowroom-") as folder:
                path = Path(folder) / "task.xml"
                path.write_bytes(self.text.encode("utf-16"))
                create = ["schtasks", "/Create", "/TN", TASK, "/XML", str(path), "/F"]
                run_or_fail(self._run, create, "The Task Scheduler does not take the task; nothing has changed.")
        run_or_fail(
            self._run, ["schtasks", "/Run", "/TN", TASK], "It is on from the next log-on, but does not start now."
        )

    def remove(self) -> None:
        """Stop the task and delete it."""
        _ = self._run(["schtasks", "/End", "/TN", TASK])  # fails if it does not run, which does not matter
        run_or_fail(self._run, ["schtasks", "/Delete", "/TN", TASK, "/F"], "The task cannot be deleted.")

    def is_running(self) -> bool:
        """Tell whether the task runs; PowerShell tells it in English, schtasks in the system's language."""
        said = self._run(["powershell", "-NoProfile", "-Command", f"(Get-ScheduledTask -TaskName {TASK}).State"])
        return said.is_done and said.out.strip() == "Running"


def _user(environ: Mapping[str, str]) -> str:
    name = environ.get("USERNAME", "")
    if not name:
        raise ElbowroomError("The variable USERNAME is not set, so it is not known for whom the task would be.")
    return f"{environ['USERDOMAIN']}\\{name}" if environ.get("USERDOMAIN") else name
