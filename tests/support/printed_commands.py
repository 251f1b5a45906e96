"""The commands that a page of the docs prints, found in it and run as they are printed.

printed_commands.py PAGE HOME     runs those of a page with this home folder, and prints what came of each as JSON

It wants a network of its own (`unshare --net`), so that the ports are those of the page: there it starts a simulated LM
Studio at 1234, elbowroom at 2345 where the page does not start it itself, and the admin routes of Open WebUI at 8080.
"""

import asyncio
import fcntl
import json
import os
import re
import shlex
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, web

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

REPOSITORY: Final = Path(__file__).parents[2]
FENCE: Final = re.compile(
    r"(?:^<!-- elsewhere: (?P<elsewhere>[^\n]+?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
INLINE: Final = re.compile(r"`((?:elbowroom|scripts/\w+)(?: [^`\n]+)?)`")
SETTINGS: Final = '[[agents]]\nid = "writer"\nmodel = "qwen3-8b"\n'
SERVERS: Final = ("elbowroom serve", "elbowroom demo")
PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page; `elsewhere` is the reason why it belongs to another machine, empty where it is run."""

    language: str
    text: str
    elsewhere: str


@dataclass(frozen=True, slots=True)
class Printed:
    """A command as it is printed, with what the page says it prints; empty where the page does not say."""

    command: str
    output: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page's text."""
    return [
        Block(
            found["language"],
            re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            found["elsewhere"] or "",
        )
        for found in FENCE.finditer(page)
    ]


def commands(block: Block) -> list[Printed]:
    """Return the commands of a block: its lines, or those after `$ ` with what stands below them."""
    whole = re.sub(r" *\\\n *", " ", block.text)
    if block.language == "sh":
        lines = [re.sub(r"\s+#\s.*$", "", line) for line in whole.splitlines()]
        return [Printed(line, "") for line in lines if line.strip() and not line.startswith("#")]
    found = re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", whole, re.MULTILINE)
    return [Printed(command, output) for command, output in found]


def named_in_text(page: str) -> Iterator[list[str]]:
    """Yield the words of the commands that stand in the text of a page, up to what is left to the reader."""
    for found in INLINE.finditer(FENCE.sub("", page)):
        yield shlex.split(found[1].replace("...", ""))


def is_as_printed(output: str, printed: str, home: str) -> bool:
    """Tell whether a command has printed what a page says; `...` stands for any lines, or any text in one."""
    pattern = ""
    for line in printed.splitlines():
        if line == "...":
            pattern += r"(?:.*\n)*?"
            continue
        known = re.escape(line.replace("/home/me", home)).replace(r"\.\.\.", ".*")
        pattern += re.sub(r"[A-Z]{4}\\-\d{4}", r"[A-Z0-9]{4}-[A-Z0-9]{4}", known) + r"\n"
    return re.fullmatch(pattern, output if output.endswith("\n") else f"{output}\n") is not None


class Runner:
    """Runs commands one after another; a server goes on until the next one, or the end."""

    def __init__(self, home: Path) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        kept = {name: os.environ[name] for name in ("LANG",) if name in os.environ}
        self.environ = {**kept, "HOME": str(home), "PATH": path, "OPEN_WEBUI_KEY": ""}
        self._server: asyncio.subprocess.Process | None = None

    async def run(self, command: str) -> dict[str, Any]:
        """Run a command as a shell does and return what came of it."""
        is_server = command.startswith(SERVERS)
        if is_server:
            await self.end()
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-c", f"exec {command}" if is_server else command),
            env=self.environ,
            cwd=REPOSITORY,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        if is_server:
            self._server = process
            return {"command": command, "code": 0 if await self._answers() else 1, "output": ""}
        async with asyncio.timeout(PATIENCE):
            said, _ = await process.communicate()
        return {"command": command, "code": process.returncode, "output": said.decode()}

    async def _answers(self) -> bool:
        async with ClientSession() as http:
            for _ in range(600):
                try:
                    async with http.get("http://127.0.0.1:2345/health") as response:
                        return response.status == 200
                except OSError:
                    await asyncio.sleep(PATIENCE / 600)
        return False

    async def end(self) -> None:
        """End the server that runs."""
        if self._server is not None and self._server.returncode is None:
            self._server.terminate()
            await self._server.communicate()


async def open_webui(port: int) -> web.AppRunner:
    """Run the routes of Open WebUI's admin panel for connections, which asks elbowroom for its models as it does."""
    config: dict[str, Any] = {"OPENAI_API_BASE_URLS": [], "OPENAI_API_KEYS": [], "OPENAI_API_CONFIGS": {}}

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/openai/config/update":
            config.update(await request.json())
        elif request.path.startswith("/openai/models/"):
            async with ClientSession() as http, http.get("http://127.0.0.1:2345/v1/models") as models:
                return web.json_response(await models.json())
        return web.json_response(config)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


def bring_loopback_up() -> None:
    """Switch on the one interface of a new network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running


def furnish(home: Path, *, has_agent: bool) -> None:
    """Make the settings of a person, and a vault that Obsidian knows, with a plugin of another's in it."""
    for folder in (".config/elbowroom", ".config/obsidian", "Notes/.obsidian"):
        (home / folder).mkdir(parents=True)
    (home / ".config/elbowroom/settings.toml").write_text(SETTINGS if has_agent else "", encoding="utf-8")
    (home / "Notes/.obsidian/community-plugins.json").write_text('["dataview"]', encoding="utf-8")
    vaults = {"vaults": {"abc": {"path": str(home / "Notes"), "ts": 1, "open": True}}}
    (home / ".config/obsidian/obsidian.json").write_text(json.dumps(vaults), encoding="utf-8")


async def main(page: str, home: Path) -> list[dict[str, Any]]:
    """Run what the text of a page prints, in its order; a page whose commands name the agent `writer` has one."""
    found = [each for block in blocks(page) if not block.elsewhere for each in commands(block)]
    if not found:
        return []
    furnish(home, has_agent=any("writer" in each.output for each in found))
    runner = Runner(home)
    async with AsyncExitStack() as stack:
        model = SimulatedModel("qwen3-8b", loaded_context_length=32_768, max_context_length=32_768)
        await stack.enter_async_context(SimulatedLMStudio([model], port=1234))
        stack.push_async_callback((await open_webui(8080)).cleanup)
        stack.push_async_callback(runner.end)
        if not found[0].command.startswith(SERVERS):
            await runner.run("elbowroom serve")
        return [{**await runner.run(each.command), "printed": each.output} for each in found]


if __name__ == "__main__":
    bring_loopback_up()
    sys.stdout.write(json.dumps(asyncio.run(main(Path(sys.argv[1]).read_text(encoding="utf-8"), Path(sys.argv[2])))))
