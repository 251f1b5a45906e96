"""A tool that the server runs for an agent, whoever wrote it: the vault's, an MCP server's, another agent."""

import asyncio
import dataclasses
import functools
import hashlib
import itertools
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from elbowroom.agents.answer import name_in_lm_studio
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import Caller
from elbowroom.context.transcript import as_json
from elbowroom.errors import ElbowroomError, RequestError
from elbowroom.settings.model import ToolKind

USUAL_TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True)
class Media:
    """A part of a result that is no text: what it is, such as `image/png`, and its bytes."""

    mime_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned. `is_error` says that the text tells what went wrong."""

    text: str
    is_error: bool = False
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnTool:
    """One tool: what the model is told of it, and what happens when it calls.

    `parameters` is the JSON schema of an object, `call` gets such an object as the model wrote it: nothing has been
    checked but that it is one. ElbowroomError is what `call` raises for the model to read; whatever else it raises is
    told as well, and logged as a mistake. Cancelling it ends the work as soon as it can be ended.

    `source` is what stands before the name where two tools have the same one. `keeps_output` is false for tools that
    read what is kept already. `timeout` is in seconds; None leaves it to the tool how long it takes.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[str | ToolResult]]
    kind: ToolKind = "other"
    source: str = ""
    keeps_output: bool = True
    timeout: float | None = USUAL_TIMEOUT


Toolbox = Callable[[Target, Caller], Awaitable[Sequence[OwnTool]]]
"""Gives the tools that an agent has for a caller; none for a raw model. Two may have the same name.

It raises nothing for a tool that is broken.
"""


LONGEST_PLACE: Final = 100
"""Characters of a name that no tool has taught the model: it does not get more of it back."""


class ToolArguments(BaseModel):
    """What a tool takes. Models send null for what they leave out, and numbers as text: both are taken."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """Return the arguments that a model wrote; what does not fit is a RequestError in one sentence."""
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


def parsed_arguments(written: str) -> Mapping[str, Any] | None:
    """Return a call's arguments, None where they are no JSON object; one that was written as a text is taken too."""
    try:
        value = json.loads(written) if written.strip() else {}
        if isinstance(value, str):
            value = json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


log = logging.getLogger(__name__)
LONGEST_ERROR: Final = 1500
ENDING_SECONDS: Final = 1.0
"""How long a tool may take to clean up behind itself when its call is cancelled."""


async def result_of(tool: OwnTool, written: str) -> ToolResult:
    """Call a tool with arguments as the model wrote them, and return what comes of it, be it an error in words."""
    arguments = parsed_arguments(written)
    if arguments is None:
        takes = ", ".join(tool.parameters.get("properties") or ()) or "nothing"
        return _failed(f"the arguments are not a JSON object. {tool.name} takes: {takes}.")
    task = asyncio.ensure_future(tool.call(arguments))
    try:
        await asyncio.wait([task], timeout=tool.timeout)
        if not task.done():
            log.warning("%s did not answer within %g seconds.", tool.name, tool.timeout)
            return _failed(
                f"{tool.name} did not answer within {tool.timeout:g} seconds and was stopped. It is not known what it "
                "has done. Ask for less at once, or tell the user."
            )
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


def _as_result(returned: object) -> ToolResult:
    """Return what a tool gave back as a result, whatever it is."""
    if isinstance(returned, ToolResult):
        return returned
    if isinstance(returned, str):
        return ToolResult(returned)
    return ToolResult("" if returned is None else as_json(returned))


def _failed(message: str) -> ToolResult:
    cut = message if len(message) <= LONGEST_ERROR else f"{message[:LONGEST_ERROR]}..."
    return ToolResult(f"Error: {cut}", is_error=True)


LONGEST_TOOL_NAME: Final = 64
HASH_DIGITS: Final = 8


def distinct(tools: Sequence[OwnTool], taken: Collection[str] = ()) -> list[OwnTool]:
    """Return the tools in their order, those that share a name, or have one that is `taken`, as `<source>_<name>`.

    Names count as the same that LM Studio writes alike. A tool without a source keeps its name. The same tools and
    names always give the same result: the prompt begins with it.
    """
    shared = Counter(name_in_lm_studio(tool.name) for tool in tools)
    reserved = {name_in_lm_studio(name) for name in taken}
    stays = [not tool.source or not _clashes(tool, shared, reserved) for tool in tools]
    used = reserved | {name_in_lm_studio(tool.name) for tool, keeps in zip(tools, stays, strict=True) if keeps}
    result = []
    for tool, keeps in zip(tools, stays, strict=True):
        name = tool.name if keeps else _free_name(tool, used)
        used.add(name_in_lm_studio(name))
        result.append(tool if keeps else dataclasses.replace(tool, name=name))
    return result


def shortened(name: str, told: str) -> str:
    """Return a name of at most 64 characters that ends in a hash of `told`, what it is to be told apart by."""
    digits = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    return f"{name[: LONGEST_TOOL_NAME - HASH_DIGITS - 1]}_{digits}"


def _clashes(tool: OwnTool, shared: Counter[str], reserved: Collection[str]) -> bool:
    form = name_in_lm_studio(tool.name)
    return shared[form] > 1 or form in reserved


def _free_name(tool: OwnTool, used: Collection[str]) -> str:
    wanted = name_in_lm_studio(f"{tool.source}_{tool.name}")
    if len(wanted) <= LONGEST_TOOL_NAME and wanted not in used:
        return wanted
    tries = (shortened(wanted, f"{tool.source}/{tool.name}" + "/" * n) for n in itertools.count())
    return next(name for name in tries if name not in used)
