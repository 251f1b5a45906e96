"""Client libraries of other people, each in a process of its own: installed once, then driven scenario by scenario."""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from command_line import environment

RUNNERS: Final = Path(__file__).parents[1] / "clients"
INSTALL_SECONDS: Final = 400.0
PATIENCE: Final = 60.0
OLDEST_NODE: Final = 20
Line = dict[str, Any]


class LibraryUnavailableError(Exception):
    """The libraries cannot be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library: its packages, the folder and file of its runner, what its command line takes behind the scenario."""

    packages: tuple[str, ...]
    folder: str
    runner: str
    options: tuple[str, ...] = ()


LIBRARIES: Final = {
    "openai (Python)": Library(("openai",), "py", "run_openai.py"),
    "openai (JavaScript)": Library(("openai",), "js", "run_openai.mjs"),
    "LangChain (Python)": Library(("langchain-openai", "langchain-core"), "py", "run_langchain.py"),
    "LangChain (JavaScript)": Library(("@langchain/openai", "@langchain/core"), "js", "run_langchain.mjs"),
    "LangChain (JavaScript), responses": Library(
        ("@langchain/openai", "@langchain/core"), "js", "run_langchain.mjs", ("responses",)
    ),
    "AI SDK, compatible provider": Library(("@ai-sdk/openai-compatible", "ai"), "js", "run_ai_sdk.mjs"),
    "AI SDK, OpenAI provider": Library(("@ai-sdk/openai", "ai"), "js", "run_ai_sdk.mjs", ("openai",)),
}


@dataclass(slots=True)
class Heard:
    """What a library handed out: pieces of text, then how it ended, with one of `end` and `error`."""

    deltas: list[str] = field(default_factory=list)
    end: Line = field(default_factory=dict)
    error: Line = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.deltas)

    def take(self, line: Line) -> None:
        """Take one line of a runner."""
        if "delta" in line:
            self.deltas.append(line["delta"])
        self.end = line.get("end", self.end)
        self.error = line.get("error", self.error)


def versions(library: Library) -> list[str]:
    """Return the packages of a library with the versions that its lock file names."""
    if library.folder == "js":
        locked = json.loads((RUNNERS / "js" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
        return [f"{name} {locked[f'node_modules/{name}']['version']}" for name in library.packages]
    lines = (RUNNERS / "py" / "requirements.lock").read_text(encoding="utf-8").split("\n")
    found = dict(line.split()[0].split("==") for line in lines if "==" in line)
    return [f"{name} {found[name]}" for name in library.packages]


def installed(folder: str, cache: Path) -> list[str]:
    """Return the command that runs a runner of this folder, but for the runner's own path.

    The packages of its lock file are installed below `cache` where they are not yet.
    Raises LibraryUnavailableError.
    """
    source = RUNNERS / folder
    lock, install = (
        (source / "package-lock.json", install_npm) if folder == "js" else (source / "requirements.lock", _pip)
    )
    home = cache / f"clients-{folder}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        install(source, home)
        (home / "ready").touch()
    for runner in (*source.glob("*.mjs"), *source.glob("*.py")):
        shutil.copy(runner, home)
    return [_node() if folder == "js" else str(_python_in(home)), str(home)]


def _node() -> str:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise LibraryUnavailableError("Node.js is not installed")
    if int(_ran([node, "--version"], RUNNERS, 30).strip().lstrip("v").split(".")[0]) < OLDEST_NODE:
        raise LibraryUnavailableError("Node.js is too old")
    return node


def install_npm(source: Path, home: Path) -> None:
    """Install the packages of the lock file in `source` below `home`. Raises LibraryUnavailableError."""
    _node()
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(source / name, home)
    _ran([shutil.which("npm") or "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], home, INSTALL_SECONDS)


def _pip(source: Path, home: Path) -> None:
    _ran([sys.executable, "-m", "venv", str(home)], source, INSTALL_SECONDS)
    command = [str(_python_in(home)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _ran([*command, "--require-hashes", "--requirement", "requirements.lock"], source, INSTALL_SECONDS)


def _python_in(home: Path) -> Path:
    return home / "Scripts" / "python.exe" if os.name == "nt" else home / "bin" / "python"


def _ran(command: list[str], folder: Path, seconds: float) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired as error:
        raise LibraryUnavailableError(f"{command[0]} did not finish within {seconds:.0f} s") from error
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if "error" in line.lower()] or ["no word why"]
        raise LibraryUnavailableError(f"the packages cannot be fetched: {said[0]}") from error
    return done.stdout


class Runner:
    """The process of a library while it answers one request; `heard` grows as it goes on."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.heard = Heard()

    async def ended(self) -> Heard:
        """Read to the end and return what was heard; fails where the runner fails otherwise than by an error told."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            async for line in self._process.stdout:
                self.heard.take(json.loads(line))
            said = (await self._process.stderr.read()).decode()
            await self._process.wait()
        assert bool(self.heard.end) != bool(self.heard.error), said
        return self.heard


@asynccontextmanager
async def asking(
    command: list[str], library: Library, base: str, scenario: str, request: Line
) -> AsyncIterator[Runner]:
    """Have a library play a scenario against the server at `base`, and see to it that its process ends."""
    program, home = command
    process = await asyncio.create_subprocess_exec(
        *(program, str(Path(home, library.runner)), base, scenario, *library.options),
        env=environment(Path(home)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode())
        process.stdin.write_eof()
        yield Runner(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
