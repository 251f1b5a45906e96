"""Makes the providers that the settings name, and makes one anew when its settings change.

A new kind of provider is one file and one line in KINDS; its name and its default address stand in
`settings.model.ProviderSettings`, since settings are checked before providers are loaded.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import aiohttp

from elbowroom.errors import SettingsError
from elbowroom.providers.base import Provider
from elbowroom.providers.lmstudio import LMStudio
from elbowroom.providers.machines import Machine, Machines
from elbowroom.providers.openai_compatible import Ollama, OpenAICompatible
from elbowroom.settings.load import LoadedSettings
from elbowroom.settings.model import ProviderSettings
from elbowroom.tokens.file_counter import CountingTools

KINDS: Final[Mapping[str, Callable[..., Provider]]] = {
    "lmstudio": LMStudio,
    "ollama": Ollama,
    "openai": OpenAICompatible,
}


Made = tuple[tuple[ProviderSettings, ...], Provider]
"""A provider, and the settings of its machines, of which most have one."""


class Providers:
    """The providers by id, in the order of the settings; they share an HTTP session, which the caller closes."""

    def __init__(self, http: aiohttp.ClientSession, environ: Mapping[str, str]) -> None:
        self._http = http
        self._environ = environ
        self._tools = CountingTools()
        self._made: dict[str, Made] = {}
        self._wanted: tuple[ProviderSettings, ...] | None = None
        self._retired: list[Provider] = []

    def of(self, loaded: LoadedSettings) -> Mapping[str, Provider]:
        """Return the provider of each section of the settings, the same object while its section stays the same.

        A section that is a machine of another one is part of that. Raises SettingsError where a secret file cannot be
        read.
        """
        if self._wanted != loaded.settings.providers:
            wanted = loaded.settings.machines
            made = {
                name: (machines, self._keep_or_make(name, machines, loaded.folder)) for name, machines in wanted.items()
            }
            kept = [provider for _, provider in made.values()]
            # Running answers may still use providers that are no longer named.
            self._retired += [provider for _, provider in self._made.values() if provider not in kept]
            self._made, self._wanted = made, loaded.settings.providers
        return {provider_id: provider for provider_id, (_, provider) in self._made.items()}

    def machines(self) -> list[Machine]:
        """Return the machines of the providers that have several."""
        made = [provider for _, provider in self._made.values()]
        return [machine for one in made if isinstance(one, Machines) for machine in one.machines]

    async def aclose(self) -> None:
        """Close all providers, with what they have under way."""
        for provider in [*self._retired, *(provider for _, provider in self._made.values())]:
            await provider.aclose()
        await self._tools.aclose()

    def _keep_or_make(self, name: str, machines: tuple[ProviderSettings, ...], folder: Path) -> Provider:
        before = self._made.get(name)
        if before is not None and before[0] == machines:
            return before[1]
        if len(machines) == 1:
            return self._make(machines[0], folder)
        return Machines(name, [Machine(self._make(one, folder), one.base_url) for one in machines])

    def _make(self, settings: ProviderSettings, folder: Path) -> Provider:
        try:
            api_key = settings.api_key.reveal(folder, self._environ) if settings.api_key else None
        except SettingsError as error:
            raise SettingsError(f"providers: {settings.id}: api_key: {error}") from error
        return KINDS[settings.kind](
            settings.id,
            settings.base_url,
            self._http,
            api_key=api_key,
            manages_context=settings.manages_context,
            tools=self._tools,
            home=settings.home,
            model_files=settings.model_files,
        )
