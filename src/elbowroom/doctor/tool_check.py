"""Checks of what agents work with: MCP servers start and have the tools that are named, the vault can be read."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elbowroom.doctor.finding import Finding, names
from elbowroom.doctor.mcp_offers import names_of
from elbowroom.doctor.patient_thread import in_thread
from elbowroom.doctor.subject import Subject
from elbowroom.settings.model import AgentSettings, Settings
from elbowroom.settings.paths import expanded
from elbowroom.settings.tool_names import VAULT, VAULT_WRITERS
from elbowroom.settings.vault_folders import missing_folders

if TYPE_CHECKING:
    from elbowroom.agents.mcp_tools import McpTool

MCP: Final = "mcp"
NOTES: Final = "vault"


async def check_mcp(subject: Subject) -> list[Finding]:
    """Return which MCP servers do not start, and which tools agents name that are not there."""
    settings = subject.loaded.settings
    findings, working = [], []
    for index, server in enumerate(settings.mcp_servers):
        users = [agent for agent in settings.agents if agent.enabled and server.name in map(_server_of, agent.mcp)]
        if not server.enabled:
            findings += of_disabled(server.name, users)
            continue
        offer = await subject.offers.of(server.name)
        where = f"mcp_servers[{index}]: {server.name}"
        if isinstance(offer, str):
            without = f" Agents without its tools until then: {names([agent.id for agent in users])}." if users else ""
            what = f"It cannot be used: {offer}.{without}"
            started = f"Start it by hand to see what it says: {server.command[0]} ..." if server.command else "Start it"
            remedy = f"{started}, and correct {'command, cwd or env' if server.command else 'url or headers'}."
            findings.append(Finding("fail", MCP, what, where, remedy))
            continue
        findings += [found for agent in users for found in of_named_tools(agent, server.name, offer)]
        working.append(f"{server.name} ({len(offer)} tools)")
    return findings or ([Finding("ok", MCP, f"Connected: {names(working)}.")] if working else [])


def of_disabled(server: str, users: list[AgentSettings]) -> list[Finding]:
    """Return that agents name a server that is switched off."""
    if not users:
        return []
    what = f"It is not enabled; agents without its tools: {names([agent.id for agent in users])}."
    return [Finding("warn", MCP, what, f"mcp_servers: {server}", "Set enabled = true, or remove it from their mcp.")]


def of_named_tools(agent: AgentSettings, server: str, offer: Sequence["McpTool"]) -> list[Finding]:
    """Return the tools that an agent names and the server does not have."""
    known = {name for tool in offer for name in names_of(tool)}
    there = f"It has: {names([tool.name for tool in offer], 20)}."
    wanted = [name.partition("/")[2] for name in agent.mcp if _server_of(name) == server and "/" in name]
    return [
        Finding("warn", MCP, f"{server!r} has no tool {name!r}.", f"agent {agent.id}: mcp", there)
        for name in wanted
        if name not in known
    ]


async def check_vault(subject: Subject) -> list[Finding]:
    """Return what is wrong with the folder of notes."""
    return await in_thread(lambda: of_vault(subject.loaded.settings))


def of_vault(settings: Settings) -> list[Finding]:
    """Look at the vault of the settings; nothing is said where there is none. For threads."""
    if not settings.vault.path:
        return []
    root = expanded(settings.vault.path)
    where = f"vault.path = {settings.vault.path!r}"
    if not root.exists():
        return [Finding("fail", NOTES, "There is no such folder.", where, "Correct the path, or mount what it is on.")]
    if not root.is_dir():
        return [Finding("fail", NOTES, "It is a file, no folder.", where, "Name the folder that holds the notes.")]
    try:
        with os.scandir(root) as entries:
            next(entries, None)
    except OSError as error:
        what = f"It cannot be read: {error.strerror or error}."
        return [
            Finding("fail", NOTES, what, where, "Give yourself the right to read it; on macOS in Privacy & Security.")
        ]
    findings = [
        Finding("warn", NOTES, sentence, where, "Correct the name: folders are named from the vault's root.")
        for sentence in missing_folders(settings)
    ]
    if settings.vault.write and _has_writers(settings) and not os.access(root, os.W_OK):
        remedy = "Give yourself the right to write there, or set vault.write = false."
        findings.append(Finding("warn", NOTES, "Agents may change notes, but it cannot be written.", where, remedy))
    return findings or [Finding("ok", NOTES, f"{Path(root)} can be read.")]


def _has_writers(settings: Settings) -> bool:
    return any({VAULT, *VAULT_WRITERS}.intersection(agent.tools) for agent in settings.agents if agent.enabled)


def _server_of(name: str) -> str:
    return name.partition("/")[0]
