"""Runs all checks side by side, each within its time, and none of them can end the others."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from elbowroom.doctor.address_check import check_clients, check_port
from elbowroom.doctor.agent_check import check_agents
from elbowroom.doctor.count_check import check_counting
from elbowroom.doctor.data_check import check_data
from elbowroom.doctor.finding import Finding
from elbowroom.doctor.machine_check import of_proxies, of_time
from elbowroom.doctor.mcp_offers import McpOffers
from elbowroom.doctor.model_check import check_models
from elbowroom.doctor.provider_check import check_providers
from elbowroom.doctor.settings_check import check_settings, wrong_settings
from elbowroom.doctor.subject import INTERNAL_PORTS, USUAL_PORT, Subject
from elbowroom.doctor.tool_check import check_mcp, check_vault
from elbowroom.errors import ElbowroomError, SettingsError
from elbowroom.providers.chat_endpoint import open_session
from elbowroom.providers.registry import Providers
from elbowroom.settings.layers import Flags, LoadedSettings, load_settings

log = logging.getLogger(__name__)
Check = Callable[[Subject], Awaitable[list[Finding]]]
SECONDS: Final = 20.0
PROBE_SECONDS: Final = 90.0
"""How long the check may take that waits for models."""


async def _check_proxies(subject: Subject) -> list[Finding]:
    return of_proxies(subject.environ)


async def _check_clock(subject: Subject) -> list[Finding]:
    return of_time(subject.clock())


CHECKS: Final[Mapping[str, Check]] = {
    "settings": check_settings,
    "data folder": check_data,
    "port": check_port,
    "clients": check_clients,
    "provider": check_providers,
    "models": check_models,
    "agents": check_agents,
    "counting": check_counting,
    "mcp": check_mcp,
    "vault": check_vault,
    "proxy": _check_proxies,
    "clock": _check_clock,
}


async def examine(
    path: Path,
    environ: Mapping[str, str],
    flags: Flags,
    *,
    must_exist: bool = False,
    probes: bool = False,
    checks: Mapping[str, Check] = CHECKS,
    seconds: float = SECONDS,
    other_ports: Sequence[int] = (USUAL_PORT,),
    internal_ports: Sequence[int] = INTERNAL_PORTS,
) -> list[Finding]:
    """Return the findings of all checks in the order of the checks; it raises nothing.

    With `probes` a few tokens are asked of loaded models. `seconds` is what each check may take.
    """
    try:
        loaded = load_settings(path, environ, flags, must_exist=must_exist)
    except SettingsError as error:
        return [*wrong_settings(error, str(path)), *of_proxies(environ), *of_time(time.time())]
    async with open_session() as http:
        registry = Providers(http, environ)
        try:
            subject = _subject(loaded, environ, registry, http, probes)
        except SettingsError as error:
            return wrong_settings(error, str(path))
        subject.other_ports, subject.internal_ports = other_ports, internal_ports
        try:
            limits = {"counting": PROBE_SECONDS if probes else seconds}
            found = await asyncio.gather(
                *(_within(limits.get(name, seconds), name, check, subject) for name, check in checks.items())
            )
        finally:
            await subject.aclose()
            await registry.aclose()
    return list(dict.fromkeys(finding for findings in found for finding in findings))


def _subject(
    loaded: LoadedSettings, environ: Mapping[str, str], registry: Providers, http: object, probes: bool
) -> Subject:
    offers = McpOffers(loaded.settings.mcp_servers, loaded.folder, environ)
    return Subject(loaded, environ, http, registry.of(loaded), offers, probes)  # type: ignore[arg-type]


async def _within(seconds: float, name: str, check: Check, subject: Subject) -> list[Finding]:
    """Return the findings of a check; that it takes too long, or fails itself, is one."""
    try:
        async with asyncio.timeout(seconds):
            return await check(subject)
    except TimeoutError:
        what = f"This was not finished in {seconds:g} seconds."
        remedy = "Something it looks at hangs: a disk, a network share or a server. Try again when it answers."
        return [Finding("warn", name, what, "", remedy)]
    except ElbowroomError as error:
        return [Finding("fail", name, error.message)]
    except Exception as error:
        log.debug("The check %s failed.", name, exc_info=True)
        remedy = "Please report it with what `elbowroom doctor --log-level debug` says."
        return [Finding("fail", name, f"The check itself failed: {type(error).__name__}.", "", remedy)]
