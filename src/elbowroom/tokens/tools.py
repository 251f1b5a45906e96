"""What all counters of a process share: loaded tokenizers, and the renderer of chat templates."""

from dataclasses import dataclass, field

from elbowroom.tokens.loading import TokenizerLoader
from elbowroom.tokens.template_renderer import TemplateRenderer


@dataclass(frozen=True, slots=True)
class CountingTools:
    """One for each event loop; nothing is loaded or started before it is needed."""

    loader: TokenizerLoader = field(default_factory=TokenizerLoader)
    renderer: TemplateRenderer = field(default_factory=TemplateRenderer)

    async def aclose(self) -> None:
        """End the renderer's worker and forget the tokenizers."""
        await self.renderer.aclose()
        await self.loader.aclose()
