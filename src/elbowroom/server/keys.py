"""What handlers find in the application."""

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from elbowroom.agents.background import QUIET_SECONDS
from elbowroom.agents.catalog import Catalog
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.shared import Shared
from elbowroom.providers.registry import Providers
from elbowroom.server.running import RunningAnswers
from elbowroom.server.runtime import AgentRuntime
from elbowroom.settings.live import LiveSettings


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits in seconds that tests shorten.

    `keep_alive`: silence towards a client before a comment is sent. `body_pause`, `body_total`: how long a
    request's body may pause and take. `idle`: how long a connection may be open without a complete request head.
    `write`: how long a client may leave what was sent unread. `quiet`: how long nobody may have asked for a model
    before work in the background begins.
    """

    keep_alive: float = 10.0
    body_pause: float = 15.0
    body_total: float = 120.0
    idle: float = 25.0
    write: float = 300.0
    quiet: float = QUIET_SECONDS


SETTINGS: web.AppKey[LiveSettings] = web.AppKey("SETTINGS", LiveSettings)
PROVIDERS: web.AppKey[Providers] = web.AppKey("PROVIDERS", Providers)
RUNNING: web.AppKey[RunningAnswers] = web.AppKey("RUNNING", RunningAnswers)
SHARED: web.AppKey[Shared] = web.AppKey("SHARED", Shared)
RUNTIME: web.AppKey[AgentRuntime] = web.AppKey("RUNTIME", AgentRuntime)
TIMING: web.AppKey[Timing] = web.AppKey("TIMING", Timing)
STARTED: web.AppKey[int] = web.AppKey("STARTED", int)
ENVIRONMENT: web.AppKey[Mapping[str, str]] = web.AppKey("ENVIRONMENT", Mapping)


def run_settings_of(app: web.Application) -> RunSettings:
    """Return what the settings that are in force now say about runs."""
    settings = app[SETTINGS].current().settings
    return RunSettings(
        compaction=settings.compaction,
        catalog=catalog_of(app),
        client_tools=settings.server.client_tools,
        tool_output=settings.tool_output,
        memory=settings.memory,
        shared=app[SHARED],
    )


def catalog_of(app: web.Application) -> Catalog:
    """Return the catalog of the settings that are in force now."""
    loaded = app[SETTINGS].current()
    return Catalog(loaded.settings.agents, app[PROVIDERS].of(loaded))
