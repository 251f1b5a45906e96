"""Says why an engine had to read again what it had read before, and what that has cost.

Of the prompts that models were sent last, digests are remembered and compared.
"""

import marshal
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from elbowroom.caches import BY_VALUE, HISTORIES, Recent
from elbowroom.context.ledger import is_system
from elbowroom.context.transcript import Message, calls_of, is_text, text_in

Reason = Literal[
    "model_changed",
    "machine_changed",
    "tools_changed",
    "arguments_changed",
    "system_changed",
    "messages_changed",
    "compacted",
    "other_request",
    "engine_forgot",
]
WORDS: Final[Mapping[Reason, str]] = {
    "model_changed": "another model answers now",
    "machine_changed": "another machine answers now",
    "tools_changed": "the tools have changed",
    "arguments_changed": "the arguments of the chat template have changed",
    "system_changed": "the system prompt has changed",
    "messages_changed": "message {at} has changed",
    "compacted": "the conversation was compacted",
    "other_request": "another request was in between",
    "engine_forgot": "the engine has forgotten it",
}
PROMPTS_KEPT: Final = 512
LEAST_LOST: Final = 32
"""Tokens. What is less comes from the ends of prompts, which templates write in another way once more follows."""


@dataclass(frozen=True, slots=True)
class Talk:
    """The keys by which a conversation's prompts are kept, and those by which the last one is sought, surest first.

    `conversation` is its id, by which other servers know it; empty where that is not known.
    """

    kept: Sequence[Hashable]
    sought: Sequence[Hashable]
    conversation: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SentPrompt:
    """A prompt as digests, and what the engine has in its cache after it.

    `model` is named after its provider, and `window` is that of the loaded instance. `messages` has one digest for
    each message; the first is the system message where it `has_system`. `compacted` is the key of the compaction that
    it was begun with, empty for none, and how often messages of ours have taken the place of the client's since.
    `number` counts the prompts of the model, `loads` how often it was loaded anew, and `tokens` is the size of this
    one, `answer` that of what the model made of it.
    """

    model: str
    window: int | None
    tools: int
    arguments: int
    messages: "array[int]"
    has_system: bool
    compacted: tuple[str, int]
    number: int = 0
    loads: int = 0
    tokens: int = 0
    answer: int = 0

    @classmethod
    def of(
        cls,
        model: str,
        window: int | None,
        body: Mapping[str, Any],
        arguments: Mapping[str, Any],
        compacted: tuple[str, int] = ("", 0),
        tokens: int = 0,
    ) -> "SentPrompt":
        """Return the digests of a request's body, whose template gets these arguments."""
        messages = body["messages"]
        return cls(
            model,
            window,
            _digest_of([*(body.get("tools") or ())]),
            _digest_of(sorted(arguments.items())),
            array("q", HISTORIES.of(messages).each(_digest)),
            bool(messages) and is_system(messages[0]),
            compacted,
            tokens=tokens,
        )

    def shared_with(self, before: "SentPrompt") -> int:
        """Return with how many messages both prompts begin alike."""
        most = min(len(self.messages), len(before.messages))
        if self.messages[:most] == before.messages[:most]:
            return most
        return next(at for at in range(most) if self.messages[at] != before.messages[at])

    def continues(self, before: "SentPrompt") -> bool:
        """Tell whether the engine can go on where it was after the other prompt."""
        return self.begins_as(before) and self.shared_with(before) == len(before.messages)

    def begins_as(self, before: "SentPrompt") -> bool:
        """Tell whether model and tools are the same, which stand before all messages.

        Most arguments change only the end of a prompt.
        """
        is_in_its_load = (self.window, self.loads) == (before.window, before.loads)
        return is_in_its_load and (self.model, self.tools) == (before.model, before.tools)


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """The last prompt of a conversation, whichever server sent it: which model read how many tokens of it.

    `others` is how many other conversations the model has read since.
    """

    model: str
    window: int | None
    tokens: int
    others: int = 0

    def cached(self, model: str, window: int | None, slots: int) -> int:
        """Return how many tokens of it the engine of `model` should still have, which keeps `slots` prompts."""
        return self.tokens if (self.model, self.window) == (model, window) and self.others < slots else 0


class SentPrompts:
    """The last prompts of the conversations used last, and of each model; for one event loop.

    `tell`, where it is set, is called with the id of a conversation and the prompt of it that was read.
    """

    def __init__(self) -> None:
        self.tell: Callable[[str, ReadPrompt], object] | None = None
        self._of_talks = Recent[Hashable, SentPrompt]("sent_prompts", PROMPTS_KEPT)
        self._last: dict[str, SentPrompt] = {}
        self._numbers: Counter[str] = Counter()
        self._loads: Counter[str] = Counter()

    def keep(self, talk: Talk, prompt: SentPrompt) -> "Kept":
        """Remember a prompt that the engine has read; return it with its number, and what was read before."""
        self._numbers[prompt.model] += 1
        now = replace(prompt, number=self._numbers[prompt.model], loads=self._loads[prompt.model])
        before = self.last_of(talk)
        last = self._last.get(now.model)
        self._last[now.model] = now
        for key in (*talk.kept, (now.model, talk.kept[-1])):
            self._of_talks.put(key, now)
        if self.tell is not None and talk.conversation:
            self.tell(talk.conversation, ReadPrompt(now.model, now.window, now.tokens))
        return Kept(now, before, last if last is not None and last.number == now.number - 1 else None)

    def last_of(self, talk: Talk, model: str = "") -> SentPrompt | None:
        """Return the prompt that was sent last in a conversation, to this model where one is named.

        None where it is not known.
        """
        sought = [(model, talk.kept[-1])] if model else talk.sought
        return next(filter(None, map(self._of_talks.get, sought)), None)

    def cached(self, prompt: SentPrompt, model: str, window: int | None, slots: int) -> int:
        """Return how many tokens of a prompt the engine of `model` should still have, which keeps `slots` prompts."""
        is_there = (prompt.model, prompt.window, prompt.loads) == (model, window, self._loads[model])
        return prompt.tokens if is_there and self._numbers[model] - prompt.number < slots else 0

    def there(self, talk: Talk, prompt: SentPrompt, slots: int) -> SentPrompt | None:
        """Return the prompt before this one in a conversation, with which it shares what its engine should have."""
        before = self.last_of(talk)
        if before is None or not self.cached(before, prompt.model, prompt.window, slots):
            return None
        return before if prompt.tools == before.tools else None

    def sent_to(self, model: str) -> int:
        """Return how many prompts the model has been sent."""
        return self._numbers[model]

    def passed(self, model: str) -> None:
        """Note that the model has read a prompt of another kind."""
        self._numbers[model] += 1

    def loaded_anew(self, model: str) -> None:
        """Note that the model was loaded, and has nothing in its cache."""
        self._loads[model] += 1


@dataclass(frozen=True, slots=True)
class Kept:
    """A prompt with the one before it in its conversation, and the one before it in its model, where they are known."""

    now: SentPrompt
    before: SentPrompt | None
    last: SentPrompt | None

    @property
    def others(self) -> int:
        """Return how many other prompts the model has read since the one before."""
        is_same = self.before is not None and self.before.model == self.now.model
        return self.now.number - self.before.number - 1 if self.before is not None and is_same else 0

    def may_lack(self, cached: int | None, slots: int) -> bool:
        """Tell whether the engine may have had to read again something of the prompt before.

        `cached` are the tokens that it says it had not to read, None where it does not say; in `slots` it keeps the
        prompts of as many conversations.
        """
        if self.before is None:
            return False
        if cached is not None:
            return min(self.before.tokens, self.now.tokens) - cached >= LEAST_LOST
        return self.others >= slots or not self.now.continues(self.before)


def talk_of(owner: str, name: str, conversation: str, messages: Sequence[Message]) -> Talk:
    """Return the keys of a conversation: what it began with, and its id, which several histories may share.

    Where the client gives it a `name`, that is sure of the beginning; else the id is surer. Many chats begin with the
    same words, so a new one is sought by its id alone.
    """
    opening = next((_digest(message) for message in messages if message.get("role") == "user"), 0)
    by_opening: list[Hashable] = [(owner, name, opening)]
    by_id: list[Hashable] = [(owner, conversation)] if conversation else []
    if not any(message.get("role") == "assistant" for message in messages):
        return Talk(by_opening + by_id, by_id, conversation)
    return Talk(by_opening + by_id, by_opening + by_id if name else by_id + by_opening, conversation)


def _digest(message: Message) -> int:
    """Return a digest of what a template shows of a message, whatever the order of its fields; thoughts come and go."""
    content = message.get("content") or ""
    calls = calls_of(message) if "tool_calls" in message else ()
    said = content  # a text remembers its digest, and is not copied
    if not isinstance(content, str):
        said = tuple(hash(text_in(part)) if is_text(part) else _digest_of(part) for part in content)
    made = _digest_of([call.get("function") for call in calls]) if calls else 0
    return hash((message.get("role"), said, message.get("tool_call_id"), made))


def _digest_of(value: Any) -> int:
    """Return a digest of a JSON value; 0 for one that is nested too deeply."""
    try:
        return hash(marshal.dumps(value, BY_VALUE))
    except ValueError:
        return 0


@dataclass(frozen=True, slots=True)
class Change:
    """Why two prompts cannot share what the engine has read, and with how many messages they begin alike.

    `reason` is None where the later one goes on where the first one ended.
    """

    reason: Reason | None
    shared: int


@dataclass(frozen=True, slots=True)
class CacheLoss:
    """What an engine had to read again for one prompt: tokens, and seconds where the time of reading is known.

    `at` is the number of the message, from 1, that was the first to change. `is_measured` tells that the engine has
    told how much it found in its cache; else that is what it should have found.
    """

    reason: Reason
    tokens: int
    seconds: float | None
    at: int | None
    is_measured: bool

    @property
    def told(self) -> str:
        """Return it as a sentence."""
        seconds = f" in {self.seconds:.1f} s" if self.seconds is not None else ""
        about = "" if self.is_measured else "about "
        return f"{about}{self.tokens:,} tokens read again{seconds}: {WORDS[self.reason].format(at=self.at)}"

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        seconds = round(self.seconds, 3) if self.seconds is not None else None
        return {**asdict(self), "seconds": seconds, "told": self.told}


def change_between(before: SentPrompt, now: SentPrompt) -> Change:
    """Return what keeps the engine from going on after an earlier prompt of the same conversation."""
    shared = now.shared_with(before)
    if now.continues(before):
        return Change("arguments_changed" if now.arguments != before.arguments else None, shared)
    if now.model != before.model:
        return Change("machine_changed" if _anywhere(now.model) == _anywhere(before.model) else "model_changed", 0)
    if (now.window, now.loads) != (before.window, before.loads):
        return Change("engine_forgot", 0)
    if now.compacted != before.compacted:  # which may bring the tool that searches what was removed, or take it away
        return Change("compacted", shared if now.tools == before.tools else 0)
    if now.tools != before.tools:
        return Change("tools_changed", 0)
    if shared == 0 and (now.has_system or before.has_system):
        return Change("system_changed", 0)
    return Change("messages_changed", shared)


def _anywhere(model: str) -> str:
    """Return a model's name after its provider's, without the address of a machine: `desk/qwen` of `desk@host/qwen`."""
    provider, slash, name = model.partition("/")
    return f"{provider.partition('@')[0]}/{name}" if slash else model


def alike_in_cache(kept: Kept, change: Change) -> int:
    """Return with how many messages the prompt begins like the one that its engine should have."""
    if change.reason is not None or kept.before is None:
        return change.shared
    return kept.now.shared_with(kept.last) if kept.last is not None and kept.now.begins_as(kept.last) else 0


def loss_of(kept: Kept, change: Change, cached: int, *, is_measured: bool, seconds: float | None) -> CacheLoss | None:
    """Return what could not be reused of the prompt before; None where that is next to nothing.

    `cached` are the tokens of this prompt that the engine did not have to read, and `seconds` is how long it has read
    the others.
    """
    before, now = kept.before, kept.now
    tokens = min(before.tokens, now.tokens) - cached if before is not None else 0
    if tokens < LEAST_LOST:
        return None
    reason = change.reason or ("other_request" if kept.others else "engine_forgot")
    share = tokens / max(1, now.tokens - cached)
    at = change.shared + 1 if reason == "messages_changed" else None
    return CacheLoss(reason, tokens, None if seconds is None else seconds * share, at, is_measured)
