"""Runs the server until it is told to stop; tells the person, and the service manager, when it is ready."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from elbowroom import __version__
from elbowroom.agents.catalog import why_no_answer
from elbowroom.errors import ElbowroomError, SettingsError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.server.app import (
    StopRequests,
    bound_the_stop,
    create_app,
    create_runner,
    finish_answers,
    give_notice,
    longest_stop,
)
from elbowroom.server.state import PROVIDERS, SETTINGS, SHARED, WARM_UP
from elbowroom.settings.doubts import own_address
from elbowroom.settings.live import LiveSettings

log = logging.getLogger(__name__)
LOOK_AGAIN_SECONDS = 5.0
WARM_UP_AFTER_SECONDS: Final = 0.2
"""So that the first question about a new server's health is answered before threads import what comes later."""
HIGHEST_PORT = 65535
NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"


@asynccontextmanager
async def listening(live: LiveSettings, environ: Mapping[str, str]) -> AsyncIterator[tuple[web.Application, str]]:
    """Run the server; yields the application and its address for this machine, without a path.

    Raises SettingsError where the address cannot be listened on.
    """
    app = create_app(live, environ=environ)
    runner = create_runner(app)
    await runner.setup()
    host, port = live.address
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except (OSError, UnicodeError) as error:  # a name with a part too long for the DNS is a UnicodeError
            raise SettingsError(_why_not(error, host, port)) from error
        yield app, own_address(host, runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def serve(live: LiveSettings, environ: Mapping[str, str]) -> None:
    """Run the server until Ctrl-C or a request to terminate; the process ends soon after, even if something hangs."""
    requests = StopRequests.listen()
    async with listening(live, environ) as (app, address):
        loaded = live.current()
        where = str(loaded.path) if loaded.path.exists() else f"{loaded.path} (not there: defaults are used)"
        log.info("elbowroom %s, settings: %s", __version__, where)
        log.info("Paste this into Open WebUI, Obsidian or any OpenAI client:  %s/v1", address)
        log.info("Watch it, and choose agents and settings:  %s/", address)
        warming_up = asyncio.get_running_loop().call_later(WARM_UP_AFTER_SECONDS, app[WARM_UP])
        async with asyncio.TaskGroup() as watchers:
            providers = app[PROVIDERS].of(live.current()).values()
            tasks = [watchers.create_task(_announce(app, provider)) for provider in providers]
            live.when_changed = lambda: tasks.append(watchers.create_task(_check_agents(app)))
            tell_service_manager("READY=1", environ)
            await requests.asked.wait()
            stop = live.current().settings.server
            bound_the_stop(longest_stop(stop))
            tell_service_manager("STOPPING=1", environ)
            tell_service_manager(f"EXTEND_TIMEOUT_USEC={longest_stop(stop) + 5:.0f}000000", environ)
            await give_notice(app[SHARED].running, requests, stop.stop_notice_seconds)
            live.when_changed = None
            warming_up.cancel()
            for task in tasks:
                task.cancel()
        await finish_answers(app[SHARED].running, requests, stop.drain_seconds)


WITHOUT_WINDOW: Final = (
    "%s is loaded, and its context length is not told: it is refused. Unload it and load it again, or update the "
    "program that serves it; `elbowroom doctor` tells more."
)


async def _announce(app: web.Application, provider: Provider) -> None:
    """Log once which models a provider has and which agents lack theirs; where it does not answer, wait for it."""
    was_missing = False
    while True:
        try:
            models = await provider.models()
        except ElbowroomError as error:
            if not was_missing:
                log.warning("%s elbowroom picks it up when it comes.", error)
            was_missing = True
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        else:
            log.info("%s: %s", provider.id, _summary(provider.id, models))
            for info in models if provider.manages_context else ():
                if info.state == "loaded" and info.kind != "embedding" and info.loaded_context is None:
                    log.error(WITHOUT_WINDOW, f"{provider.id}/{info.id}")
            await _check_agents(app, provider.id)
            return


async def _check_agents(app: web.Application, provider_id: str = "") -> None:
    """Log which agents, of one provider or of all, would not answer, and what to do."""
    loaded = app[SETTINGS].last_good
    try:
        providers = app[PROVIDERS].of(loaded)
    except ElbowroomError:  # a key that cannot be read, which every request tells
        return
    for agent in loaded.settings.agents:
        if agent.enabled and provider_id in ("", agent.provider):
            provider = providers[agent.provider]
            if why := await why_no_answer(agent.model, provider):
                level = logging.ERROR if provider.manages_context else logging.WARNING
                log.log(level, "The agent %r would not answer. %s", agent.id, why)


def _summary(provider_id: str, models: Sequence[ModelInfo]) -> str:
    loaded = [f"{provider_id}/{info.id} ({info.loaded_context} tokens)" for info in models if info.loaded_context]
    count = "1 model" if len(models) == 1 else f"{len(models)} models"
    return count + (f"; loaded: {', '.join(loaded)}" if loaded else "")


def _why_not(error: OSError | UnicodeError, host: str, port: int) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        other = port + 1 if port < HIGHEST_PORT else port - 1
        return (
            f"Port {port} on {host} is in use, perhaps by another elbowroom. "
            f"Stop that one, or choose another port: add --port {other} to the command."
        )
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"elbowroom may not listen on port {port} of {host}. Take one above 1023: add --port 2345 to the command."
        )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return (
        f"server.host = {host!r}, server.port = {port}: nothing can listen there: {reason}. "
        "Choose an address of this machine."
    )


def tell_service_manager(notice: str, environ: Mapping[str, str]) -> None:
    """Send a notice to the socket that the environment names, if it names one."""
    address = environ.get(NOTIFY_SOCKET, "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):  # a name without a file
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.connect(address)
            connection.sendall(notice.encode())
    except OSError as error:
        log.warning("The service manager cannot be told %s: %s", notice, error)
