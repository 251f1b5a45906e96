"""The answer to one request, over all steps of its run, and one reply of a model within it."""

import json
import re
import secrets
import string
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from elbowroom.agents.broken_json import sound
from elbowroom.context.conversation import StepUsage
from elbowroom.context.effects import Progress
from elbowroom.context.outputs import AppliedEdit
from elbowroom.context.remote_images import ImageGuard
from elbowroom.context.transcript import Message, text_of
from elbowroom.context.unasked import Passage
from elbowroom.errors import UpstreamError
from elbowroom.providers.base import ReasoningDelta, TextDelta, ToolCallDelta

Said = TextDelta | ReasoningDelta
STATUS_ONLY: Final = ("tool call", "tool result", "recalled", "reading")
FINISH_REASONS = frozenset({"stop", "length", "content_filter"})
BETWEEN_STEPS = "\n\n"
COUNTED: Final = {"counted": True}
"""What a usage object says under `elbowroom` where elbowroom has counted its numbers itself."""
ID_LENGTH = 9
ID_LETTERS = string.ascii_letters + string.digits


class AnswerGuard:
    """Turns remote images into links in one answer, over all its steps and agents; thoughts are guarded apart.

    A beginning of the answer at the end of the `messages` is read first. The client gets what the guard returns, and
    so does the model, which reads its own words again.
    """

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._text = ImageGuard()
        self._thoughts = ImageGuard()
        self._opening = ""
        if messages and messages[-1].get("role") == "assistant":
            self._read_beginning(text_of(messages[-1]))

    def passed(self, event: Said) -> list[Said]:
        """Return what to show for this event: all of it, a part, or also what was held back before it.

        Probabilities of tokens are dropped where the text has changed.
        """
        if isinstance(event, ReasoningDelta):
            return self._thought(self._thoughts.feed(event.text))
        thought = self._thought(self._thoughts.cut())
        text = self._opened(self._text.feed(event.text))
        if text == event.text:
            return [*thought, event]
        return [*thought, TextDelta(text)] if text else thought

    def end_attempt(self, *, goes_on: bool) -> list[Said]:
        """Return what is held back at the end of a request; where the text goes on after it, part of it stays back."""
        thoughts, text = self._thoughts, self._text
        thought = self._thought(thoughts.cut() if goes_on else thoughts.end())
        rest = self._opened(text.cut() if goes_on else text.end())
        return [*thought, TextDelta(rest)] if rest else thought

    def drop(self) -> None:
        """Drop what was held back, because its request has failed."""
        self._thoughts.drop()
        self._text.drop()

    def paragraph(self, text: str) -> str:
        """Return a whole paragraph of the answer as the client may see it."""
        return self._text.feed(text) + self._text.end()

    def _read_beginning(self, said: str) -> None:
        """Read text that the client has already; where an image may have begun in it, a blank line will end that."""
        self._text.feed(said)
        if self._text.held in ("", "!", "]"):
            self._text.cut()
        else:
            self._text.end()
            self._opening = "\n\n"

    def _opened(self, text: str) -> str:
        """Return the text, the first time after the blank line that ends a begun image."""
        opening, self._opening = (self._opening, "") if text else ("", self._opening)
        return opening + text

    def _thought(self, text: str) -> list[Said]:
        return [ReasoningDelta(text)] if text else []


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call: a fresh id of nine letters and digits, the tool's name, its arguments as JSON text."""

    id: str
    name: str
    arguments: str

    def as_openai(self) -> dict[str, Any]:
        """Return the call as it stands in a message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class Notice:
    """A short status for the person, shown beside the answer. A notice that is not done is closed by a later one.

    `before` and `after` are sizes of the prompt in tokens, `seconds` is the time between them. `progress` tells how
    far the work is that an open notice has announced; `passages` came back unasked with the person's message.
    """

    kind: Literal[
        "loading",
        "loaded",
        "compacting",
        "compacted",
        "not compacted",
        "tight",
        "cut",
        "truncated",
        "waiting",
        "waited",
        "reading",
        "handed over",
        "remembering",
        "remembered",
        "recalled",
        "taken in",
        "left out",
        "kept",
        "images",
        "store",
        "tools shortened",
        "results cut",
        "results shortened",
        "tool call",
        "tool result",
    ]
    text: str
    is_done: bool = True
    before: int | None = None
    after: int | None = None
    seconds: float | None = None
    progress: Progress | None = None
    is_hidden: bool = False
    """What it closes is over, and no longer worth a line."""
    passages: tuple[Passage, ...] = ()

    @property
    def is_status_only(self) -> bool:
        """Tell whether it is never written into the text of an answer, which it would fill."""
        return self.progress is not None or self.is_hidden or self.kind in STATUS_ONLY


@dataclass(frozen=True, slots=True)
class Compacted:
    """All that the client has sent was compacted: `messages` stand for it, which the ledger has under `key`.

    System messages are not among them. `summary` is the text of the summary in them, empty where there is none;
    `before` and `after` are the sizes of the prompt in tokens, `used` what the pruning agent's requests have taken.
    """

    key: str
    messages: tuple[Message, ...]
    summary: str
    before: int
    after: int
    used: StepUsage


AnswerEvent = TextDelta | ReasoningDelta | ToolCall | Notice | Compacted
Sink = Callable[[Sequence[AnswerEvent]], Awaitable[None]]
"""Takes what the client is to see, in order; while it waits, the model is not read on."""


class ClientLeft(Exception):
    """The client has closed its connection, or has left its answer unread for too long; sinks raise it."""


async def tell_nobody(events: Sequence[AnswerEvent]) -> None:
    """Show nothing, as a sink for those who take the answer as a whole."""


@dataclass(slots=True)
class Answer:
    """The text, thoughts and client tool calls of a run so far, and how each of its model steps ended.

    `usages` holds one usage object for each request, the last request's at the end: the upstream's, or where it
    reported none the one counted here, which says so under `elbowroom`. `engine` is what the upstream said of itself in
    the last request. `written` is what all requests of the last step have generated, in tokens, 0 where it was one.
    `edits` are what was cleared in the history as the client wants it. `stop_sequence` is the client's own that has
    ended the last reply, where that was looked for. `guard` checks the words
    before the client sees them; it is None where the model has read nothing that a stranger wrote.
    """

    text: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)
    edits: tuple[AppliedEdit, ...] = ()
    upstream_finish: str = "stop"
    stop_sequence: str | None = None
    steps: int = 0
    is_stopped: bool = False
    is_interrupted: bool = False
    guard: AnswerGuard | None = None
    written: int = 0
    _text_before: int = 0
    _reasoning_before: int = 0

    def begin_step(self) -> None:
        """Count one more request to the model."""
        self.steps += 1
        self.written = 0
        self._text_before = len(self.text)
        self._reasoning_before = len(self.reasoning)

    def retract_step(self) -> None:
        """Do not count the last request, which has said nothing and is made again."""
        self.steps -= 1

    def take(self, event: AnswerEvent) -> AnswerEvent:
        """Keep an event and return it as the client sees it: a later step's words begin after a blank line."""
        match event:
            case TextDelta():
                if 0 < self._text_before == len(self.text):
                    event = TextDelta(BETWEEN_STEPS + event.text, event.logprobs)
                self.text.append(event.text)
                if event.logprobs is not None:
                    self.logprobs.append(event.logprobs)
            case ReasoningDelta():
                if 0 < self._reasoning_before == len(self.reasoning):
                    event = ReasoningDelta(BETWEEN_STEPS + event.text)
                self.reasoning.append(event.text)
            case ToolCall():
                self.tool_calls.append(event)
            case Notice() | Compacted():
                pass  # which are not part of the text
        return event

    def stop(self, why: str) -> AnswerEvent:
        """End the answer though the model would go on, with a last paragraph that says why; return that as shown."""
        self.is_stopped = True
        self.upstream_finish = "length"
        self._text_before = len(self.text)
        return self.take(TextDelta(why))

    def interrupt(self, *, calls_are_out: bool) -> None:
        """End an answer that a person has stopped: its text stays, its tool calls are dropped.

        Calls that the client has already received cannot be taken back.
        """
        self.is_interrupted = True
        if not calls_are_out:
            self.tool_calls.clear()

    @property
    def conclusion(self) -> str:
        """Return the text of the last step, or the whole text where that is empty or the answer was stopped."""
        said = "".join(self.text[self._text_before :]).strip()
        return said if said and not self.is_stopped else "".join(self.text).strip()

    def as_message(self) -> dict[str, Any]:
        """Return the answer as the message that a client makes of it."""
        return assistant_message("".join(self.text), self.tool_calls)

    @property
    def finish_reason(self) -> str:
        """Return OpenAI's finish_reason: `tool_calls` where the client has to run tools, else the last step's.

        The finish_reason of an interrupted answer is `stop`.
        """
        if self.is_interrupted:
            return "stop"
        if self.tool_calls:
            return "tool_calls"
        return self.upstream_finish if self.upstream_finish in FINISH_REASONS else "stop"

    @property
    def usage(self) -> dict[str, Any] | None:
        """Return the usage of the last step, which fills the window; with several steps, also their sums.

        A step that went on in further requests has written what all of them have.
        """
        if not self.usages:
            return None
        last = self.usages[-1]
        if self.written:
            last = {
                **last,
                "completion_tokens": self.written,
                "total_tokens": _count(last, "prompt_tokens") + self.written,
            }
        if self.steps == 1:
            return last
        told = {"steps": self.steps, "prompt_tokens": 0, "completion_tokens": 0}
        for usage in self.usages:
            told["prompt_tokens"] += _count(usage, "prompt_tokens")
            told["completion_tokens"] += _count(usage, "completion_tokens")
            if usage.get("elbowroom") == COUNTED:
                told |= COUNTED
        return {**last, "elbowroom": told}


def assistant_message(text: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """Return the assistant's text and calls as a message of the conversation."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    return {**message, "tool_calls": [call.as_openai() for call in calls]} if calls else message


def _count(usage: dict[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


def new_tool_call_id() -> str:
    """Return nine random letters and digits, the only form that Mistral's chat templates accept."""
    return "".join(secrets.SystemRandom().choices(ID_LETTERS, k=ID_LENGTH))


@dataclass(slots=True)
class _Growing:
    name: str
    pieces: list[str]


NAMELESS: Final = (
    "The model called a tool without saying which, so nothing was called. Ask again; if that happens often, the tool "
    "format of the model's chat template does not fit the model."
)


@dataclass(slots=True, eq=False)
class Reply:
    """What one model step says. Its tool calls are known once it has ended; they get ids, as the upstream's repeat.

    `offered` are the names of the tools in the request: LM Studio changes them, and the reply changes them back.
    """

    offered: Collection[str]
    new_id: Callable[[], str] = new_tool_call_id
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)
    _growing: list[_Growing] = field(default_factory=list)
    _latest: dict[int, _Growing] = field(default_factory=dict)

    @property
    def has_said(self) -> bool:
        """Tell whether words or thoughts have come."""
        return bool(self.text or self.reasoning)

    def add_call(self, delta: ToolCallDelta) -> None:
        """Take a piece of a tool call; the pieces of several calls may come mixed, and the name after arguments."""
        call, name = self._latest.get(delta.index), delta.name or ""
        if call is None or self._begins_another(call, delta):
            self._latest[delta.index] = call = _Growing(name, [])
            self._growing.append(call)
        elif not call.name or self._completes_name(call, name):
            call.name += name
        call.pieces.append(delta.arguments)

    def drop_calls(self) -> None:
        """Drop calls that were stopped before their end; the model makes them again."""
        self._growing.clear()
        self._latest.clear()
        self.tool_calls = []

    def close_calls(self, *, was_cut: bool) -> list[ToolCall]:
        """End the calls and return them; where the step `was_cut`, only those whose arguments are complete.

        Raises UpstreamError where a call has stayed without a name.
        """
        if not self._growing:
            return self.tool_calls
        calls = []
        for call in self._growing:
            arguments = "".join(call.pieces)
            if was_cut and not (call.name and _is_whole(arguments)):
                continue
            if not call.name:
                raise UpstreamError(NAMELESS)
            calls.append(ToolCall(self.new_id(), self._offered_name(call.name), sound(arguments or "{}")))
        self.tool_calls = calls
        return calls

    def as_message(self) -> dict[str, Any]:
        """Return the text, and after `close_calls` the calls, as a message of the conversation."""
        return assistant_message("".join(self.text), self.tool_calls)

    def _begins_another(self, call: _Growing, delta: ToolCallDelta) -> bool:
        # Some servers repeat the name in every piece, others give each of several calls the same index.
        if delta.name is None or not call.name or self._completes_name(call, delta.name):
            return False
        return delta.name != call.name or not delta.arguments or _is_whole("".join(call.pieces))

    def _completes_name(self, call: _Growing, more: str) -> bool:
        if not more or any(call.pieces) or (call.name in self.offered and more in self.offered):
            return False
        return any(name.startswith(call.name + more) for name in self.offered)

    def _offered_name(self, name: str) -> str:
        if name in self.offered:
            return name
        for form in (name_in_lm_studio, _letters_and_digits):
            alike = [offered for offered in self.offered if form(offered) == form(name)]
            if len(alike) == 1:
                return alike[0]
        return name


def _is_whole(arguments: str) -> bool:
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def name_in_lm_studio(name: str) -> str:
    """Return a tool's name as LM Studio writes it for the model, and so in the model's calls."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)


def _letters_and_digits(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
