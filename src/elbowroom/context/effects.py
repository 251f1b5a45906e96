"""What a plan needs of the world outside: it yields one of these, and is sent the answer.

A plan is a generator without I/O, so that each of its ways is a table in a test. Its driver counts, asks and keeps.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from elbowroom.context.transcript import Message

T = TypeVar("T")
Plan = Generator[Any, Any, T]
"""Yields effects, is sent their answers, and returns what comes of it."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many tokens may the whole request with these messages have? An int is sent; failures to count are raised."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class KeepText:
    """Keep a text whole under a name, where the model can read it; the `ToolOutputRef` is sent."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the person in a notice of this kind, with the sizes before and after where there are some."""

    kind: Literal["results cut", "results shortened", "compacted"]
    text: str
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Aside:
    """Do this pure work where it holds up nobody else; what it returns is sent. It takes long for a long history.

    With `is_long` it takes long for any.
    """

    work: Callable[[], Any]
    is_long: bool = False


def counted(messages: Sequence[Message]) -> Plan[int]:
    """Return how many tokens the whole request with these messages may have."""
    tokens: int = yield Count(messages)
    return tokens
