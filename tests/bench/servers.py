"""The servers that are compared: the upstream directly, the control relay, and elbowroom in front of it."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from processes import Command, Cores, Program
from upstream import MODEL

HERE = Path(__file__).parent
NAMES = ("direct", "control", "elbowroom")
ELBOWROOM = (sys.executable, "-m", "elbowroom", "serve", "--host", "127.0.0.1", "--port", "{port}")
SCRIPTS_RUN = (sys.executable, str(HERE.parents[1] / "scripts" / "run"), *ELBOWROOM[3:])


@dataclass(frozen=True, slots=True)
class Server:
    """One way to the upstream's answers: under which model name, and which program serves it."""

    name: str
    model: str
    program: Program

    @property
    def is_direct(self) -> bool:
        """Tell whether this is the upstream itself, which has no server in between that could cost CPU."""
        return self.name == "direct"


def command_of(name: str, upstream: int, folder: Path, elbowroom: Sequence[str]) -> Command:
    """Return the command that starts a server by name; `folder` takes elbowroom's settings and data."""
    url = f"http://127.0.0.1:{upstream}"
    if name == "control":
        return Command((sys.executable, str(HERE / "control_relay.py"), "{port}", url))
    settings = folder / "settings.toml"
    (folder / "lmstudio").mkdir(exist_ok=True)
    home = json.dumps(str(folder / "lmstudio"))  # the models of this machine's own LM Studio are none of ours
    settings.write_text(
        f'[[providers]]\nid = "lmstudio"\nkind = "lmstudio"\nbase_url = "{url}"\nhome = {home}\n'
    )
    data = folder / "data"
    environment = {"ELBOWROOM_CONFIG": str(settings), "ELBOWROOM_DATA_DIR": str(data)}
    return Command(tuple(argument.replace("{upstream}", url) for argument in elbowroom), environment)


def model_of(name: str) -> str:
    """Return the model name under which a server knows the upstream's model."""
    return f"lmstudio/{MODEL}" if name == "elbowroom" else MODEL


@contextlib.contextmanager
def upstream_running(cores: Cores, folder: Path) -> Iterator[Program]:
    """Run the upstream on the client's core."""
    command = Command((sys.executable, str(HERE / "upstream.py"), "{port}"))
    with command.running(cores.client, cores, folder / "upstream.log") as program:
        program.wait_until_healthy()
        yield program


@contextlib.contextmanager
def servers_running(
    names: Sequence[str], upstream: Program, cores: Cores, folder: Path, elbowroom: Sequence[str]
) -> Iterator[list[Server]]:
    """Run the servers of these names, each on the server core; the idle ones wait there without work."""
    with contextlib.ExitStack() as stack:
        servers = []
        for name in names:
            program = upstream
            if name != "direct":
                command = command_of(name, upstream.port, folder, elbowroom)
                program = stack.enter_context(command.running(cores.server, cores, folder / f"{name}.log"))
                program.wait_until_healthy()
            servers.append(Server(name, model_of(name), program))
        yield servers
