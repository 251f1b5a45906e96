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
from elbowroom.providers.openai_compatible import Ollama, OpenAICompatible
from elbowroom.settings.load import LoadedSettings
from elbowroom.settings.model import ProviderSettings
from elbowroom.tokens.file_counter import CountingTools

KINDS: Final[Mapping[str, Callable[..., Provider]]] = {
    "lmstudio": LMStudio,
    "ollama": Ollama,
    "openai": OpenAICompatible,
}


class Providers:
    """The providers by id, in the order of the settings; they share an HTTP session, which the caller closes."""

    def __init__(self, http: aiohttp.ClientSession, environ: Mapping[str, str]) -> None:
        self._http = http
        self._environ = environ
        self._tools = CountingTools()
        self._made: dict[str, tuple[ProviderSettings, Provider]] = {}
        self._retired: list[Provider] = []

    def of(self, loaded: LoadedSettings) -> Mapping[str, Provider]:
        """Return the provider of each section of the settings, the same object while its section stays the same.

        Raises SettingsError where a secret file cannot be read.
        """
        wanted = loaded.settings.providers
        if tuple(settings for settings, _ in self._made.values()) != wanted:
            made = {settings.id: (settings, self._keep_or_make(settings, loaded.folder)) for settings in wanted}
            kept = [provider for _, provider in made.values()]
            # Running answers may still use providers that are no longer named.
            self._retired += [provider for _, provider in self._made.values() if provider not in kept]
            self._made = made
        return {provider_id: provider for provider_id, (_, provider) in self._made.items()}

    async def aclose(self) -> None:
        """Close all providers, with what they have under way."""
        for provider in [*self._retired, *(provider for _, provider in self._made.values())]:
            await provider.aclose()
        await self._tools.aclose()

    def _keep_or_make(self, settings: ProviderSettings, folder: Path) -> Provider:
        before = self._made.get(settings.id)
        if before is not None and before[0] == settings:
            return before[1]
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
