"""Programs that stand in for systemctl, launchctl and schtasks: they remember what they are told, and note it down."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

SCRIPT = """\
#!{python} -IS
import os, sys  # and nothing that takes longer to import than all else takes

state, name, given = {state!r}, os.path.basename(sys.argv[0]), sys.argv[1:]
with open(f"{{state}}/journal", "a", encoding="utf-8") as journal:
    journal.write(" ".join([name, *given]) + "\\n")


def has(what):
    return os.path.exists(f"{{state}}/{{what}}")


def end(is_done, out="", errors=""):
    sys.stdout.buffer.write(out.encode())
    sys.stderr.write(errors)
    sys.exit(0 if is_done else 1)


def put(what, is_there=True):
    if is_there:
        open(f"{{state}}/{{what}}", "a").close()
    elif has(what):
        os.unlink(f"{{state}}/{{what}}")


if name == "systemctl":
    verb = given[1]
    if has("no systemd"):
        end(False, errors="Failed to connect to bus: No medium found\\n")
    if verb in ("start", "restart"):
        put("running", not has("broken"))
        end(not has("broken"), errors="Job for elbowroom.service failed.\\n" if has("broken") else "")
    if verb in ("enable", "disable"):
        put("enabled", verb == "enable")
        put("running", verb == "enable" and has("running"))
    end(verb != "is-active" or has("running"))
if name == "launchctl":
    verb = given[0]
    if verb == "print":
        if given[1].count("/") == 1:
            end(not has("no session"), errors="Could not find domain\\n")
        end(has("running"), out="state = running\\n" if has("running") else "")
    if verb == "bootstrap":
        if has("ending"):
            put("ending", False)
            end(False, errors="Bootstrap failed: 5: Input/output error\\n")
        put("running")
    if verb == "bootout":
        put("running", False)
        put("ending")
    end(True)
if name == "schtasks":
    task = f"{{state}}/task.xml"
    if given[0] == "/Create":
        with open(given[given.index("/XML") + 1], "rb") as written, open(task, "wb") as kept:
            kept.write(written.read())
    if given[0] == "/Query":
        if not has("task.xml"):
            end(False, errors="ERROR: not found.")
        with open(task, encoding="utf-16", newline="") as kept:
            end(True, out=kept.read())
    if given[0] in ("/Run", "/End"):
        put("running", given[0] == "/Run")
    if given[0] == "/Delete":
        os.unlink(task)
    end(True)
if name == "powershell":
    end(True, out="Running\\n" if has("running") else "Ready\\n")
"""


@dataclass(frozen=True, slots=True)
class FakeSystem:
    """A folder of such programs, to be put first on the PATH, and what they remember."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "FakeSystem":
        """Return one that has been told nothing yet."""
        system = cls(folder)
        system.programs.mkdir(parents=True)
        for name in ("systemctl", "launchctl", "schtasks", "powershell"):
            path = system.programs / name
            path.write_text(SCRIPT.format(python=sys.executable, state=str(folder)), encoding="utf-8")
            path.chmod(0o755)
        return system

    @property
    def programs(self) -> Path:
        """Return the folder of the programs."""
        return self.folder / "programs"

    @property
    def path(self) -> str:
        """Return a PATH on which the programs come first."""
        return f"{self.programs}{os.pathsep}{os.environ['PATH']}"

    def be(self, what: str) -> None:
        """Let it be in a state: `no systemd`, `no session`, `broken`."""
        (self.folder / what).touch()

    def has(self, what: str) -> bool:
        """Tell whether it is in a state: `running`, `enabled`."""
        return (self.folder / what).exists()

    def told(self) -> list[str]:
        """Return the commands since this was asked last, without those that only ask."""
        journal = self.folder / "journal"
        lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
        journal.unlink(missing_ok=True)
        asking = (" show ", " print ", " is-active ", "/Query", "/?", "powershell")
        return [line for line in lines if not any(word in line for word in asking)]
