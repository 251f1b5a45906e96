"""The real engine behind a provider of the kind `openai` whose context is managed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from llama_server import LlamaServer, Options
from sample_chat import chat
from serving import serve, settings_for


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "window"), [(True, 4096), (False, 2048)])
async def test_the_window_is_that_of_one_slot(
    start_engine: Callable[[Options], LlamaServer], tmp_path: Path, shared: bool, window: int
) -> None:
    """Two slots of 4096 tokens have half of them each, or all of them where they share; a chat is answered in it."""
    engine = start_engine(Options(context_length=4096, slots=2, shared_pool=shared))
    settings = settings_for(engine.base_url, kind="openai") + "manage_context = true\n"
    async with serve(tmp_path, settings) as served:
        async with served.http.get(f"{served.url}/v1/models") as response:
            [row] = (await response.json())["data"]
        assert row["context_length"] == window
        async with served.http.post(
            served.chat_url, json={**chat("Hello", ignore_eos=True), "model": "openai/tiny"}
        ) as response:
            answer = await response.json()
            assert response.status == 200, answer
        assert answer["usage"]["prompt_tokens"] > 0
        too_long = {"messages": [{"role": "system", "content": "word " * 5000}], "model": "openai/tiny"}
        async with served.http.post(served.chat_url, json=too_long) as response:
            assert (await response.json())["error"]["code"] == "window_too_small"
