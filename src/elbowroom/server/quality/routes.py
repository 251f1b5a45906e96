"""`/api/quality`: begins the study of pruning agents, tells how far it is, and stops it. There is one at a time."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from elbowroom.agents.catalog import Catalog, Target, why_no_answer
from elbowroom.agents.dry_run import check_managed
from elbowroom.agents.request import NOBODY
from elbowroom.errors import Conflict, ElbowroomError, ModelNotFound, ModelUnavailable, RequestError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.server.event_stream import unkept
from elbowroom.server.guard import for_owner
from elbowroom.server.request import read_json
from elbowroom.server.state import CATALOG, PROVIDERS, SETTINGS, run_settings_of
from elbowroom.settings.model import Settings
from elbowroom.settings.references import SAME_AGENT

if TYPE_CHECKING:
    from elbowroom.quality.study import Plan, Study

ROUTE: Final = "/api/quality"
MOST_BYTES: Final = 65_536
USUAL_WINDOW: Final = 8192
MOST_OTHERS: Final = 4
"""How many other loaded models are measured where no pruning agents are named."""
NUMBERS: Final[Mapping[str, tuple[int, int, int]]] = {
    "conversations": (3, 1, 9),
    "compactions": (3, 1, 10),
    "window": (USUAL_WINDOW, 2048, 1_048_576),
}
"""The usual, the least and the largest value of each number in the body."""


def add_quality_routes(app: web.Application) -> None:
    """Add the routes."""
    routes = QualityRoutes()
    app.router.add_get(ROUTE, for_owner(routes.show))
    app.router.add_post(ROUTE, for_owner(routes.begin))
    app.router.add_delete(ROUTE, for_owner(routes.stop))
    app.on_shutdown.append(routes.end)


class QualityRoutes:
    """Has the study that runs or ran last."""

    def __init__(self) -> None:
        self._study: Study | None = None
        self._is_beginning = False

    async def show(self, request: web.Request) -> web.Response:
        """Answer how far the study is, and with its table."""
        return self._shown()

    async def begin(self, request: web.Request) -> web.Response:
        """Begin a study. Raises Conflict while another one runs, and ElbowroomError where nothing can be measured."""
        if self._is_beginning or (self._study is not None and self._study.state == "running"):
            raise Conflict(
                "A study of pruning agents runs already. Watch or stop it on elbowroom's page, or stop it with "
                "`elbowroom quality --stop`.",
                code="study_running",
            )
        self._is_beginning = True
        try:
            self._study = await _begun(request)
        finally:
            self._is_beginning = False
        return self._shown(201)

    async def stop(self, request: web.Request) -> web.Response:
        """Stop the study and answer with what it has."""
        if self._study is not None:
            await self._study.stop()
        return self._shown()

    async def end(self, app: web.Application) -> None:
        """Stop the study, since the server ends."""
        if self._study is not None:
            await self._study.stop()

    def _shown(self, status: int = 200) -> web.Response:
        shown = self._study.as_json() if self._study is not None else {"state": "none", "lines": []}
        return unkept(shown, status)


async def _begun(request: web.Request) -> "Study":
    study = await asyncio.to_thread(_study_type)
    begun = study(await _plan(request), run_settings_of(request.app, NOBODY))
    begun.start()
    return begun


def _study_type() -> "type[Study]":
    from elbowroom.quality.study import Study

    return Study


async def _plan(request: web.Request) -> "Plan":
    """Return what the body wants measured, with what is usual in the place of what it leaves out."""
    from elbowroom.quality.study import Plan

    body = await read_json(request, MOST_BYTES)
    if not isinstance(body, dict):
        raise RequestError("The body has to be a JSON object.")
    numbers = [_number(body, name) for name in NUMBERS]
    loaded = await _loaded(request.app[PROVIDERS].of(request.app[SETTINGS].current()))
    catalog = request.app[CATALOG].get()
    target = await _model(body.get("model"), catalog, loaded)
    pruners = _names(body.get("pruners"))
    settings = request.app[SETTINGS].current().settings
    pruners = pruners or _usual_pruners(settings, target, loaded)
    key = _key_of(settings, target)
    return Plan(target, {name: await _setting_of(name, key, target, catalog) for name in pruners}, *numbers)


def _number(body: Mapping[str, Any], name: str) -> int:
    usual, least, most = NUMBERS[name]
    value = body.get(name)
    if value is None:
        return usual
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise RequestError(f"{name} has to be a whole number from {least:,} to {most:,}, not {value!r}.", param=name)
    return value


def _names(value: Any) -> list[str]:
    """Return the names of pruning agents in the body, each once."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise RequestError("pruners has to be a list of names of agents or models.", param="pruners")
    return list(dict.fromkeys(value))


async def _loaded(providers: Mapping[str, Provider]) -> list[tuple[Provider, ModelInfo]]:
    """Return the loaded models that can chat; raises the error of a provider where none of them answers."""
    found, failure, has_answer = [], None, False
    for provider in providers.values():
        try:
            models = await provider.models() if provider.manages_context else ()
            has_answer = has_answer or provider.manages_context
        except ElbowroomError as error:
            failure, models = error, ()
        found += [(provider, info) for info in models if info.kind != "embedding" and info.loaded_context]
    if failure is not None and not has_answer:
        raise failure
    return found


async def _model(name: Any, catalog: Catalog, loaded: Sequence[tuple[Provider, ModelInfo]]) -> Target:
    """Return the model of the conversations: that of this name, or the first that is loaded."""
    if name is not None and (not isinstance(name, str) or not name):
        raise RequestError("model has to be the name of an agent or a model.", param="model")
    if name is None and not loaded:
        raise ModelUnavailable("No model is loaded. Load one, or name one with --model.")
    if name is None:
        provider, info = loaded[0]
        return Target(f"{provider.id}/{info.id}", provider, info.id)
    target = await catalog.resolve(name)
    check_managed(target)
    await _check_there(target)
    # Only the model matters: instructions of an agent would stand in front of each written conversation.
    return Target(f"{target.provider.id}/{target.model}", target.provider, target.model)


def _key_of(settings: Settings, target: Target) -> str:
    """Return the setting by which the model has its pruning agent, its own one or that of all."""
    own = settings.of_model(target.provider.id, target.model)
    if own is None or own.pruning_agent is None:
        return "compaction.pruning_agent"
    return f"pruning_agent of the models {own.id}"


async def _setting_of(name: str, key: str, target: Target, catalog: Catalog) -> str:
    """Return the setting that chooses a pruning agent. Raises ModelNotFound where there is none of this name."""
    if name == SAME_AGENT:
        return f'{key} = "{SAME_AGENT}"'
    pruner = await catalog.resolve(name)
    await _check_there(pruner)
    if pruner.agent is not None:
        return f'{key} = "{pruner.agent.id}"'
    if pruner.provider.id == target.provider.id:
        return f'compaction.model = "{pruner.model}"'
    return f"{key}, once there is an agent with this model"


async def _check_there(target: Target) -> None:
    if why := await why_no_answer(target.model, target.provider):
        raise ModelNotFound(why)


def _usual_pruners(settings: Settings, target: Target, loaded: Sequence[tuple[Provider, ModelInfo]]) -> list[str]:
    """Return the conversation's own model, its pruning agent in the settings, and the other loaded models."""
    chosen = settings.compaction_of(target.provider.id, target.model)
    set_up = f"{target.provider.id}/{chosen.model}" if chosen.model else chosen.pruning_agent
    others = [f"{provider.id}/{info.id}" for provider, info in loaded]
    others = [name for name in others if name not in (target.name, set_up)]
    return list(dict.fromkeys([SAME_AGENT, set_up, *others[:MOST_OTHERS]]))
