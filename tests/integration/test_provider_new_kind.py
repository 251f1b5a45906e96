"""A new kind of provider needs a class and a line in the registry, and nothing else in the house knows of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import serve, settings_for, text_of

from elbowroom.providers import registry
from elbowroom.providers.base import (
    Finished,
    ModelInfo,
    ModelManagement,
    PassedAnswer,
    Provider,
    SlotFiles,
    StreamEvent,
    TextDelta,
    UsageReport,
)
from elbowroom.tokens.counter import TokenCounter


class Echo:
    """A provider that has one model, speaks to no server, and says again what it was told last."""

    manages_context = True
    has_own_tool_format = False
    management: ModelManagement | None = None
    slot_files: SlotFiles | None = None

    def __init__(self, provider_id: str, *_: Any, **__: Any) -> None:
        self.id = provider_id
        self._counter = TokenCounter("echo", None)

    async def models(self) -> Sequence[ModelInfo]:
        """Return the one model."""
        return [await self.ready("echo")]

    async def ready(self, model: str) -> ModelInfo:
        """Return the model with its window."""
        return ModelInfo(model, self.id, model, loaded_context=4096)

    async def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Say it in one piece."""
        yield [TextDelta(str(body["messages"][-1]["content"]))]
        yield [Finished("stop"), UsageReport({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11})]

    @asynccontextmanager
    async def passed(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[PassedAnswer]:
        """Have no other routes."""
        raise NotImplementedError
        yield

    async def overflow_policy(self, model: str) -> str | None:
        """Tell nothing."""
        return None

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Count by family."""
        return self._counter

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("stream", [True, False])
async def test_a_kind_that_only_the_registry_knows_answers_a_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    """Its model is listed, counted for and chatted with, for all that the server knows is the protocol."""
    kind: type[Provider] = Echo
    monkeypatch.setitem(registry.KINDS, "ollama", kind)
    async with serve(tmp_path, settings_for("http://127.0.0.1:9", kind="ollama")) as served:
        async with served.http.get(f"{served.url}/v1/models") as listed:
            assert [row["id"] for row in (await listed.json())["data"]] == ["ollama/echo"]
        if stream:
            assert text_of(await served.chat_frames("ollama/echo", "Hello there")) == "Hello there"
        else:
            answer = await served.chat("ollama/echo", "Hello there")
            assert answer["choices"][0]["message"]["content"] == "Hello there"
