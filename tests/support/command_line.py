"""The real program in a process of its own: `python -m elbowroom`, with an environment of its own.

Where forks are to be had a command is forked from a process that has loaded the program; with `is_fresh` it is started.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from forks import Forked, can_fork, forked

PATIENCE = 60.0
"""Seconds that a test waits for what takes one: only a program that hangs gets there."""


def environment(home: Path, **variables: str) -> dict[str, str]:
    """Return an environment with this home folder, no variable of elbowroom's but these, and no proxy."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LANG") if name in os.environ}
    return {**kept, "HOME": str(home), "USERPROFILE": str(home), "APPDATA": str(home), **variables}


def run(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself and return its exit code and what it said."""
    return run_with_input(b"", home, *arguments, **variables)


def run_with_input(stdin: bytes, home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that reads this."""
    if not can_fork(variables):
        done = subprocess.run(
            [sys.executable, "-m", "elbowroom", *arguments],
            env=environment(home, **variables),
            input=stdin,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, _text(done.stdout), _text(done.stderr))
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        given.write(stdin)
        files = (given, out, errors)
        for file in files:
            file.seek(0)
        process = Forked(arguments, environment(home, **variables), [file.fileno() for file in files])
        code = process.wait(PATIENCE)
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, _text(out.read()), _text(errors.read()))


def _text(said: bytes) -> str:
    return said.decode().replace("\r\n", "\n")


class Program:
    """A running elbowroom; `said` is everything it has written so far, to stdout and stderr alike."""

    def __init__(self, process: asyncio.subprocess.Process | Forked) -> None:
        self.process = process
        self.said = ""

    async def line_with(self, words: str) -> str:
        """Return the first line, from here on, that has these words in it."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while line := (await self.process.stdout.readline()).decode():
                self.said += line
                if words in line:
                    return line.rstrip()
        raise AssertionError(f"It ended without saying {words!r}:\n{self.said}")

    async def address(self) -> str:
        """Return the address that it says, or has said, can be pasted into clients, without the path."""
        said = [line for line in self.said.splitlines() if "Paste this" in line and "http" in line]
        line = said[0] if said else await self.line_with("Paste this")
        if "http" not in line:  # the demo puts it on the next one
            line = await self.line_with("http")
        return line.split()[-1].removesuffix("/v1")

    async def end(self, signal_number: int) -> int:
        """Send a signal, read the rest and return the exit code."""
        self.process.send_signal(signal_number)
        return await self.ended()

    async def ended(self) -> int:
        """Read the rest and return the exit code."""
        async with asyncio.timeout(PATIENCE):
            rest, _ = await self.process.communicate()
        self.said += rest.decode()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def running(
    home: Path, *arguments: str, variables: Mapping[str, str] | None = None, is_fresh: bool = False
) -> AsyncIterator[Program]:
    """Start a command that goes on, and see to it that it ends."""
    own, process = environment(home, **(variables or {})), None
    if is_fresh or not can_fork(variables or {}):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "elbowroom", *arguments),
            env=own,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    program = Program(process or await forked(arguments, own))
    try:
        yield program
    finally:
        if program.process.returncode is None:
            program.process.kill()
            await program.process.communicate()
