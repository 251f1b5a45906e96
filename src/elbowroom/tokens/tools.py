"""What all counters of a process share: loaded tokenizers, and the renderer of chat templates."""

from dataclasses import dataclass, field
from typing import Final

from elbowroom.tokens.files import TokenizerLoader
from elbowroom.tokens.renderer import TemplateRenderer

TEMPLATE_SECONDS: Final = 2.0
"""What a chat waits for a template that nobody knows, twice at most; an honest one takes a twentieth of it."""


@dataclass(frozen=True, slots=True)
class CountingTools:
    """One for each event loop; nothing is loaded or started before it is needed."""

    loader: TokenizerLoader = field(default_factory=TokenizerLoader)
    renderer: TemplateRenderer = field(default_factory=lambda: TemplateRenderer(deadline=TEMPLATE_SECONDS))

    async def aclose(self) -> None:
        """End the renderer's worker and forget the tokenizers."""
        await self.renderer.aclose()
        await self.loader.aclose()
