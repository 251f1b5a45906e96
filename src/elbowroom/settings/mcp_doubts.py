"""MCP servers of the settings that cannot work as they are written: a program that is not there, one switched off."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from elbowroom.settings.model import Settings
from elbowroom.settings.tool_sections import McpServerSettings


def doubtful_servers(settings: Settings, folder: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each program that is not found, and each server that an agent names and that is disabled.

    `folder` is the one of the settings file.
    """
    for index, server in enumerate(settings.mcp_servers):
        if server.enabled and server.command and not _is_found(server, folder, environ):
            yield (
                f"mcp_servers[{index}].command: the program {server.command[0]!r} is not found; "
                f"the tools of {server.name!r} are missing until it is."
            )
    disabled = {server.name for server in settings.mcp_servers if not server.enabled}
    for index, agent in enumerate(settings.agents):
        for name in dict.fromkeys(name.partition("/")[0] for name in agent.mcp if agent.enabled):
            if name in disabled:
                yield (
                    f"agents[{index}].mcp: the MCP server {name!r} is not enabled; {agent.id!r} goes without its tools."
                )


def _is_found(server: McpServerSettings, folder: Path, environ: Mapping[str, str]) -> bool:
    program = os.path.expanduser(server.command[0])
    if os.path.dirname(program):
        start = folder / os.path.expanduser(server.cwd) if server.cwd else ""
        return shutil.which(os.path.join(start, program)) is not None
    path = environ.get("PATH")
    return path is None or shutil.which(program, path=path) is not None
