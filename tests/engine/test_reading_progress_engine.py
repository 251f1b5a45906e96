"""The real engine tells how far it has read a prompt, and what of it was in its cache."""

import pytest
from llama_server import LlamaServer

from elbowroom.providers.base import ReadingProgress
from elbowroom.providers.openai_compatible import OpenAICompatible
from elbowroom.providers.upstream import open_session


@pytest.mark.slow
async def test_the_engine_tells_how_far_it_has_read(engine: LlamaServer) -> None:
    """llama.cpp is known by its list of models; a second prompt is read from where it differs on.

    It follows in the moment in which the engine closes the connection of the first.
    """
    async with open_session() as http:
        provider = OpenAICompatible("llama", f"{engine.base_url}/v1", http, manages_context=True)
        [info] = await provider.models()
        assert info.tells_reading
        told: list[ReadingProgress] = []
        for words in ("", " And the second pier?"):
            said = [{"role": "user", "content": "The ferry left. " * 400 + words}]
            body = {"model": info.id, "messages": said, "max_tokens": 4, "stream": True, "ignore_eos": True}
            async for events in provider.stream(body, info):
                told += [event for event in events if isinstance(event, ReadingProgress)]
    first, last = told[0], told[-1]
    assert first.total > 1000
    assert first.cached < 100
    assert last.cached > 1000
    assert last.processed == last.total
