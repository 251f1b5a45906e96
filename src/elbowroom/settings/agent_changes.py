"""Changes of single agents in the settings file; blocking, for threads."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from elbowroom.errors import Conflict, NotFound, WrongSettings
from elbowroom.settings.changing import Patch, SettingsChanger
from elbowroom.settings.fields import ID_FORM, ID_TAKES
from elbowroom.settings.model import Settings


def add_agent(changer: SettingsChanger, agent: Mapping[str, Any]) -> str:
    """Add an agent and return its id.

    Raises Conflict where the id is taken, and what a change of the settings raises, with paths as seen from the agent.
    """
    agent_id = _checked_id(agent.get("id"))

    def decide(settings: Settings) -> tuple[int, Patch]:
        if any(other.id == agent_id for other in settings.agents):
            raise Conflict(f"There is an agent {agent_id!r} already.", code="agent_exists", param="id")
        return len(settings.agents), agent

    _change_row(changer, agent_id, decide)
    return agent_id


def change_agent(changer: SettingsChanger, agent_id: str, patch: Mapping[str, Any]) -> str:
    """Merge a patch into an agent and return its id, which may be another one then.

    Raises NotFound, and what a change of the settings raises, with paths as seen from the agent.
    """
    _change_row(changer, agent_id, lambda settings: (_place_of(settings, agent_id), patch))
    return _checked_id(patch.get("id", agent_id))


def remove_agent(changer: SettingsChanger, agent_id: str) -> None:
    """Remove an agent.

    Raises NotFound, Conflict that names what needs the agent, and what a change of the settings raises.
    """

    def decide(settings: Settings) -> tuple[int, None]:
        place = _place_of(settings, agent_id)
        if users := list(users_of(settings, agent_id)):
            raise Conflict(
                f"The agent {agent_id!r} is needed by {' and '.join(users)}. Choose another one there first.",
                code="agent_in_use",
                param="id",
            )
        return place, None

    _change_row(changer, agent_id, decide)


def users_of(settings: Settings, agent_id: str) -> Iterator[str]:
    """Yield what refers to an agent: the key, and for another agent its id."""
    if settings.compaction.pruning_agent == agent_id:
        yield "compaction.pruning_agent"
    for agent in settings.agents:
        for field, named in (("agent_tools", agent.agent_tools), ("handoffs", agent.handoffs)):
            if agent_id in named:
                yield f"{field} of the agent {agent.id!r}"


def _change_row(
    changer: SettingsChanger, agent_id: str, decide: Callable[[Settings], tuple[int, Patch | None]]
) -> None:
    """Apply the change of a row; `decide` returns its place and the change."""
    place = 0

    def patch_of(settings: Settings) -> Patch:
        nonlocal place
        place, change = decide(settings)
        return {"agents": {agent_id: change}}

    try:
        changer.change(patch_of)
    except WrongSettings as error:
        raise _seen_from(f"agents[{place}].", error) from None


def _seen_from(row: str, error: WrongSettings) -> WrongSettings:
    fields = [(path.removeprefix(row), text.replace(row, "")) for path, text in error.fields]
    return WrongSettings("\n".join(text for _, text in fields), fields)


def _place_of(settings: Settings, agent_id: str) -> int:
    for place, agent in enumerate(settings.agents):
        if agent.id == agent_id:
            return place
    raise NotFound(f"There is no agent {agent_id!r} in the settings.", code="agent_not_found")


def _checked_id(value: Any) -> str:
    if value is None:
        raise WrongSettings("id is missing.", [("id", "id is missing.")])
    if not isinstance(value, str) or not ID_FORM.fullmatch(value):
        message = f"id = {value!r} is not accepted; it takes {ID_TAKES}."
        raise WrongSettings(message, [("id", message)])
    return value
