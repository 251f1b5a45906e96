"""Makes what has come in fit: files and other material in messages, and results of tools, where they leave no room.

The whole of each is kept, and what is shown says where it is. What stands around it stays word for word.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal, Protocol

from elbowroom.context.budget import kept_beside_results, least_room
from elbowroom.context.compaction import Compaction, carried_in, is_summary, smallest
from elbowroom.context.divisible import beginning_and_end
from elbowroom.context.effects import Aside, Ask, KeepText, Tell, Work, counted
from elbowroom.context.ledger import PRUNED, SHORTENED, Written, is_system
from elbowroom.context.manager import LEAST_SHARE, AgentContextManager, room_for_results, shares, shortened
from elbowroom.context.outputs import (
    Material,
    has_note,
    material_in,
    note_on_whole,
    short_note_on_whole,
    with_material,
)
from elbowroom.context.prompt import Prompt
from elbowroom.context.repeats import moved_to_last, without_repeats
from elbowroom.context.transcript import (
    SYSTEM_ROLES,
    Group,
    Message,
    Transcript,
    size_in_bytes,
    text_of,
    uses_in,
    with_text,
    written,
)

log = logging.getLogger(__name__)
PASSES_OF_CUT: Final = 3
PASSES: Final = 2
"""How often results are made to fit: what is left of a text may need more tokens a letter than the whole did."""
CAN_CALL_AGAIN: Final = " Calls that only read bring theirs again."
OLD: Final = "Old results of tools are shortened: {:,} tokens became {:,}."
NOTHING_ASKED: Final[Message] = {"role": "user", "content": "-"}
SHARE_OF_ROOM: Final = (3, 4)
"""How much of the room material may take; the rest is for a summary of the history."""
FOR_NOTE: Final = 120
"""Tokens of the note about what is left out."""

SizeOf = Callable[[str], int]
View = Callable[[str, int], str | None]
"""Returns a view of so many tokens of a result that can be read again, None for other results."""


@dataclass(frozen=True, slots=True)
class TakeResults:
    """Keep the results that have come in, in the room that they have; messages are sent where some become views.

    `fixed` tokens cannot be freed, the reply included.
    """

    fixed: int
    room: int


@dataclass(frozen=True, slots=True)
class Note:
    """Note that results were shortened, with the sizes of the prompt, or that nothing could be made any shorter."""

    event: Literal["pruned", "not compacted"]
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the history for turns that begin the same. `done` is the compaction that made it, of so many messages."""

    written: Written
    done: Compaction | None = None
    messages: int = 0


class Outputs(Protocol):
    """Whole results of tools, where the model can read them again."""

    def pruned(
        self, messages: Sequence[Message], *, must_shrink: bool, at_any_gain: bool = False
    ) -> list[Message] | None:
        """Return the history with old results shortened, None where nothing changes."""

    def shorter(self, text: str, tokens: int) -> str | None:
        """Return a smaller view of a new result, None for any other text."""

    def whole_bytes(self, shown: str) -> int | None:
        """Return the size of the whole result that the model is shown in this form, None for others."""

    def let_go(self) -> None:
        """Drop the whole results of this step."""


def fitting_material(
    history: Prompt, manager: AgentContextManager, size_of: SizeOf, *, has_reader: bool
) -> Work[tuple[list[Message], Tell] | None]:
    """Return the history with the beginning and end of material that leaves no room; None where all of it stays.

    Only messages that no compaction can free are looked at. `has_reader` says that the model has a tool that reads what
    is kept. The person is to be told what was shortened.
    """
    budget, messages = manager.budget, history.messages
    if not (yield from _are_full(messages, manager)):
        return None
    stays = smallest(Transcript.of(messages))
    if not (yield from _are_full(stays, manager)):
        return None
    cuts = yield Aside(lambda: _cuts(messages, history.places(stays), size_of))
    bare = [with_text(each, "") if each.get("role") == "tool" else each for each in stays]  # results become shorter too
    if (yield from counted(bare)) < budget.window:  # what was shortened before stays where it can be sent
        cuts = [cut for cut in cuts if not has_note(cut.text) or 2 * cut.size > budget.window]
    if not cuts:
        return None
    rest = yield from _least(_with(messages, dict.fromkeys(cuts, "")))
    most = room_for_results(budget, rest)
    room = most * SHARE_OF_ROOM[0] // SHARE_OF_ROOM[1]
    shorter: list[Message] = []
    told: dict[_Cut, str] = {}
    for _ in range(PASSES_OF_CUT):
        granted = shares([cut.size for cut in cuts], room)
        told = {}
        for cut, share in zip(cuts, granted, strict=True):
            told[cut] = yield from _shown(cut, share, size_of, has_reader=has_reader)
        shorter = _with(messages, told)
        taken = budget.occupied((yield from _least(shorter))) - budget.occupied(rest)
        if taken <= most:
            break
        room = min(room * 2 // 3, room * most // taken)  # the engine may count far more than `size_of`
    notice = _notice_of(told, size_of)
    return (shorter, notice) if notice is not None else None


@dataclass(frozen=True, slots=True)
class _Cut:
    """A piece of material in the message at a place of the history, its text and its size in tokens."""

    place: int
    piece: Material
    text: str
    size: int


def _cuts(messages: Sequence[Message], stays: Collection[int | None], size_of: SizeOf) -> list[_Cut]:
    """Return the material in those messages of a history, by their places, that stay whatever is compacted."""
    cuts: list[_Cut] = []
    for place, message in enumerate(messages):
        may_have = place in stays and message.get("role") in ("user", "system", "developer")
        if may_have and not is_summary(Group((message,))):
            text = text_of(message)
            pieces = ((piece, text[piece.start : piece.end]) for piece in material_in(message))
            cuts += [_Cut(place, piece, inside, size_of(inside)) for piece, inside in pieces]
    return cuts


def _with(messages: Sequence[Message], told: Mapping[_Cut, str]) -> list[Message]:
    """Return the history with these texts in place of its material."""
    texts: dict[int, dict[Material, str]] = {}
    for cut, text in told.items():
        texts.setdefault(cut.place, {})[cut.piece] = text
    return [
        with_material(message, texts[place]) if place in texts else message for place, message in enumerate(messages)
    ]


def _notice_of(told: Mapping[_Cut, str], size_of: SizeOf) -> Tell | None:
    changed = [cut for cut, text in told.items() if text != cut.text]
    if not changed:
        return None
    before, after = sum(cut.size for cut in changed), sum(size_of(told[cut]) for cut in changed)
    log.info("Material of %d tokens in a message is shortened to %d.", before, after)
    named = list(dict.fromkeys(cut.piece.name for cut in changed))
    names, verb = ", ".join(named), "is" if len(named) == 1 else "are"
    names = names.replace("the ", "The ", 1) if names.startswith("the ") else names  # a file keeps its own letters
    text = f"{names} {verb} too large to be shown whole: about {before:,} tokens became {after:,}."
    return Tell("results cut", text, before, after)


def _least(messages: Sequence[Message]) -> Work[int]:
    """Return the size of the part of a history that no compaction can free."""
    return (yield from counted(smallest(Transcript.of(messages))))


def _are_full(messages: Sequence[Message], manager: AgentContextManager) -> Work[bool]:
    """Tell whether messages reach the trigger with their reply, or fill the window where nothing is compacted."""
    prompt, budget = (yield from counted(messages)), manager.budget
    return budget.occupied(prompt) >= budget.trigger if manager.auto else prompt >= budget.window


def _shown(cut: _Cut, share: int, size_of: SizeOf, *, has_reader: bool) -> Work[str]:
    """Return a piece within so many tokens: whole, or its beginning and end with a note on where the whole is."""
    text, size = cut.text, cut.size
    if size <= share:
        return text
    ref = yield KeepText(cut.piece.name, text)
    if share < 2 * FOR_NOTE:
        return short_note_on_whole(len(text), ref.id)

    def note(left_out: int) -> str:
        return f"\n{note_on_whole(cut.piece.name, left_out, size, ref.id, has_reader=has_reader)}\n"

    return beginning_and_end(text, share, size_of, note)


def cut_results(
    whole: Sequence[Message],
    shown: Sequence[Message],
    size_of: SizeOf,
    outputs: Outputs | None,
) -> Tell | None:
    """Return the notice of those results at the end of a history that the model does not get whole, None without any.

    `whole` is the history as it came in, `shown` as the model gets it. `outputs` know the size of the whole result of
    which a view came in.
    """
    cut: list[int] = []
    before = after = 0
    for old, (place, new) in zip(reversed(whole), reversed([*enumerate(shown)]), strict=False):
        if new.get("role") == "assistant":
            break
        text = text_of(new)
        size, kept = size_in_bytes(text), outputs.whole_bytes(text) if outputs is not None else None
        most = kept or size_in_bytes(text_of(old))
        if new.get("role") == "tool" and most > size:
            tokens = size_of(text)
            after += tokens
            before += tokens * most // max(1, size)  # the whole may take too long to count
            cut.append(place)
    if not cut:
        return None
    names = {use.result: use.name for use in uses_in(shown)}
    tools = ", ".join(dict.fromkeys(names.get(place, "a tool") for place in reversed(cut)))
    text = f"Results of {tools} are too large to be shown whole: about {before:,} tokens became {after:,}."
    return Tell("results cut", text, before, after)


def fitting_results(
    history: Prompt, manager: AgentContextManager, count: SizeOf, view: View | None = None
) -> Work[list[Message] | None]:
    """Return the conversation with the beginning and end of results that are too large; None where all stay whole.

    `count` returns the size of a bare text.
    """
    budget, messages = manager.budget, history.messages
    end = len(messages)
    while end and messages[end - 1].get("role") in ("user", *SYSTEM_ROLES):
        end -= 1
    start = end
    while start and messages[start - 1].get("role") == "tool":
        start -= 1
    results, after = messages[start:end], messages[end:]
    if not results or (prompt := (yield from counted(messages))) < budget.window // 2:
        return None
    emptied = [with_text(result, "") for result in results]
    without = Transcript.of([*messages[:start], *emptied, *after])
    smallest_rest = smallest(without)
    rest = yield from counted(smallest_rest)
    size_of = _ruler(count, results, (yield from _least(messages)) - rest)
    sizes = [size_of(text_of(result)) for result in results]
    if manager.before_tool_results(prompt, rest, sizes) == "fits":
        return None
    tools = yield Ask.CLIENT_TOOLS
    told = carried_in(history.transcript, count, budget.window, tools.kinds if tools is not None else {})
    carrying: list[Message] = [*smallest_rest, {"role": "user", "content": told}] if told else smallest_rest
    carried = (yield from counted(carrying)) - rest
    first = (yield from counted(smallest(without, with_first=True))) - rest
    others = prompt - sum(sizes)
    kept = min(kept_beside_results(budget, rest, first), others - rest)
    beside = max(0, kept - least_room(budget)) if view is None else 0
    if manager.before_tool_results(prompt, rest, sizes, carried, beside) != "too large":
        return None

    def smaller(text: str, tokens: int) -> str:
        shown = view(text, tokens * count(text) // max(1, size_of(text))) if view is not None else None
        return shown if shown is not None else shortened(text, tokens, budget.window, size_of)

    can_be_read = view is not None and all(view(text_of(result), LEAST_SHARE) is not None for result in results)
    makes_room = manager.auto and not can_be_read  # what nobody can read again has all the room that can be freed
    now = None if makes_room else others
    room = room_for_results(budget, rest, carried=carried, history=beside, now=now)
    log.info("Tool results of %d tokens are shortened to fit %d.", sum(sizes), room)
    shorter, granted = messages, room
    for _ in range(PASSES_OF_CUT):
        fitting = [
            result if size <= share else with_text(result, smaller(text_of(result), share))
            for result, size, share in zip(results, sizes, shares(sizes, granted), strict=True)
        ]
        shorter = [*messages[:start], *fitting, *after]
        taken = (yield from _least(shorter)) - rest
        if view is not None or taken < room:
            break
        granted = granted * room // taken - 1  # what is left may need more tokens a letter than the whole did
    return shorter


def _ruler(count: SizeOf, results: Sequence[Message], size: int) -> SizeOf:
    """Return a counter of bare texts that agrees with the size that these results have in a prompt.

    Where only the engine can count a prompt, bare texts are counted with the vocabulary of another model.
    """
    counted = sum(count(text_of(result)) for result in results)
    return lambda text: ceil(count(text) * size / max(1, counted))


def freed_by(whole: Sequence[Message], shorter: Sequence[Message], size_of: SizeOf) -> int:
    """Return how many tokens shorter messages take less, each compared with its own."""
    pairs = zip(whole, shorter, strict=True)
    return sum(size_of(written(old)) - size_of(written(new)) for old, new in pairs if old is not new)


@dataclass(slots=True)
class Shortener:
    """Shortens what the history of `manager` has of files, pasted text and results of tools.

    `size_of` counts a bare text. Without `outputs` old results are not shortened. With `has_edits` the client wants its
    history edited, and with `shortens` material is shortened; `has_reader` says that the model has a tool that reads
    what is kept.
    """

    manager: AgentContextManager
    size_of: SizeOf
    outputs: Outputs | None = None
    has_edits: bool = False
    shortens: bool = False
    has_reader: bool = False

    @property
    def _history(self) -> Prompt:
        return self.manager.history

    def take_in(self) -> Work[None]:
        """Let the model have as much of what has come in as there is room for."""
        if self.has_edits and (edited := (yield Ask.EDITS)) is not None:
            self._shorten(edited)
        half, is_small = self.manager.budget.window // 2, False
        if self.shortens:
            is_small = (yield from counted(self._history.messages)) < half  # nothing can be too large
            if is_small and self.outputs is None:
                return
        if self.shortens and not is_small:
            yield from self._shorten_material()
        whole = self._history.messages
        try:
            if self.outputs is not None:
                yield from self._take_results(self.outputs)
            if not is_small:
                yield from self._shorten_results()
            cut = cut_results(whole, self._history.messages, self.size_of, self.outputs)
            if cut is not None:
                log.info("%s", cut.text)
                yield cut
        finally:
            if self.outputs is not None:
                self.outputs.let_go()

    def _shorten(self, messages: Sequence[Message]) -> None:
        self.manager.history = self._history.shortened(messages)

    def _keep_shorter(self, whole: Sequence[Message]) -> Work[None]:
        sizes = (yield from counted(whole)), (yield from counted(self._history.messages))
        yield Keep(Written(self.manager.budget.window, *sizes, SHORTENED))

    def _shorten_material(self) -> Work[None]:
        """Show files and pasted text once, and their beginning and end where they leave no room; the whole is kept.

        Where the whole would leave no room either, the beginning and end in an earlier message counts as the text.
        """
        whole, has_reader = self._history.messages, self.has_reader
        if not (yield from _are_full(whole, self.manager)):
            return
        has_views = yield from _are_full(smallest(Transcript.of(whole)), self.manager)
        once = yield from without_repeats(whole, has_views=has_views, has_reader=has_reader)
        if once is not None:
            self._shorten(once)
        shorter = yield from fitting_material(self._history, self.manager, self.size_of, has_reader=has_reader)
        if shorter is not None:
            self._shorten(shorter[0])
        if (once or shorter) is not None:
            yield from self._keep_shorter(whole)
        if shorter is not None:
            yield shorter[1]

    def _take_results(self, outputs: Outputs) -> Work[None]:
        """Keep the results that have come in, show views of those that are too large, and shorten old ones."""
        whole, budget = self._history.messages, self.manager.budget
        size = yield from counted([*filter(is_system, whole), NOTHING_ASKED])
        seen = (yield TakeResults(budget.occupied(size), room_for_results(budget, size))) or whole
        yield from self._take_shorter(whole, seen)
        if (shorter := outputs.pruned(seen, must_shrink=False)) is not None:
            yield from self._tell_old((yield from self._take_shorter(seen, shorter)))

    def free(self, *, at_any_gain: bool = False) -> Work[bool]:
        """Shorten all results that may be shortened; return whether that brought enough."""
        if self.outputs is None:
            return False
        whole = self._history.messages
        shorter = self.outputs.pruned(whole, must_shrink=True, at_any_gain=at_any_gain)
        if shorter is None:
            return False
        sizes = yield from self._take_shorter(whole, shorter)
        if not at_any_gain:  # else a compaction follows, which is told of
            yield from self._tell_old(sizes)
        return True

    def move_material(self) -> Work[None]:
        """Let the last message with material have the text where several have, since the first is to go."""
        if self.shortens and (moved := (yield from moved_to_last(self._history.messages))) is not None:
            self._shorten(moved)

    def take_masked(self, messages: Sequence[Message]) -> Work[None]:
        """Take over a history in which results of the client's tools are masked."""
        sizes = yield from self._take_shorter(self._history.messages, messages)
        yield from self._tell_old(sizes, CAN_CALL_AGAIN)

    def _take_shorter(self, whole: Sequence[Message], shorter: Sequence[Message]) -> Work[tuple[int, int]]:
        """Take over a history with shorter results; return the size of its prompt before and after."""
        if shorter is whole:
            return 0, 0
        before = self._history.of_client
        self._shorten(shorter)
        after = yield from counted(shorter)
        # Their differences are added up: the whole prompt may hold results that take too long to count.
        made = Written(self.manager.budget.window, after + freed_by(whole, shorter, self.size_of), after, PRUNED)
        yield Note("pruned", made.before, made.after)
        if self._history.of_client != before:
            yield Keep(made)
        return made.before, after

    def _tell_old(self, sizes: tuple[int, int], more: str = "") -> Work[None]:
        yield Tell("results shortened", OLD.format(*sizes) + more, *sizes)

    def _shorten_results(self) -> Work[None]:
        """Check 2: leave results that have just come in whole where they fit, else their beginning and end."""
        fitting = yield from self._fitting()
        if fitting is not None and (yield from self.free()):  # what is old makes room first
            fitting = yield from self._fitting()
        if fitting is None:
            return
        whole, left = self._history.messages, PASSES if self.outputs is not None else 1
        while fitting is not None and left:
            self._shorten(fitting)
            left -= 1
            fitting = (yield from self._fitting()) if left else None
        yield from self._keep_shorter(whole)

    def _fitting(self) -> Work[list[Message] | None]:
        view = self.outputs.shorter if self.outputs is not None else None
        return (yield from fitting_results(self._history, self.manager, self.size_of, view))
