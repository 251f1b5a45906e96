"""The tools that settings may name, and checks of names that refer to providers, agents, tools and MCP servers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from elbowroom.settings.fields import Contradiction, Misfit, Misfits

if TYPE_CHECKING:
    from elbowroom.settings.model import AgentSettings, ProviderSettings, Settings

SAME_AGENT: Final = "same"
"""The pruning agent that says: each conversation is compacted by the agent that answers it."""
SERVER_SCHEMES: Final = ("postgres:", "postgresql:")
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
    """Raise Misfits with every name that is unknown, given twice, or part of a circle of agents."""
    if wrong := [*_repetitions(settings), *_wrong_references(settings)]:
        raise Misfits(wrong)


def _repetitions(settings: "Settings") -> Iterator[Contradiction]:
    yield from _repeated("providers", "id", [provider.id for provider in settings.providers])
    repeated_ids = [*_repeated("agents", "id", [agent.id for agent in settings.agents])]
    names = _repeated("agents", "name", [agent.display_name for agent in settings.agents], str.casefold)
    yield from repeated_ids
    yield from names if not repeated_ids else ()  # an agent without a name is shown by its id
    yield from _repeated("mcp_servers", "name", [server.name for server in settings.mcp_servers])
    yield from _repeated("models", "id", [model.id for model in settings.models], str.lower)


def _wrong_references(settings: "Settings") -> Iterator[Misfit | Contradiction]:
    yield from _wrong_providers(settings)
    for index, agent in enumerate(settings.agents):
        yield from _wrong_tools(settings, agent, index)
        yield from _wrong_mcp(settings, agent, index)
        yield from _wrong_agents_of(settings, agent, index)
    yield from _circles(settings)
    yield from _wrong_pruning_agents(settings)
    if settings.store.agents == "database" and not settings.store.url.startswith(SERVER_SCHEMES):
        yield Misfit(("store", "agents"), "'database' only where store.url is the address of a PostgreSQL database")


def _wrong_providers(settings: "Settings") -> Iterator[Contradiction]:
    known = [provider.id for provider in settings.providers if not provider.machine_of]
    for index, provider in enumerate(settings.providers):
        if provider.machine_of:
            yield from _wrong_machine(settings, provider, index)
    for index, agent in enumerate(settings.agents):
        if agent.provider not in known:
            accepted = " or ".join(map(repr, known)) or "an id of [[providers]], of which there is none"
            is_set = "provider" in agent.model_fields_set
            wrong = f"= {agent.provider!r} is not accepted" if is_set else f"is {agent.provider!r} where it is not set"
            key = ("agents", index, "provider")
            yield Contradiction(key, f"agents[{index}].provider {wrong}; it takes {accepted} (agent {agent.id!r})")


def _wrong_machine(settings: "Settings", provider: "ProviderSettings", index: int) -> Iterator[Contradiction]:
    """Yield why this provider cannot be a machine of the one that it names."""
    heads = [head for head in settings.providers if not head.machine_of and head.id != provider.id]
    key, named = ("providers", index, "machine_of"), f"providers[{index}].machine_of = {provider.machine_of!r}"
    head = next((head for head in heads if head.id == provider.machine_of), None)
    if head is None:
        accepted = " or ".join(repr(head.id) for head in heads) or "an id of [[providers]], of which there is no other"
        yield Contradiction(key, f"{named} is not accepted; it takes {accepted} (provider {provider.id!r})")
        return
    if head.manages_context != provider.manages_context:
        yield Contradiction(
            key,
            f"{named} is not accepted while both have another manage_context: set it the same for {head.id!r} and "
            f"{provider.id!r}",
        )
        return
    before = [one for one in settings.providers[:index] if one.machine_of == provider.machine_of]
    if twin := next((one for one in (head, *before) if one.places & provider.places), None):
        yield Contradiction(
            key, f"{named} is not accepted: {twin.id!r} has the same address, and a machine counts once"
        )


def _wrong_tools(settings: "Settings", agent: "AgentSettings", index: int) -> Iterator[Misfit]:
    key = ("agents", index, "tools")
    if unknown := next((name for name in agent.tools if name not in TOOLS), None):
        named = ", ".join(map(repr, TOOLS))
        yield Misfit(key, f"names of tools, which are: {named}; {unknown!r} is none (mcp takes those of MCP servers)")
    if VAULT_TOOLS.intersection(agent.tools) and not settings.vault.path:
        yield Misfit(key, "vault tools only where [vault] has a path, such as path = '~/Notes'")
    if (asked := MEMORY_TOOLS.intersection(agent.tools)) and not settings.memory.enabled:
        yield Misfit(key, f"no {min(asked)!r} while [memory] has enabled = false")
    writers = [name for name in agent.tools if name in VAULT_WRITERS]
    if writers and not (settings.vault.write and agent.vault.write):
        where = f"agents[{index}].vault has write = false" if settings.vault.write else "[vault] has write = false"
        yield Misfit(key, f"no tools that change notes, such as {writers[0]!r}, while {where}")


def _wrong_mcp(settings: "Settings", agent: "AgentSettings", index: int) -> Iterator[Misfit]:
    known = [server.name for server in settings.mcp_servers]
    for name in agent.mcp:
        server, slash, tool = name.partition("/")
        if server not in known or (slash and not tool):
            there = ", ".join(map(repr, known)) or "none"
            yield Misfit(
                ("agents", index, "mcp"),
                f"names of [[mcp_servers]], which are: {there}; or one tool of a server, as 'server/tool'",
            )
            return


def _wrong_agents_of(settings: "Settings", agent: "AgentSettings", index: int) -> Iterator[Misfit]:
    others = [other.id for other in settings.agents if other.id != agent.id and other.enabled]
    for field, named in (("agent_tools", agent.agent_tools), ("handoffs", agent.handoffs)):
        if wrong := next((name for name in named if name not in others), None):
            there = ", ".join(map(repr, others)) or "none"
            yield Misfit(
                ("agents", index, field), f"ids of other enabled agents, which are: {there}; {wrong!r} is none"
            )


def _circles(settings: "Settings") -> Iterator[Misfit]:
    """Yield the first circle of agents: the others mostly go through the same one."""
    leads_to = {agent.id: (*agent.agent_tools, *agent.handoffs) for agent in settings.agents if agent.enabled}
    for index, agent in enumerate(settings.agents):
        circle = _circle(agent.id, leads_to) if agent.enabled else []
        if len(circle) > 2:  # an agent that names itself is told of already
            field = "agent_tools" if circle[1] in agent.agent_tools else "handoffs"
            yield Misfit(("agents", index, field), f"no agents that lead back to it, as in {' -> '.join(circle)}")
            return


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


def _wrong_pruning_agents(settings: "Settings") -> Iterator[Misfit]:
    enabled = [agent.id for agent in settings.agents if agent.enabled]
    known = ", ".join(map(repr, enabled)) or "none"
    for key, chosen in pruning_agents(settings):
        is_elsewhere = settings.store.agents == "database" and all(agent.id != chosen for agent in settings.agents)
        if chosen in (SAME_AGENT, *enabled) or is_elsewhere:
            continue
        switched_off = any(agent.id == chosen for agent in settings.agents)
        why = f" (agent {chosen!r} is not enabled)" if switched_off else ""
        yield Misfit(key, f"{SAME_AGENT!r} or the id of an enabled agent, which are: {known}{why}")


def pruning_agents(settings: "Settings") -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the pruning agent of all models, and of those that have one of their own, each with its key."""
    yield ("compaction", "pruning_agent"), settings.compaction.pruning_agent
    for index, model in enumerate(settings.models):
        if model.pruning_agent is not None:
            yield ("models", index, "pruning_agent"), model.pruning_agent


def _repeated(
    table: str, field: str, values: Sequence[str], compared_as: Callable[[str], str] = lambda value: value
) -> Iterator[Contradiction]:
    first_with: dict[str, int] = {}
    for index, value in enumerate(values):
        before = first_with.setdefault(compared_as(value), index)
        if before != index:
            yield Contradiction(
                (table, index, field),
                f"{table}[{index}].{field} = {value!r} is not accepted; {table}[{before}] has the same {field}",
            )
