"""Runs all checks side by side, each within its time, and none of them can end the others."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
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
from elbowroom.doctor.patient_thread import in_thread
from elbowroom.doctor.provider_check import check_providers
from elbowroom.doctor.report import clean
from elbowroom.doctor.settings_check import check_settings, slow_settings, wrong_settings
from elbowroom.doctor.subject import INTERNAL_PORTS, USUAL_PORT, Subject
from elbowroom.doctor.tool_check import check_mcp, check_vault
from elbowroom.errors import ElbowroomError, SettingsError
from elbowroom.logs.redaction import Redactor
from elbowroom.providers.chat_endpoint import open_session
from elbowroom.providers.registry import Providers
from elbowroom.settings.layers import Flags, load_settings

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
    """Return the findings of all checks in the order of the checks, without any secret; it raises nothing.

    With `probes` a few tokens are asked of loaded models. `seconds` is what each check may take.
    """
    redactor = Redactor()
    try:
        async with asyncio.timeout(seconds):
            loaded = await in_thread(lambda: load_settings(path, environ, flags, must_exist=must_exist))
        redactor.follow(loaded, environ)
        async with open_session() as http, AsyncExitStack() as closing:
            closing.push_async_callback((registry := Providers(http, environ)).aclose)
            offers = McpOffers(loaded.settings.mcp_servers, loaded.folder, environ)
            subject = Subject(loaded, environ, http, registry.of(loaded), offers, probes, other_ports, internal_ports)
            closing.push_async_callback(subject.aclose)
            limits = dict.fromkeys(checks, seconds) | ({"counting": PROBE_SECONDS} if probes else {})
            results = await asyncio.gather(*(_within(limits[name], name, checks[name], subject) for name in checks))
    except SettingsError as error:
        results = [wrong_settings(error, str(path)), of_proxies(environ), of_time(time.time())]
    except TimeoutError:
        results = [slow_settings(str(path)), of_proxies(environ), of_time(time.time())]
    return clean(list(dict.fromkeys(found for findings in results for found in findings)), redactor)


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
        return [Finding("fail", name, error.message, "", "Correct what it names, and run the doctor again.")]
    except Exception as error:
        log.debug("The check %s failed.", name, exc_info=True)
        remedy = "Please report it with what `elbowroom doctor --log-level debug` says."
        return [Finding("fail", name, f"The check itself failed: {type(error).__name__}.", "", remedy)]
