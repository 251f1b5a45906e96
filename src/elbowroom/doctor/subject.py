"""What is examined: the settings, the machine they are on, and what the checks share of it."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from elbowroom.doctor.mcp_offers import McpOffers
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.settings.layers import LoadedSettings
from elbowroom.settings.model import ProviderSettings

USUAL_PORT: Final = 1234
INTERNAL_PORTS: Final = (41343, 52993, 16141, 39414, 22931)
"""Where LM Studio answers its own programs, one of these: also while its server for others is off."""


@dataclass(slots=True)
class Subject:
    """One set-up, with its settings loaded; `probes` says that models may be asked for a few tokens.

    `other_ports` are those that LM Studio is looked for on where it is not at its address.
    """

    loaded: LoadedSettings
    environ: Mapping[str, str]
    http: aiohttp.ClientSession
    providers: Mapping[str, Provider]
    offers: McpOffers
    probes: bool = False
    other_ports: Sequence[int] = (USUAL_PORT,)
    internal_ports: Sequence[int] = INTERNAL_PORTS
    clock: Callable[[], float] = time.time
    _models: dict[str, "asyncio.Task[Sequence[ModelInfo] | ElbowroomError]"] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Return the settings file."""
        return self.loaded.path

    def provider_settings(self, provider_id: str) -> ProviderSettings:
        """Return what the settings say of a provider."""
        return next(found for found in self.loaded.settings.providers if found.id == provider_id)

    async def models(self, provider: Provider) -> Sequence[ModelInfo] | ElbowroomError:
        """Return a provider's models, or why it tells none; asked once for all checks."""
        if provider.id not in self._models:
            self._models[provider.id] = asyncio.create_task(_models_or_failure(provider))
        return await asyncio.shield(self._models[provider.id])

    async def loaded_models(self) -> list[tuple[Provider, ModelInfo]]:
        """Return the models that are loaded and chat, of the providers whose windows are watched over."""
        found = []
        for provider in self.providers.values():
            models = await self.models(provider) if provider.manages_context else ()
            if not isinstance(models, ElbowroomError):
                found += [(provider, info) for info in models if info.kind != "embedding" and info.loaded_context]
        return found

    async def aclose(self) -> None:
        """End what is under way."""
        for task in self._models.values():
            task.cancel()
        await asyncio.gather(*self._models.values(), return_exceptions=True)
        await self.offers.aclose()


async def _models_or_failure(provider: Provider) -> Sequence[ModelInfo] | ElbowroomError:
    try:
        return await provider.models()
    except ElbowroomError as error:
        return error
