"""The settings and their defaults; `docs/settings.md` explains each key to a person."""

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from elbowroom.settings.secrets import SecretRef
from elbowroom.settings.tool_names import VAULT, VAULT_TOOLS, VAULT_WRITERS, unknown_tool

DEFAULT_TOKEN = SecretRef("env:ELBOWROOM_TOKEN")
DEFAULT_API_KEY = SecretRef("env:LM_API_TOKEN")
DEFAULT_URLS = {"lmstudio": "http://127.0.0.1:1234", "ollama": "http://127.0.0.1:11434"}
FIELDS_OF_REQUESTS = frozenset({"model", "messages", "stream", "stream_options", "tools", "n"})
ID_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
STORE_URL_FORM = re.compile(r"sqlite\+aiosqlite://(/:memory:|/(/|[A-Za-z]:[/\\])[^?\0]*[^?/\\\0])?")


def _checked_id(value: str) -> str:
    if not ID_FORM.fullmatch(value):
        raise ValueError("letters, digits, dots, dashes and underscores, beginning with a letter or digit")
    return value


def _bare_host(value: str) -> str:
    return value.strip().removeprefix("[").removesuffix("]")


def _split_at_commas(value: Any) -> Any:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _checked_url(value: str) -> str:
    if not _is_plain_url(value):
        raise ValueError("an address such as http://127.0.0.1:1234, without user name, password, query or fragment")
    return value.rstrip("/")


def _is_plain_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        port_is_known = parts.port != 0
        host = parts.hostname or ""
        if ":" not in host:
            host.encode("idna")  # what would be done to look it up: fails for 192.168.1..5
    except ValueError:
        return False
    if "@" in parts.netloc or "?" in value or "#" in value or any(c.isspace() or not c.isprintable() for c in value):
        return False
    return parts.scheme in ("http", "https") and bool(host) and port_is_known


def _checked_store_url(value: str) -> str:
    if value and not STORE_URL_FORM.fullmatch(value):
        raise ValueError(
            "an empty text, or sqlite+aiosqlite:/// with the full path of a file after it, such as "
            "sqlite+aiosqlite:////home/me/elbowroom.db or sqlite+aiosqlite:///C:/elbowroom/elbowroom.db, "
            "or sqlite+aiosqlite:///:memory:"
        )
    return value


def _no_switch(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")  # noqa: TRY004  # pydantic collects ValueErrors only
    return value


def _checked_vault_path(value: str) -> str:
    if value and not value.startswith("~") and not PurePath(value).is_absolute():
        raise ValueError("the full path of a folder, such as ~/Notes")
    return value


def _checked_folders(value: tuple[str, ...]) -> tuple[str, ...]:
    for folder in value:
        names = folder.strip("/").split("/")
        if folder.startswith(("/", "~")) or "\\" in folder or any(name in ("", ".", "..") for name in names):
            raise ValueError('folders as seen from the vault, such as "Private" or "Work/Clients"')
    return tuple(folder.strip("/") for folder in value)


def _split_at_lines(value: Any) -> Any:
    if isinstance(value, str):
        return [line.strip() for line in value.splitlines() if line.strip()]
    return value


Whole = Annotated[int, BeforeValidator(_no_switch)]
Real = Annotated[float, BeforeValidator(_no_switch)]
Id = Annotated[str, AfterValidator(_checked_id)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split_at_commas)]
Folders = Annotated[tuple[str, ...], BeforeValidator(_split_at_commas), AfterValidator(_checked_folders)]
Sentences = Annotated[tuple[str, ...], BeforeValidator(_split_at_lines)]
ClientTools = Literal["pass", "slim", "drop"]
Notices = Literal["auto", "event", "content", "comment", "off"]
SAME_AGENT = "same"


class Misfit(ValueError):
    """A value that is wrong beside other values: its key in the whole file, and in words what the key takes."""

    def __init__(self, key: tuple[str | int, ...], takes: str) -> None:
        super().__init__(takes)
        self.key = key


class Section(BaseModel):
    """A table of the settings file: frozen, and an unknown key is a warning, never a crash."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)


class ServerSettings(Section):
    """`[server]`: where elbowroom listens and whom it lets in."""

    host: Annotated[str, Field(min_length=1), AfterValidator(_bare_host)] = "127.0.0.1"
    port: Whole = Field(2345, ge=0, le=65535)
    token: SecretRef = DEFAULT_TOKEN
    allowed_hosts: Names = ()
    allowed_origins: Names = ()
    client_tools: ClientTools = "pass"


class ProviderSettings(Section):
    """`[[providers]]`: a server that runs models."""

    id: Id
    kind: Literal["lmstudio", "ollama", "openai"]
    base_url: Annotated[str, AfterValidator(_checked_url)] = ""
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
        if not data.get("base_url") and kind in DEFAULT_URLS:
            data = {**data, "base_url": DEFAULT_URLS[kind]}
        if kind == "lmstudio":
            data = {"api_key": DEFAULT_API_KEY, **data}
        return data

    @model_validator(mode="after")
    def _address_is_known(self) -> Self:
        if not self.base_url:
            raise ValueError("a provider of kind 'openai' needs base_url, for example http://127.0.0.1:8080/v1")
        return self

    @property
    def manages_context(self) -> bool:
        """Tell whether requests are kept inside the model's window; LM Studio's are by default."""
        return self.kind == "lmstudio" if self.manage_context is None else self.manage_context


class Sampling(Section):
    """`sampling` of an agent: used where the client sends no value of its own; other keys pass through."""

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


class AgentVault(Section):
    """`[agents.vault]`: narrows for one agent what `[vault]` opens; it opens nothing by itself."""

    include: Folders = ()
    exclude: Folders = ()
    write: bool = True


class AgentSettings(Section):
    """`[[agents]]`: a model with instructions and tools, offered to clients as a model of its own."""

    id: Id
    name: str = ""
    enabled: bool = True
    instructions: str = ""
    provider: str = "lmstudio"
    model: str = Field(min_length=1)
    tools: Names = ()
    vault: AgentVault = AgentVault()
    max_turns: Whole = Field(50, ge=1)
    client_tools: ClientTools = "pass"
    sampling: Sampling = Sampling()

    @property
    def display_name(self) -> str:
        """Return the name people see: `name`, or the id where none was given."""
        return self.name or self.id


class CompactionSettings(Section):
    """`[compaction]`: when and how a history is shortened that would not fit the model's window."""

    enabled: bool = True
    auto: bool = True
    background: bool = True
    pruning_agent: str = Field(SAME_AGENT, min_length=1)
    model: str = ""
    threshold_ratio: Real = Field(0.8, ge=0.6, le=0.88)
    max_restarts: Whole = Field(3, ge=0, le=10)
    summary_prompt: str = ""
    summary_directives: Sentences = ()
    retain_prompt: str = ""
    retain_directives: Sentences = ()
    retain_last_turns: Whole = Field(1, ge=0, le=20)
    notices: Notices = "auto"


class VaultSettings(Section):
    """`[vault]`: the folder of notes that agents may work in, and how far."""

    path: Annotated[str, AfterValidator(_checked_vault_path)] = ""
    include: Folders = ()
    exclude: Folders = ()
    write: bool = False


class StoreSettings(Section):
    """`[store]`: where that is kept which outlives a request, and for how long."""

    url: Annotated[str, AfterValidator(_checked_store_url)] = ""
    retention_days: Whole = Field(90, ge=0, le=36500)


def _default_providers() -> tuple[ProviderSettings, ...]:
    return (ProviderSettings(id="lmstudio", kind="lmstudio"),)


class Settings(Section):
    """The whole settings file. Every key has a default, so that an absent file is a complete one."""

    server: ServerSettings = ServerSettings()
    providers: tuple[ProviderSettings, ...] = Field(default_factory=_default_providers)
    agents: tuple[AgentSettings, ...] = ()
    compaction: CompactionSettings = CompactionSettings()
    vault: VaultSettings = VaultSettings()
    store: StoreSettings = StoreSettings()

    @model_validator(mode="after")
    def _names_fit_together(self) -> Self:
        _refuse_repetition("providers", "id", [provider.id for provider in self.providers])
        _refuse_repetition("agents", "id", [agent.id for agent in self.agents])
        _refuse_repetition("agents", "name", [agent.display_name for agent in self.agents], str.casefold)
        known = [provider.id for provider in self.providers]
        for index, agent in enumerate(self.agents):
            if agent.provider not in known:
                accepted = " or ".join(map(repr, known)) or "an id of [[providers]], of which there is none"
                raise ValueError(
                    f"agents[{index}].provider = {agent.provider!r} is not accepted; it takes {accepted} "
                    f"(agent {agent.id!r})"
                )
        self._check_pruning_agent()
        self._check_tools()
        return self

    def _check_tools(self) -> None:
        for index, agent in enumerate(self.agents):
            key = ("agents", index, "tools")
            if unknown := next((name for name in agent.tools if unknown_tool(name)), None):
                there = ", ".join(map(repr, (VAULT, *VAULT_TOOLS)))
                raise Misfit(key, f"names of tools, which are: {there}; {unknown!r} is none")
            if agent.tools and not self.vault.path:
                raise Misfit(key, "vault tools only where [vault] has a path, such as path = '~/Notes'")
            writers = [name for name in agent.tools if name in VAULT_WRITERS]
            if writers and not (self.vault.write and agent.vault.write):
                where = f"agents[{index}].vault has write = false" if self.vault.write else "[vault] has write = false"
                raise Misfit(key, f"no tools that change notes, such as {writers[0]!r}, while {where}")

    def _check_pruning_agent(self) -> None:
        chosen = self.compaction.pruning_agent
        enabled = [agent.id for agent in self.agents if agent.enabled]
        if chosen in (SAME_AGENT, *enabled):
            return
        known = ", ".join(map(repr, enabled)) or "none"
        switched_off = any(agent.id == chosen for agent in self.agents)
        why = f" (agent {chosen!r} is not enabled)" if switched_off else ""
        raise Misfit(
            ("compaction", "pruning_agent"), f"{SAME_AGENT!r} or the id of an enabled agent, which are: {known}{why}"
        )


def _refuse_repetition(
    table: str, field: str, values: list[str], compared_as: Callable[[str], str] = lambda value: value
) -> None:
    first_with: dict[str, int] = {}
    for index, value in enumerate(values):
        before = first_with.setdefault(compared_as(value), index)
        if before != index:
            raise ValueError(
                f"{table}[{index}].{field} = {value!r} is not accepted; {table}[{before}] has the same {field}"
            )
