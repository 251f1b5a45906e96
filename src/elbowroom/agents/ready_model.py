"""Has a model loaded before it is asked, and tells the person where that takes a while."""

import asyncio
from typing import Final

from elbowroom.agents.answer import Notice, Sink
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.lmstudio_models import find_model

QUIET_SECONDS: Final = 0.5
"""A model that is ready sooner was loaded before."""


async def ready_model(provider: Provider, model: str, tell: Sink) -> ModelInfo:
    """Return the model, loaded, with the window that it has now. Raises what the provider's `ready` raises."""
    ready = asyncio.ensure_future(provider.ready(model))
    try:
        done, _ = await asyncio.wait([ready], timeout=QUIET_SECONDS)
        if done or not await _is_loading(provider, model):
            return await ready
        await tell([Notice("loading", "Loading model...", is_done=False)])
        try:
            info = await ready
        except ElbowroomError:
            await tell([Notice("loaded", "The model could not be loaded.")])
            raise
        await tell([Notice("loaded", "Model loaded.")])
        return info
    finally:
        ready.cancel()


async def _is_loading(provider: Provider, model: str) -> bool:
    """Tell whether the model is there and is not loaded; a provider that does not answer is not loading it."""
    try:
        info = find_model(await provider.models(), model)
    except ElbowroomError:
        return False
    return info is not None and info.loaded_context is None
