"""Checks of the agents: their models, the size of their prompts, the pruning agent, their MCP servers and the vault."""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from elbowroom.agents.catalog import Target
from elbowroom.agents.offered import SettingsToolbox
from elbowroom.agents.request import Caller
from elbowroom.doctor.subject import Finding, Subject, names, names_of
from elbowroom.elsewhere import NotAnswering, look
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.lmstudio import find_model
from elbowroom.settings.doubts import missing_folders
from elbowroom.settings.fields import expanded
from elbowroom.settings.model import AgentSettings, ModelSettings, Settings
from elbowroom.settings.references import SAME_AGENT, VAULT, VAULT_WRITERS, pruning_agents
from elbowroom.store import open_in_memory

if TYPE_CHECKING:
    from elbowroom.agents.tools.mcp.convert import McpTool

AGENTS: Final = "agents"
PRUNING: Final = "pruning agent"
GENERAL: Final = "compaction.model or compaction.pruning_agent"
TIGHT: Final = 0.5
"""The largest share of the window that instructions and tools take without a warning."""
HOPELESS: Final = 0.85
MCP: Final = "mcp"
NOTES: Final = "vault"


async def check_agents(subject: Subject) -> list[Finding]:
    """Return what is wrong with the agents and the pruning agent."""
    settings = subject.loaded.settings
    enabled = [agent for agent in settings.agents if agent.enabled]
    findings = []
    for agent in enabled:
        provider = subject.providers[agent.provider]
        models = await subject.models(provider)
        if isinstance(models, ElbowroomError):
            continue  # check_providers reports it
        if problem := judge_model(f"agent {agent.id}", agent.model, models, provider.id):
            is_sure = provider.manages_context  # other servers may know more models than they list
            findings.append(problem if is_sure else replace(problem, severity="warn"))
        elif info := find_model(models, agent.model):
            findings += await _check_room(subject, agent, provider, info)
    findings += await _check_pruning(subject, settings)
    if findings:
        return findings
    what = f"{names([agent.id for agent in enabled])}: their models are there." if enabled else "None is configured."
    return [Finding("ok", AGENTS, what)]


def judge_model(where: str, model: str, models: Sequence[ModelInfo], provider: str) -> Finding | None:
    """Return what is wrong with a model that the settings name, None if it can be used."""
    info = find_model(models, model) or find_model(models, f"{model}:latest")  # as Ollama completes a name
    there = [found.id for found in models if found.kind != "embedding"]
    if info is None:
        near = difflib.get_close_matches(model, there, n=1, cutoff=0.5)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        what = f"Its model {model!r} is not at the provider {provider!r}."
        return Finding("fail", AGENTS, what, where, f"{meant}There: {names(there)}. Correct `model`, or download it.")
    if info.kind == "embedding":
        what = f"Its model {model!r} only makes embeddings, it cannot chat."
        return Finding("fail", AGENTS, what, where, f"Choose another one: {names(there)}.")
    return None


async def _check_room(subject: Subject, agent: AgentSettings, provider: Provider, info: ModelInfo) -> list[Finding]:
    """Count the instructions and tools that each prompt of this agent has, with the model's own counter."""
    if not info.loaded_context or not provider.manages_context:
        return []
    tools = await _tools_of(subject, agent, provider)
    messages = [{"role": "user", "content": "Hi"}]
    if agent.instructions:
        messages.insert(0, {"role": "system", "content": agent.instructions})
    count = await (await provider.counter(info)).count_chat(messages, tools)
    return judge_room(agent.id, count.tokens, len(tools), info.loaded_context)


def judge_room(agent: str, tokens: int, tools: int, window: int) -> list[Finding]:
    """Judge the share of the window that an agent's instructions and tools take in every prompt."""
    share = tokens / window
    if share <= TIGHT:
        return []
    what = (
        f"Its instructions and {tools} tools take {tokens:,} of the {window:,} tokens of its model's window "
        f"({share:.0%}) in every prompt."
    )
    remedy = (
        f"Load the model with at least {_next_window(tokens * 4):,} tokens, or give the agent fewer tools: name single "
        "ones in `mcp` ('server/tool') and in `tools`."
    )
    return [Finding("fail" if share > HOPELESS else "warn", AGENTS, what, f"agent {agent}", remedy)]


async def _tools_of(subject: Subject, agent: AgentSettings, provider: Provider) -> list[dict[str, Any]]:
    without_servers = agent.model_copy(update={"mcp": ()})
    toolbox = SettingsToolbox(lambda: subject.loaded, subject.environ, open_in_memory().memories)
    own = list(await toolbox(Target(agent.id, provider, agent.model, without_servers), Caller()))
    for name in agent.mcp:
        server, _, wanted = name.partition("/")
        offer = await subject.offers.of(server)
        if not isinstance(offer, str):
            own += [found.tool for found in offer if not wanted or wanted in names_of(found)]
    await toolbox.aclose()
    return [_described(tool.name, tool.description, tool.parameters) for tool in own]


async def _check_pruning(subject: Subject, settings: Settings) -> list[Finding]:
    if not settings.compaction.enabled:
        what = "Compaction is off: a conversation that outgrows its window is refused."
        return [Finding("warn", PRUNING, what, "compaction.enabled", "Set compaction.enabled = true.")]
    model, findings = settings.compaction.model, list[Finding]()
    for (table, *index, _), name in pruning_agents(settings):
        row = settings.models[int(index[0])] if index else None
        chosen = next((agent for agent in settings.agents if agent.id == name), None)
        # Without one it is each conversation's own model, or the one that writes summaries for all.
        asking = [chosen] if chosen else [agent for agent in settings.agents if agent.enabled and model]
        for agent in asking:
            models = await subject.models(subject.providers[agent.provider])
            if not isinstance(models, ElbowroomError):
                served = _served(settings, agent.provider, models, row, chosen)
                where = f"{table}: {row.id}" if row else GENERAL
                findings += judge_pruning(agent.provider, model or agent.model, models, served, where)
    return list(dict.fromkeys(findings))


def _served(
    settings: Settings,
    provider: str,
    models: Sequence[ModelInfo],
    row: ModelSettings | None,
    pruner: AgentSettings | None,
) -> dict[str, str]:
    """Return whose conversations it prunes: agents by their ids, and models by theirs where a row names its own."""
    served = {agent.id: agent.model for agent in settings.agents if agent.enabled and agent is not pruner}
    if row is None:
        return {name: model for name, model in served.items() if _has_none(settings.of_model(provider, model))}
    named = {found.id: found.id for found in models if found.kind != "embedding"}
    return {name: model for name, model in {**named, **served}.items() if settings.of_model(provider, model) is row}


def _has_none(row: ModelSettings | None) -> bool:
    """Tell whether a model has no pruning agent of its own."""
    return row is None or row.pruning_agent is None


def judge_pruning(
    provider: str, model: str, models: Sequence[ModelInfo], served: Mapping[str, str], where: str = GENERAL
) -> list[Finding]:
    """Judge the pruning model; `served` has the names and models of those whose conversations it prunes."""
    if problem := judge_model(where, model, models, provider):
        what = f"The pruning agent cannot work, and each conversation's own model does it: {problem.what}"
        return [replace(problem, check=PRUNING, what=what)]
    pruner = find_model(models, model)
    others = {agent: info for agent, named in served.items() if (info := find_model(models, named)) and info != pruner}
    if pruner is None or not others:
        return []
    key = "compaction.pruning_agent" if where == GENERAL else "its pruning_agent"
    instead = f"set {key} = {SAME_AGENT!r}"
    if not pruner.loaded_context and any(info.loaded_context for info in others.values()):
        what = (
            f"The pruning agent's model {model!r} is not loaded: each compaction has LM Studio load it, which may "
            f"unload the model of {names(list(others))}."
        )
        return [Finding("warn", PRUNING, what, where, f"Load both by hand (`lms load {model}`), or {instead}.")]
    wide = {agent: info.loaded_context for agent, info in others.items() if info.loaded_context}
    if pruner.loaded_context and wide and max(wide.values()) > 2 * pruner.loaded_context:
        widest = max(wide, key=lambda agent: wide[agent])
        what = (
            f"The pruning agent's window has {pruner.loaded_context:,} tokens, that of {widest} {wide[widest]:,}: it "
            "reads such a conversation in several parts, which takes longer and loses more."
        )
        return [Finding("warn", PRUNING, what, where, f"Load {model!r} with {wide[widest]:,} tokens, or {instead}.")]
    return []


def _described(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": dict(parameters)}}


def _next_window(tokens: int) -> int:
    window = 8192
    while window < tokens:
        window *= 2
    return window


async def check_mcp(subject: Subject) -> list[Finding]:
    """Return the MCP servers that do not start, and the tools that agents name and no server has."""
    settings = subject.loaded.settings
    findings, working = [], []
    for index, server in enumerate(settings.mcp_servers):
        users = [agent for agent in settings.agents if agent.enabled and server.name in map(_server_of, agent.mcp)]
        if not server.enabled:
            findings += judge_disabled(server.name, users)
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
        findings += [found for agent in users for found in judge_named_tools(agent, server.name, offer)]
        working.append(f"{server.name} ({len(offer)} tools)")
    return findings or ([Finding("ok", MCP, f"Connected: {names(working)}.")] if working else [])


def judge_disabled(server: str, users: list[AgentSettings]) -> list[Finding]:
    """Return a warning if agents name a disabled server."""
    if not users:
        return []
    what = f"It is not enabled; agents without its tools: {names([agent.id for agent in users])}."
    return [Finding("warn", MCP, what, f"mcp_servers: {server}", "Set enabled = true, or remove it from their mcp.")]


def judge_named_tools(agent: AgentSettings, server: str, offer: Sequence["McpTool"]) -> list[Finding]:
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
    settings = subject.loaded.settings
    try:
        return await look(expanded(settings.vault.path), lambda: judge_vault(settings)) if settings.vault.path else []
    except NotAnswering as error:
        where = f"vault.path = {settings.vault.path!r}"
        return [Finding("fail", NOTES, error.message, where, "Mend it, or take vault.path out of the settings.")]


def judge_vault(settings: Settings) -> list[Finding]:
    """Judge the folder of the vault, if there is one; blocking, for threads."""
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
