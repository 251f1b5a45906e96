"""What the tools of one turn return: kept whole, and shown to the model as far as its window has room for it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from elbowroom.agents.output_quota import Quota
from elbowroom.agents.output_tools import output_tools
from elbowroom.agents.own_tool import Media, OwnTool, ToolResult
from elbowroom.context.message_content import whole_characters
from elbowroom.context.output_index import index_of, note_on, results_in
from elbowroom.context.tool_output import ToolOutputRef, ToolOutputs
from elbowroom.context.tool_stubs import ref_of as ref_in_stub
from elbowroom.context.tool_stubs import target_of
from elbowroom.context.tool_tiers import TierLimits, pruned
from elbowroom.context.tool_view import READ_TOOL, SEARCH_TOOL, Limits, ref_in_view, view_of
from elbowroom.context.transcript import Message, text_of
from elbowroom.settings.tool_sections import ToolKind, ToolOutputSettings

VIEWS_IN_BUDGET: Final = 5
"""One result takes at most so small a part of what all may take."""
LEAST_KEPT: Final = 200
"""Characters from which a result is worth a reference: a shorter one is no longer than what would stand for it."""
LONG: Final = 250_000
"""Characters from which a view is made in a thread."""
UNMEASURED: Final = TierLimits(budget=2000)
"""What counts as long as a prompt could not be counted."""
NOTHING: Final = "(The tool returned nothing.)"
READERS: Final[dict[str, ToolKind]] = {READ_TOOL: "read", SEARCH_TOOL: "query"}


class OutputKeeper:
    """Keeps outputs for one caller, and shows, shortens and lists them for the one agent that has these `tools`.

    Before each model step `begin_step` says how much room there is.
    """

    def __init__(
        self, outputs: ToolOutputs, owner: str, settings: ToolOutputSettings, tools: Sequence[OwnTool] = ()
    ) -> None:
        self._outputs = outputs
        self._owner = owner
        self._settings = settings
        declared: dict[str, ToolKind] = {tool.name: tool.kind for tool in tools if tool.kind != "other"}
        self._kinds = {**READERS, **declared, **settings.kinds}
        self._size_of: Callable[[str], int] = len
        self._quota = Quota(0, lambda text: self._size_of(text))
        self._limits = UNMEASURED
        self._refs: dict[str, ToolOutputRef] = {}  # by what the model has of it
        self._whole: dict[str, str] = {}  # what came in since the last step, by what is shown of it
        self._coming: dict[str, str] = {}

    @property
    def readers(self) -> list[OwnTool]:
        """Return the tools that read what is kept."""
        lines, most = self._settings.max_line_length, self._settings.max_message_bytes
        return output_tools(self._outputs, self._owner, self._quota, max_line_length=lines, max_bytes=most)

    def begin_step(self, size_of: Callable[[str], int], window: int, fixed: int) -> None:
        """Take note of the room for results; `fixed` is what no pruning can free, reply included, in tokens."""
        self._size_of = size_of
        self._limits = TierLimits.of(self._settings, window, fixed)
        self._quota.begin_step(self._view_tokens)
        self._whole, self._coming = self._coming, {}

    async def shown(self, tool: OwnTool, result: ToolResult) -> str:
        """Keep what a tool returned, and return what the model is shown of it."""
        if not tool.keeps_output:
            return whole_characters(result.text) or NOTHING
        kept = [await self._kept(tool.name, part) for part in result.media]
        text = "\n".join(filter(None, [result.text, *kept])) or NOTHING
        return await self._view(tool.name, text)

    async def take_in(self, messages: Sequence[Message]) -> list[Message] | None:
        """Keep what tools have returned in a history, so that it can be shortened and read again.

        Return the history with views of results that have just come in and are too large; None where there are none.
        """
        changed = list(messages)
        unread = _unread_from(messages)
        for place, (message, name, arguments) in enumerate(results_in(messages)):
            text = text_of(message)
            if not name or not isinstance(message.get("content"), str) or len(text) < LEAST_KEPT:
                continue
            if place >= unread and text not in self._refs and name not in READERS:
                view = await self._view(name, text)
                changed[place] = message if view == text else {**message, "content": view}
            else:
                await self._learn(name, arguments, text)
        await self._outputs.in_use(self._owner, {ref.id for ref in self._refs.values()})
        return None if all(new is old for new, old in zip(changed, messages, strict=True)) else changed

    def shorter(self, text: str, tokens: int) -> str | None:
        """Return a smaller view of what has just come in, of which the model was to get `text`; None for others."""
        ref, whole = self._refs.get(text), self._whole.get(text)
        if ref is None or whole is None:
            return None
        return self._shown_as(view_of(whole, ref, self._view_limits(tokens), self._size_of).text, ref, whole)

    def pruned(
        self, messages: Sequence[Message], *, must_shrink: bool, at_any_gain: bool = False
    ) -> list[Message] | None:
        """Return the history with old results shortened, None where there is nothing to do."""
        limits, kinds = self._limits, self._kinds
        return pruned(
            messages, limits, kinds, self._ref_of, self._size_of, must_shrink=must_shrink, at_any_gain=at_any_gain
        )

    async def note(self, messages: Sequence[Message]) -> str:
        """Keep a list of all results that a history has, and return what is told of it once they are gone."""
        index, count = index_of(messages, self._kinds, self._ref_of)
        return note_on(await self._outputs.keep(self._owner, "", index), count) if count else ""

    def _ref_of(self, message: Message) -> str | None:
        """Return the id under which that is kept of which the model has this message."""
        text = text_of(message)
        known = self._refs.get(text)
        return known.id if known else ref_in_stub(text)

    async def _learn(self, name: str, arguments: str, text: str) -> None:
        """Take note of what stands in the history: a page, a view, a line in place of a result, or the whole."""
        if text in self._refs:
            return
        named = target_of("read", arguments) if name in READERS else ref_in_view(text) or ref_in_stub(text)
        ref = await self._outputs.find(self._owner, named) if named else None
        if ref is None and name not in READERS:
            ref = await self._outputs.keep(self._owner, name, text)
        if ref is not None:
            self._refs[text] = ref

    async def _kept(self, name: str, part: Media) -> str:
        ref = await self._outputs.keep_media(self._owner, name, part.mime_type, part.data)
        return f"[{part.mime_type}, {ref.bytes:,} bytes, is kept whole; ref={ref.id}; it cannot be shown here.]"

    async def _view(self, name: str, text: str) -> str:
        ref = await self._outputs.keep(self._owner, name, text)
        limits = self._view_limits(self._view_tokens)
        if len(text) < LONG:
            view = view_of(text, ref, limits, self._size_of)
        else:
            view = await asyncio.to_thread(view_of, text, ref, limits, self._size_of)
        return self._shown_as(view.text, ref, text)

    def _shown_as(self, view: str, ref: ToolOutputRef, whole: str) -> str:
        shown = whole_characters(view)
        self._refs[shown] = ref
        self._coming[shown] = whole
        return shown

    @property
    def _view_tokens(self) -> int:
        return self._limits.budget // VIEWS_IN_BUDGET

    def _view_limits(self, tokens: int) -> Limits:
        return Limits(self._settings.max_line_length, self._settings.max_message_bytes, tokens)


def _unread_from(messages: Sequence[Message]) -> int:
    """Return the place of the first of the results that no turn of the model has read yet."""
    place = len(messages)
    while place and messages[place - 1].get("role") != "assistant":
        place -= 1
    return place
