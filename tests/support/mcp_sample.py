"""The sample MCP server as elbowroom's settings name it, and its processes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from settings_file import load
from waiting import until

from elbowroom.agents.tools.mcp.servers import McpServers
from elbowroom.agents.tools.tool import ServerTool, ToolResult
from elbowroom.settings.load import LoadedSettings

SCRIPT = Path(__file__).with_name("mcp_sample_server.py")
PLAIN = SCRIPT.with_name("mcp_plain_server.py")


def stdio_server(name: str, journal: Path, *lines: str, is_old: bool = False) -> str:
    """Return the settings of a sample server that is started as a program."""
    command = [sys.executable, str(SCRIPT), "stdio", str(journal), *(["--old"] if is_old else [])]
    return program(name, command, *lines)


def plain_server(name: str, journal: Path) -> str:
    """Return the settings of a server without the library of MCP, which takes a second to load."""
    return program(name, [sys.executable, str(PLAIN), str(journal)])


def program(name: str, command: Sequence[str], *lines: str) -> str:
    """Return the settings of a server that is started by some command."""
    return "\n".join(["[[mcp_servers]]", f'name = "{name}"', f"command = {json.dumps(command)}", *lines, ""])


def http_server(name: str, url: str, *lines: str) -> str:
    """Return the settings of a server at an address."""
    return "\n".join(["[[mcp_servers]]", f'name = "{name}"', f'url = "{url}"', *lines, ""])


@dataclass(slots=True)
class Sample:
    """The servers of some settings, with the journals of the sample servers in `folder`."""

    folder: Path
    servers: McpServers
    loaded: LoadedSettings

    @classmethod
    def of(cls, folder: Path, settings: str, first_pause: float = 60.0, **environ: str) -> "Sample":
        """Return the servers of a settings file, none of them connected."""
        return cls(folder, McpServers(environ, first_pause), load(folder, settings, environ))

    def change(self, settings: str) -> None:
        """Change the settings file."""
        self.loaded = load(self.folder, settings)

    async def tools(self, *names: str) -> list[ServerTool]:
        """Return what an agent with these names in its `mcp` has."""
        return await self.servers.tools(self.loaded, names)

    async def until_offered(self, server: str, name: str) -> None:
        """Return once a server offers a tool; raise AssertionError where it does not in 20 seconds."""
        for _ in range(1000):
            if name in [tool.name for tool in await self.tools(server)]:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{server} does not offer {name}")

    async def call(self, server: str, name: str, **arguments: object) -> ToolResult:
        """Call one tool of a server."""
        (tool,) = await self.tools(f"{server}/{name}")
        result = await tool.call(arguments)
        assert isinstance(result, ToolResult)
        return result

    def journal(self, name: str) -> list[str]:
        """Return what a sample server has written down."""
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@asynccontextmanager
async def sample_on_http(folder: Path, journal: str, *, is_old: bool = False) -> AsyncIterator[tuple[str, int]]:
    """Run a sample server on HTTP; give its address and the id of its process. It takes the port it had before."""
    (folder / journal).touch()
    port = folder / f"{journal}.port"
    before = port.stat().st_mtime_ns if port.exists() else 0
    options = [str(folder / journal), str(port), *(["--old"] if is_old else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), "http", *options, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: port.exists() and port.stat().st_mtime_ns != before and port.read_text())
        yield f"http://127.0.0.1:{port.read_text()}/mcp", process.pid
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
