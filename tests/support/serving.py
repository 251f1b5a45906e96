"""A real elbowroom on a port of its own, in front of whatever upstream a test has."""

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from own_tools import Given, toolbox_of

from elbowroom.server.app import create_app, create_runner
from elbowroom.server.state import SHARED, Timing
from elbowroom.settings.live import LiveSettings
from elbowroom.store.lock import prepare_file
from elbowroom.store.sql.dialect import create_engines
from elbowroom.store.sql.schema import make_tables
from elbowroom.store.store import database_path
from elbowroom.store.write_behind import Patience

SETTINGS = "settings.toml"


@dataclass(frozen=True, slots=True)
class Served:
    """A running elbowroom; `url` has no path, `settings` is its file, `http` a client session to use."""

    app: web.Application
    url: str
    port: int
    settings: Path
    http: aiohttp.ClientSession

    @property
    def chat_url(self) -> str:
        """Return the address of chat completions."""
        return f"{self.url}/v1/chat/completions"

    async def chat(self, model: str, text: str = "Hello", **fields: Any) -> dict[str, Any]:
        """Ask without streaming and return the parsed body, whatever its status."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
        async with self.http.post(self.chat_url, json=body) as response:
            answer: dict[str, Any] = await response.json()
            return answer

    async def chat_frames(self, model: str, text: str = "Hello", **fields: Any) -> list[Any]:
        """Ask with streaming and return what each `data:` line holds, parsed, `[DONE]` as a string."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": True, **fields}
        async with self.http.post(self.chat_url, json=body) as response:
            return parse_frames(await response.read())


def parse_frames(stream: bytes) -> list[Any]:
    """Return what the `data:` lines of a stream hold, parsed, with `[DONE]` as a string."""
    data = [line[6:] for line in stream.decode().split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in data]


def text_of(frames: list[Any]) -> str:
    """Return the answer's text from the frames of a stream."""
    chunks = [frame for frame in frames if isinstance(frame, dict) and frame.get("choices")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def settings_for(
    base_url: str, *, agents: str = "", server: str = "", kind: str = "lmstudio", provider: str = ""
) -> str:
    """Return a settings file with one provider, whose id is its kind, at `base_url`."""
    providers = f'[[providers]]\nid = "{kind}"\nkind = "{kind}"\nbase_url = "{base_url}"\n{provider}\n'
    return f"[server]\nport = 0\n{server}\n{providers}\n{agents}\n"


@asynccontextmanager
async def serve(
    folder: Path,
    settings: str,
    *,
    toolbox: Given | None = None,
    timing: Timing | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Served]:
    """Run elbowroom with this settings file on 127.0.0.1 and a free port; its data stay in the folder."""
    app = elbowroom(folder, settings, toolbox=toolbox, timing=timing, environ=environ)
    runner = create_runner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession() as http:
            yield Served(app, f"http://127.0.0.1:{port}", port, folder / SETTINGS, http)
    finally:
        await runner.cleanup()


def elbowroom(
    folder: Path,
    settings: str,
    *,
    toolbox: Given | None = None,
    timing: Timing | None = None,
    environ: Mapping[str, str] | None = None,
) -> web.Application:
    """Return elbowroom with this settings file, ready to be served by `aiohttp_client`; its data stay in the folder.

    Its store is an empty one that is there already: to make the tables takes longer than to open it.
    """
    path = folder / SETTINGS
    path.write_text(settings, encoding="utf-8")
    environ = {"ELBOWROOM_DATA_DIR": str(folder), **(environ or {})}
    live = LiveSettings(path, environ, {})
    app = create_app(live, toolbox=toolbox and toolbox_of(toolbox), timing=timing, environ=environ)
    app[SHARED].store.patience = Patience(asking=60.0)  # a busy machine opens a database slowly
    store = database_path(live.current().settings.store, environ)
    if store is not None and store.parent == folder and not store.exists():
        prepare_file(store)
        store.write_bytes(empty_store())
    return app


@cache
def empty_store() -> bytes:
    """Return the file of a store in which nothing was ever said."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "empty.db")
        engines = create_engines(path, 1)
        with engines[1].begin() as connection:
            make_tables(connection)
        for engine in engines:
            engine.dispose()
        return path.read_bytes()
