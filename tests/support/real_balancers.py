"""The load balancers of `deploy/` as real programs, with the addresses of a test's servers in place of the names."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from command_line import PATIENCE
from processes import free_port

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
NAMED: Final = re.compile(r"elbowroom-(\d):2345")


@dataclass(frozen=True, slots=True)
class Kind:
    """A load balancer: its program, its file, how the file is checked, and how it is run in a folder."""

    program: str
    file: str
    check: tuple[str, ...]
    run: tuple[str, ...]


KINDS: Final = (
    Kind("haproxy", "haproxy.cfg", ("-c", "-f", "{file}"), ("-db", "-f", "{file}")),
    Kind("nginx", "nginx.conf", ("-t", "-p", "{folder}", "-c", "{file}"), ("-p", "{folder}", "-c", "{file}")),
    Kind("caddy", "Caddyfile", ("validate", "--config", "{file}"), ("run", "--config", "{file}")),
)
"""The adapter of Caddy is chosen by the file's name."""
NGINX: Final = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {text}
}}
"""
CADDY: Final = "{{\n\tadmin off\n\tauto_https off\n}}\n{text}"


def file_for(kind: Kind, folder: Path, ports: Sequence[int], port: int) -> Path:
    """Write its file of `deploy/` for servers on these ports of this machine."""
    text = (DEPLOY / kind.file).read_text(encoding="utf-8")
    assert NAMED.findall(text)
    if kind.program == "caddy":  # all servers stand in one line
        text = re.sub(r"( elbowroom-\d:2345)+", "".join(f" elbowroom-{n + 1}:2345" for n in range(len(ports))), text)
    lines = [line for line in text.splitlines() if all(int(number) <= len(ports) for number in NAMED.findall(line))]
    text = NAMED.sub(lambda found: f"127.0.0.1:{ports[int(found[1]) - 1]}", "\n".join(lines) + "\n")
    text = text.replace(":8080", f":{port}").replace("listen 8080", f"listen 127.0.0.1:{port}")
    around = {"nginx": NGINX, "caddy": CADDY}.get(kind.program, "{text}")
    path = folder / kind.file
    path.write_text(around.format(folder=folder, text=text), encoding="utf-8")
    return path


def command(kind: Kind, arguments: Sequence[str], file: Path) -> list[str]:
    """Return a command line; skips the test where the program is not installed."""
    program = shutil.which(kind.program)
    if program is None:
        pytest.skip(f"{kind.program} is not installed")
    return [program, *(part.format(file=file, folder=file.parent) for part in arguments)]


@asynccontextmanager
async def in_front(kind: Kind, folder: Path, ports: Sequence[int]) -> AsyncIterator[str]:
    """Run it in front of servers on these ports; yields its address."""
    port = free_port()
    given = command(kind, kind.run, file_for(kind, folder, ports, port))
    with (folder / "log").open("wb") as log:
        home = {"HOME": str(folder)}
        process = await asyncio.create_subprocess_exec(*given, stdout=log, stderr=log, cwd=folder, env=home)
        try:
            await _answers(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            await process.wait()


async def _answers(url: str) -> None:
    """Wait until a server in the back of it answers."""
    async with aiohttp.ClientSession() as http, asyncio.timeout(PATIENCE):
        while True:
            try:
                async with http.get(f"{url}/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)
