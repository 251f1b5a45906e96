"""Counts for one model in the best way there is, and corrects counts by what the model's engine reports."""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from elbowroom.tokens.anchoring import IN_ORDER, Key, Usage, UsageAnchors, conversation_keys
from elbowroom.tokens.count import (
    CannotCount,
    Counter,
    PromptRenderer,
    RenderingCounter,
    StreamingCounter,
    TokenCount,
    left_of,
)
from elbowroom.tokens.families import Family, FamilyCounter, family_of
from elbowroom.tokens.file_counter import INLINE_CHARACTERS
from elbowroom.tokens.files import StreamCounter
from elbowroom.tokens.images import CAUTIOUS_TOKENS, ImageTokens, image_rule_of, images_in

log = logging.getLogger(__name__)
FAMILIES_KEPT: Final = 8
"""Families whose counters stay; families of one vocabulary share it."""
OFFSETS_KEPT: Final = 256
TOLERATED_SHARE: Final = 0.05
TOLERATED_TOKENS: Final = 64
END_OF_TURN: Final = 1
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Truncation:
    """The engine has cut a prompt of `counted` tokens, and read `read` tokens of it."""

    counted: int
    read: int


def is_truncated(exact: int, prompt_tokens: int) -> bool:
    """Tell whether the engine read so much less than an exact count with its offset that it must have cut."""
    return exact - prompt_tokens > max(TOLERATED_SHARE * exact, TOLERATED_TOKENS)


class ExactOffsets:
    """The constant differences between exact counts and what the engine reports, by template arguments.

    LM Studio may add an instruction of its own to every prompt. A difference is taken as constant when two requests
    in a row show it with prompts of different length; a difference that looks like truncation is never learned.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}
        self._seen: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def offset(self, arguments: Mapping[str, Any]) -> int:
        """Return the tokens to add to an exact count, 0 as long as nothing is known."""
        return self._offsets.get(IN_ORDER.encode(arguments), 0)

    def observe(self, arguments: Mapping[str, Any], exact: int, prompt_tokens: int) -> None:
        """Compare what the engine reports for a prompt with its exact count, without an offset."""
        if is_truncated(exact + self.offset(arguments), prompt_tokens):
            return
        key, difference = IN_ORDER.encode(arguments), prompt_tokens - exact
        before = self._seen.get(key)
        if before is not None and before[0] == difference and before[1] != exact:
            self._offsets[key] = difference
        self._seen[key] = (difference, exact)
        self._seen.move_to_end(key)
        if len(self._seen) > OFFSETS_KEPT:
            forgotten, _ = self._seen.popitem(last=False)
            self._offsets.pop(forgotten, None)


class TokenCounter:
    """Counts text, whole prompts and growing answers for one model.

    `ways` are the exact ways, best first; where none works, the model's family counts, which its name and
    architecture tell. With `describes_tools` the engine describes tools by itself to models whose template leaves
    them out. Nothing is downloaded, and long work runs in threads.
    """

    def __init__(
        self, model: str, architecture: str | None, ways: Sequence[Counter] = (), *, describes_tools: bool = False
    ) -> None:
        self.model = model
        self.family = family_of(model, architecture)
        self._ways = ways
        self._streaming = [way for way in ways if isinstance(way, StreamingCounter)]
        self._rendering = [way for way in ways if isinstance(way, RenderingCounter)]
        self._has_tools = describes_tools or not self.family.drops_tools
        self._image_rule = image_rule_of(model, architecture)
        self._images = ImageTokens()
        self._anchors = UsageAnchors()
        self._offsets = ExactOffsets()
        self._complaints: set[str] = set()
        self._family_counted_by: FamilyCounter | None = None

    async def warm_up(self) -> None:
        """Load the model's own tokenizer before somebody waits for it, where its file is on this machine."""
        if self._streaming:
            await self.count_text("")

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        for way in self._ways:
            try:
                return await way.count_text(text)
            except CannotCount as error:
                self._complain(error)
        family = await self._family_counter()
        return await asyncio.to_thread(family.count, text)

    async def count_chat(
        self, messages: Sequence[Message], tools: Sequence[Message] = (), arguments: Mapping[str, Any] | None = None
    ) -> TokenCount:
        """Return the size of the whole prompt: messages, tools, and what the chat template makes of them.

        `arguments` are the template's, such as `enable_thinking`. A history that ends with an assistant message is
        counted as one that the engine continues.
        """
        arguments = arguments or {}
        for way in self._ways:
            try:
                count = await way.count_chat(messages, tools, arguments)
            except CannotCount as error:
                self._complain(error)
                continue
            offset = self._offsets.offset(arguments)
            count = TokenCount(max(0, count.tokens + offset), count.method, count.error_bound, offset)
            if not media_in(messages):
                return count
            if _is_short(messages, tools):
                return self._with_media(messages, tools, arguments, count)
            return await asyncio.to_thread(self._with_media, messages, tools, arguments, count)
        return await self._count_by_family(messages, tools, arguments)

    async def stream(self) -> StreamCounter:
        """Return a running count for an answer that grows."""
        for way in self._streaming:
            try:
                return await way.stream()
            except CannotCount as error:
                self._complain(error)
        return StreamCounter((await self._family_counter()).tokenizer)

    async def text_counter(self) -> Callable[[str], int]:
        """Return a function that counts bare texts here, without awaiting: for many small texts in a row."""
        for way in self._streaming:
            try:
                return (await way.stream()).tokenizer.count
            except CannotCount as error:
                self._complain(error)
        return (await self._family_counter()).count_text

    async def prompt_renderer(self) -> PromptRenderer | None:
        """Return the model's own chat template; None where only the engine has it."""
        for way in self._rendering:
            try:
                return await way.prompt_renderer()
            except CannotCount as error:
                self._complain(error)
        return None

    async def observe(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message],
        arguments: Mapping[str, Any],
        count: TokenCount,
        usage: Usage,
        *,
        answer: str = "",
        has_reasoning: bool = False,
    ) -> Truncation | None:
        """Learn from the usage that the engine reports for a counted request; return how it cut the prompt, if it did.

        `answer` is the text of an answer without tool calls, so that its tokens need not be estimated in the next
        request; `has_reasoning` says whether the model thought before it.
        """
        raw = count.tokens - count.learned
        if pictures := len(list(images_in(messages))) if media_in(messages) else 0:
            raw = self._observe_pictures(messages, pictures, raw, usage.prompt_tokens)
        if count.method in ("exact", "engine"):
            self._offsets.observe(arguments, raw, usage.prompt_tokens)
            is_cut = is_truncated(count.tokens, usage.prompt_tokens)
            return Truncation(count.tokens, usage.prompt_tokens) if is_cut else None
        keys = [count.conversation] if count.conversation else conversation_keys(self.model, messages, tools, arguments)
        self._anchors.observe(keys, raw, usage)
        if answer:
            family = await self._family_counter()
            is_quick = len(answer) <= INLINE_CHARACTERS
            size = family.count_text(answer) if is_quick else await asyncio.to_thread(family.count_text, answer)
            size, said = size + END_OF_TURN, {"role": "assistant", "content": answer}
            self._anchors.observe_answer(keys, said, raw, size, usage, template_strips_reasoning=has_reasoning)
        return None

    def _observe_pictures(self, messages: Sequence[Message], pictures: int, raw: int, reported: int) -> int:
        """Learn how many tokens pictures take, and return the count with what they take by that."""
        text = raw - self._images.count(self.model, messages, self._image_rule)
        self._images.observe(self.model, pictures, reported - text)
        return text + self._images.count(self.model, messages, self._image_rule)

    async def _count_by_family(
        self, messages: Sequence[Message], tools: Sequence[Message], arguments: Mapping[str, Any]
    ) -> TokenCount:
        family = await self._family_counter()
        if _is_short(messages, tools) or (family.knows(messages) and _is_short((), tools)):
            return self._counted(family, messages, tools, arguments)
        return await asyncio.to_thread(self._counted, family, messages, tools, arguments)

    def _counted(
        self,
        family: FamilyCounter,
        messages: Sequence[Message],
        tools: Sequence[Message],
        arguments: Mapping[str, Any],
    ) -> TokenCount:
        """Return the family's count with media, corrected by earlier reports."""
        counted = family.count_chat(messages, tools if self._has_tools else (), arguments=arguments)
        keys = conversation_keys(self.model, messages, tools, arguments)
        tokens = counted.tokens
        if has_media := media_in(messages):
            tokens += self._images.count(self.model, messages, self._image_rule)
        anchored = self._anchors.corrected(keys, tokens)
        bound = self._text_bound(counted, anchored.estimated)
        if has_media:
            bound += self._media_bound(messages, keys)
        return TokenCount(anchored.tokens, counted.method, bound, anchored.tokens - tokens, keys[-1])

    def _text_bound(self, counted: TokenCount, estimated: int) -> int:
        """Return how far off a count may be of which only `estimated` tokens are not known from a report."""
        by_scripts = counted.error_bound - self.family.error_of(counted.tokens)
        return self.family.error_of(estimated, min(by_scripts, estimated * self.family.largest_error))

    def _with_media(
        self, messages: Sequence[Message], tools: Sequence[Message], arguments: Mapping[str, Any], count: TokenCount
    ) -> TokenCount:
        """Add the tokens of pictures to a count of text, by the model's rule and corrected by earlier reports."""
        tokens = count.tokens + self._images.count(self.model, messages, self._image_rule)
        keys = conversation_keys(self.model, messages, tools, arguments)
        anchored = self._anchors.corrected(keys, tokens)
        bound = count.error_bound + self._media_bound(messages, keys)
        return TokenCount(anchored.tokens, "estimate", bound, count.learned + anchored.tokens - tokens)

    def _media_bound(self, messages: Sequence[Message], keys: Sequence[Key]) -> int:
        """Return how far off the count of media may be, 0 where an engine has counted a prompt with all of them."""
        places = [place for place, message in enumerate(messages) if media_in([message])]
        is_known = self._anchors.corrected(keys[places[-1] + 1 :], 1).estimated == 0
        return 0 if is_known else media_in(messages) * CAUTIOUS_TOKENS

    async def _family_counter(self) -> FamilyCounter:
        if self._family_counted_by is None:
            self._family_counted_by = await asyncio.to_thread(_family_counter, self.family)
        return self._family_counted_by

    def _complain(self, error: CannotCount) -> None:
        if error.message not in self._complaints:
            self._complaints.add(error.message)
            log.warning("Counting for %s falls back to the next way: %s", self.model, error.message)


def _family_counter(family: Family) -> FamilyCounter:
    """Return the one counter of a family; requests that come while it is loaded wait for it."""
    with _LOADING:
        return _loaded(family)


_LOADING: Final = threading.Lock()
_loaded: Final = lru_cache(maxsize=FAMILIES_KEPT)(FamilyCounter)


def _is_short(messages: Sequence[Message], tools: Sequence[Message]) -> bool:
    """Tell whether a prompt can be counted on the event loop."""
    return left_of(INLINE_CHARACTERS, [messages, tools]) > 0


def media_in(messages: Sequence[Message]) -> int:
    """Return how many pictures, sounds and files messages have."""
    media = 0
    for message in messages:
        if isinstance(content := message.get("content"), list):
            for part in content:
                media += isinstance(part, Mapping) and part.get("type", "text") not in ("text", "refusal")
    return media
