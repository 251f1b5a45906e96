"""What the checks share: their findings, the settings, HTTP requests, and the tools of MCP servers."""

import asyncio
import importlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import aiohttp

from elbowroom.agents.sdk import load_sdk
from elbowroom.errors import ElbowroomError, McpUnavailable
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.machines import Machines
from elbowroom.settings.load import LoadedSettings
from elbowroom.settings.model import McpServerSettings, ProviderSettings

if TYPE_CHECKING:
    from elbowroom.agents.tools.mcp.convert import McpTool

Severity = Literal["ok", "warn", "fail"]
SECONDS: Final = 3.0
MOST_BYTES: Final = 1024 * 1024
Trouble = Literal["", "refused", "silent", "unknown host", "no http", "bad address"]
Value = TypeVar("Value")
MOST_SECONDS: Final = 12.0
"""The longest wait for a server, whatever its `connect_timeout` says."""
Offer: TypeAlias = "Sequence[McpTool] | str"
"""The tools of a server, or the end of a sentence that says why it cannot be used."""
USUAL_PORT: Final = 1234
INTERNAL_PORTS: Final = (41343, 52993, 16141, 39414, 22931)
"""LM Studio answers its own programs on one of these ports, also while its server is off."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check: what was found, where, and what to do about it.

    fail: something does not work. warn: it works, but may surprise. ok: it is as it should be; `remedy` is then a hint.
    """

    severity: Severity
    check: str
    what: str
    where: str = ""
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """Return it as `{severity, check, what, where, remedy}`."""
        return asdict(self)


def is_healthy(findings: list[Finding]) -> bool:
    """Tell whether no finding is a failure."""
    return all(finding.severity != "fail" for finding in findings)


def names(items: Sequence[str], most: int = 8) -> str:
    """Return names as a list for a person; of more than `most`, the rest as a number."""
    shown = ", ".join(items[:most]) or "none"
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an address: its status, body and Date header; or `trouble`, why there is no answer."""

    trouble: Trouble = ""
    status: int = 0
    text: str = ""
    date: str = ""

    @property
    def json(self) -> Any:
        """Return the body as parsed JSON, None if it is no JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @property
    def table(self) -> dict[str, Any]:
        """Return the body if it is a JSON object, else an empty one."""
        found = self.json
        return found if isinstance(found, dict) else {}


async def fetch(
    http: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None, seconds: float = SECONDS
) -> Answer:
    """Send a GET request and return the answer; never raises."""
    try:
        async with asyncio.timeout(seconds):
            async with http.get(url, headers=headers, allow_redirects=False) as response:
                body = await response.content.read(MOST_BYTES)
                while len(body) < MOST_BYTES and (part := await response.content.read(MOST_BYTES - len(body))):
                    body += part
                date = response.headers.get("Date", "")
                return Answer("", response.status, body.decode("utf-8", "replace"), date)
    except (aiohttp.InvalidURL, ValueError):
        return Answer("bad address")
    except TimeoutError:  # also those of connecting
        return Answer("silent")
    except aiohttp.ClientConnectorDNSError:
        return Answer("unknown host")
    except aiohttp.ClientConnectorError:
        return Answer("refused")
    except aiohttp.ClientError:
        return Answer("no http")


async def in_thread(work: Callable[[], Value]) -> Value:
    """Run the work in a daemon thread and return its result; after a cancellation the thread goes on by itself."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Value] = loop.create_future()

    def settle(value: Value | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]  # it is what the work has returned

    def run() -> None:
        value, failure = None, None
        try:
            value = work()
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            failure = error
        try:
            loop.call_soon_threadsafe(settle, value, failure)
        except RuntimeError:  # the program has ended meanwhile
            return

    threading.Thread(target=run, daemon=True, name="doctor").start()
    return await done


class McpOffers:
    """Lists the tools of MCP servers: connects at the first question, and closes once the tools are known."""

    def __init__(self, servers: Sequence[McpServerSettings], folder: Path, environ: Mapping[str, str]) -> None:
        self._servers = {server.name: server for server in servers if server.enabled}
        self._folder = folder
        self._environ = environ
        self._asked: dict[str, asyncio.Task[Offer]] = {}

    async def of(self, server: str) -> Offer:
        """Return the tools of a server, or why it cannot be used."""
        if server not in self._servers:
            return "it is not enabled"
        if server not in self._asked:
            self._asked[server] = asyncio.create_task(self._ask(self._servers[server]))
        return await asyncio.shield(self._asked[server])

    async def aclose(self) -> None:
        """Cancel the connections that are under way."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    async def _ask(self, settings: McpServerSettings) -> Offer:
        await asyncio.to_thread(load_sdk)
        link_module = await asyncio.to_thread(importlib.import_module, "elbowroom.agents.tools.mcp.link")
        patient = settings.model_copy(update={"connect_timeout": min(settings.connect_timeout, MOST_SECONDS)})
        try:
            link = await link_module.McpLink.connect(patient, self._folder, self._environ)
        except McpUnavailable as error:
            return error.message.rstrip(".")
        tools: Sequence[McpTool] = link.offered(settings.name, link.call)
        await link.aclose()
        return tools


def names_of(tool: "McpTool") -> tuple[str, str]:
    """Return the names that settings may use for a tool: that of the server, and that which models call."""
    return tool.name, tool.tool.name


@dataclass(slots=True)
class Subject:
    """The set-up that is examined; `probes` allows the checks to have models generate a few tokens.

    On `other_ports` LM Studio is looked for if it is not at its address.
    """

    loaded: LoadedSettings
    environ: Mapping[str, str]
    http: aiohttp.ClientSession
    providers: Mapping[str, Provider]
    offers: McpOffers
    probes: bool = False
    other_ports: Sequence[int] = (USUAL_PORT,)
    internal_ports: Sequence[int] = INTERNAL_PORTS
    clock: Callable[[], float] = time.time
    _models: dict[str, "asyncio.Task[Sequence[ModelInfo] | ElbowroomError]"] = field(default_factory=dict)

    def provider_settings(self, provider_id: str) -> ProviderSettings:
        """Return the settings of a provider, or of one of its machines."""
        machines = self.loaded.settings.machines.values()
        return next(found for together in machines for found in together if found.id == provider_id)

    def machines(self) -> list[Provider]:
        """Return what each address is spoken to by: the providers, and in place of several machines each of them."""
        several = {name: one.machines for name, one in self.providers.items() if isinstance(one, Machines)}
        return [
            each
            for name, provider in self.providers.items()
            for each in ([machine.provider for machine in several[name]] if name in several else [provider])
        ]

    async def models(self, provider: Provider) -> Sequence[ModelInfo] | ElbowroomError:
        """Return a provider's models, or the error of asking for them; asked once for all checks."""
        if provider.id not in self._models:
            self._models[provider.id] = asyncio.create_task(_models_or_failure(provider))
        return await asyncio.shield(self._models[provider.id])

    async def loaded_models(self) -> list[tuple[Provider, ModelInfo]]:
        """Return the loaded models that can chat, of the providers whose context elbowroom manages."""
        found = []
        for provider in self.machines():
            models = await self.models(provider) if provider.manages_context else ()
            if not isinstance(models, ElbowroomError):
                found += [(provider, info) for info in models if info.kind != "embedding" and info.loaded_context]
        return found

    async def aclose(self) -> None:
        """Cancel what is under way."""
        for task in self._models.values():
            task.cancel()
        await asyncio.gather(*self._models.values(), return_exceptions=True)
        await self.offers.aclose()


async def _models_or_failure(provider: Provider) -> Sequence[ModelInfo] | ElbowroomError:
    try:
        return await provider.models()
    except ElbowroomError as error:
        return error
