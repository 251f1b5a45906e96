"""One elbowroom before several simulated LM Studios, which are machines of one provider."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from chatting import MODEL
from own_tools import Given
from serving import Served, serve

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

Body = dict[str, Any]
NAME = f"desk/{MODEL}"
AGENT = f"""
[[agents]]
id = "writer"
provider = "desk"
model = "{MODEL}"
"""


@asynccontextmanager
async def machines(
    folder: Path,
    *windows: int,
    agents: str = "",
    provider: str = "",
    answer: str = "I see.",
    toolbox: Given | None = None,
    **switches: Any,
) -> AsyncIterator[tuple[Served, Sequence[SimulatedLMStudio]]]:
    """Run one elbowroom before as many LM Studios as there are windows, in which their models are loaded."""
    async with AsyncExitStack() as stack:
        studios = [
            await stack.enter_async_context(
                SimulatedLMStudio(
                    [SimulatedModel(MODEL, loaded_context_length=window, parallel=1)],
                    on_request=lambda body: answer,
                    **switches,
                )
            )
            for window in windows
        ]
        addresses = ", ".join(f'"{studio.base_url}"' for studio in studios)
        desk = f'[[providers]]\nid = "desk"\nkind = "lmstudio"\nbase_urls = [{addresses}]\n{provider}\n'
        served = await stack.enter_async_context(serve(folder, f"[server]\nport = 0\n{desk}{agents}", toolbox=toolbox))
        yield served, studios


async def say(served: Served, messages: list[Body], text: str, model: str = NAME) -> str:
    """Add a message and its answer to a chat; return the answer."""
    messages.append({"role": "user", "content": text})
    async with served.http.post(served.chat_url, json={"model": model, "messages": messages}) as response:
        body = await response.json()
        assert response.status == 200, body
    answer: str = body["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": answer})
    return answer


def chats(studios: Sequence[SimulatedLMStudio]) -> list[int]:
    """Return how many chats each LM Studio was asked for."""
    return [len(studio.chats) for studio in studios]
