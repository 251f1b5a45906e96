"""The tables of the settings file about tools: their results, the vault, MCP servers, and what agents remember."""

import re
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from elbowroom.errors import SettingsError
from elbowroom.settings.fields import Id, Names, Real, Section, Whole, checked_url, split_at_commas
from elbowroom.settings.paths import expanded
from elbowroom.settings.secrets import SecretRef

ToolKind = Literal["read", "write", "execute", "query", "other"]
TOOL_NAME_FORM = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _checked_vault_path(value: str) -> str:
    if value and not value.startswith("~") and not PurePath(value).is_absolute():
        raise ValueError("the full path of a folder, such as ~/Notes")
    try:
        expanded(value)
    except SettingsError as error:
        raise ValueError(f"the full path of a folder: {error.message.removesuffix('.')}") from None
    return value


def _checked_folders(value: tuple[str, ...]) -> tuple[str, ...]:
    for folder in value:
        names = folder.strip("/").split("/")
        if folder.startswith(("/", "~")) or "\\" in folder or any(name in ("", ".", "..") for name in names):
            raise ValueError('folders as seen from the vault, such as "Private" or "Work/Clients"')
    return tuple(folder.strip("/") for folder in value)


def _checked_tool_name(value: str) -> str:
    if value and not TOOL_NAME_FORM.fullmatch(value):
        raise ValueError("at most 64 letters, digits, underscores and dashes")
    return value


def _checked_server_url(value: str) -> str:
    checked_url(value)
    return value  # a slash at the end may be part of the server's path


Folders = Annotated[tuple[str, ...], BeforeValidator(split_at_commas), AfterValidator(_checked_folders)]
ToolName = Annotated[str, AfterValidator(_checked_tool_name)]


class ToolOutputSettings(Section):
    """`[tool_output]`: how much of the window tool results may take, and what becomes of old ones."""

    enabled: bool = True
    context_budget_tokens: Whole = Field(0, ge=0)
    max_message_bytes: Whole = Field(51200, ge=256)
    max_line_length: Whole = Field(2000, ge=80)
    recent_calls_to_keep: Whole = Field(6, ge=0)
    keep_last_turns: Whole = Field(3, ge=0)
    clear_after_turns: Whole = Field(8, ge=1)
    truncation_threshold: Whole = Field(10000, ge=0)
    max_history_summary_tokens: Whole = Field(500, ge=0)
    kinds: dict[str, ToolKind] = Field(default_factory=dict)


class OwnToolOutput(Section):
    """`[agents.tool_output]`: what one agent has otherwise than `[tool_output]` says."""

    enabled: bool | None = None
    context_budget_tokens: Whole | None = Field(None, ge=0)
    max_message_bytes: Whole | None = Field(None, ge=256)
    max_line_length: Whole | None = Field(None, ge=80)
    recent_calls_to_keep: Whole | None = Field(None, ge=0)
    keep_last_turns: Whole | None = Field(None, ge=0)
    clear_after_turns: Whole | None = Field(None, ge=1)
    truncation_threshold: Whole | None = Field(None, ge=0)
    max_history_summary_tokens: Whole | None = Field(None, ge=0)
    kinds: dict[str, ToolKind] = Field(default_factory=dict)

    def over(self, common: ToolOutputSettings) -> ToolOutputSettings:
        """Return the common settings with what is set here in their place; kinds are added to theirs."""
        own: dict[str, Any] = {
            name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None
        }
        return common.model_copy(update={**own, "kinds": {**common.kinds, **self.kinds}})


class AgentVault(Section):
    """`[agents.vault]`: narrows for one agent what `[vault]` opens; it opens nothing by itself."""

    include: Folders = ()
    exclude: Folders = ()
    write: bool = True


class VaultSettings(Section):
    """`[vault]`: the folder of notes that agents may work in, and how far."""

    path: Annotated[str, AfterValidator(_checked_vault_path)] = ""
    include: Folders = ()
    exclude: Folders = ()
    write: bool = False


class McpServerSettings(Section):
    """`[[mcp_servers]]`: a server of tools, started as a program or reached at an address."""

    name: Id
    enabled: bool = True
    command: Names = ()
    cwd: str = ""
    env: dict[str, SecretRef] = Field(default_factory=dict)
    url: Annotated[str, AfterValidator(_checked_server_url)] | Literal[""] = ""
    headers: dict[str, SecretRef] = Field(default_factory=dict)
    connect_timeout: Real = Field(30, gt=0)
    timeout: Real = Field(60, gt=0)

    @model_validator(mode="after")
    def _is_a_program_or_an_address(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError('an MCP server needs either command = ["program", "argument"] or url = "http://..."')
        return self


class MemorySettings(Section):
    """`[memory]`: what agents may remember beyond a conversation, how much of it they are told, and when they save."""

    enabled: bool = False
    max_tokens: Whole = Field(500, ge=50)
    flush: bool = True
    flush_threshold: Whole = Field(4000, ge=0)
    flush_seconds: Real = Field(20, gt=0, le=600)
