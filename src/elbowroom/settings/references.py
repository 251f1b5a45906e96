"""The tools that settings may name, and checks of names that refer to providers, agents, tools and MCP servers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from elbowroom.settings.fields import Contradiction, Misfit

if TYPE_CHECKING:
    from elbowroom.settings.model import AgentSettings, Settings

VAULT: Final = "vault"
"""All vault tools that the settings allow."""
VAULT_READERS: Final = ("vault.list", "vault.read", "vault.outline", "vault.search", "vault.count")
VAULT_WRITERS: Final = ("vault.create", "vault.append", "vault.patch", "vault.rename", "vault.delete", "vault.undo")
VAULT_TOOLS: Final = frozenset({VAULT, *VAULT_READERS, *VAULT_WRITERS})
TOOL_OUTPUT_CACHE: Final = "tool_output_cache"
"""Both tools that read the results of earlier calls."""
SAVE_MEMORY: Final = "save_memory"
SEARCH_MEMORY: Final = "search_memory"
MEMORY_TOOLS: Final = frozenset({SAVE_MEMORY, SEARCH_MEMORY})
TOOLS: Final = (VAULT, *VAULT_READERS, *VAULT_WRITERS, TOOL_OUTPUT_CACHE, SAVE_MEMORY, SEARCH_MEMORY)
"""Everything that `tools` of an agent may name."""
TOOL_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "vault": "All vault tools that the settings allow; needs vault.path.",
    "vault.list": "Lists folders and notes of the vault; needs vault.path.",
    "vault.read": "Reads a note, or a part of it; needs vault.path.",
    "vault.outline": "Shows the headings of a note; needs vault.path.",
    "vault.search": "Searches the notes of the vault; needs vault.path.",
    "vault.count": "Counts the notes that have certain words, a tag or a property; needs vault.path.",
    "vault.create": "Writes a new note; needs vault.path and vault.write.",
    "vault.append": "Adds text to the end of a note; needs vault.path and vault.write.",
    "vault.patch": "Changes a part of a note; needs vault.path and vault.write.",
    "vault.rename": "Renames or moves a note and updates the links to it; needs vault.path and vault.write.",
    "vault.delete": "Moves a note to the trash; needs vault.path and vault.write.",
    "vault.undo": "Takes a change of a note back; needs vault.path and vault.write.",
    "tool_output_cache": "Reads and searches results of earlier calls; agents with other tools have it by themselves.",
    "save_memory": "Saves something to remember beyond the conversation; needs memory.enabled.",
    "search_memory": "Searches what was saved to remember; needs memory.enabled.",
}


def check_references(settings: "Settings") -> None:
    """Raise Misfit or Contradiction for the first name that is unknown, given twice, or part of a circle of agents."""
    _refuse_repetition("providers", "id", [provider.id for provider in settings.providers])
    _refuse_repetition("agents", "id", [agent.id for agent in settings.agents])
    _refuse_repetition("agents", "name", [agent.display_name for agent in settings.agents], str.casefold)
    _refuse_repetition("mcp_servers", "name", [server.name for server in settings.mcp_servers])
    _check_providers(settings)
    for index, agent in enumerate(settings.agents):
        _check_tools(settings, agent, index)
        _check_mcp(settings, agent, index)
        _check_agents_of(settings, agent, index)
    _refuse_circles(settings)


def _check_providers(settings: "Settings") -> None:
    known = [provider.id for provider in settings.providers]
    for index, agent in enumerate(settings.agents):
        if agent.provider not in known:
            accepted = " or ".join(map(repr, known)) or "an id of [[providers]], of which there is none"
            raise Contradiction(
                ("agents", index, "provider"),
                f"agents[{index}].provider = {agent.provider!r} is not accepted; it takes {accepted} "
                f"(agent {agent.id!r})",
            )


def _check_tools(settings: "Settings", agent: "AgentSettings", index: int) -> None:
    key = ("agents", index, "tools")
    if unknown := next((name for name in agent.tools if name not in TOOLS), None):
        raise Misfit(key, f"names of tools, which are: {', '.join(map(repr, TOOLS))}; {unknown!r} is none")
    if VAULT_TOOLS.intersection(agent.tools) and not settings.vault.path:
        raise Misfit(key, "vault tools only where [vault] has a path, such as path = '~/Notes'")
    if (asked := MEMORY_TOOLS.intersection(agent.tools)) and not settings.memory.enabled:
        raise Misfit(key, f"no {min(asked)!r} while [memory] has enabled = false")
    writers = [name for name in agent.tools if name in VAULT_WRITERS]
    if writers and not (settings.vault.write and agent.vault.write):
        where = f"agents[{index}].vault has write = false" if settings.vault.write else "[vault] has write = false"
        raise Misfit(key, f"no tools that change notes, such as {writers[0]!r}, while {where}")


def _check_mcp(settings: "Settings", agent: "AgentSettings", index: int) -> None:
    known = [server.name for server in settings.mcp_servers]
    for name in agent.mcp:
        server, slash, tool = name.partition("/")
        if server not in known or (slash and not tool):
            there = ", ".join(map(repr, known)) or "none"
            raise Misfit(
                ("agents", index, "mcp"),
                f"names of [[mcp_servers]], which are: {there}; or one tool of a server, as 'server/tool'",
            )


def _check_agents_of(settings: "Settings", agent: "AgentSettings", index: int) -> None:
    others = [other.id for other in settings.agents if other.id != agent.id and other.enabled]
    for field, named in (("agent_tools", agent.agent_tools), ("handoffs", agent.handoffs)):
        if wrong := next((name for name in named if name not in others), None):
            there = ", ".join(map(repr, others)) or "none"
            raise Misfit(
                ("agents", index, field), f"ids of other enabled agents, which are: {there}; {wrong!r} is none"
            )


def _refuse_circles(settings: "Settings") -> None:
    leads_to = {agent.id: (*agent.agent_tools, *agent.handoffs) for agent in settings.agents if agent.enabled}
    for index, agent in enumerate(settings.agents):
        if agent.enabled and (circle := _circle(agent.id, leads_to)):
            field = "agent_tools" if circle[1] in agent.agent_tools else "handoffs"
            raise Misfit(("agents", index, field), f"no agents that lead back to it, as in {' -> '.join(circle)}")


def _circle(start: str, leads_to: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the shortest way from an agent back to itself, nothing where there is none."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:  # grows while it is walked
        for name in leads_to.get(way[-1], ()):
            if name == start:
                return [*way, name]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []


def _refuse_repetition(
    table: str, field: str, values: Sequence[str], compared_as: Callable[[str], str] = lambda value: value
) -> None:
    first_with: dict[str, int] = {}
    for index, value in enumerate(values):
        before = first_with.setdefault(compared_as(value), index)
        if before != index:
            raise Contradiction(
                (table, index, field),
                f"{table}[{index}].{field} = {value!r} is not accepted; {table}[{before}] has the same {field}",
            )
