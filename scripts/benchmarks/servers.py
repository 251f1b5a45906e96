"""The servers that are compared: the upstream directly, the control relay, and elbowroom in front of the upstream.

"forgetful" is an elbowroom that keeps no conversations, "other" the elbowroom of another checkout. A name may end with
what is special about the server's data: "elbowroom with a year" has the store of a server that has long been in use.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from model_file import QWEN_2, UNKNOWN, write_model_file
from processes import Command, Cores, Program, pin
from upstream import FILE_MODEL, MODEL, UNKNOWN_TEMPLATE_MODEL

HERE = Path(__file__).parent
NAMES = ("direct", "control", "elbowroom")
FORGETFUL: Final = "forgetful"
"""It shows what keeping conversations costs; it is no column of the table."""
OTHER: Final = "other"
AGED: Final = " with a year"
EMPTY: Final = " with nothing"
GROWING: Final = " that grows"
"""Ends of the names of servers whose data are their own: nothing else in the run has asked them."""
HOME = HERE.parents[1]
SERVE = ("serve", "--host", "127.0.0.1", "--port", "{port}")
SCRIPTS_RUN = (sys.executable, str(HOME / "scripts" / "run"), *SERVE)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with the source of an elbowroom, its environment `.venv` and its bench."""

    folder: Path

    @property
    def python(self) -> str:
        """Return the interpreter of its environment; this process's own for this checkout."""
        if self.folder == HOME:
            return sys.executable
        return str(self.folder / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    @property
    def bench(self) -> Path:
        """Return the folder of its bench, which older checkouts have among the tests."""
        folder = self.folder / "scripts" / "benchmarks"
        return folder if folder.exists() else self.folder / "tests" / "bench"

    def serve(self) -> tuple[str, ...]:
        """Return the command that starts its elbowroom."""
        return (self.python, "-m", "elbowroom", *SERVE)

    def evaluate(self, code: str) -> Any:
        """Run code with its interpreter, where modules of its bench can be imported; return the JSON it prints."""
        done = subprocess.run([self.python, "-c", code], env=self._environment(), stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.bench)}


@dataclass(frozen=True, slots=True)
class Server:
    """One way to the upstream's answers, and the program that serves it."""

    name: str
    program: Program

    @property
    def is_direct(self) -> bool:
        """Tell whether this is the upstream itself, which has no server in between that could cost CPU."""
        return self.name == "direct"

    @property
    def is_elbowroom(self) -> bool:
        """Tell whether this is an elbowroom, of whatever checkout and settings."""
        return self.name not in ("direct", "control")

    @property
    def model(self) -> str:
        """The name under which this server knows the upstream's model."""
        return f"lmstudio/{MODEL}" if self.is_elbowroom else MODEL


@dataclass(frozen=True, slots=True)
class Rig:
    """What every measurement needs: the running upstream, the cores, a folder, how elbowroom is started.

    `checkouts` are the sources that are compared: "elbowroom", and "other" where there is another one.
    """

    upstream: Program
    cores: Cores
    folder: Path
    elbowroom: Sequence[str]
    model_files: Mapping[str, Path]
    checkouts: Mapping[str, Checkout]

    def command(self, name: str) -> Command:
        """Return the command that starts a server by name, or elbowroom through "scripts/run"."""
        url = f"http://127.0.0.1:{self.upstream.port}"
        if name == "control":
            return Command((sys.executable, str(HERE / "control_relay.py"), "{port}", url))
        chosen = {"scripts/run": SCRIPTS_RUN}.get(name, self.elbowroom)
        data, home = self.data_folder(name), self.folder / "lmstudio"
        if name.split()[0] == OTHER:
            chosen = self.checkouts[OTHER].serve()
        home.mkdir(exist_ok=True)  # an empty one: the models of this machine's own LM Studio are none of ours
        settings = data.with_suffix(".toml")
        provider = {"id": "lmstudio", "kind": "lmstudio", "base_url": url, "home": str(home)}
        lines = [f"{key} = {json.dumps(value)}" for key, value in provider.items()]
        files = [f"{json.dumps(model)} = {json.dumps(str(path))}" for model, path in self.model_files.items()]
        kept = f"[store]\nconversations = {json.dumps(name != FORGETFUL)}\n"
        settings.write_text("\n".join([kept, "[[providers]]", *lines, "[providers.model_files]", *files, ""]))
        environment = {"ELBOWROOM_CONFIG": str(settings), "ELBOWROOM_DATA_DIR": str(data)}
        return Command(tuple(argument.replace("{upstream}", url) for argument in chosen), environment)

    def data_folder(self, name: str) -> Path:
        """Return the folder of a server's data."""
        return self.folder / ("elbowroom" if name == "scripts/run" else name.replace(" ", "-"))

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[Program]:
        """Run a server on the server core for as long as the block lasts; it may not listen yet."""
        log = self.folder / f"{name.replace('/', '-')}.log"
        with self.command(name).running(self.cores.server, self.cores, log) as program:
            yield program


@contextlib.contextmanager
def rig(elbowroom: Sequence[str] | None, other: Path | None) -> Iterator[Rig]:
    """Pin this process to the client's core, and run the upstream beside it."""
    checkouts = {"elbowroom": Checkout(HOME)} | ({OTHER: Checkout(other.resolve())} if other else {})
    cores = Cores.of_this_machine()
    pin(cores.client)
    upstream = Command((sys.executable, str(HERE / "upstream.py"), "{port}"))
    with tempfile.TemporaryDirectory(prefix="elbowroom-bench-") as name:
        folder = Path(name)
        with upstream.running(cores.client, cores, folder / "upstream.log") as program:
            program.wait_until_healthy()
            files = model_files_in(folder)
            yield Rig(program, cores, folder, elbowroom or Checkout(HOME).serve(), files, checkouts)


def model_files_in(folder: Path) -> dict[str, Path]:
    """Write the files of those models that have one on this machine."""
    files = {}
    for model, template in ((FILE_MODEL, QWEN_2), (UNKNOWN_TEMPLATE_MODEL, UNKNOWN)):
        files[model] = folder / f"{model}.gguf"
        write_model_file(files[model], template)
    return files


@contextlib.contextmanager
def servers_running(names: Sequence[str], rig: Rig) -> Iterator[list[Server]]:
    """Run the servers of these names side by side; those that are not visited wait without work."""
    with contextlib.ExitStack() as stack:
        servers = []
        for name in names:
            program = rig.upstream
            if name != "direct":
                program = stack.enter_context(rig.running(name))
                program.wait_until_healthy()
            servers.append(Server(name, program))
        yield servers
