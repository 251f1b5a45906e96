"""What a running server has imported: of what only some requests need, nothing before the first of them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, sys
from pathlib import Path

import aiohttp

from elbowroom.cli import DEMO_SETTINGS
from elbowroom.demo import demo_studio
from elbowroom.server.listen import listening
from elbowroom.server.state import WARM_UP
from elbowroom.settings.live import LiveSettings

SDK = {"agents", "openai", "mcp", "alembic", "elbowroom.agents.tools.vault", "re2", "tomlkit"}
folder = Path(sys.argv[1])


async def main():
    async with demo_studio() as studio:
        settings = folder / "settings.toml"
        settings.write_text(DEMO_SETTINGS.format(url=studio.base_url))
        environ = {"ELBOWROOM_DATA_DIR": str(folder), "HOME": str(folder)}
        live = LiveSettings(settings, environ, {("server", "port"): 0})
        async with listening(live, environ) as (app, address), aiohttp.ClientSession() as http:
            app[WARM_UP]()
            for model in ("lmstudio/qwen2.5-7b-instruct", "writer"):
                body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
                async with http.post(f"{address}/v1/chat/completions", json=body) as response:
                    assert response.status == 200, await response.text()
                print(model, *sorted(SDK & set(sys.modules)))


asyncio.run(main())
"""


@pytest.mark.slow
def test_a_raw_chat_loads_nothing_of_agents(tmp_path: Path) -> None:
    """A server that answers for raw models never imports the SDK, MCP, Alembic or the vault."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "lmstudio/qwen2.5-7b-instruct",
        "writer agents elbowroom.agents.tools.vault mcp openai",
    ], done.stderr
