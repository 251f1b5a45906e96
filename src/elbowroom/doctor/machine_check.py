"""Checks of the machine: its clock, and proxies that catch what is meant for this machine."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from elbowroom.doctor.finding import Finding

PROXIES: Final = ("http_proxy", "all_proxy")
LOOPBACK: Final = ("localhost", "127.0.0.1")
EARLIEST: Final = datetime(2026, 6, 1, tzinfo=UTC)
"""No elbowroom is older than this."""


def of_proxies(environ: Mapping[str, str]) -> list[Finding]:
    """Judge the proxies of the environment. elbowroom itself asks none for a provider; clients may."""
    named = {name.lower(): (name, value) for name, value in environ.items() if value}
    proxies = [named[name] for name in PROXIES if name in named]
    except_for = [part.strip().lower() for part in named.get("no_proxy", ("", ""))[1].split(",")]
    if not proxies or "*" in except_for or all(host in except_for for host in LOOPBACK):
        return []
    name, value = proxies[0]
    what = (
        f"{name} is set ({value.rpartition('@')[2]}) and NO_PROXY does not except this machine: OpenAI's clients, curl "
        "and MCP servers send what is meant for 127.0.0.1 to the proxy."
    )
    remedy = "export NO_PROXY=localhost,127.0.0.1,::1 where you start them."
    return [Finding("warn", "proxy", what, f"environment variable {name}", remedy)]


def of_time(now: float) -> list[Finding]:
    """Judge the clock by itself; `now` is in Unix seconds."""
    if now >= EARLIEST.timestamp():
        return []
    what = f"The clock says {datetime.fromtimestamp(now, UTC):%Y-%m-%d}, which is before elbowroom was written."
    remedy = "Set the clock: certificates fail by it, and conversations are sorted and deleted by it."
    return [Finding("fail", "clock", what, "", remedy)]
