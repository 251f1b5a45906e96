"""Client libraries of other people that leave the context to the server: both vendors' `context_management`."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import platformdirs
import pytest
from client_libraries import Heard, Library, LibraryUnavailableError, asking, installed
from small_window import ANSWER, history, orders_of, small_window

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]
WINDOW: Final = 16_384
EXCHANGES: Final = 30
OPENAI: Final = {"context_management": [{"type": "compaction", "compact_threshold": 1500}]}
EDIT: Final = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1500}}
ANTHROPIC: Final = {"context_management": {"edits": [EDIT]}, "betas": ["compact-2026-01-12"], "max_tokens": 500}
LIBRARIES: Final[dict[str, tuple[Library, dict[str, Any]]]] = {
    "openai (JavaScript)": (Library(("openai",), "js", "run_openai.mjs"), OPENAI),
    "anthropic (JavaScript)": (Library(("@anthropic-ai/sdk",), "js", "run_anthropic.mjs"), ANTHROPIC),
    "langchain-openai": (Library(("langchain-openai",), "py", "run_langchain.py"), OPENAI),
    "langchain-anthropic": (Library(("langchain-anthropic",), "py", "run_langchain_anthropic.py"), ANTHROPIC),
}


@cache
def command_or_reason(folder: str) -> list[str] | str:
    """Install the libraries of a folder where that is not done yet; return why it cannot be done, where it cannot."""
    try:
        return installed(folder, platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    except LibraryUnavailableError as error:
        return str(error)


@pytest.mark.parametrize("name", LIBRARIES)
async def test_stream_with_a_compaction(tmp_path: Path, name: str) -> None:
    """The library reads every event, and hands out the compaction before the text."""
    library, fields = LIBRARIES[name]
    command = command_or_reason(library.folder)
    if isinstance(command, str):
        pytest.skip(command)
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        request = {"model": "writer", "messages": history(EXCHANGES)[1:], **fields}
        async with asking(command, library, f"{served.url}/v1", "managed", request) as runner:
            heard: Heard = await runner.ended()
        assert orders_of(studio)
    assert heard.error == {}
    assert heard.text == ANSWER
    assert heard.end["calls"][0] == "compaction"
    assert heard.end["chunks"] > 2
    assert heard.end["usage"]
