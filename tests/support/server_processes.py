"""Several elbowroom servers on one PostgreSQL database: each a process of its own, on a port that stays its own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Final

import aiohttp
from command_line import PATIENCE, environment
from forks import Forked, can_fork
from postgresql import new_place
from processes import free_port

TOKEN: Final = "several-servers"
BEARER: Final = {"Authorization": f"Bearer {TOKEN}"}
LOOK_EVERY: Final = 0.05
AHEAD: Final = Path(__file__).with_name("ahead_process.py")


def starved(pid: int) -> float:
    """Return for how many seconds the first thread of a process has waited for a processor, where Linux tells."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


class OneServer:
    """One elbowroom, whose clock is so many seconds `ahead`; it can be stopped, killed, frozen and started again."""

    def __init__(self, folder: Path, settings: str, ahead: float = 0.0) -> None:
        self.port = free_port()
        self.folder = folder
        self._ahead = ahead
        self._process: asyncio.subprocess.Process | Forked | None = None
        self._log: IO[bytes] | None = None
        folder.mkdir(parents=True)
        (folder / "token").write_text(TOKEN, encoding="utf-8")
        text = settings.replace("[server]", f'[server]\nport = {self.port}\ntoken = "file:token"', 1)
        (folder / "settings.toml").write_text(text, encoding="utf-8")

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def starved(self) -> float:
        """Return for how many seconds its event loop has been ready to run and had no processor, where Linux tells."""
        return starved(self._process.pid) if self._process is not None else 0.0

    @property
    def url(self) -> str:
        """Return its address without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._log = (self.folder / "log").open("ab")
        self._process = await self._started(self._log.fileno())
        async with aiohttp.ClientSession() as http, asyncio.timeout(PATIENCE):
            while not await self.is_ready(http):
                assert self._process.returncode is None, self.said()
                await asyncio.sleep(LOOK_EVERY)

    async def _started(self, log: int) -> asyncio.subprocess.Process | Forked:
        command = ("serve", "--config", str(self.folder / "settings.toml"))
        own = environment(self.folder, ELBOWROOM_DATA_DIR=str(self.folder / "data"))
        if can_fork({}) and not self._ahead:
            nothing = os.open(os.devnull, os.O_RDONLY)
            try:
                return await asyncio.to_thread(Forked, command, own, (nothing, log, log))
            finally:
                os.close(nothing)
        program = (str(AHEAD), str(self._ahead)) if self._ahead else ("-m", "elbowroom")
        return await asyncio.create_subprocess_exec(
            sys.executable, *program, *command, env=own, stdout=log, stderr=asyncio.subprocess.STDOUT
        )

    async def is_ready(self, http: aiohttp.ClientSession) -> bool:
        """Ask whether it should be given requests."""
        try:
            async with http.get(f"{self.url}/ready") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill it."""
        await self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Let it stand still, as a machine does that sleeps."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def aclose(self) -> None:
        """Kill it where it still runs."""
        if self._process is not None:
            await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        assert self._log is not None
        process, self._process = self._process, None
        if process.returncode is None:
            process.send_signal(how)
        if isinstance(process, Forked):
            code = await asyncio.to_thread(process.wait, PATIENCE)
        else:
            async with asyncio.timeout(PATIENCE):
                code = await process.wait()
        self._log.close()
        return code

    def said(self) -> str:
        """Return what it has written so far."""
        return (self.folder / "log").read_text(encoding="utf-8")


@asynccontextmanager
async def server_processes(
    folder: Path,
    count: int,
    studios: Mapping[str, str],
    *,
    server: str = "",
    more: str = "",
    address: str = "",
    ahead: float = 0.0,
) -> AsyncIterator[tuple[Sequence[OneServer], str]]:
    """Run so many servers; yields them, and the address of their database.

    `studios` are the addresses of LM Studios by the ids of their providers, `server` the rest of `[server]`,
    `address` a database to use in place of a new one, and `ahead` the seconds by which the last one's clock is wrong.
    """
    home = folder / "lmstudio"  # an empty one: the models of this machine's own LM Studio are none of theirs
    home.mkdir(parents=True)
    kind = f"kind = 'lmstudio'\nhome = {json.dumps(str(home))}"
    providers = "".join(
        f"[[providers]]\nid = {json.dumps(name)}\nbase_url = {json.dumps(url)}\n{kind}\n"
        for name, url in studios.items()
    )
    async with AsyncExitStack() as stack:
        address = address or (await stack.enter_async_context(new_place())).address
        settings = f"[server]\n{server}\n[store]\nurl = {json.dumps(address)}\n{providers}{more}"
        clocks = [*[0.0] * (count - 1), ahead]
        servers = [OneServer(folder / f"server {number}", settings, clock) for number, clock in enumerate(clocks)]
        for each in servers:
            stack.push_async_callback(each.aclose)
        await asyncio.gather(*(each.start() for each in servers))
        yield servers, address
