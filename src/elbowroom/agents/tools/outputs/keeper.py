"""Keeps whole what the tools of one turn return, and shows the model as much of it as its window has room for."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter, is_
from typing import Final

from elbowroom.agents.tools.outputs.pages import shown_within
from elbowroom.agents.tools.outputs.tools import Quota, output_tools, ref_written, told_media
from elbowroom.agents.tools.tool import Media, ServerTool, ToolResult, parsed_arguments
from elbowroom.context.compaction import RemovedCalls, index_of, lists_named_in, note_on, results_in
from elbowroom.context.outputs import (
    MARK,
    READ_TOOL,
    SEARCH_TOOL,
    Limits,
    Part,
    TierLimits,
    ToolOutputRef,
    ToolOutputs,
    is_stub,
    kind_of,
    pruned,
    ref_of_whole,
    ref_to,
    telling_parts,
    view_of,
)
from elbowroom.context.transcript import Message, text_of, with_text
from elbowroom.settings.model import ToolKind, ToolOutputSettings
from elbowroom.tokens.files import whole_characters

LEAST_KEPT: Final = 200
"""Characters from which a result is worth a reference: a shorter one is no longer than what would stand for it."""
LONG: Final = 250_000
"""Characters from which a view is made in a thread."""
UNMEASURED: Final = TierLimits(budget=2000)
"""What counts as long as a prompt could not be counted."""
UNMEASURED_ROOM: Final = 400
"""Tokens of one result as long as a prompt could not be counted."""
NOTHING: Final = "(The tool returned nothing.)"
READERS: Final[dict[str, ToolKind]] = {READ_TOOL: "read", SEARCH_TOOL: "query"}


class OutputKeeper:
    """Keeps outputs for one caller, and shows, shortens and lists them for the agent that has these `tools`.

    Call `begin_step` before each model step: it says how much room there is. `refs` maps the text that a model has of
    an output to the reference of the whole; all agents of one run share it.
    """

    def __init__(
        self,
        outputs: ToolOutputs,
        owner: str,
        settings: ToolOutputSettings,
        tools: Sequence[ServerTool] = (),
        refs: dict[str, ToolOutputRef] | None = None,
    ) -> None:
        self._outputs = outputs
        self._owner = owner
        self._settings = settings
        declared: dict[str, ToolKind] = {tool.name: tool.kind for tool in tools if tool.kind != "other"}
        self._kinds: Mapping[str, ToolKind] = {**READERS, **declared, **settings.kinds}
        self._size_of: Callable[[str], int] = len
        self._quota = Quota(0, len)
        self._limits = UNMEASURED
        self._room = UNMEASURED_ROOM
        self._refs = {} if refs is None else refs
        self._lists: set[str] = set()
        self._new: dict[str, _NewResult] = {}  # results of this step, by the text that the model is shown

    @property
    def readers(self) -> list[ServerTool]:
        """Return the tools that read what is kept."""
        lines, most = self._settings.max_line_length, self._settings.max_message_bytes
        return output_tools(self._outputs, self._owner, self._quota, max_line_length=lines, max_bytes=most)

    def begin_step(self, size_of: Callable[[str], int], window: int, fixed: int, room: int) -> None:
        """Set the room for results: all of a step together have at most `room` tokens.

        `fixed` is how many tokens no pruning can free, the reply included.
        """
        self._size_of = self._quota.size_of = size_of
        self._limits = TierLimits.of(self._settings, window, fixed)
        self._room = min(room, self._settings.context_budget_tokens or room)
        self._quota.begin_step(self._room)

    def let_go(self) -> None:
        """Drop the whole results of this step: what the model gets of them is settled."""
        self._new.clear()
        self._quota.pages.clear()

    def whole_bytes(self, shown: str) -> int | None:
        """Return the size of the whole result of this step that the model is shown in this form, None for others."""
        new = self._new.get(shown)
        return new.ref.bytes if new is not None else None

    async def shown(self, tool: ServerTool, result: ToolResult, arguments: str = "") -> str:
        """Keep what a call with these arguments returned, and return what the model is shown of it."""
        if not tool.keeps_output:
            return whole_characters(result.text) or NOTHING
        kept = [await self._kept(tool.name, part) for part in result.media]
        text = "\n".join(filter(None, [result.text, *kept])) or NOTHING
        return await self._view(tool.name, arguments, text, result.page if not kept else None)

    async def take_in(self, messages: Sequence[Message], of_client: Sequence[Message] = ()) -> list[Message] | None:
        """Keep all results of a history, so that they can be shortened and read again.

        Return the history with views in place of new results that are too large; None where there are none.
        `of_client` are the client's messages: a result at their end is kept as it is, even if it looks like a view of
        another.
        """
        changed = list(messages)
        unread = _unread_from(messages)
        came_in = set(map(text_of, of_client[_unread_from(of_client) :]))
        for place, (message, name, arguments) in enumerate(results_in(messages)):
            text = text_of(message)
            if not name or (len(text) < LEAST_KEPT and not is_stub(text)):
                continue
            is_new = place >= unread and text in came_in
            if not is_new and await self._is_known(name, arguments, text):
                continue
            if place >= unread:
                view = await self._view(name, arguments, text)
                changed[place] = message if view == text else with_text(message, view)
            else:
                self._refs[text] = await self._outputs.keep(self._owner, name, text)
        self._lists.update(lists_named_in(messages))
        await self._outputs.in_use(self._owner, {*self._lists, *map(attrgetter("id"), self._refs.values())})
        return None if all(map(is_, changed, messages)) else changed

    def shorter(self, text: str, tokens: int) -> str | None:
        """Return a smaller view of a new result, of which the model was to get `text`; None for any other text.

        Where not even the note of a view fits, one line says where the whole is.
        """
        if (new := self._new.get(text)) is None:
            return self._quota.smaller(text, tokens)
        view = self._view_within(new, tokens)
        if self._size_of(view) > tokens:
            view = min(view, f"{MARK}{new.ref.id}; {new.ref.bytes:,} bytes, more than fits beside the others]", key=len)
        return self._shown_as(view, new)

    def pruned(
        self, messages: Sequence[Message], *, must_shrink: bool, at_any_gain: bool = False
    ) -> list[Message] | None:
        """Return the history with old results shortened, None where nothing changes."""
        limits, kinds = self._limits, self._kinds
        shorter = pruned(
            messages, limits, kinds, self._ref_of, self._size_of, must_shrink=must_shrink, at_any_gain=at_any_gain
        )
        for old, new in zip(messages, shorter or (), strict=False):
            if new is not old and (ref := self._refs.get(text_of(old))) is not None:
                self._refs[text_of(new)] = ref
        return shorter

    async def removed_calls(self, messages: Sequence[Message]) -> RemovedCalls:
        """Return what replaces the calls of a history once they are removed."""
        results = await self.note(messages)
        chosen = self._settings
        return RemovedCalls(results, chosen.max_history_summary_tokens, self._kinds, chosen.preserve_errors_verbatim)

    async def note(self, messages: Sequence[Message]) -> str:
        """Keep a list of all results of a history, and return the note that names this list once they are removed."""
        for message, name, arguments in results_in(messages):
            text = text_of(message)
            if name and text and not await self._is_known(name, arguments, text) and not is_stub(text):
                self._refs[text] = await self._outputs.keep(self._owner, name, text)
        index, count = index_of(messages, self._kinds, self._ref_of)
        if not count:
            return ""
        ref = await self._outputs.keep(self._owner, "", index)
        self._lists.add(ref.id)
        return note_on(ref, count)

    def _ref_of(self, message: Message) -> str | None:
        known = self._refs.get(text_of(message))
        return known.id if known else None

    async def _is_known(self, name: str, arguments: str, text: str) -> bool:
        """Tell whether the whole of a text is kept already, or need not be kept because the text is a page of it."""
        if text in self._refs:
            return True
        ref = await (self._read_by(arguments) if name in READERS else self._named_in(text))
        if ref is not None:
            self._refs[text] = ref
        return ref is not None or name in READERS

    async def _read_by(self, arguments: str) -> ToolOutputRef | None:
        """Return the output of which a page shows a part, by the arguments of the call that asked for the page."""
        named = (parsed_arguments(arguments) or {}).get("ref_id")
        return await self._outputs.find(self._owner, ref_written(named)) if isinstance(named, str) else None

    async def _named_in(self, text: str) -> ToolOutputRef | None:
        """Return the output that a view or stub names; a text that only looks like one has an output of its own."""
        named = ref_of_whole(text)
        if named is None:
            return None
        own = await self._outputs.find(self._owner, ref_to(self._owner, text).id)
        return own or await self._outputs.find(self._owner, named)

    async def _kept(self, name: str, part: Media) -> str:
        return told_media(await self._outputs.keep_media(self._owner, name, part.mime_type, part.data))

    async def _view(self, name: str, arguments: str, text: str, page: Callable[[int], str] | None = None) -> str:
        telling = cache(partial(telling_parts, kind_of(name, self._kinds), arguments, text))
        new = _NewResult(await self._outputs.keep(self._owner, name, text), text, page, telling)
        if len(text) < LONG:
            view = self._view_within(new, self._room)
        else:
            view = await asyncio.to_thread(self._view_within, new, self._room)
        return self._shown_as(view, new)

    def _view_within(self, new: "_NewResult", tokens: int) -> str:
        """Return a result within so many tokens: whole, as a page that says how to read on, or beginning and end."""
        limits = Limits(self._settings.max_line_length, self._settings.max_message_bytes, tokens)
        view = view_of(new.text, new.ref, limits, self._size_of, new.telling)
        if view.is_whole or new.page is None:
            return view.text
        return shown_within(new.page, len(new.text), limits.max_bytes, tokens, self._size_of) or view.text

    def _shown_as(self, view: str, new: "_NewResult") -> str:
        shown = whole_characters(view)
        self._refs[shown] = new.ref
        self._new[shown] = new
        return shown


@dataclass(frozen=True, slots=True)
class _NewResult:
    """A result that came in this step, whole, and its reference; `page` makes a shorter one where the tool can.

    `telling` finds the parts of it that say what failed.
    """

    ref: ToolOutputRef
    text: str
    page: Callable[[int], str] | None
    telling: Callable[[], Sequence[Part]]


def _unread_from(messages: Sequence[Message]) -> int:
    """Return the index of the first message after the model's last one: results from there on are new."""
    place = len(messages)
    while place and messages[place - 1].get("role") != "assistant":
        place -= 1
    return place
