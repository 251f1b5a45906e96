"""The settings and their defaults; `docs/settings.md` explains each key to a person."""

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from elbowroom.errors import SettingsError
from elbowroom.settings.fields import (
    Id,
    Names,
    Real,
    SecretRef,
    Section,
    Sentences,
    Url,
    Whole,
    checked_url,
    expanded,
    split_at_commas,
)
from elbowroom.settings.references import SAME_AGENT, SERVER_SCHEMES, check_references

ToolKind = Literal["read", "write", "execute", "query", "other"]
TOOL_NAME_FORM = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEFAULT_TOKEN = SecretRef("env:ELBOWROOM_TOKEN")
DEFAULT_API_KEY = SecretRef("env:LM_API_TOKEN")
DEFAULT_URLS = {"lmstudio": "http://127.0.0.1:1234", "ollama": "http://127.0.0.1:11434"}
FIELDS_OF_REQUESTS = frozenset({"model", "messages", "stream", "stream_options", "tools", "n"})
STORE_URL_FORM = re.compile(r"sqlite(\+aiosqlite)?://(/:memory:|/(/|[A-Za-z]:[/\\])[^?\0]*[^?/\\\0])?")
STORE_SERVER_FORM = re.compile(
    r"postgres(ql)?://([^:@/?\s]*(:(env:[A-Za-z_][A-Za-z0-9_]*|file:(~?/|[A-Za-z]:[/\\])[^@\s]+))?@)?"
    r"(?![^@]*[?&](ssl)?password=)[^@\s]*"
)
ClientTools = Literal["auto", "pass", "slim", "search", "drop"]
TaskHistory = Literal["ends", "whole"]
RECALLS_UNASKED: Final = ("auto", "unasked", "both")
"""The choices of `compaction.recall` with which passages of what was compacted away come back by themselves."""
RecallFor = Literal["auto", "unasked", "tool", "both", "off", "agents", "all"]
AgentsIn = Literal["file", "database"]
Notices = Literal["auto", "event", "content", "comment", "off"]


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
    """`[tool_output]`: how much of the window tool results may take, and how old results are pruned."""

    enabled: bool = True
    context_budget_tokens: Whole = Field(0, ge=0)
    max_message_bytes: Whole = Field(51200, ge=256)
    max_line_length: Whole = Field(2000, ge=80)
    recent_calls_to_keep: Whole = Field(6, ge=0)
    keep_last_turns: Whole = Field(3, ge=0)
    clear_after_turns: Whole = Field(8, ge=1)
    truncation_threshold: Whole = Field(10000, ge=0)
    protect_tokens: Whole = Field(40000, ge=0)
    minimum_tokens: Whole = Field(20000, ge=1)
    max_history_summary_tokens: Whole = Field(500, ge=0)
    preserve_errors_verbatim: bool = True
    kinds: dict[str, ToolKind] = Field(default_factory=dict)


class OwnToolOutput(Section):
    """`[agents.tool_output]`: the values of `[tool_output]` that differ for one agent."""

    enabled: bool | None = None
    context_budget_tokens: Whole | None = Field(None, ge=0)
    max_message_bytes: Whole | None = Field(None, ge=256)
    max_line_length: Whole | None = Field(None, ge=80)
    recent_calls_to_keep: Whole | None = Field(None, ge=0)
    keep_last_turns: Whole | None = Field(None, ge=0)
    clear_after_turns: Whole | None = Field(None, ge=1)
    truncation_threshold: Whole | None = Field(None, ge=0)
    protect_tokens: Whole | None = Field(None, ge=0)
    minimum_tokens: Whole | None = Field(None, ge=1)
    max_history_summary_tokens: Whole | None = Field(None, ge=0)
    preserve_errors_verbatim: bool | None = None
    kinds: dict[str, ToolKind] = Field(default_factory=dict)

    def over(self, common: ToolOutputSettings) -> ToolOutputSettings:
        """Return the common settings with the values that are set here; `kinds` are merged."""
        own = self.model_dump(exclude_none=True, exclude={"kinds"})
        return common.model_copy(update={**own, "kinds": {**common.kinds, **self.kinds}})


class AgentVault(Section):
    """`[agents.vault]`: restricts one agent to a part of what `[vault]` allows."""

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
    """`[memory]`: whether agents remember facts beyond a conversation, how many, and when they save them."""

    enabled: bool = False
    max_tokens: Whole = Field(500, ge=50)
    flush: bool = True
    flush_threshold: Whole = Field(4000, ge=0)
    flush_seconds: Real = Field(20, gt=0, le=600)


def _bare_host(value: str) -> str:
    return value.strip().removeprefix("[").removesuffix("]")


def _checked_store_url(value: str) -> str:
    if value.startswith(SERVER_SCHEMES):
        if not STORE_SERVER_FORM.fullmatch(value):
            raise ValueError(
                "the address of a PostgreSQL database such as postgresql://me@localhost/elbowroom; a password stands "
                "in it as env:NAME or file: with the full path of a file, such as "
                "postgresql://me:env:DATABASE_PASSWORD@localhost/elbowroom"
            )
    elif value and not STORE_URL_FORM.fullmatch(value):
        raise ValueError(
            "an empty text, or sqlite:/// with the full path of a file after it, such as "
            "sqlite:////home/me/elbowroom.db or sqlite:///C:/elbowroom/elbowroom.db, or sqlite:///:memory:, or the "
            "address of a PostgreSQL database such as postgresql://me@localhost/elbowroom"
        )
    return value


class ServerSettings(Section):
    """`[server]`: the address that elbowroom listens on, and which clients it accepts."""

    host: Annotated[str, Field(min_length=1), AfterValidator(_bare_host)] = "127.0.0.1"
    port: Whole = Field(2345, ge=0, le=65535)
    token: SecretRef = DEFAULT_TOKEN
    open_webui_secret: SecretRef | None = None
    allowed_hosts: Names = ()
    allowed_origins: Names = ()
    client_tools: ClientTools = "auto"
    tool_events: bool = True
    calls_in_text: bool = True
    task_history: TaskHistory = "ends"
    side_requests: bool = True
    max_waiting: Whole = Field(1000, ge=0, le=100_000)
    chats_at_once: Whole = Field(0, ge=0, le=1000)
    stop_notice_seconds: Whole = Field(0, ge=0, le=600)
    drain_seconds: Whole = Field(5, ge=0, le=86_400)


class ProviderSettings(Section):
    """`[[providers]]`: a server that runs models, or several that run the same ones, its machines."""

    id: Id
    kind: Literal["lmstudio", "ollama", "openai"]
    base_url: Annotated[str, AfterValidator(checked_url)] = ""
    base_urls: Annotated[tuple[Url, ...], BeforeValidator(split_at_commas)] = ()
    machine_of: str = ""
    api_key: SecretRef | None = None
    home: str = ""
    model_files: dict[str, str] = Field(default_factory=dict)
    manage_context: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_in_by_kind(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        kind = data.get("kind")
        if not data.get("base_url") and not data.get("base_urls") and kind in DEFAULT_URLS:
            data = {**data, "base_url": DEFAULT_URLS[kind]}
        if kind == "lmstudio":
            data = {"api_key": DEFAULT_API_KEY, **data}
        return data

    @model_validator(mode="after")
    def _address_is_known(self) -> Self:
        if self.base_urls and not self.base_url:
            self.__dict__["base_url"] = self.base_urls[0]
        if not self.base_url:
            raise ValueError("a provider of kind 'openai' needs base_url, for example http://127.0.0.1:8080/v1")
        if self.base_urls and self.base_url not in self.base_urls:
            raise ValueError("a provider has either base_url or base_urls: put all its addresses into base_urls")
        if len(self.places) < len(self.base_urls):
            raise ValueError("base_urls names an address twice: each machine counts once")
        return self

    @property
    def places(self) -> frozenset[str]:
        """Return what its addresses lead to: the same for a host in capitals, `localhost`, or with `/v1` at the end."""
        return frozenset(
            _place(url).lower().replace("localhost", "127.0.0.1") for url in self.base_urls or (self.base_url,)
        )

    @property
    def machines(self) -> tuple[Self, ...]:
        """Return the settings of one machine for each address; its id is the provider's, `@` and the address."""
        return tuple(
            self.model_copy(update={"id": f"{self.id}@{_place(url)}", "base_url": url, "base_urls": ()})
            for url in self.base_urls or (self.base_url,)
        )

    @property
    def manages_context(self) -> bool:
        """Tell whether requests are kept inside the model's window; LM Studio's are by default."""
        return self.kind == "lmstudio" if self.manage_context is None else self.manage_context


def _place(url: str) -> str:
    return url.partition("://")[2].removesuffix("/v1")


class Sampling(Section):
    """`sampling` of an agent: used where the client sends no value of its own; other keys are passed on."""

    model_config = ConfigDict(extra="allow")

    temperature: Real | None = Field(None, ge=0)
    top_p: Real | None = Field(None, ge=0, le=1)
    top_k: Whole | None = Field(None, ge=0)
    min_p: Real | None = Field(None, ge=0, le=1)
    max_tokens: Whole | None = Field(None, ge=1)
    presence_penalty: Real | None = None
    frequency_penalty: Real | None = None
    repeat_penalty: Real | None = None
    seed: Whole | None = None
    stop: str | tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _leaves_the_request_alone(self) -> Self:
        if named := sorted(FIELDS_OF_REQUESTS.intersection(self.model_extra or {})):
            raise ValueError(f"{', '.join(named)} cannot be set here: each request brings its own")
        return self

    def as_request_fields(self) -> dict[str, Any]:
        """Return the fields that were set, as they stand in a chat request."""
        return self.model_dump(exclude_none=True, mode="json")


class AgentSettings(Section):
    """`[[agents]]`: a model with instructions and tools, which clients see as a model."""

    id: Id
    name: str = ""
    enabled: bool = True
    instructions: str = ""
    provider: str = "lmstudio"
    model: str = Field(min_length=1)
    tools: Names = ()
    tool_timeout: Real = Field(300, gt=0)
    tool_output: OwnToolOutput = OwnToolOutput()
    vault: AgentVault = AgentVault()
    mcp: Names = ()
    agent_tools: Names = ()
    handoffs: Names = ()
    tool_name: ToolName = ""
    tool_description: str = ""
    max_turns: Whole = Field(50, ge=1)
    client_tools: ClientTools = "auto"
    sampling: Sampling = Sampling()

    @property
    def display_name(self) -> str:
        """Return the name people see: `name`, or the id where none was given."""
        return self.name or self.id


class CompactionSettings(Section):
    """`[compaction]`: when and how a history that would not fit the model's window is shortened."""

    enabled: bool = True
    auto: bool = True
    background: bool = True
    pruning_agent: str = Field(SAME_AGENT, min_length=1)
    model: str = ""
    threshold_ratio: Real = Field(0.8, ge=0.6, le=0.88)
    max_restarts: Whole = Field(3, ge=0, le=10)
    max_pruning_seconds: Whole = Field(60, ge=0, le=3600)
    summary_prompt: str = ""
    summary_directives: Sentences = ()
    retain_prompt: str = ""
    retain_directives: Sentences = ()
    retain_last_turns: Whole | None = Field(None, ge=0, le=20)
    recall: RecallFor = "auto"
    notices: Notices = "auto"
    chat_command: bool = True

    def offers_recall(self, *, is_agent: bool) -> bool:
        """Tell whether the tool that searches what was compacted away is offered, to an agent or a raw model.

        `agents` and `all` are what earlier versions called it.
        """
        return self.recall in ("tool", "both", "all") or (is_agent and self.recall in ("auto", "agents"))


class ModelSettings(Section):
    """`[[models]]`: what is otherwise for the models of one name or pattern; what is not set is as for all."""

    id: str = Field(min_length=1)
    threshold_ratio: Real | None = Field(None, ge=0.3, le=0.93)
    pruning_agent: str | None = Field(None, min_length=1)
    recall: RecallFor | None = None
    advertised_window: Whole | None = Field(None, ge=1)

    def fits(self, provider: str, model: str) -> bool:
        """Tell whether this is for a provider's model, named with or without the provider; case does not count."""
        return self.names(provider, model) or any(
            fnmatchcase(name.lower(), self.id.lower()) for name in (model, f"{provider}/{model}")
        )

    def names(self, provider: str, model: str) -> bool:
        """Tell whether this is for that model alone: its name stands here without a pattern."""
        return self.id.lower() in (model.lower(), f"{provider}/{model}".lower())

    def over(self, common: CompactionSettings) -> CompactionSettings:
        """Return the common settings with the values that are set here."""
        names = ("threshold_ratio", "pruning_agent", "recall")
        return common.model_copy(update={name: own for name in names if (own := getattr(self, name)) is not None})


class StoreSettings(Section):
    """`[store]`: where conversations and other data are kept, and for how long."""

    url: Annotated[str, AfterValidator(_checked_store_url)] = ""
    conversations: bool = True
    retention_days: Whole = Field(90, ge=0, le=36500)
    max_gb: Real = Field(2, gt=0)
    agents: AgentsIn = "file"


def _default_providers() -> tuple[ProviderSettings, ...]:
    return (ProviderSettings(id="lmstudio", kind="lmstudio"),)


def _with_own_provider(row: Any, known: Collection[Any]) -> Any:
    """Return the row of an agent with its model's own name, where that begins with the provider that it has."""
    model = row.get("model") if isinstance(row, Mapping) else None
    provider, slash, own = model.partition("/") if isinstance(model, str) else ("", "", "")
    if not slash or provider not in known or row.get("provider", provider) != provider or not own:
        return row
    return {**row, "provider": provider, "model": own}


class Settings(Section):
    """The whole settings file. Every key has a default, so that an absent file is a complete one."""

    server: ServerSettings = ServerSettings()
    providers: tuple[ProviderSettings, ...] = Field(default_factory=_default_providers)
    agents: tuple[AgentSettings, ...] = ()
    compaction: CompactionSettings = CompactionSettings()
    tool_output: ToolOutputSettings = ToolOutputSettings()
    vault: VaultSettings = VaultSettings()
    mcp_servers: tuple[McpServerSettings, ...] = ()
    models: tuple[ModelSettings, ...] = ()
    memory: MemorySettings = MemorySettings()
    store: StoreSettings = StoreSettings()

    @model_validator(mode="before")
    @classmethod
    def _models_by_their_full_names(cls, data: Any) -> Any:
        """Take an agent's model as `/v1/models` names it, with its provider in front, which the agent has then."""
        rows = data.get("agents") if isinstance(data, Mapping) else None
        if not isinstance(rows, list | tuple):
            return data
        given = data.get("providers", [{"id": "lmstudio"}])
        known = (
            {row.get("id") for row in given if isinstance(row, Mapping)} if isinstance(given, list | tuple) else set()
        )
        return {**data, "agents": [_with_own_provider(row, known) for row in rows]}

    @model_validator(mode="after")
    def _names_fit_together(self) -> Self:
        check_references(self)
        return self

    def of_model(self, provider: str, model: str) -> ModelSettings | None:
        """Return the row of `[[models]]` that names a provider's model, else the first whose pattern it fits."""
        fitting = [row for row in self.models if row.fits(provider, model)]
        return min(fitting, key=lambda row: not row.names(provider, model), default=None)

    def compaction_of(self, provider: str, model: str) -> CompactionSettings:
        """Return how conversations with a provider's model are compacted."""
        own = self.of_model(provider, model)
        return own.over(self.compaction) if own is not None else self.compaction

    @property
    def machines(self) -> Mapping[str, tuple[ProviderSettings, ...]]:
        """Return the machines of each provider by its id; a provider that is one machine has itself."""
        joined = {
            head.id: [head, *(other for other in self.providers if other.machine_of == head.id)]
            for head in self.providers
            if not head.machine_of
        }
        return {
            name: together[0].machines + tuple(machine for one in together[1:] for machine in _joined(one))
            if len(together) > 1 or len(together[0].base_urls) > 1
            else (together[0],)
            for name, together in joined.items()
        }


def _joined(provider: ProviderSettings) -> tuple[ProviderSettings, ...]:
    return provider.machines if len(provider.base_urls) > 1 else (provider,)
