"""Runs all checks concurrently, each with a time limit, and prints their findings."""

import asyncio
import json
import logging
import textwrap
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from elbowroom.doctor.agents import check_agents, check_mcp, check_vault
from elbowroom.doctor.counting import check_counting
from elbowroom.doctor.machine import (
    check_clients,
    check_data,
    check_port,
    check_settings,
    judge_proxies,
    judge_time,
    slow_settings,
    wrong_settings,
)
from elbowroom.doctor.providers import check_models, check_providers
from elbowroom.doctor.subject import INTERNAL_PORTS, USUAL_PORT, Finding, McpOffers, Subject, in_thread, is_healthy
from elbowroom.errors import ElbowroomError, SettingsError, in_own_words
from elbowroom.logs.formats import escaped
from elbowroom.logs.redaction import Redactor
from elbowroom.providers.registry import Providers
from elbowroom.providers.upstream import open_session
from elbowroom.settings.load import Flags, usable_settings

log = logging.getLogger(__name__)
Check = Callable[[Subject], Awaitable[list[Finding]]]
SECONDS: Final = 20.0
PROBE_SECONDS: Final = 90.0
"""The time limit of the check that waits for models."""
MARKS: Final = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
NARROWEST: Final = 60
WIDEST: Final = 120


async def _check_proxies(subject: Subject) -> list[Finding]:
    return judge_proxies(subject.environ)


async def _check_clock(subject: Subject) -> list[Finding]:
    return judge_time(subject.clock())


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
    """Return the findings of all checks in their order, without secrets; never raises.

    With `probes`, loaded models generate a few tokens. `seconds` is the time limit of each check.
    """
    redactor = Redactor()
    try:
        async with asyncio.timeout(seconds):
            loaded = await in_thread(lambda: usable_settings(path, environ, flags, must_exist=must_exist))
        redactor.follow(loaded, environ)
        async with open_session() as http, AsyncExitStack() as closing:
            closing.push_async_callback((registry := Providers(http, environ)).aclose)
            offers = McpOffers(loaded.settings.mcp_servers, loaded.folder, environ)
            subject = Subject(loaded, environ, http, registry.of(loaded), offers, probes, other_ports, internal_ports)
            closing.push_async_callback(subject.aclose)
            limits = dict.fromkeys(checks, seconds) | ({"counting": PROBE_SECONDS} if probes else {})
            results = await asyncio.gather(*(_within(limits[name], name, checks[name], subject) for name in checks))
    except SettingsError as error:
        results = [wrong_settings(error, str(path)), judge_proxies(environ), judge_time(time.time())]
    except TimeoutError:
        results = [slow_settings(str(path)), judge_proxies(environ), judge_time(time.time())]
    return clean(list(dict.fromkeys(found for findings in results for found in findings)), redactor)


async def _within(seconds: float, name: str, check: Check, subject: Subject) -> list[Finding]:
    """Return the findings of a check; one of its own that is too slow or fails is a finding as well."""
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


def clean(findings: Sequence[Finding], redactor: Redactor) -> list[Finding]:
    """Return the findings without secrets and without control characters."""

    def safe(text: str) -> str:
        return redactor.clean(escaped(in_own_words(text)))

    return [
        Finding(found.severity, safe(found.check), safe(found.what), safe(found.where), safe(found.remedy))
        for found in findings
    ]


def as_json(findings: Sequence[Finding]) -> str:
    """Return `{"healthy": bool, "findings": [{severity, check, what, where, remedy}]}`."""
    table = {"healthy": is_healthy(list(findings)), "findings": [found.as_json() for found in findings]}
    return json.dumps(table, ensure_ascii=False, indent=2)


def as_text(findings: Sequence[Finding], width: int) -> str:
    """Return a paragraph for each finding, wrapped to `width` columns, and a summary."""
    width = min(WIDEST, max(NARROWEST, width))
    label = max((len(found.check) for found in findings), default=0)
    paragraphs = [_paragraph(found, label, width) for found in findings]
    return "\n".join([*paragraphs, "", summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    """Return the number of problems and warnings in a sentence."""
    failed = sum(found.severity == "fail" for found in findings)
    warned = sum(found.severity == "warn" for found in findings)
    if not failed and not warned:
        return "Nothing is wrong."
    parts = [_number(failed, "problem"), _number(warned, "warning")]
    return f"{' and '.join(part for part in parts if part)}."


def _paragraph(found: Finding, label: int, width: int) -> str:
    head = f"{MARKS[found.severity]}  {found.check:<{label}}  "
    indent = " " * len(head)
    where = "" if found.severity == "ok" or found.where in found.what else f"{found.where}: "
    lines = _wrapped(f"{where}{found.what}", width - len(indent))
    if found.remedy:
        arrow = "-> "
        remedy = _wrapped(found.remedy, width - len(indent) - len(arrow))
        lines += [arrow + remedy[0], *(" " * len(arrow) + line for line in remedy[1:])]
    return "\n".join([head + lines[0], *(indent + line for line in lines[1:])])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _number(count: int, name: str) -> str:
    return f"{count} {name}{'s' if count > 1 else ''}" if count else ""
