"""The tables and keys of the settings: how they are written, which names are unknown, which variables set them."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from elbowroom.errors import WrongSettings
from elbowroom.settings.model import (
    AgentSettings,
    AgentVault,
    CompactionSettings,
    McpServerSettings,
    MemorySettings,
    ModelSettings,
    OwnToolOutput,
    ProviderSettings,
    Sampling,
    ServerSettings,
    Settings,
    StoreSettings,
    ToolOutputSettings,
    VaultSettings,
)

Key = tuple[str | int, ...]
TABLES: Final[dict[str, type[BaseModel]]] = {
    "server": ServerSettings,
    "compaction": CompactionSettings,
    "tool_output": ToolOutputSettings,
    "vault": VaultSettings,
    "memory": MemorySettings,
    "store": StoreSettings,
}
TABLE_LISTS: Final[dict[str, type[BaseModel]]] = {
    "providers": ProviderSettings,
    "agents": AgentSettings,
    "mcp_servers": McpServerSettings,
    "models": ModelSettings,
}
AGENT_TABLES: Final[dict[str, type[BaseModel]]] = {"vault": AgentVault, "tool_output": OwnToolOutput}
"""The tables inside an agent's table, by their keys."""
PREFIX: Final = "ELBOWROOM_"
VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    f"{PREFIX}{table}__{field}".upper(): (table, field)
    for table, model in TABLES.items()
    for field in model.model_fields
}


def key_text(key: Key) -> str:
    """Write a key as a person would: `server.port`, `agents[0].model`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True, slots=True)
class Problem:
    """A wrong key: `message` is a sentence to show beside its field, `line` the same with the file's name in front."""

    key: Key
    message: str
    line: str


def wrong_settings(problems: Sequence[Problem], doubts: Sequence[str] = ()) -> WrongSettings:
    """Return the error that lists all problems, one on each line; `doubts` are sentences about what is ignored."""
    return WrongSettings(
        "\n".join(problem.line for problem in problems),
        [(key_text(problem.key), problem.message) for problem in problems],
        doubts,
        [problem.key for problem in problems],
    )


def unknown_keys(data: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Yield each unknown key of a settings file, with a sentence about it that lacks its full stop."""
    fields_of_tables = {field: f"{table}.{field}" for table, model in TABLES.items() for field in model.model_fields}
    yield from _unknown_in(data, fields_of_tables | {name: name for name in Settings.model_fields}, ())
    for table, model in TABLES.items():
        yield from _unknown_in(data.get(table), _fields(model), (table,))
    for table, model in TABLE_LISTS.items():
        for index, row in enumerate(_rows(data, table)):
            yield from _unknown_in(row, _fields(model), (table, index))
            for own, own_model in AGENT_TABLES.items() if table == "agents" else ():
                yield from _unknown_in(row.get(own), _fields(own_model), (table, index, own))


def doubtful_sampling(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each sampling parameter of an agent that looks like a misspelt known one."""
    known = _fields(Sampling)
    for index, row in enumerate(data.get("agents", [])):
        for name in row.get("sampling", {}):
            if name not in known and (near := did_you_mean(name, known)):
                yield f"{key_text(('agents', index, 'sampling', name))} is passed on as it stands{near}."


def did_you_mean(name: str, known: Mapping[str, str]) -> str:
    """Return ` (did you mean X?)`, or nothing where no known name is similar; `known` maps names to suggestions."""
    folded = {candidate.casefold(): suggestion for candidate, suggestion in known.items()}
    typed = name.casefold()
    near = difflib.get_close_matches(typed, folded, n=1, cutoff=0.75)
    near += [known for known in folded if typed.startswith(f"{known}_")]
    return f" (did you mean {folded[near[0]]}?)" if near else ""


def _fields(model: type[BaseModel]) -> dict[str, str]:
    return {name: name for name in model.model_fields}


def _rows(data: Mapping[str, Any], table: str) -> list[dict[str, Any]]:
    rows = data.get(table)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _unknown_in(row: Any, known: Mapping[str, str], key: Key) -> Iterator[tuple[Key, str]]:
    for name in row if isinstance(row, dict) else ():
        if known.get(name) != name:
            unknown = (*key, name)
            yield unknown, f"{key_text(unknown)} is not a setting of this version{did_you_mean(name, known)}"


def variables_of(environ: Mapping[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the value and the variable's name for each key that the environment sets."""
    return {VARIABLES[name.upper()]: (value, name) for name, value in environ.items() if name.upper() in VARIABLES}


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that looks like that of a setting and is not.

    Other variables that begin with ELBOWROOM_ are ignored: secrets may have such names.
    """
    misspelt = {name.replace("__", "_") for name in VARIABLES}
    return [
        f"The environment variable {name} is not known{did_you_mean(name, {known: known for known in VARIABLES})}; "
        "it is ignored."
        for name in environ
        if name.startswith(PREFIX) and name.upper() not in VARIABLES and ("__" in name or name.upper() in misspelt)
    ]
