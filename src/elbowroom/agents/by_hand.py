"""What a person does about the compactions of a conversation: orders one, sees it ahead, takes it back, edits, pins."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from elbowroom.agents.answer import COUNTED, Answer, Sink, tell_nobody
from elbowroom.agents.catalog import Target
from elbowroom.agents.dry_run import check_compacts, compact_request, count_request
from elbowroom.agents.offered import offered_unasked
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.turn import (
    Asking,
    Entries,
    Recall,
    RunSettings,
    Shared,
    Standing,
    last_came_back,
    let_go,
    put_in_words,
    standing_summary,
    take_back,
)
from elbowroom.context.budget import TARGET_RATIO, Budget
from elbowroom.context.compaction import Compaction, Rung, inner_summary, is_summary, with_words
from elbowroom.context.conversation import ContextFill
from elbowroom.context.outputs import is_shortened
from elbowroom.context.passages import words_of
from elbowroom.context.seam import FORGET, command_in, notice_line, without_notices
from elbowroom.context.transcript import Group, Message, as_dicts, text_of, with_text, written
from elbowroom.context.unasked import Passage
from elbowroom.errors import Conflict, NotFound
from elbowroom.providers.base import TextDelta

IN_SHORT: Final = 60
"""Characters by which a person knows a passage again."""
NOTHING_STANDS: Final = (
    "No summary stands in this conversation: nothing of it was compacted, or that was taken back already."
)
ORIGINALS_TOO_LARGE: Final = (
    "The originals do not fit: they need {needed:,} tokens, and of the window of {window:,} a prompt and the room for "
    "its reply may take {trigger:,} before it is compacted. Load the model with a larger context length, and take the "
    "compaction back then."
)
SUMMARY_TOO_LARGE: Final = (
    "With this summary the conversation needs {needed:,} tokens, and of the window of {window:,} a prompt and the room "
    "for its reply may take {trigger:,} before it is compacted. Write a shorter one."
)


async def answer_command(
    target: Target, request: ChatRequest, sink: Sink, settings: RunSettings, said: Answer
) -> Answer:
    """Do what the last message orders, compact or forget, and say in one line what has come of it.

    Raises RequestError where nothing is ever compacted.
    """
    check_compacts(target, settings)
    command, words = command_in(request.messages[-1]) or ("", "")
    chat = replace(request, messages=as_dicts(without_notices(request.messages[:-1])))
    said.begin_step()
    if command == FORGET:
        told = await _forgotten(target, chat, settings, words)
    else:
        told = await _compacted(target, replace(chat, focus=words), sink, settings, said)
    line = TextDelta(notice_line(told).strip())
    if settings.live is not None:
        settings.live.said([line])
        settings.live.called(())
    await sink([said.take(line)])
    return said


async def _compacted(target: Target, chat: ChatRequest, sink: Sink, settings: RunSettings, said: Answer) -> str:
    if not any(message.get("role") == "user" for message in chat.messages):
        return "There is nothing to compact yet."
    done = await compact_request(target, chat, settings, sink)
    usage = {"prompt_tokens": done.after, "completion_tokens": 0, "total_tokens": done.after}
    said.usages.append({**usage, "elbowroom": COUNTED})
    if done.rung is None:
        return f"Nothing could be freed: the conversation takes {done.before:,} tokens."
    return f"Compacted: {done.before:,} to {done.after:,} tokens in {done.seconds:.1f} s."


async def _forgotten(target: Target, chat: ChatRequest, settings: RunSettings, words: str) -> str:
    """Let passages go that came back last: all of one message, the one of a number, or those with these words."""
    recall = await _recall_of(target, chat, settings)
    async with recall.lock():
        key, passages = await last_came_back(recall)
        numbers = [number for number, each in enumerate(passages, 1) if _is_meant(words, number, each)]
        gone = await let_go(recall, key, numbers)
    if gone:
        return f"Forgotten, and never brought back in this conversation: {_in_short(gone)}"
    if not passages:
        return "Nothing came back in this conversation, so there is nothing to forget."
    return f"None of the passages that came back last is meant by that: {_in_short(passages)}"


def _is_meant(words: str, number: int, passage: Passage) -> bool:
    """Tell whether a person means a passage: by its number, by words that it has, or by none."""
    return words == str(number) if words.isdecimal() else set(words_of(words)) <= set(words_of(passage.text))


def _in_short(passages: Sequence[Passage]) -> str:
    texts = (" ".join(each.text.split()) for each in passages)
    return " ".join(f"({number}) {text[:IN_SHORT]} …" for number, text in enumerate(texts, 1))


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A message of the prompt or a part of it, its size in tokens, and what a compaction would do with it."""

    message: Message
    tokens: int
    stays: bool
    is_pinned: bool

    @property
    def is_summary(self) -> bool:
        """Tell whether it is the summary that an earlier compaction has left."""
        return is_summary(Group((self.message,)))


@dataclass(frozen=True, slots=True)
class Preview:
    """What a compaction by hand would do: `before` and `after` are the sizes of the prompt in tokens.

    `rung` is None where nothing could be freed. `summary` is empty where no pruning agent was asked, and `after` is
    about what one would leave.
    """

    window: int
    trigger: int
    before: int
    after: int
    rung: Rung | None
    summary: str
    messages: tuple[Foreseen, ...]


async def preview(target: Target, request: ChatRequest, settings: RunSettings, *, asks_pruner: bool) -> Preview:
    """Return what a compaction of the request's history would do, and keep nothing of it.

    Raises RequestError where nothing is ever compacted.
    """
    check_compacts(target, settings)
    settings = replace(settings, live=await settings.shared.recording.found(target, request))
    offered = await offered_unasked(target, request, settings)
    asking = Asking(target, offered.request, tell_nobody, settings, recaller=offered.recaller)
    fit = await asking.fitted(target.agent.instructions if target.agent else None, offered.specs)
    before, outcome = await fit.run(fit.planner.preview(asks_pruner=asks_pruner))
    budget, history = fit.prompt.manager.budget, fit.prompt.manager.history
    done, messages = outcome if isinstance(outcome, Compaction) else None, history.messages
    parts = done.parts if done is not None else ()
    staying = frozenset(history.places(done.messages if done is not None else messages, parts))
    pinned = [group.is_pinned for group in history.transcript.groups for _ in group.messages]
    part_of = {id(whole): part for whole, part in parts}

    def size(message: Message) -> int:
        return fit.prompt.text(written(message))

    def seen() -> Iterator[Foreseen]:
        for place, (message, is_pinned) in enumerate(zip(messages, pinned, strict=True)):
            part = part_of.get(id(message), message) if place in staying else None
            yield from _foreseen(message, part, size, is_pinned=is_pinned)

    foreseen = await asyncio.to_thread(tuple, seen())
    summary = inner_summary(done.summary) if done is not None and asks_pruner else ""
    after, rung = (done.after, done.rung) if done is not None else (before, None)
    return Preview(budget.window, budget.trigger, before, after, rung, summary, foreseen)


def _foreseen(
    message: Message, part: Message | None, size: Callable[[Message], int], *, is_pinned: bool
) -> Iterator[Foreseen]:
    """Yield what would become of a message: what of it goes, and the `part` that stays, which may be all of it."""
    whole = size(message)
    kept = min(whole, size(part)) if part is not None else 0
    if part is not message:
        yield Foreseen(message, whole - kept, stays=False, is_pinned=is_pinned)
    if part is not None:
        yield Foreseen(part, kept, stays=True, is_pinned=is_pinned)


@dataclass(frozen=True, slots=True)
class KeptChat:
    """A kept conversation as a chat that its client would send; how full its window is `shown`, None for unknown.

    The client's tools are not kept, and not counted but in what is shown.
    """

    target: Target
    request: ChatRequest
    settings: RunSettings
    shown: ContextFill | None

    async def recall(self) -> Recall:
        """Return what knows its compactions."""
        return await _recall_of(self.target, self.request, self.settings)

    async def size_of(self, messages: Sequence[Message]) -> tuple[int, Budget | None]:
        """Return how large the prompt with these messages is, and the budget of its window where one is known."""
        offered = await offered_unasked(self.target, self.request, self.settings)
        asked = replace(offered.request, messages=as_dicts(messages))
        sized = await count_request(self.target, asked, offered.specs, self.settings.shared.histories, fits_tools=True)
        window = sized.window or (self.shown.window if self.shown is not None else None)
        budget = Budget(window, self.settings.compaction.threshold_ratio) if window is not None else None
        return sized.count.tokens, budget

    async def changed(self, before: Sequence[Message], after: int) -> None:
        """Record that the prompt, which had these messages before, has `after` tokens now."""
        live = await self.settings.shared.recording.found(self.target, self.request)
        if live is not None and self.shown is not None:
            more = after - (await self.size_of(before))[0]
            live.filled(replace(self.shown, tokens=max(0, self.shown.tokens + more)))
            self.settings.shared.running.refilled += 1

    async def fitting(self, messages: Sequence[Message], refusal: str) -> int:
        """Return how large the prompt with these messages is. Raises Conflict where it would be compacted at once."""
        needed, budget = await self.size_of(messages)
        if budget is not None and budget.occupied(needed) >= budget.trigger:
            told = refusal.format(needed=needed, window=budget.window, trigger=budget.trigger)
            raise Conflict(told, code="does_not_fit")
        return needed


async def _recall_of(target: Target, request: ChatRequest, settings: RunSettings) -> Recall:
    shared, live = settings.shared, await settings.shared.recording.found(target, request)
    messages, chain = without_notices(request.messages), live.chain if live is not None else None
    recall = Recall(shared.store.ledger, shared.notes, request.caller, target.name, messages, live, chain)
    recall.is_continued = False
    return recall


async def undo(chat: KeptChat) -> tuple[str, int]:
    """Take the newest summary back; return it, and the size of the prompt without it. Raises Conflict."""
    recall = await chat.recall()
    async with recall.lock():
        standing = await _standing(recall)
        needed = await chat.fitting(standing.without, ORIGINALS_TOO_LARGE)
        await take_back(recall, standing)
        await chat.changed(standing.messages, needed)
    return inner_summary(text_of(standing.summary)), needed


async def edit(chat: KeptChat, words: str) -> tuple[str, str, int]:
    """Put a person's words in the place of the newest summary; return that, the words as they stand, and the size.

    Raises Conflict.
    """
    recall = await chat.recall()
    async with recall.lock():
        standing = await _standing(recall)
        before = text_of(standing.summary)
        summary = with_text(standing.summary, with_words(before, words))
        changed = [summary if message == standing.summary else message for message in standing.messages]
        needed = await chat.fitting(changed, SUMMARY_TOO_LARGE)
        await put_in_words(recall, standing, summary)
        await chat.changed(standing.messages, needed)
    return inner_summary(before), inner_summary(text_of(summary)), needed


async def _standing(recall: Recall) -> Standing:
    standing = await standing_summary(recall)
    if standing is None:
        raise Conflict(NOTHING_STANDS, code="nothing_compacted")
    return standing


async def came_back(shared: Shared, keys: Sequence[str]) -> dict[str, list[Passage]]:
    """Return the passages that came back unasked with the messages of these keys."""
    return await Entries(shared.store.ledger, shared.notes).came_back(keys)


async def forget(chat: KeptChat, key: str, number: int) -> Passage:
    """Let a passage that came back with the message of this key go, for good. Raises NotFound."""
    recall = await chat.recall()
    async with recall.lock():
        gone = await let_go(recall, key, [number])
    if not gone:
        raise NotFound(f"No passage {number} came back with this message.")
    return gone[0]


async def check_pin(chat: KeptChat, key: str) -> None:
    """Raise Conflict where the message with this key cannot be pinned: it was summarised, or leaves too little room."""
    check_compacts(chat.target, chat.settings)
    recall = await chat.recall()
    chain = recall.chain
    if key not in chain.keys:
        raise Conflict("Only messages of the branch that was used last can be pinned.", code="other_branch")
    wanted = recall.of_client[chain.ends[chain.keys.index(key)] - 1]
    pins, restored = await recall.pins(), await recall.restored()
    stands = restored.pinned({key: wanted}).items
    if not any(item.is_pinned and not is_shortened(item.message, wanted) for item in stands):
        raise Conflict(
            "This message was summarised already. Take the compaction back first, and pin it then.",
            code="already_summarised",
        )
    needed, budget = await chat.size_of(restored.pinned({**pins, key: wanted}).smallest())
    if budget is not None and needed > (most := int(budget.window * TARGET_RATIO)):
        raise Conflict(
            f"With this message pinned, {needed:,} of the window's {budget.window:,} tokens could never be freed, and "
            f"only half of it, {most:,}, may be kept so. Unpin another message, or load the model with a larger "
            "context length.",
            code="too_much_pinned",
        )
