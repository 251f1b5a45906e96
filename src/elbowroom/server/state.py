"""What handlers find in the application."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from aiohttp import web

from elbowroom.agents.admission import QUIET_SECONDS
from elbowroom.agents.catalog import Catalog, Target
from elbowroom.agents.request import Caller
from elbowroom.agents.turn import RunSettings, Shared
from elbowroom.providers.registry import Providers
from elbowroom.providers.seen import SeenModels
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.load import LoadedSettings
from elbowroom.store import owner_key

T = TypeVar("T")
FIND: Final = "find"
"""What another server is asked, where it may run a conversation that is not in the database yet."""
PATIENCE_SECONDS: Final = 1.0
"""How long another server may take to tell what runs there."""


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


SEEN: web.AppKey[SeenModels] = web.AppKey("SEEN", SeenModels)
SETTINGS: web.AppKey[LiveSettings] = web.AppKey("SETTINGS", LiveSettings)
ENVIRONMENT: web.AppKey[Mapping[str, str]] = web.AppKey("ENVIRONMENT", Mapping)
PROVIDERS: web.AppKey[Providers] = web.AppKey("PROVIDERS", Providers)
SHARED: web.AppKey[Shared] = web.AppKey("SHARED", Shared)
TIMING: web.AppKey[Timing] = web.AppKey("TIMING", Timing)
STARTED: web.AppKey[int] = web.AppKey("STARTED", int)
"""When the application was made, in Unix seconds."""
WARM_UP: web.AppKey[Callable[[], None]] = web.AppKey("WARM_UP")
"""Begins to load and to open in threads what takes long; called once the server listens."""


class Following(Generic[T]):
    """What is worked out from the settings in force, once for each version of them."""

    def __init__(self, live: LiveSettings, work_out: Callable[[LoadedSettings], T]) -> None:
        self._live = live
        self._work_out = work_out
        self._known: tuple[LoadedSettings, T] | None = None

    def get(self) -> T:
        """Return it. Raises what working it out raises."""
        loaded = self._live.current()
        if self._known is None or self._known[0] is not loaded:
            self._known = loaded, self._work_out(loaded)
        return self._known[1]


CATALOG: web.AppKey[Following[Catalog]] = web.AppKey("CATALOG", Following)


def run_settings_of(app: web.Application, caller: Caller, target: Target | None = None) -> RunSettings:
    """Return what the settings that are in force now say about a caller's runs with the target, if that is known.

    A temporary chat is kept in memory, and nobody remembers it.
    """
    settings, shared = app[SETTINGS].current().settings, app[SHARED]
    shared.admission.max_waiting = settings.server.max_waiting
    shared.running.most_of_one = settings.server.chats_at_once
    run = RunSettings.under(settings, app[CATALOG].get(), shared)
    if caller.is_temporary and shared.temporary is not None:
        run = replace(run, shared=shared.temporary, memory=settings.memory.model_copy(update={"enabled": False}))
    return run.of(target) if target is not None and settings.models else run


async def find_conversation(shared: Shared, owner: str, name: str) -> str | None:
    """Return the id of the owner's conversation with this id or else this name, running or kept; None without one.

    One that another server has just begun may not be in the database yet: then that one is asked. Raises
    StoreOpening and StoreAway.
    """
    if (running := shared.running.find(owner, name)) is not None:
        return running
    await shared.store.ready()
    async with shared.store.in_time():
        row = await shared.store.conversations.find(owner, name)
    if row is not None:
        return row.id
    shared.store.check_reachable()
    servers, asked = shared.store.servers, {"owner": owner_key(owner), "name": name}
    return (await servers.ask_any(await servers.others(), FIND, asked, PATIENCE_SECONDS)).get("found")
