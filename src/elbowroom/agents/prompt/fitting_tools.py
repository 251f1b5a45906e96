"""Tells a model of the client's tools in short where their whole descriptions would leave a conversation no room.

What is decided depends on the system message, the tools and the window only, so that the beginning of the prompt stays
the same through a whole conversation and the engine need not read it anew.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from elbowroom.agents.answer import Notice
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt.body import step_body, with_instructions
from elbowroom.agents.prompt.size import prompt_size
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.tools import arrange_tools
from elbowroom.caches import Recent
from elbowroom.context.budget import leaves_room
from elbowroom.context.fitting import NOTHING_ASKED
from elbowroom.context.transcript import SYSTEM_ROLES, as_json, size_in_bytes, text_of
from elbowroom.providers.base import ModelInfo
from elbowroom.tokens.count import MOST_LETTERS, left_of

TOOLS_SHORTENED: Final = (
    "The {count} tools of your program are described in short to the model, so that the chat has room: {told:,} tokens "
    "instead of {whole:,}, which saves {saved:,}."
)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FittingTools:
    """The sizes in tokens of a prompt without its conversation: with whole tools, and with those that are told."""

    whole: int
    told: int

    @property
    def are_short(self) -> bool:
        """Tell whether the tools are told in short."""
        return self.told < self.whole

    def notice(self, count: int) -> Notice:
        """Return what tells a person that so many tools are told in short."""
        saved = self.whole - self.told
        text = TOOLS_SHORTENED.format(count=count, whole=self.whole, told=self.told, saved=saved)
        return Notice("tools shortened", text, before=self.whole, after=self.told)


_SIZES: Final[Recent[tuple[str, ...], FittingTools]] = Recent("client tools", 200)


def _written(tools: Sequence[dict[str, Any]]) -> list[str]:
    return [as_json(tool) for tool in tools]


async def _read(tools: Sequence[dict[str, Any]], read: Callable[[Sequence[dict[str, Any]]], Result]) -> Result:
    """Return what is read of the tools, of long ones in a thread."""
    return read(tools) if left_of(MOST_LETTERS, tools) > 0 else await asyncio.to_thread(read, tools)


async def fitting_tools(
    target: Target,
    info: ModelInfo,
    window: int,
    request: ChatRequest,
    instructions: str | None,
    own_tools: Sequence[dict[str, Any]] = (),
) -> tuple[ChatRequest, FittingTools | None]:
    """Return the request with the tools that the model is told of, and how large that is; None where it is small.

    Raises what the engine would refuse the request with.
    """
    system = [message for message in request.messages if message.get("role") in SYSTEM_ROLES]
    empty = with_instructions([*system, NOTHING_ASKED], instructions)
    tools = [*own_tools, *request.tools]
    written = await _read(tools, _written)
    texts = [*written, *map(text_of, empty)]
    if leaves_room(sum(map(size_in_bytes, texts)), window):  # no text has more tokens than bytes
        return request, None
    digest = hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    key = (target.provider.id, info.id, str(window), digest)

    free = replace(request, fields={name: value for name, value in request.fields.items() if name != "tool_choice"})

    async def size(tools: Sequence[dict[str, Any]]) -> int:  # of all: a choice holds for one step
        body = step_body(free, target.model, {}, empty, [*own_tools, *tools], step=1)
        return (await prompt_size(target.provider, info, body)).count.tokens

    short = await _read(request.tools, lambda tools: arrange_tools(tools, "slim"))
    sizes = _SIZES.get(key)
    if sizes is None:
        whole = await size(request.tools)
        sizes = FittingTools(whole, whole if leaves_room(whole, window) else await size(short))
        _SIZES.put(key, sizes)
    return replace(request, tools=tuple(short)) if sizes.are_short else request, sizes
