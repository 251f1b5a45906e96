"""Puts the server together."""

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from aiohttp import web

from elbowroom.agents.own_tool import Toolbox
from elbowroom.agents.shared import Shared
from elbowroom.agents.toolbox import SettingsToolbox
from elbowroom.providers.chat_endpoint import open_session
from elbowroom.providers.registry import Providers
from elbowroom.server.body import MAX_BODY_BYTES
from elbowroom.server.cancelling import add_cancel_route
from elbowroom.server.chat import chat_completions
from elbowroom.server.compacting import compact_conversation
from elbowroom.server.conversations import add_conversation_routes
from elbowroom.server.cors import set_up_cors
from elbowroom.server.counting import input_tokens
from elbowroom.server.failures import translate_failures
from elbowroom.server.guard import HEALTH, RULES, CurrentRules, guard
from elbowroom.server.health import health
from elbowroom.server.keys import ENVIRONMENT, PROVIDERS, RUNNING, RUNTIME, SETTINGS, SHARED, STARTED, TIMING, Timing
from elbowroom.server.live import add_live_route
from elbowroom.server.lmstudio_routes import add_lmstudio_routes
from elbowroom.server.logs import show_logs
from elbowroom.server.metrics import Metrics
from elbowroom.server.metrics_route import COUNTED, add_metrics_route, count_requests
from elbowroom.server.models import list_models, show_model
from elbowroom.server.own_page import for_own_page
from elbowroom.server.page import add_page_routes
from elbowroom.server.passing_on import add_passed_routes
from elbowroom.server.queueing import add_queue_routes
from elbowroom.server.request_log import add_request_id, log_request
from elbowroom.server.responses import add_response_routes
from elbowroom.server.running import RunningAnswers
from elbowroom.server.runtime import AgentRuntime
from elbowroom.server.settings_routes import add_settings_routes
from elbowroom.server.stopping import refuse_while_stopping
from elbowroom.settings.live import LiveSettings
from elbowroom.store import open_store

BASE = r"/{base:(?:/|v1/|chat/completions/)*}"
"""What people paste as a base address, in front of a route: nothing, /v1, /v1/, /v1/v1, or a route's own path."""
END = r"{end:/*}"
LINGERING_SECONDS = 2.0
"""How long the rest of a refused body is read and dropped, so that the client can read why."""


def create_app(
    live: LiveSettings,
    *,
    toolbox: Toolbox | None = None,
    timing: Timing | None = None,
    environ: Mapping[str, str] = os.environ,
) -> web.Application:
    """Return the application; `environ` holds the secrets that the settings refer to.

    `toolbox` gives agents their tools, in the place of the settings.
    """
    gates = [log_request, count_requests, translate_failures, guard, refuse_while_stopping]
    app = web.Application(middlewares=gates, client_max_size=MAX_BODY_BYTES)
    app[SETTINGS] = live
    app[ENVIRONMENT] = environ
    app[RULES] = CurrentRules(live, environ)
    app[TIMING] = timing or Timing()
    app[RUNNING] = RunningAnswers()
    app[COUNTED] = counted = Metrics()
    store = open_store(live.current().settings.store, environ, counted)
    own_tools = SettingsToolbox(live.current, environ, store.memories)

    def begin() -> None:
        own_tools.warm_up()
        store.open_soon()

    app[RUNTIME] = AgentRuntime(begin)
    kept = store.conversations if live.current().settings.store.conversations else None
    app[SHARED] = Shared.over(
        store, toolbox or own_tools, quiet_seconds=app[TIMING].quiet, conversations=kept, observations=counted
    )
    app[STARTED] = int(time.time())

    async def open_providers(app: web.Application) -> AsyncIterator[None]:
        async with open_session() as http, AsyncExitStack() as closing:
            app[PROVIDERS] = providers = Providers(http, environ)
            for opened in (providers, store, own_tools, app[SHARED]):  # each is closed before those to its left
                closing.push_async_callback(opened.aclose)
            yield

    async def end_answers(app: web.Application) -> None:
        app[RUNNING].stop()

    app.cleanup_ctx.append(open_providers)
    app.on_shutdown.append(end_answers)
    set_up_cors(app)
    app.on_response_prepare.append(add_request_id)
    _add_routes(app, live, environ)
    return app


def _add_routes(app: web.Application, live: LiveSettings, environ: Mapping[str, str]) -> None:
    app.router.add_get(HEALTH, health)
    app.router.add_get("/api/logs", for_own_page(show_logs))
    add_live_route(app)
    add_metrics_route(app)
    add_lmstudio_routes(app)
    app.router.add_get(f"{BASE}models{END}", list_models)
    app.router.add_get(f"{BASE}models/{{id:.+?}}{END}", show_model)
    app.router.add_post(f"{BASE}chat/completions{END}", chat_completions)
    app.router.add_post(f"{BASE}chat/completions/input_tokens{END}", input_tokens)
    app.router.add_post(f"{BASE}conversations/{{id}}/compact{END}", compact_conversation)
    add_cancel_route(app, BASE, END)
    add_conversation_routes(app, BASE, END)
    add_queue_routes(app, BASE, END)
    add_settings_routes(app, live, environ)
    add_response_routes(app, BASE, END)
    add_passed_routes(app, BASE, END)
    add_page_routes(app)


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
