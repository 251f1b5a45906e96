"""Ollama: its own lists of models and of what is loaded, its chats in OpenAI's form."""

from collections.abc import Mapping, Sequence
from typing import Any

from elbowroom.errors import UpstreamError
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.openai_compatible import OpenAICompatible


class Ollama(OpenAICompatible):
    """The Ollama at one address, without `/v1`."""

    name = "Ollama"
    start_hint = "Start it with `ollama serve`. If it runs elsewhere, put its address into base_url."

    async def _fetch_models(self) -> Sequence[ModelInfo]:
        root = self._base.removesuffix("/v1")
        pulled = _rows(await self._api.get(f"{root}/api/tags"))
        if pulled is None:
            raise UpstreamError(f"What answers at {root} is no Ollama: it has no /api/tags.")
        running = _rows(await self._api.get(f"{root}/api/ps")) or []
        windows = {row["name"]: row.get("context_length") for row in running if isinstance(row.get("name"), str)}
        return [self._pulled_model(row, windows) for row in pulled if isinstance(row.get("name"), str)]

    def _is_named(self, info: ModelInfo, name: str) -> bool:
        return info.id in (name, f"{name}:latest")

    def _pulled_model(self, row: Mapping[str, Any], windows: Mapping[str, Any]) -> ModelInfo:
        name: str = row["name"]
        window = windows.get(name)
        return ModelInfo(
            id=name,
            provider=self.id,
            name=name,
            state="loaded" if name in windows else "not-loaded",
            loaded_context=window if isinstance(window, int) and window > 0 else None,
        )


def _rows(answer: Any) -> list[dict[str, Any]] | None:
    models = answer.get("models") if isinstance(answer, dict) else None
    return [row for row in models if isinstance(row, dict)] if isinstance(models, list) else None
