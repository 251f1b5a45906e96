"""Scripts: the answer of the model to one chat request, step by step, and the queue of scripts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Body = dict[str, Any]
When = Callable[[Body], bool]
OnRequest = Callable[[Body], "Script | str | None"]
Usage = Mapping[str, Any] | Literal["counted"] | None


@dataclass(frozen=True, slots=True)
class Text:
    """Content; one delta a token, or one delta in all where `whole`."""

    text: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thoughts, sent in the model's reasoning field; one delta a token, or one in all where `whole`."""

    text: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; `arguments` is an object or the JSON text itself, which may be broken.

    `pieces` are the deltas the arguments arrive in (by default one a token; they stand in for `arguments`).
    The id is by default the call's number within the answer, so that ids restart with each answer.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None
    pieces: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes written into the stream as they are; left out of an answer that is not streamed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Silence until the test sets the event."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Error:
    """The engine fails here: `event: error` and no `[DONE]` in a stream, status 400 otherwise."""

    message: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The socket is closed here, in the middle of everything."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole HTTP answer to any request; a str or bytes body is sent as it is, anything else as JSON.

    It is the only step of its script. The model is not asked: nothing is loaded, counted or read.
    """

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


Step = Text | Reasoning | ToolCall | Raw | Pause | WaitFor | Error | Cut | Reply


@dataclass(frozen=True, slots=True, init=False)
class Script:
    """One answer: its steps (a str is a Text) and how it ends.

    `finish_reason`: `auto` is `tool_calls` after a tool call and `stop` otherwise; None sends no finish at
    all. `usage`: `counted`, an object to send instead, or None for no usage. `done`: whether `[DONE]` is
    sent. `cut_after`: close the socket after that many bytes of a stream.
    """

    steps: tuple[Step, ...]
    finish_reason: str | None
    usage: Usage
    done: bool
    cut_after: int | None

    def __init__(
        self,
        *steps: Step | str,
        finish_reason: str | None = "auto",
        usage: Usage = "counted",
        done: bool = True,
        cut_after: int | None = None,
    ) -> None:
        parsed = tuple(Text(step) if isinstance(step, str) else step for step in steps)
        if len(parsed) > 1 and any(isinstance(step, Reply) for step in parsed):
            raise ValueError("A Reply is a whole answer: it must be the only step of its script.")
        object.__setattr__(self, "steps", parsed)
        object.__setattr__(self, "finish_reason", finish_reason)
        object.__setattr__(self, "usage", usage)
        object.__setattr__(self, "done", done)
        object.__setattr__(self, "cut_after", cut_after)

    @property
    def reply(self) -> Reply | None:
        """The ready-made HTTP answer, None if the script has steps of a model."""
        return self.steps[0] if self.steps and isinstance(self.steps[0], Reply) else None


@dataclass(frozen=True, slots=True)
class _Entry:
    script: Script
    when: When | None
    repeat: bool


class ScriptQueue:
    """The scripts that wait for requests: the first that fits is used, once unless it repeats."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def __len__(self) -> int:
        return sum(not entry.repeat for entry in self._entries)

    def add(self, script: Script, when: When | None, *, repeat: bool) -> None:
        """Queue a script for requests that satisfy `when`."""
        self._entries.append(_Entry(script, when, repeat))

    def clear(self) -> None:
        """Forget all scripts."""
        self._entries.clear()

    def peek(self, body: Body) -> Script | None:
        """Return the script for this request and leave it in its place."""
        entry = self._find(body)
        return entry.script if entry else None

    def take(self, body: Body) -> Script | None:
        """Return the script for this request and use it up."""
        entry = self._find(body)
        if entry is None:
            return None
        if not entry.repeat:
            self._entries.remove(entry)
        return entry.script

    def _find(self, body: Body) -> _Entry | None:
        return next((entry for entry in self._entries if entry.when is None or entry.when(body)), None)
