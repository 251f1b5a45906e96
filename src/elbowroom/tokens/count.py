"""A count of tokens, with how it was got, and what everything that counts offers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from elbowroom.errors import ElbowroomError
from elbowroom.tokens.files import StreamCounter

Method = Literal["exact", "engine", "family", "estimate"]
"""exact: the model's own tokenizer and template, read here. engine: the program that runs the model was asked.
family: the vocabulary and template of the model's family. estimate: a vocabulary that comes near."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """A size in tokens; `error_bound` is how many it may be off in either direction, in 95 of 100 cases.

    `learned` is the part of it that does not come from counting but from what the engine has reported before.
    `conversation` is the hash of all that was counted where it had to be made, else empty.
    """

    tokens: int
    method: Method
    error_bound: int = 0
    learned: int = 0
    conversation: bytes = field(default=b"", repr=False, compare=False)

    @property
    def is_exact(self) -> bool:
        """Tell whether the number is what the engine will count."""
        return self.method in ("exact", "engine") and self.error_bound == 0


class CannotCount(ElbowroomError):
    """This way of counting is not to be had for this request; the message says why, for the log."""

    code = "cannot_count"


class Counter(Protocol):
    """One way to count for one model. Raises CannotCount, or an error that the engine would give as well."""

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        ...

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the whole prompt: messages, tools and what the chat template puts around them."""
        ...


@runtime_checkable
class StreamingCounter(Counter, Protocol):
    """A way to count that has the tokenizer at hand, so that a growing answer can be counted as it grows."""

    async def stream(self) -> StreamCounter:
        """Return a counter for an answer that grows."""
        ...


Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], Mapping[str, Any]], Awaitable[str]]
"""Makes the prompt of messages, tools and template arguments; raises CannotCount, or what the engine would refuse."""


@dataclass(frozen=True, slots=True)
class PromptRenderer:
    """A model's chat template, ready to be asked; `key` is another one as soon as the template is."""

    key: str
    render: Render


@runtime_checkable
class RenderingCounter(Counter, Protocol):
    """A way to count that has the model's chat template at hand."""

    async def prompt_renderer(self) -> PromptRenderer:
        """Return the template. Raises CannotCount where it is not the one that the engine uses."""
        ...
