"""Edits that a client wants of its history: thoughts of old turns go, and old calls of tools are cleared.

What is cleared is kept whole, and a stub that names its reference stands in its place. The messages stay in their
places, and unchanged ones are the same objects. Results that no turn of the model has consumed yet are never cleared,
nor those that a stub would not make shorter.

**When.** An engine reads everything after the first change anew. So what was cleared stays cleared, with the same
bytes, and more is cleared only when what is left has passed the trigger again.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from elbowroom.context.outputs.output import kind_of, ref_to
from elbowroom.context.outputs.stubs import MARK, is_stub, stub
from elbowroom.context.transcript import Message, Use, uses_in, with_arguments, with_text
from elbowroom.settings.model import ToolKind

THOUGHTS: Final = "reasoning_content"
CLEARED: Final = "[tool output cleared; "
"""How a stub begins where outputs are not kept."""
ARGUMENTS_CLEARED: Final = '{"cleared": "'
"""How arguments begin that were cleared; this is their only key."""
AT_ONCE: Final = 20
"""Calls that are cleared before others have their turn."""
PromptSize = Callable[[Sequence[Message]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class ClearThoughts:
    """The thoughts of all turns go but for the newest `keep` of those that have some; None keeps all.

    A turn is everything that the assistant says and calls from one message of the user to the next.
    """

    keep: int | None = 1


@dataclass(frozen=True, slots=True)
class ClearToolUses:
    """Old calls are cleared once the prompt has more than `trigger` tokens, or the history as many calls.

    The newest `keep` calls stay, and those of the `excluded` tools. Nothing is cleared where less than `at_least`
    tokens would come free. Arguments go with their result for the tools in `inputs`, or for all where it is True.
    """

    unit: Literal["input_tokens", "tool_uses"] = "input_tokens"
    trigger: int = 100_000
    keep: int = 3
    at_least: int = 0
    excluded: frozenset[str] = frozenset()
    inputs: bool | frozenset[str] = False


Edit = ClearThoughts | ClearToolUses


@dataclass(frozen=True, slots=True)
class AppliedEdit:
    """What an edit has cleared: turns with thoughts, or calls, and how many tokens the prompt has less for it."""

    edit: Edit
    cleared: int
    tokens: int


@dataclass(frozen=True, slots=True)
class EditedHistory:
    """A history after its edits.

    `outputs` are the name of the tool and the whole text of all that was cleared; `last` is the id of the newest call
    up to which calls were cleared.
    """

    messages: list[Message]
    applied: tuple[AppliedEdit, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    last: str = ""


@dataclass(frozen=True, slots=True)
class Editor:
    """Edits the histories of one owner; `size_of` counts the whole prompt of a history.

    `kinds` are the declared kinds of tools. `pause` is awaited between stretches of work, so that the event loop is
    never held up for long. With `names_refs` the stubs name the references of what they stand for, and with
    `keeps_errors` the words of failures stay.
    """

    owner: str
    size_of: PromptSize
    kinds: Mapping[str, ToolKind]
    pause: Callable[[], Awaitable[None]]
    names_refs: bool = True
    keeps_errors: bool = True

    async def edited(self, messages: Sequence[Message], edits: Sequence[Edit], last: str = "") -> EditedHistory:
        """Return the history after these edits, in their order; `last` is that of the same history in earlier turns."""
        history = EditedHistory(list(messages), last=last)
        for edit in edits:
            if isinstance(edit, ClearThoughts):
                history = await self._without_thoughts(history, edit)
            else:
                history = await self._without_uses(history, edit)
        return history

    async def _without_thoughts(self, history: EditedHistory, edit: ClearThoughts) -> EditedHistory:
        shorter, turns = without_thoughts(history.messages, edit.keep)
        if not turns:
            return history
        before, after = await self.size_of(history.messages), await self.size_of(shorter)
        applied = AppliedEdit(edit, turns, max(0, before - after))
        return replace(history, messages=shorter, applied=(*history.applied, applied))

    async def _without_uses(self, history: EditedHistory, edit: ClearToolUses) -> EditedHistory:
        """Return the history with old calls cleared: those that were before, and more where the trigger is passed."""
        messages = history.messages
        uses = [use for use in uses_in(messages) if use.result is not None]
        places = [place for place, use in enumerate(uses, 1) if str(use.call.get("id")) == history.last]
        known = max(places, default=0)
        answered = max((at for at, each in enumerate(messages) if each.get("role") == "assistant"), default=0)
        wanted = max(known, sum(use.caller < answered for use in uses[: max(0, len(uses) - edit.keep)]))
        if not uses or (not known and len(uses) <= edit.trigger and edit.unit == "tool_uses"):
            return history
        before = await self.size_of(messages)
        cleared = await self._cleared(messages, uses[:known], edit)
        now = await self.size_of(cleared.messages) if cleared.count else before
        filled = now if edit.unit == "input_tokens" else len(uses) - known
        if wanted > known and filled > edit.trigger:
            more = await self._cleared(messages, uses[:wanted], edit)
            after = await self.size_of(more.messages)
            if more.count > cleared.count and now - after >= max(1, edit.at_least):
                cleared, now, known = more, after, wanted
        if not cleared.count:
            return history
        applied = (*history.applied, AppliedEdit(edit, cleared.count, max(0, before - now)))
        return EditedHistory(cleared.messages, applied, tuple(cleared.outputs), str(uses[known - 1].call.get("id")))

    async def _cleared(self, messages: Sequence[Message], uses: Sequence[Use], edit: ClearToolUses) -> "_Cleared":
        """Return the messages with these calls cleared, but for excluded ones and those that are cleared already."""
        shorter, outputs, count = list(messages), list[tuple[str, str]](), 0
        for number, use in enumerate(uses, 1):
            if number % AT_ONCE == 0:
                await self.pause()
            if use.name in edit.excluded:
                continue
            new = self._stub(use)
            arguments = self._arguments(use) if edit.inputs is True or use.name in (edit.inputs or ()) else None
            if new is not None and use.result is not None:
                shorter[use.result] = with_text(messages[use.result], new)
                outputs.append((use.name, use.text))
            if arguments is not None:
                shorter[use.caller] = with_arguments(shorter[use.caller], use.position, arguments)
                outputs.append((use.name, use.arguments))
            count += new is not None or arguments is not None
        return _Cleared(shorter, outputs, count)

    def _stub(self, use: Use) -> str | None:
        """Return what stands for a result; None where it would be no shorter, or does so already."""
        if is_stub(use.text) or use.text.startswith(CLEARED):
            return None
        kind, ref = kind_of(use.name, self.kinds), ref_to(self.owner, use.text).id
        text = stub(kind, use.name, use.arguments, use.text, ref, keeps_errors=self.keeps_errors)
        if not self.names_refs:
            text = CLEARED + text.removeprefix(f"{MARK}{ref}; ")
        return text if len(text) < len(use.text) else None

    def _arguments(self, use: Use) -> str | None:
        """Return what stands for the arguments of a call; None where it would be no shorter, or does so already."""
        if use.arguments.startswith(ARGUMENTS_CLEARED):
            return None
        ref = f"ref={ref_to(self.owner, use.arguments).id}; " if self.names_refs else ""
        text = f'{ARGUMENTS_CLEARED}{ref}{len(use.arguments):,} characters"}}'
        return text if len(text) < len(use.arguments) else None


@dataclass(frozen=True, slots=True)
class _Cleared:
    """Messages of which so many calls were cleared, with the names of their tools and their whole texts."""

    messages: list[Message]
    outputs: list[tuple[str, str]]
    count: int


def without_thoughts(messages: Sequence[Message], keep: int | None) -> tuple[list[Message], int]:
    """Return the messages without the thoughts of old turns, and the number of turns that have lost theirs."""
    turns = list(_turns(messages))
    thinking = sorted({turn for turn, message in zip(turns, messages, strict=True) if message.get(THOUGHTS)})
    gone = set(thinking if keep == 0 else thinking[:-keep] if keep is not None else ())
    shorter = [
        {key: value for key, value in message.items() if key != THOUGHTS}
        if turn in gone and THOUGHTS in message
        else message
        for turn, message in zip(turns, messages, strict=True)
    ]
    return shorter, len(gone)


def _turns(messages: Sequence[Message]) -> Iterator[int]:
    """Yield the number of the turn that each message belongs to; words beside a tool's result begin none."""
    turn, before = 0, None
    for message in messages:
        role = message.get("role")
        turn += role == "user" and before != "tool"
        yield turn
        before = role
