"""`GET /api/providers`: who is there, with which models, and how large their windows are."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.learned_windows import LearnedWindows
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.server.keys import PROVIDERS, SETTINGS, SHARED
from elbowroom.settings.model import ProviderSettings
from elbowroom.settings.secrets import without_secrets

log = logging.getLogger(__name__)
PROBE_SECONDS: Final = 2.0
WINDOW_SOURCES: Final[Mapping[str, str]] = {
    "lmstudio": "LM Studio: the context length of the loaded instance",
    "ollama": "Ollama: context_length in /api/ps",
    "openai": "the server: max_model_len in its list of models",
}
LEARNED: Final = "learned from what the engine reported, smaller than it says"


async def list_providers(request: web.Request) -> web.Response:
    """Ask all providers at once, each for two seconds at most; what fails is said in its row."""
    loaded = request.app[SETTINGS].current()
    rows = loaded.settings.providers
    try:
        providers = request.app[PROVIDERS].of(loaded)
    except ElbowroomError as error:  # a file with a key that cannot be read
        return web.json_response({"data": [_row(settings, error.message, []) for settings in rows]})
    windows = request.app[SHARED].windows
    states = await asyncio.gather(*(_state(settings, providers[settings.id], windows) for settings in rows))
    return web.json_response({"data": states})


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
        "state": "not-loaded" if info.state == "loading" else info.state,
        "window": window,
        "max_window": info.max_context,
        "window_source": source,
    }
