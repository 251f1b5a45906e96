"""The wheel as a person gets it: built from the source archive, in an environment apart from the repository."""

import asyncio
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from command_line import Program

REPOSITORY: Final = Path(__file__).parents[2]
REGISTRY: Final = re.compile(r"(PIP|UV|SSL)_|\w+_CA_BUNDLE$|\w+_PROXY$", re.IGNORECASE)
"""Variables that say how this machine reaches the package registry, which are all that an installer may know of it."""
UNREACHABLE: Final = "the packages cannot be fetched (no network)"
PATIENCE: Final = 300.0


def bare(home: Path, **variables: str) -> dict[str, str]:
    """Return an environment for programs that leads to no program at all, so neither to git nor to a compiler."""
    known = {name: value for name, value in os.environ.items() if REGISTRY.match(name)}
    return {**known, "HOME": str(home), "LANG": "C.UTF-8", "PATH": str(home / "nowhere"), **variables}


def run(command: list[str | Path], environ: Mapping[str, str]) -> str:
    """Run a command that has to succeed and return what it said."""
    done = subprocess.run(
        [str(word) for word in command],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=environ["HOME"],
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
    return done.stdout


def build(folder: Path) -> Path:
    """Build the archives by the project's own script and return the wheel."""
    subprocess.run([sys.executable, REPOSITORY / "scripts" / "wheel", folder], check=True, stdout=subprocess.DEVNULL)
    [wheel] = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and how many seconds its making took, by the clock and of CPU."""

    home: Path
    wheel: Path
    downloads: dict[str, int]
    seconds: float
    used: float

    @property
    def python(self) -> Path:
        """Return its interpreter."""
        return self.home / "environment" / "bin" / "python"

    @property
    def program(self) -> Path:
        """Return the program that the wheel brings."""
        return self.home / "environment" / "bin" / "elbowroom"

    def said(self, *arguments: str, **variables: str) -> str:
        """Return what a command of the program says that has to succeed."""
        return run([self.program, *arguments], bare(self.home, **variables))

    @asynccontextmanager
    async def running(self, *arguments: str, **variables: str) -> AsyncIterator[Program]:
        """Start a command of the program that goes on, and see to it that it ends."""
        program = Program(
            await asyncio.create_subprocess_exec(
                *(str(self.program), *arguments),
                env=bare(self.home, **variables),
                cwd=self.home,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        )
        try:
            yield program
        finally:
            if program.process.returncode is None:
                program.process.kill()
                await program.process.communicate()


def children_seconds() -> float:
    """Return the seconds of CPU of all children of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def install(wheel: Path, home: Path) -> Installed:
    """Download what the wheel needs into a folder, and install from that folder alone; builds nothing."""
    began, before = time.monotonic(), children_seconds()
    downloads = home / "downloads"
    home.mkdir()
    environ = bare(home)
    run([sys.executable, "-m", "venv", home / "environment"], environ)
    pip: list[str | Path] = [home / "environment" / "bin" / "python", "-m", "pip", "--quiet"]
    fetch([*pip, "download", "--only-binary", ":all:", "--dest", downloads, wheel], environ)
    sizes = {file.name: file.stat().st_size for file in downloads.iterdir()}
    run([*pip, "install", "--no-index", "--find-links", downloads, wheel], environ)
    shutil.rmtree(downloads)
    return Installed(home, wheel, sizes, time.monotonic() - began, children_seconds() - before)


def fetch(command: list[str | Path], environ: Mapping[str, str]) -> str:
    """Run a command that fetches packages; skips the test where no package can be fetched at all."""
    try:
        return run(command, environ)
    except AssertionError:
        probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", environ["HOME"], "idna"]
        if subprocess.run(probe, env={**os.environ}, capture_output=True, check=False).returncode:
            pytest.skip(UNREACHABLE)
        raise
