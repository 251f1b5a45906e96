"""`/api/settings`, `/api/agents`, `/api/providers`, `/api/tools`, and `/api/v1/models` of LM Studio."""

import asyncio
import json
import logging
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Final
from urllib.parse import quote

from aiohttp import hdrs, web

from elbowroom.agents.admission import Admission
from elbowroom.agents.catalog import why_no_answer
from elbowroom.agents.prompt import LearnedWindows
from elbowroom.errors import ElbowroomError, Forbidden, NotFound, RequestError
from elbowroom.providers.base import ModelInfo, ModelManagement, Provider
from elbowroom.providers.lmstudio import find_owner
from elbowroom.providers.machines import Machine, Machines
from elbowroom.server.guard import HOLDER, for_owner, for_paired, for_roles
from elbowroom.server.people import keys_of, note
from elbowroom.server.request import read_json
from elbowroom.server.state import PROVIDERS, SETTINGS, SHARED
from elbowroom.settings.change import SettingsChanger, add_agent, change_agent, remove_agent
from elbowroom.settings.fields import without_secrets
from elbowroom.settings.keys import key_text
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.merge import restart_needed, shown_sources, shown_values
from elbowroom.settings.model import ProviderSettings, Settings
from elbowroom.settings.references import TOOL_DESCRIPTIONS
from elbowroom.store import Role

MAX_SETTINGS_BYTES: Final = 1024 * 1024
log = logging.getLogger(__name__)
PROBE_SECONDS: Final = 2.0
WINDOW_SOURCES: Final[Mapping[str, str]] = {
    "lmstudio": "LM Studio: the context length of the loaded instance",
    "ollama": "Ollama: context_length in /api/ps",
    "openai": "what the server says of itself",
}
LEARNED: Final = "learned from what the engine reported, smaller than it says"
MODELS: Final = "/api/v1/models"
MANAGERS: Final[tuple[Role, ...]] = ("owner", "gateway", "paired")
"""Who loads and unloads models, which takes them from all others; a gateway asks for its own administrators."""


def add_settings_routes(app: web.Application, live: LiveSettings, environ: Mapping[str, str]) -> None:
    """Add the routes; `environ` holds the secrets that the settings refer to."""
    routes = SettingsRoutes(live, environ)
    app.router.add_get("/api/settings", for_paired(routes.show))
    app.router.add_patch("/api/settings", for_paired(routes.change))
    app.router.add_get("/api/agents", for_paired(routes.list_agents))
    app.router.add_post("/api/agents", for_owner(routes.add_agent))
    app.router.add_post("/api/agents/check", for_owner(check_agent))
    app.router.add_post("/api/agents/toml", for_owner(read_agent))
    app.router.add_get("/api/agents/{id}/toml", for_owner(routes.export_agent))
    app.router.add_patch("/api/agents/{id}", for_paired(routes.change_agent))
    app.router.add_delete("/api/agents/{id}", for_owner(routes.remove_agent))
    app.router.add_get("/api/providers", for_paired(list_providers))
    app.router.add_get("/api/tools", for_owner(list_tools))


class SettingsRoutes:
    """Shows and changes the settings of a running server.

    Each change runs in a thread, which goes on when the client leaves: it is made wholly or not at all.
    """

    def __init__(self, live: LiveSettings, environ: Mapping[str, str]) -> None:
        self._live = live
        self._environ = environ
        self._changer = SettingsChanger(live, environ)

    async def show(self, request: web.Request) -> web.Response:
        """Answer with the values in force, the source of each, and the schema of all settings."""
        loaded = self._live.current()
        return web.json_response(
            {
                "path": str(loaded.path),
                "values": shown_values(loaded, self._environ),
                "sources": shown_sources(loaded),
                "locked": {key_text(key): source for key, source in self._live.locked.items()},
                "schema": _schema(),
                "warnings": list(self._live.warnings),
                "restart_needed": restart_needed(self._live.started, loaded.settings),
            }
        )

    async def change(self, request: web.Request) -> web.Response:
        """Merge a patch into the settings file and answer as `show` does."""
        patch = await _read_object(request)
        _check_paired(request, patch, "compaction")
        await asyncio.to_thread(self._changer.change, lambda _: patch)
        await note(request, "changed", "settings", [*keys_of(patch)])
        return await self.show(request)

    async def list_agents(self, request: web.Request) -> web.Response:
        """List all agents, also those that are switched off; `problem` says why one would not answer."""
        agents = self._agents()
        problems = await asyncio.gather(*(_problem(request, agent) for agent in agents))
        rows = [{**agent, "problem": problem} for agent, problem in zip(agents, problems, strict=True)]
        return web.json_response({"data": rows})

    async def add_agent(self, request: web.Request) -> web.Response:
        """Add an agent and answer with it."""
        agent = await _read_object(request)
        agent_id = await asyncio.to_thread(add_agent, self._changer, agent)
        await note(request, "added", f"agent {agent_id}")
        return web.json_response(await self._judged(request, agent_id), status=201)

    async def change_agent(self, request: web.Request) -> web.Response:
        """Merge a patch into an agent and answer with it."""
        patch = await _read_object(request)
        _check_paired(request, patch, "tool_output")
        agent_id = await asyncio.to_thread(change_agent, self._changer, request.match_info["id"], patch)
        await note(request, "changed", f"agent {agent_id}", [*keys_of(patch)])
        return web.json_response(await self._judged(request, agent_id))

    async def remove_agent(self, request: web.Request) -> web.Response:
        """Remove an agent. Raises where another one refers to it."""
        await asyncio.to_thread(remove_agent, self._changer, request.match_info["id"])
        await note(request, "removed", f"agent {request.match_info['id']}")
        return web.Response(status=204)

    async def export_agent(self, request: web.Request) -> web.Response:
        """Answer with an agent as a file that can be put into a settings file, or read by `read_agent`."""
        agent = self._agent(request.match_info["id"])
        text = await asyncio.to_thread(_toml_of, agent)
        named = quote(f"{agent['id']}.toml")
        disposition = f"attachment; filename*=UTF-8''{named}"
        return web.Response(text=text, content_type="application/toml", headers={hdrs.CONTENT_DISPOSITION: disposition})

    async def _judged(self, request: web.Request, agent_id: str) -> dict[str, Any]:
        agent = self._agent(agent_id)
        return {**agent, "problem": await _problem(request, agent)}

    def _agents(self) -> list[dict[str, Any]]:
        agents: list[dict[str, Any]] = shown_values(self._live.current(), self._environ)["agents"]
        return agents

    def _agent(self, agent_id: str) -> dict[str, Any]:
        """Return an agent that was just written. Raises NotFound where it was removed since."""
        for agent in self._agents():
            if agent["id"] == agent_id:
                return agent
        raise NotFound(f"The agent {agent_id!r} has been removed meanwhile.", code="agent_not_found")


async def read_agent(request: web.Request) -> web.Response:
    """Answer with the one agent that the text `toml` of the body has. Nothing is saved."""
    text = (await _read_object(request)).get("toml")
    try:
        rows = tomllib.loads(text).get("agents") if isinstance(text, str) else None
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"This is no TOML: {error}.", param="toml") from None
    if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], dict):
        raise RequestError("An agent's file has one table [[agents]], as Export writes it.", param="toml")
    return web.json_response(rows[0], dumps=partial(json.dumps, default=str))


def _toml_of(agent: Mapping[str, Any]) -> str:
    """Return an agent as a table of a settings file, without what is as usual."""
    import tomlkit

    usual = _schema()["$defs"]["AgentSettings"]["properties"]
    own = {name: _without_null(value) for name, value in agent.items() if value != usual[name].get("default")}
    return tomlkit.dumps({"agents": [own]})


def _without_null(value: Any) -> Any:
    """Return a value without the keys that are not set, for which TOML has no word."""
    if not isinstance(value, Mapping):
        return value
    return {name: _without_null(inner) for name, inner in value.items() if inner is not None}


async def check_agent(request: web.Request) -> web.Response:
    """Answer why an agent with the `model` and `provider` of the body would not answer, null where it would."""
    return web.json_response({"problem": await _problem(request, await _read_object(request))})


async def _problem(request: web.Request, agent: Mapping[str, Any]) -> str | None:
    """Return why an agent would not answer; None where it would, where nobody knows, and for one switched off."""
    model, named = agent.get("model"), agent.get("provider", "lmstudio")
    try:
        provider = request.app[PROVIDERS].of(request.app[SETTINGS].current()).get(named)
    except ElbowroomError:  # a key that cannot be read, which the list of providers tells
        return None
    if provider is None or not isinstance(model, str) or not model or not agent.get("enabled", True):
        return None
    return await why_no_answer(model, provider)


async def list_tools(request: web.Request) -> web.Response:
    """List what may stand in an agent's `tools`."""
    rows = [{"name": name, "description": text} for name, text in TOOL_DESCRIPTIONS.items()]
    return web.json_response({"data": rows})


async def _read_object(request: web.Request) -> dict[str, Any]:
    body = await read_json(request, MAX_SETTINGS_BYTES)
    if not isinstance(body, dict):
        raise RequestError("The body has to be a JSON object.")
    return body


def _check_paired(request: web.Request, patch: Mapping[str, Any], allowed: str) -> None:
    """Raise Forbidden where a paired program would change another key than the one that is allowed.

    Other keys name programs to start and addresses to send keys to, and whatever runs beside the program may have its
    token.
    """
    holder = request.get(HOLDER)
    for key in patch:
        if holder is not None and holder.role == "paired" and key != allowed:
            raise Forbidden(
                f"{holder.name} is paired with elbowroom and may change {allowed} here, not {key[:80]!r}. "
                "Change that on elbowroom's own page.",
                code="not_for_paired",
                param=key[:80],
            )


@cache
def _schema() -> dict[str, Any]:
    return Settings.model_json_schema()


async def list_providers(request: web.Request) -> web.Response:
    """Ask all providers at once, each for two seconds at most; the row of a provider names its failure."""
    loaded = request.app[SETTINGS].current()
    rows = [settings for settings in loaded.settings.providers if not settings.machine_of]
    try:
        providers = request.app[PROVIDERS].of(loaded)
    except ElbowroomError as error:  # a file with a key that cannot be read
        return web.json_response({"data": [_row(settings, error.message, []) for settings in rows]})
    shared = request.app[SHARED]
    states = await asyncio.gather(*(_state(settings, providers[settings.id], shared.windows) for settings in rows))
    for state in states:
        for model in state["models"]:
            own = loaded.settings.of_model(state["id"], model["id"])
            model["own_settings"] = own.id if own is not None else None
    for state in states:
        if isinstance(several := providers[state["id"]], Machines):
            state["machines"] = [_machine(machine, shared.admission) for machine in several.machines]
    return web.json_response({"data": states})


def _machine(machine: Machine, admission: Admission) -> dict[str, Any]:
    """Return one of several machines: whether it answers, and how busy the models are that it has loaded."""
    trouble = machine.trouble()
    loaded = [info for info in machine.listed if info.loaded_context] if trouble is None else []
    return {
        "id": machine.id,
        "base_url": without_secrets(machine.address),
        "reachable": trouble is None,
        "error": trouble.error.message if trouble is not None else None,
        "models": [
            {"id": info.id, "window": info.loaded_context, **admission.load((machine.id, info.id))._asdict()}
            for info in loaded
        ],
    }


async def _state(settings: ProviderSettings, provider: Provider, windows: LearnedWindows) -> dict[str, Any]:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            infos = await provider.models()
    except ElbowroomError as error:
        return _row(settings, error.message, [])
    except TimeoutError:
        return _row(settings, f"It did not list its models within {PROBE_SECONDS:g} seconds.", [])
    except Exception:
        log.exception("The models of %s could not be listed", settings.id)
        return _row(settings, "elbowroom made a mistake when it asked for the models; its log says where.", [])
    return _row(settings, None, [_model(settings.kind, info, windows) for info in infos])


def _row(settings: ProviderSettings, error: str | None, models: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": settings.id,
        "kind": settings.kind,
        "base_url": without_secrets(settings.base_url),
        "reachable": error is None,
        "error": error,
        "models": list(models),
    }


def _model(kind: str, info: ModelInfo, windows: LearnedWindows) -> dict[str, Any]:
    told = info.loaded_context
    window = windows.at_most(info, told) if told else None
    source = None if told is None else LEARNED if window != told else WINDOW_SOURCES[kind]
    return {
        "id": info.id,
        "kind": info.kind,
        "family": info.architecture,
        "state": "not-loaded" if info.state == "loading" else info.state or ("loaded" if told else None),
        "window": window,
        "max_window": info.max_context,
        "window_source": source,
    }


def add_lmstudio_routes(router: web.UrlDispatcher) -> None:
    """Add LM Studio's own routes, which have no base address before them."""
    router.add_get(MODELS, list_downloaded)
    router.add_post(f"{MODELS}/load", for_roles(load, *MANAGERS))
    router.add_post(f"{MODELS}/unload", for_roles(unload, *MANAGERS))
    router.add_post(f"{MODELS}/download", for_roles(download, *MANAGERS))
    router.add_get(f"{MODELS}/download/status/{{job_id}}", download_status)


async def list_downloaded(request: web.Request) -> web.Response:
    """`GET /api/v1/models`: LM Studio's own list."""
    return web.json_response(await _studios(request)[0][1].catalog())


async def load(request: web.Request) -> web.Response:
    """`POST /api/v1/models/load`: load `model`."""
    management, body = await _of_body(request, "model")
    return web.json_response(await management.load(body))


async def unload(request: web.Request) -> web.Response:
    """`POST /api/v1/models/unload`: unload the instance `instance_id`."""
    management, body = await _of_body(request, "instance_id")
    return web.json_response(await management.unload(body))


async def download(request: web.Request) -> web.Response:
    """`POST /api/v1/models/download`: begin to download `model`, by its name in LM Studio's catalog or its address."""
    body = _checked(await read_json(request), "model")
    return web.json_response(await _studios(request)[0][1].download(body))


async def download_status(request: web.Request) -> web.Response:
    """`GET /api/v1/models/download/status/{job_id}`."""
    job_id = request.match_info["job_id"]
    if job_id in (".", ".."):  # which a URL takes for another path
        raise NotFound(f"There is no download {job_id!r}.")
    return web.json_response(await _studios(request)[0][1].download_status(job_id))


async def _of_body(request: web.Request, field: str) -> tuple[ModelManagement, dict[str, Any]]:
    """Return the LM Studio that the name in a body's field means, and the body with LM Studio's own name."""
    body = _checked(await read_json(request), field)
    studios = _studios(request)
    for studio, management in studios:
        name = body[field].removeprefix(f"{studio.id}/")
        if name != body[field] and find_owner(await studio.models(), name) is not None:
            return management, {**body, field: name}
    return studios[0][1], body


def _checked(body: Any, field: str) -> dict[str, Any]:
    if not isinstance(body, dict) or not isinstance(body.get(field), str) or not body[field]:
        raise RequestError(f"The body has to be a JSON object with {field}, a name.", param=field)
    return body


def _studios(request: web.Request) -> list[tuple[Provider, ModelManagement]]:
    providers = request.app[PROVIDERS].of(request.app[SETTINGS].current()).values()
    studios = [(one, management) for one in providers if (management := one.management) is not None]
    if not studios:
        raise NotFound("No provider of the settings is an LM Studio, whose models this route lists and loads.")
    return studios
