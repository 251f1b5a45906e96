"""Starts the programs of a run, keeps them on their cores, and reads what they use."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

MEBIBYTE = 2**20
HEALTH = "GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
START_DEADLINE = 60.0
POLL = 0.005


class StartFailed(Exception):
    """A program ended, or did not answer in time, instead of listening."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Where things run: the server under test on one core, the upstream and the client on another.

    None means that the system cannot pin, or has one core only.
    """

    server: int | None
    client: int | None

    @classmethod
    def of_this_machine(cls) -> Self:
        """Choose the first two cores that this process may use."""
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        return cls(allowed[0], allowed[1]) if len(allowed) > 1 else cls(None, None)


def pin(core: int | None) -> None:
    """Keep this process, and what it starts from now on, on one core; None changes nothing."""
    if core is not None and sys.platform != "win32" and sys.platform != "darwin":
        os.sched_setaffinity(0, {core})


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Program:
    """A running program that serves a port, and everything it starts in turn."""

    process: psutil.Popen
    port: int
    output: Path
    started_at: float = field(default_factory=time.perf_counter)

    def group(self) -> list[psutil.Process]:
        """Return the program's own process and all below it."""
        return [self.process, *self.process.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Return user and system time used so far by the program and its children, ended ones included."""
        ended = self.process.cpu_times()
        return sum(map(cpu_seconds, self.group())) + float(ended.children_user + ended.children_system)

    def rss(self) -> float:
        """Return resident memory of the program and its children in MiB; what they share counts each time."""
        return sum(map(rss, self.group())) / MEBIBYTE

    def wait_until_healthy(self) -> float:
        """Return seconds from the start of the process to the first 200 of `/health`, in steps of 5 ms."""
        while not answers_health(self.port):
            waited = time.perf_counter() - self.started_at
            if self.process.poll() is not None or waited > START_DEADLINE:
                said = self.output.read_text(errors="replace")[-2000:]
                raise StartFailed(f"{self.process.args} does not listen after {waited:.0f} s. It said:\n{said}")
            time.sleep(POLL)
        return time.perf_counter() - self.started_at

    def stop(self) -> None:
        """End the program and its children, kindly first."""
        with contextlib.suppress(psutil.NoSuchProcess):
            group = self.group()
            self.process.terminate()
            _, alive = psutil.wait_procs(group, timeout=5)
            for process in alive:
                process.kill()
        self.process.wait()


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of one process, 0 if it has ended; in nanosecond steps where the system can."""
    try:
        if sys.platform == "linux":
            clock = ~process.pid << 3 | 2  # the kernel's number for the CPU clock of this process
            return time.clock_gettime(clock)
        times = process.cpu_times()
        return float(times.user + times.system)
    except (OSError, psutil.NoSuchProcess):
        return 0.0


def rss(process: psutil.Process) -> float:
    """Return the resident bytes of one process, 0 if it has ended."""
    try:
        return float(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0.0


def answers_health(port: int) -> bool:
    """Ask once whether a server answers `/health` with 200."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(HEALTH.format(port=port).encode())
            return b" 200 " in connection.recv(4096).split(b"\r\n")[0]
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: `{port}` in the arguments stands for the port that the program is to serve."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, core: int | None, cores: Cores, output: Path) -> Iterator[Program]:
        """Run the program on a core for as long as the block lasts, with what it says in a file.

        A child inherits its parent's core, so it is pinned before its first instruction.
        """
        port = free_port()
        arguments = [argument.replace("{port}", str(port)) for argument in self.arguments]
        with output.open("wb") as file:
            pin(core)
            try:
                process = psutil.Popen(arguments, stdout=file, stderr=file, env={**os.environ, **self.environment})
            finally:
                pin(cores.client)
        program = Program(process, port, output)
        try:
            yield program
        finally:
            program.stop()
