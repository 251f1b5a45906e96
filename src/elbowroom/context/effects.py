"""What a pure piece of work asks of the world around it, one thing at a time.

Such work is a generator. It yields an effect and is sent the answer; whoever drives it may count where the model runs,
ask a model, or answer from a table. What is asked for and not answered leaves no trace.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal, TypeVar

from elbowroom.context.transcript import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Count:
    """Asks for the tokens of a whole prompt with these messages, tools and template included: an int.

    That is the most that it may have, or `at_least` the fewest, where the count is an estimate.
    """

    messages: Sequence[Message]
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Which attempt it is, which of how many parts is read, and how much of the answer has come.

    `written` counts tokens of at most `limit`; both are 0 while the agent reads. `seconds_left` is how long this answer
    takes by what the agent's engine has taken before, 0 where nobody knows or it is a moment.
    """

    attempt: int = 1
    part: int = 1
    parts: int = 1
    written: int = 0
    limit: int = 0
    seconds_left: int = 0

    @property
    def in_words(self) -> str:
        """Return the progress in a few words; an empty text while a first attempt reads its only part."""
        words = []
        if self.parts > 1:
            words.append(f"part {self.part} of {self.parts}")
        if self.attempt > 1:
            words.append(f"attempt {self.attempt}")
        if self.written:
            words.append(f"{self.written:,} of at most {self.limit:,} tokens")
        if self.seconds_left:
            words.append(f"about {self.seconds_left} s left")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class AskPruner:
    """Asks the pruning agent: its answer to these messages, at most `cap` tokens long.

    Where there is no answer, PrunerFailed is thrown into the generator. What an answer about a part of the material
    `rests_on` tells it from others: should the compaction be given up before its end, the next one has it already.
    """

    messages: Sequence[Message]
    cap: int
    progress: Progress
    rests_on: str = ""


class PrunerFailed(Exception):
    """The pruning agent gave no answer; the message says why, and `plain` says it without the words of others."""

    def __init__(self, message: str, plain: str = "") -> None:
        super().__init__(message)
        self.plain = plain or message


@dataclass(frozen=True, slots=True)
class RungFailed:
    """Tells why a rung of the ladder failed, in words that quote nobody; there is nothing to answer."""

    reason: str


Effect = Count | AskPruner | RungFailed
"""What a compaction asks for; plans of a prompt ask for more (`fitting`, `planner`)."""
Work = Generator[Any, Any, T]
"""Work that yields effects, is sent their answers, and returns a `T`."""


@dataclass(frozen=True, slots=True)
class KeepText:
    """Asks to keep a text whole under a name, where the model can read it: its `ToolOutputRef`."""

    name: str
    text: str


class Ask(Enum):
    """Questions that need no words of their own. What is sent:

    `PINS` the client's messages that the person has pinned, by their keys. `EDITS` the history as the client wants it
    edited, None where nothing of it is to be edited. `OTHERS` whether other requests had compacted the conversation,
    which was taken over, and how. `LESS` whether less of what the client never saw is put back now. `OVERFLOW` the
    error that tells how the history cannot fit. `CLIENT_TOOLS` what is known of the tools that the client runs, None
    where their results are not masked.
    """

    PINS = auto()
    EDITS = auto()
    OTHERS = auto()
    LESS = auto()
    OVERFLOW = auto()
    CLIENT_TOOLS = auto()


@dataclass(frozen=True, slots=True)
class Aside:
    """Asks for what this pure work returns, which may take long for any history: it must hold up nobody else."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Tell:
    """Tells the person in a notice of this kind, with the sizes before and after where there are some."""

    kind: Literal["results cut", "results shortened", "compacted", "tight"]
    text: str
    before: int | None = None
    after: int | None = None


def counted(messages: Sequence[Message], *, at_least: bool = False) -> Work[int]:
    """Return how many tokens the whole request with these messages may have, at most or `at_least`."""
    tokens: int = yield Count(messages, at_least)
    return tokens
