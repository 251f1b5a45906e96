"""A count of tokens, and the protocols of the ways to get one."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import NoneType
from typing import Any, Final, Literal, Protocol, runtime_checkable

from elbowroom.errors import ElbowroomError
from elbowroom.tokens.files import StreamCounter

VALUE_LETTERS: Final = 30
"""What a value in a message or tool counts as beside its text: so many letters take about as long to work on."""

Method = Literal["exact", "engine", "family", "estimate"]
"""exact: by the model's own tokenizer and template, read here. engine: by the program that runs the model.
family: by the vocabulary and template of the model's family. estimate: by a vocabulary that is near to them."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A size in tokens, which is off by at most `error_bound` in either direction in 95 of 100 cases.

    `learned` is the part of it that comes from earlier reports of the engine, not from counting. `conversation` is
    the hash of all that was counted where it had to be made, else empty.
    """

    tokens: int
    method: Method
    error_bound: int = 0
    learned: int = 0
    conversation: int = field(default=0, repr=False, compare=False)

    @property
    def at_most(self) -> int:
        """Return the most tokens that it may be: what has to fit a window."""
        return self.tokens + self.error_bound

    @property
    def at_least(self) -> int:
        """Return the fewest tokens that it may be: what surely does not fit where these do not."""
        return max(0, self.tokens - self.error_bound)

    def within(self, window: int) -> int:
        """Return what a prompt of this size is taken to fill of a window that it is sent into.

        That is the most it may be; where so much would leave no room, though it may fit, it is the least.
        """
        return self.at_most if self.at_most < window else self.at_least

    @property
    def is_exact(self) -> bool:
        """Whether the engine will count the same number."""
        return self.method in ("exact", "engine") and self.error_bound == 0


class CannotCount(ElbowroomError):
    """This way cannot count this request; the message says why, for the log."""

    code = "cannot_count"


class Counter(Protocol):
    """One way to count for one model. Raises CannotCount, or an error that the engine would give as well."""

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the whole prompt: messages, tools and what the chat template puts around them."""


@runtime_checkable
class StreamingCounter(Counter, Protocol):
    """A way to count that has the tokenizer here, and so can count an answer while it grows."""

    async def stream(self) -> StreamCounter:
        """Return a counter for an answer that grows."""


Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], Mapping[str, Any]], Awaitable[str]]
"""Makes the prompt of messages, tools and template arguments; raises CannotCount, or what the engine would raise."""


@dataclass(frozen=True, slots=True)
class PromptRenderer:
    """A model's chat template, ready to render; `key` changes when the template does."""

    key: str
    render: Render


@runtime_checkable
class RenderingCounter(Counter, Protocol):
    """A way to count that has the model's chat template here."""

    async def prompt_renderer(self) -> PromptRenderer:
        """Return the template. Raises CannotCount where the engine uses another one."""


LISTS: Final = (list, tuple)
CONTAINERS: Final = (*LISTS, dict, Mapping)
PLAIN: Final = (int, float, NoneType)
"""What takes little beside its place, and would be asked at length whether it is a mapping."""
MOST_LETTERS: Final = 100_000
"""Letters of a JSON value from which on it is worked on in a thread, so that others have their turn meanwhile."""


def left_of(room: int, value: Any) -> int:
    """Return what is left of room for so many letters beside the texts of a JSON value, or none as soon as it is full.

    What is larger than some room is worked on in a thread, so that the event loop goes on.
    """
    waiting: list[Any] = [(value,)]
    room += VALUE_LETTERS
    for some in waiting:
        room -= VALUE_LETTERS * len(some)
        if room <= 0:
            break
        items = some if isinstance(some, LISTS) else some.values()
        if (kinds := {*map(type, items)}) == {dict} and sum(map(len, items)) * VALUE_LETTERS < room:
            waiting.append([*chain.from_iterable(map(dict.values, items))])
        elif kinds == {str}:
            room -= sum(map(len, items))
        else:
            for item in items:
                if isinstance(item, str):
                    room -= len(item)
                elif not isinstance(item, PLAIN) and isinstance(item, CONTAINERS):
                    waiting.append(item)
    return room
