"""What handlers find in the application."""

from dataclasses import dataclass

from aiohttp import web

from elbowroom.agents.catalog import Catalog
from elbowroom.agents.run_settings import RunSettings
from elbowroom.providers.registry import Providers
from elbowroom.server.running import RunningAnswers
from elbowroom.server.runtime import AgentRuntime
from elbowroom.settings.live import LiveSettings


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits in seconds that tests shorten.

    `keep_alive`: silence towards a client before a comment is sent. `body_pause`, `body_total`: how long a
    request's body may pause and take. `idle`: how long a connection may be open without a complete request head.
    `write`: how long a client may leave what was sent unread.
    """

    keep_alive: float = 10.0
    body_pause: float = 15.0
    body_total: float = 120.0
    idle: float = 25.0
    write: float = 300.0


SETTINGS: web.AppKey[LiveSettings] = web.AppKey("SETTINGS", LiveSettings)
PROVIDERS: web.AppKey[Providers] = web.AppKey("PROVIDERS", Providers)
RUNNING: web.AppKey[RunningAnswers] = web.AppKey("RUNNING", RunningAnswers)
RUNTIME: web.AppKey[AgentRuntime] = web.AppKey("RUNTIME", AgentRuntime)
TIMING: web.AppKey[Timing] = web.AppKey("TIMING", Timing)
STARTED: web.AppKey[int] = web.AppKey("STARTED", int)


def run_settings_of(app: web.Application) -> RunSettings:
    """Return what the settings that are in force now say about runs."""
    settings = app[SETTINGS].current().settings
    runtime = app[RUNTIME]
    return RunSettings(
        settings.compaction,
        catalog_of(app),
        settings.server.client_tools,
        runtime.histories,
        runtime.pruners,
        windows=runtime.windows,
    )


def catalog_of(app: web.Application) -> Catalog:
    """Return the catalog of the settings that are in force now."""
    loaded = app[SETTINGS].current()
    return Catalog(loaded.settings.agents, app[PROVIDERS].of(loaded))
