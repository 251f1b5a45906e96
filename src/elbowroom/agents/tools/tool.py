"""A tool that the server runs, and all of one call of it: arguments, limits, the work, and failures in words.

The names under which a model sees tools are made here too.
"""

import asyncio
import functools
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from elbowroom.agents.answer import Answer, ToolCall, name_in_lm_studio
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import Caller
from elbowroom.context.compaction import summary_of_calls
from elbowroom.context.observations import Observations
from elbowroom.context.outputs import one_line
from elbowroom.context.transcript import Message, Transcript, as_json
from elbowroom.errors import ElbowroomError, RequestError
from elbowroom.settings.model import ToolKind
from elbowroom.store.base import retrieved

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Media:
    """A part of a result that is no text: its MIME type, such as `image/png`, and its bytes."""

    mime_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned. `is_error` says that the text tells what went wrong.

    `page` returns the beginning of the text within so many characters, with the tool's own words on how to read on.
    """

    text: str
    is_error: bool = False
    media: tuple[Media, ...] = ()
    page: Callable[[int], str] | None = None


@dataclass(frozen=True, slots=True)
class ServerTool:
    """One tool: what the model is told of it, and the function that a call runs.

    `parameters` is the JSON schema of an object. `call` gets such an object as the model wrote it: nothing has been
    checked but that it is one. It raises ElbowroomError for the model to read; any other exception is told as well,
    and logged as a mistake. Cancelling it ends the work as soon as possible.

    `source` is put before the name where two tools share one. `keeps_output` is false for tools that read what is kept
    already. `limits_itself` is true for tools that the agent's `tool_timeout` does not bound.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[str | ToolResult]]
    kind: ToolKind = "other"
    source: str = ""
    keeps_output: bool = True
    limits_itself: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """Return the tool as a chat request lists it."""
        return function_spec(self.name, self.description, self.parameters)


def function_spec(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function as the SDK writes it into a request."""
    function = {"name": name, "description": description, "parameters": dict(parameters), "strict": False}
    return {"type": "function", "function": function}


Toolbox = Callable[[Target, Caller], Awaitable[Sequence[ServerTool]]]
"""Gives the tools that an agent has for a caller; none for a raw model. Two may have the same name.

It raises nothing for a tool that is broken.
"""

LONGEST_PLACE: Final = 100
"""Characters of a name that a model invented: it does not get more of it back."""


class ToolArguments(BaseModel):
    """What a tool takes. Models send null for what they leave out, and numbers as text: both are taken."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """Return the arguments that a model wrote. Raises RequestError that names the first wrong one."""
        try:
            return cls.model_validate(written)
        except ValidationError as error:
            first: Mapping[str, Any] = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))[:LONGEST_PLACE] or "the arguments"
            takes = ", ".join(cls.model_fields) or "nothing"
            raise RequestError(f"{where}: {first['msg']}. It takes: {takes}.") from error


@functools.cache
def schema_of(arguments: type[ToolArguments]) -> dict[str, Any]:
    """Return the JSON schema without what only takes room in the model's window."""
    schema = arguments.model_json_schema()
    properties = {
        name: {key: value for key, value in row.items() if key in ("type", "description", "enum")}
        for name, row in schema.get("properties", {}).items()
    }
    return {"type": "object", "properties": properties, "required": schema.get("required", [])}


WARNED_FROM: Final = 3
MOST_FAILURES: Final = 6
"""After so many steps with the very same failing call, and none that worked in between, the run ends."""
LONGEST_TOOL_NAME: Final = 64
LONGEST_SUMMARY: Final = 600  # characters
LONGEST_ERROR: Final = 1500
ENDING_SECONDS: Final = 1.0
"""How long a tool may take to clean up when its call is cancelled."""


@dataclass(slots=True)
class ToolCalls:
    """All calls of one run: carries them out, counts those that fail, and says when the run has to end.

    `name` is the agent that was asked, `max_turns` how many model calls its run may take; `answer` counts them. Calls
    of one step count once: the model has made them without knowing that they fail. `kinds` are those of the tools.
    """

    name: str
    max_turns: int
    answer: Answer
    observations: Observations
    kinds: dict[str, ToolKind] = field(default_factory=dict)
    _running: set["asyncio.Task[Any]"] = field(default_factory=set)
    _failed_in: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    _stuck_with: str = ""  # the name of a tool whose same call has failed as often as it may

    async def call(self, tool: ServerTool, written: str, seconds: float | None) -> ToolResult:
        """Call a tool as `result_of` does; an error that comes again and again says so."""
        if (task := asyncio.current_task()) is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        result = await result_of(tool, written, seconds)
        self.observations.tool_called(has_failed=result.is_error)
        if result.is_error:
            return self._warned(result, self._note_failure(tool.name, written))
        self._failed_in.clear()
        self._stuck_with = ""
        return result

    def note_unknown(self, calls: Sequence[ToolCall], known: Collection[str]) -> None:
        """Count the calls of tools that do not exist as failed; the SDK answers them."""
        for call in calls:
            if call.name not in known:
                self._note_failure(call.name, call.arguments)

    async def ended(self) -> None:
        """Wait until no call is under way; one that was cancelled may take a moment to clean up."""
        if self._running:
            await asyncio.wait(self._running, timeout=ENDING_SECONDS)

    @property
    def may_go_on(self) -> bool:
        """Tell whether the model may be asked again."""
        return not self._stuck_with and self.answer.steps < self.max_turns

    def why_stop(self, done: Sequence[Message]) -> str | None:
        """Return what the person is told where the model may not be asked again; `done` is the run so far."""
        if self._stuck_with:
            name = one_line(self._stuck_with, LONGEST_TOOL_NAME)
            ended = f"Stopped: the same call of {name} has failed {MOST_FAILURES} times"
            remedy = "Ask me to go on, or to try another way."
        elif self.answer.steps >= self.max_turns:
            ended = f"Stopped after {_counted(self.max_turns, 'model call')} without finishing"
            remedy = f"Ask me to go on, or raise max_turns of the agent {self.name}."
        else:
            return None
        log.warning("The run of %s was ended. %s.", self.name, ended)
        told = f"[{ended}.{_done(done, self.kinds)} {remedy}]"
        return self.answer.guard.paragraph(told) if self.answer.guard is not None else told

    def _note_failure(self, name: str, written: str) -> int:
        """Count a failed call; return in how many steps it has failed since a call last succeeded."""
        steps = self._failed_in.setdefault((name, written.strip()), set())
        steps.add(self.answer.steps)
        if len(steps) >= MOST_FAILURES:
            self._stuck_with = self._stuck_with or name
        return len(steps)

    def _warned(self, result: ToolResult, times: int) -> ToolResult:
        if times < WARNED_FROM:
            return result
        return replace(
            result,
            text=f"{result.text}\nThis very call has failed {times} times now. Do not repeat it: call it "
            "with other arguments, find another way, or tell the user what does not work.",
        )


async def result_of(tool: ServerTool, written: str, seconds: float | None = None) -> ToolResult:
    """Call a tool with arguments as the model wrote them; return its result, or its failure in words.

    After `seconds` the call is cancelled, unless the tool limits itself.
    """
    arguments = parsed_arguments(written)
    if arguments is None:
        takes = ", ".join(tool.parameters.get("properties") or ()) or "nothing"
        return _failed(f"the arguments are not a JSON object. {tool.name} takes: {takes}.")
    task = asyncio.ensure_future(tool.call(arguments))
    task.add_done_callback(retrieved)
    try:
        await asyncio.wait([task], timeout=None if tool.limits_itself else seconds)
        if not task.done():
            log.warning("%s did not answer within %g seconds.", tool.name, seconds)
            return _failed(
                f"{tool.name} did not answer within {seconds:g} seconds and was stopped. It is not known what it "
                "has done. Ask for less at once, or tell the user."
            )
        if task.cancelled():  # by the tool itself: a person who stops the answer cancels the wait
            log.warning("%s was cancelled from within.", tool.name)
            return _failed(f"{tool.name} was cancelled before it was done. It is not known what it has done.")
        return _as_result(task.result())
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task], timeout=ENDING_SECONDS)
        raise
    except ElbowroomError as error:
        return _failed(error.message)
    except Exception as error:
        log.exception("%s failed", tool.name)
        return _failed(f"{tool.name} failed: {str(error) or type(error).__name__}. The same call would fail again.")
    finally:
        task.cancel()


def parsed_arguments(written: str) -> Mapping[str, Any] | None:
    """Return a call's arguments, None where they are no JSON object; an object written as a text is taken too."""
    try:
        value = json.loads(written) if written.strip() else {}
        if isinstance(value, str):
            value = json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def _as_result(returned: object) -> ToolResult:
    if isinstance(returned, ToolResult):
        return returned
    if isinstance(returned, str):
        return ToolResult(returned)
    return ToolResult("" if returned is None else as_json(returned))


def _failed(message: str) -> ToolResult:
    cut = message if len(message) <= LONGEST_ERROR else f"{message[:LONGEST_ERROR]}..."
    return ToolResult(f"Error: {cut}", is_error=True)


def _done(messages: Sequence[Message], kinds: Mapping[str, ToolKind]) -> str:
    """Return what the calls have done, in a few words on one line."""
    told = summary_of_calls(Transcript.of(messages).groups, len, LONGEST_SUMMARY, kinds).partition("\n")[0]
    return f" Done so far: {told}." if told else ""


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def distinct(tools: Sequence[ServerTool], taken: Collection[str] = ()) -> list[ServerTool]:
    """Return the tools in their order, those that share a name, or have one that is `taken`, as `<source>_<name>`.

    Names count as the same that LM Studio writes alike. A tool without a source keeps its name. The same tools and
    names always give the same result: the prompt begins with it.
    """
    written = [*map(name_in_lm_studio, map(attrgetter("name"), tools))]
    used = set(map(name_in_lm_studio, taken))
    shared = Counter([*written, *used])
    for tool, name in zip(tools, written, strict=True):
        if not tool.source or shared[name] == 1:
            used.add(name)
    result = []
    for tool, name in zip(tools, written, strict=True):
        if tool.source and shared[name] > 1:
            free = free_name(f"{tool.source}_{tool.name}", used, f"{tool.source}/{tool.name}")
            tool = replace(tool, name=free)  # the same tool under another name
            used.add(free)
        result.append(tool)
    return result


def free_name(wanted: str, used: Container[str], told: str = "") -> str:
    """Return a name of at most 64 characters, as LM Studio writes it, that is none of those used.

    It is the wanted name where possible. Otherwise it ends in a number, or in a hash of `told`, which depends less on
    what else is there. The names used stand there as LM Studio writes them, in a set where they are many.
    """
    name = name_in_lm_studio(wanted)
    free, tries = name if told else name[:LONGEST_TOOL_NAME], 0
    while len(free) > LONGEST_TOOL_NAME or free in used:
        ending = f"_{_hashed(told + '/' * tries) if told else tries + 2}"
        free, tries = f"{name[: LONGEST_TOOL_NAME - len(ending)]}{ending}", tries + 1
    return free


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
