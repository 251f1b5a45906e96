"""Starts the real program without its start-up: a process that has loaded elbowroom forks for each command.

Each command is a process of its own, with arguments, environment, standard streams, signals and an exit code of its
own; what it saves is a second or two of imports.
"""

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

AT_START = ("PYTHON", "LC_", "LANG")
"""What variables begin with that Python reads as it starts: a fork comes too late for them."""
SPOKEN = "PYTHONUTF8"
"""With 1 it says what a fork does anyway."""
LOADED = (
    "elbowroom.cli",
    "elbowroom.server.listen",
    "elbowroom.store",
    "elbowroom.store.sql",
    "elbowroom.agents.run",
    "elbowroom.agents.dry_run",
    "elbowroom.demo",
)


def can_fork(variables: Mapping[str, str]) -> bool:
    """Tell whether a command with these variables can be forked instead of started."""
    told = {name for name in variables if name.startswith(AT_START)}
    return sys.platform == "linux" and told <= {SPOKEN} and variables.get(SPOKEN, "1") == "1"


class Forked:
    """A command in a process of its own, with the part of `asyncio.subprocess.Process` that tests use."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], streams: Sequence[int]) -> None:
        self._news, told = socket.socketpair()
        asked = json.dumps([list(command), dict(environ)]).encode()
        server = _server()
        with told:
            socket.send_fds(server, [len(asked).to_bytes(4)], [*streams, told.fileno()])
            server.sendall(asked)
        self._lines = self._news.makefile()
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None
        self.stdout: asyncio.StreamReader | None = None

    def wait(self, seconds: float | None = None) -> int:
        """Return the exit code once the command has ended; a signal that ended it is negative."""
        if self.returncode is None:
            self._news.settimeout(seconds)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._news.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the command."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the command at once."""
        self.send_signal(signal.SIGKILL)

    async def communicate(self) -> tuple[bytes, None]:
        """Return the rest of the output once the command has ended."""
        assert self.stdout is not None
        rest = await self.stdout.read()
        await asyncio.to_thread(self.wait)
        return rest, None


async def forked(command: Sequence[str], environ: Mapping[str, str]) -> Forked:
    """Start a command whose stdout and stderr are one stream to be read."""
    reader, writer = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    process = await asyncio.to_thread(Forked, command, environ, (nothing, writer, writer))
    os.close(nothing)
    os.close(writer)
    process.stdout = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(process.stdout)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(reader, "rb"))
    return process


@functools.cache
def _server() -> socket.socket:
    """Start the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


def _serve(asked: socket.socket) -> None:
    """Fork for each request until nobody can ask any more."""
    while True:
        size, streams, _, _ = socket.recv_fds(asked, 4, 4)
        if not size:
            return
        command, environ = json.loads(asked.recv(int.from_bytes(size), socket.MSG_WAITALL))
        if not os.fork():
            asked.close()
            _watch(command, environ, streams)
        for stream in streams:
            os.close(stream)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _watch(command: list[str], environ: dict[str, str], streams: list[int]) -> None:
    """Fork once more, run the command there, and tell its process id and its exit code here."""
    program = os.fork()
    if not program:
        os.close(streams.pop())
        _run(command, environ, streams)
    for stream in streams[:-1]:
        os.close(stream)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=streams[-1]) as news:
        news.sendall(b"%d\n" % program)
        _, status = os.waitpid(program, 0)
        with contextlib.suppress(OSError):
            news.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(command: list[str], environ: dict[str, str], streams: list[int]) -> None:
    """Become the command, as far as anybody can see."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in set(streams):
        os.close(stream)
    sys.stdin = _stream(0, "r", "strict")
    sys.stdout = _stream(1, "w", "strict")
    sys.stderr = _stream(2, "w", "backslashreplace")
    sys.argv = ["elbowroom", *command]
    os.environ.clear()
    os.environ.update(environ)
    random.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    from elbowroom.cli import main

    try:
        code = main()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    # What a program does at its end, but for giving back each object of the many that were loaded before the fork.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _stream(number: int, mode: str, errors: str) -> IO[str]:
    return open(number, mode, encoding="utf-8", errors=errors, buffering=1 if number == 2 else -1, closefd=False)


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
