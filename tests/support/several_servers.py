"""Several elbowrooms that share a database on a real PostgreSQL server, in front of one simulated LM Studio."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from postgresql import new_place
from serving import Served, serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

MODEL = "qwen2.5-1.5b-instruct"
AGENT = f'[[agents]]\nid = "writer"\nmodel = "{MODEL}"\n'


@asynccontextmanager
async def several_servers(
    folder: Path,
    count: int = 2,
    *,
    window: int = 8192,
    agents: str = AGENT,
    store: str = "",
    environ: Mapping[str, str] | None = None,
    **studio_options: Any,
) -> AsyncIterator[tuple[list[Served], SimulatedLMStudio]]:
    """Run so many servers, each with settings and a folder of its own."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(new_place())
        studio = SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=window)], **studio_options)
        await stack.enter_async_context(studio)
        settings = settings_for(studio.base_url, agents=f'{agents}\n[store]\nurl = "{place.address}"\n{store}\n')
        servers = []
        for number in range(count):
            own = folder / f"server-{number}"
            own.mkdir()
            servers.append(await stack.enter_async_context(serve(own, settings, environ=environ)))
        yield servers, studio
