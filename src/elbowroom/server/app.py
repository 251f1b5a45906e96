"""Puts the server together, and stops it in an orderly way."""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import cache
from types import FrameType
from typing import Final

from aiohttp import web

from elbowroom.agents.catalog import Catalog
from elbowroom.agents.offered import SettingsToolbox
from elbowroom.agents.running import Running
from elbowroom.agents.tools import Toolbox
from elbowroom.agents.turn import Shared
from elbowroom.providers.registry import Providers
from elbowroom.providers.seen import FILE_NAME, SeenModels
from elbowroom.providers.upstream import open_session
from elbowroom.server.chat import chat_completions, input_tokens
from elbowroom.server.conversations import (
    SEARCHES,
    add_by_hand_routes,
    add_cancel_route,
    add_conversation_routes,
    add_kept_routes,
    add_live_route,
    add_queue_routes,
    add_search_route,
)
from elbowroom.server.doctor import add_doctor_route
from elbowroom.server.guard import HEALTH, READY, RULES, for_owner, guard, rules_of
from elbowroom.server.mcp import add_mcp_routes
from elbowroom.server.messages import DIAGNOSES, Diagnoses, add_message_routes
from elbowroom.server.metrics import COUNTED, Metrics, add_metrics_route
from elbowroom.server.middleware import LARGE_BODIES, LargeBodies, complete_headers, report_requests
from elbowroom.server.models import AHEAD, TokenizersAhead, health, list_models, ready, show_model
from elbowroom.server.obsidian import add_obsidian_routes
from elbowroom.server.page import add_page_routes, show_logs
from elbowroom.server.pairing import add_pairing_routes
from elbowroom.server.passing import add_passed_routes
from elbowroom.server.people import add_people_routes
from elbowroom.server.quality import add_quality_routes
from elbowroom.server.request import MAX_BODY_BYTES
from elbowroom.server.responses import BACKGROUND, BackgroundResponses, add_item_routes, add_response_routes
from elbowroom.server.settings import add_lmstudio_routes, add_settings_routes
from elbowroom.server.state import (
    CATALOG,
    ENVIRONMENT,
    PROVIDERS,
    SEEN,
    SETTINGS,
    SHARED,
    STARTED,
    TIMING,
    WARM_UP,
    Following,
    Timing,
)
from elbowroom.server.vault import add_vault_routes
from elbowroom.settings.fields import data_dir
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.model import ServerSettings
from elbowroom.settings.shared import SharedAgents
from elbowroom.store import Together, open_store, store_place

BASE = r"/{base:(?:/|v1/|chat/completions/)*}"
"""What people paste as a base address, in front of a route: nothing, /v1, /v1/, /v1/v1, or a route's own path."""
END = r"{end:/*}"
LINGERING_SECONDS = 2.0
"""How long the rest of a refused body is read and dropped, so that the client can read why."""
log = logging.getLogger(__name__)
CLOSING_SECONDS: Final = 20.0
"""How long a stop may take beyond its notice and the end of answers; what hangs, such as a tool, is not waited for."""
ASKS_TO_STOP: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""Ctrl-C, the system's request, a terminal that is closed, and what Windows' consoles send; each where it exists."""


def create_app(
    live: LiveSettings,
    *,
    toolbox: Toolbox | None = None,
    timing: Timing | None = None,
    environ: Mapping[str, str] = os.environ,
) -> web.Application:
    """Return the application; `environ` holds the secrets that the settings refer to.

    `toolbox` gives agents their tools instead of the settings.
    """
    app = web.Application(middlewares=[report_requests, guard], client_max_size=MAX_BODY_BYTES)
    app[SETTINGS] = live
    app[ENVIRONMENT] = environ
    app[RULES] = Following(live, lambda loaded: rules_of(loaded, environ))
    app[RULES].get()  # a secret that cannot be read is told of at the start
    app[TIMING] = timing or Timing()
    app[COUNTED] = counted = Metrics()
    place = store_place(live.current().settings.store, environ)
    app[SEEN] = SeenModels(data_dir(environ) / FILE_NAME if place else None)
    store = open_store(live.current().settings.store, environ, counted)
    if isinstance(store.servers, Together) and live.current().settings.store.agents == "database":
        live.shared = SharedAgents(store.servers)
    own_tools = SettingsToolbox(live.current, environ, store.memories)

    kept = store.conversations if live.current().settings.store.conversations else None
    app[SHARED] = Shared.over(
        store, toolbox or own_tools, quiet_seconds=app[TIMING].quiet, conversations=kept, observations=counted
    )
    app[AHEAD] = TokenizersAhead()
    app[LARGE_BODIES] = LargeBodies()
    app[SEARCHES] = {}
    app[BACKGROUND] = BackgroundResponses()
    app[DIAGNOSES] = Diagnoses()
    app[STARTED] = int(time.time())

    def warm_up() -> None:
        own_tools.warm_up()
        store.open_soon()

    app[WARM_UP] = warm_up

    async def open_providers(app: web.Application) -> AsyncIterator[None]:
        async with open_session() as http, AsyncExitStack() as closing:
            app[PROVIDERS] = providers = Providers(http, environ)
            app[CATALOG] = Following(
                live,
                lambda loaded: Catalog(
                    loaded.settings.agents, providers.of(loaded), app[SEEN], loaded.settings.of_model
                ),
            )
            # Each is closed before those to its left.
            for opened in (providers, store, own_tools, app[SHARED], app[AHEAD]):
                closing.push_async_callback(opened.aclose)
            yield

    async def end_answers(app: web.Application) -> None:
        app[SHARED].running.stop()

    app.cleanup_ctx.append(open_providers)
    app.on_shutdown.append(end_answers)
    app.on_response_prepare.append(complete_headers)
    _add_routes(app, live, environ)
    add_vault_routes(app, own_tools)
    return app


def _add_routes(app: web.Application, live: LiveSettings, environ: Mapping[str, str]) -> None:
    for resource in _shared_routes():
        app.router.register_resource(resource)
    add_live_route(app)
    add_mcp_routes(app)
    add_settings_routes(app, live, environ)
    add_quality_routes(app)
    add_pairing_routes(app)
    add_doctor_route(app)
    add_page_routes(app)


@cache
def _shared_routes() -> list[web.AbstractResource]:
    """Return the routes that hold nothing of an application: made once, for it takes as long as the rest of a start."""
    router = web.Application().router
    router.add_get(HEALTH, health)
    router.add_get(READY, ready)
    router.add_get("/api/logs", for_owner(show_logs))
    add_metrics_route(router)
    add_lmstudio_routes(router)
    router.add_get(f"{BASE}models{END}", list_models)
    router.add_get(f"{BASE}models/{{id:.+?}}{END}", show_model)
    router.add_post(f"{BASE}chat/completions{END}", chat_completions)
    router.add_post(f"{BASE}chat/completions/input_tokens{END}", input_tokens)
    add_by_hand_routes(router, BASE, END)
    add_cancel_route(router, BASE, END)
    add_conversation_routes(router, BASE, END)
    add_queue_routes(router, BASE, END)
    add_search_route(router, BASE, END)
    add_kept_routes(router, BASE, END)
    add_obsidian_routes(router)
    add_people_routes(router)
    add_response_routes(router, BASE, END)
    add_item_routes(router, BASE, END)
    add_message_routes(router, BASE, END)
    add_passed_routes(router, BASE, END)
    return list(router.resources())


def create_runner(app: web.Application) -> web.AppRunner:
    """Return the runner, which ends a handler as soon as its client leaves and never inflates a body."""
    return web.AppRunner(
        app,
        handler_cancellation=True,
        auto_decompress=False,
        keepalive_timeout=app[TIMING].idle,
        lingering_time=LINGERING_SECONDS,
        access_log=None,
        shutdown_timeout=3.0,
    )


class StopRequests:
    """The requests to stop: `asked` is set at the first signal, `pressed` at the second.

    A third signal ends the process as a crash would.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.pressed = asyncio.Event()

    @classmethod
    def listen(cls) -> "StopRequests":
        """Handle the signals of this process from now on.

        Call it before anything is opened, so that everything is closed however early the end comes.
        """
        requests = cls()
        for name in ASKS_TO_STOP:
            number = signal.Signals.__members__.get(name)
            if number is not None and not (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):  # nohup
                _take(number, requests)
        return requests

    def add(self) -> None:
        """Take one request to stop."""
        if not self.asked.is_set():
            self.asked.set()
        elif not self.pressed.is_set():
            self.pressed.set()
        else:
            log.warning("Ended at the third request; what was not stored yet is lost.")
            os._exit(1)


def _take(number: signal.Signals, requests: StopRequests) -> None:
    loop = asyncio.get_running_loop()

    def from_outside(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(requests.add)

    try:
        loop.add_signal_handler(number, requests.add)
    except NotImplementedError:  # the event loops of Windows take no handlers of signals
        signal.signal(number, from_outside)


async def give_notice(running: Running, requests: StopRequests, seconds: float) -> None:
    """Go on taking requests for so long while `/ready` answers 503, so that a load balancer chooses other servers."""
    running.leave()
    if seconds:
        log.info("Stopping in %.0f s; requests are taken until then. Ask once more to end now.", seconds)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(requests.pressed.wait(), seconds)


async def finish_answers(running: Running, requests: StopRequests, seconds: float) -> None:
    """Wait until the running answers have finished or so many seconds are over; no new ones begin meanwhile."""
    running.close()
    if not running:
        log.info("Stopping.")
        return
    answers = "1 answer" if len(running) == 1 else f"{len(running)} answers"
    log.info("Stopping: %s may go on for %.0f s. Ask once more to end now.", answers, seconds)
    await _finished(running, requests, seconds)


async def _finished(running: Running, requests: StopRequests, seconds: float) -> None:
    waiting = [asyncio.create_task(running.finished()), asyncio.create_task(requests.pressed.wait())]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    if running:
        log.info("The answers that are not finished are ended; what was said is stored.")


def longest_stop(server: ServerSettings) -> float:
    """Return how many seconds a stop takes at most."""
    return server.stop_notice_seconds + server.drain_seconds + CLOSING_SECONDS


def bound_the_stop(seconds: float) -> None:
    """End the process after so many seconds, even if a thread hangs: threads cannot be stopped from outside."""
    timer = threading.Timer(seconds, _give_up, [seconds])
    timer.daemon = True
    timer.start()


def _give_up(seconds: float) -> None:
    log.error("The stop took longer than %.0f s; it ends here, with something still running.", seconds)
    os._exit(1)
