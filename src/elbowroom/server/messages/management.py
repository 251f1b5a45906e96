"""Reads what an Anthropic request wants of its context: edits of the history, and compactions."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.agents.request import CompactionRequest
from elbowroom.context.outputs import ClearThoughts, ClearToolUses, Edit
from elbowroom.errors import RequestError

log = logging.getLogger(__name__)
CLEAR_THINKING: Final = "clear_thinking_20251015"
CLEAR_TOOL_USES: Final = "clear_tool_uses_20250919"
COMPACT: Final = "compact_20260112"
KNOWN: Final = (CLEAR_THINKING, CLEAR_TOOL_USES, COMPACT)
"""The edits, in the order in which they are applied."""
COMPACT_AT, LEAST_COMPACT_AT = 150_000, 1_000
"""Tokens from which a prompt is compacted where the request names no trigger, and the least that it may name."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The edits that a request wants, and the compaction; with `only_compacts` there is no answer after that one.

    `is_told` says that the client has sent `context_management`, and is told what was applied.
    """

    edits: tuple[Edit, ...] = ()
    compaction: CompactionRequest | None = None
    only_compacts: bool = False
    is_told: bool = False


def wanted_of(body: Mapping[str, Any]) -> Wanted:
    """Return what a body wants of its context; edits of unknown types are left out, with a line in the log.

    Raises RequestError that names the field and what belongs there.
    """
    managed, compaction = body.get("context_management"), body.get("compaction")
    if managed is not None and compaction is not None:
        raise RequestError("compaction cannot be combined with context_management.", param="compaction")
    if compaction is not None:
        return Wanted(compaction=_summarized(_object(compaction, "compaction")), only_compacts=True)
    if managed is None:
        return Wanted()
    named = _known_edits(_object(managed, "context_management").get("edits"), "context_management.edits")
    edits: list[Edit] = []
    if CLEAR_THINKING in named:
        edits.append(_clear_thoughts(*named[CLEAR_THINKING]))
    if CLEAR_TOOL_USES in named:
        edits.append(_clear_tool_uses(*named[CLEAR_TOOL_USES]))
    compacts = _compacts(*named[COMPACT]) if COMPACT in named else None
    return Wanted(tuple(edits), compacts, is_told=True)


def _known_edits(edits: Any, where: str) -> dict[str, tuple[Mapping[str, Any], str]]:
    """Return the edits of known types, each with its place in the request."""
    if edits is not None and not isinstance(edits, list):
        raise RequestError(f"{where} has to be a list.", param=where)
    named: dict[str, tuple[Mapping[str, Any], str]] = {}
    unknown: list[str] = []
    for index, edit in enumerate(edits or ()):
        at = f"{where}[{index}]"
        kind = _object(edit, at).get("type")
        if not isinstance(kind, str):
            raise RequestError(f"{at}.type has to be a text such as {CLEAR_TOOL_USES}.", param=f"{at}.type")
        if kind in named:
            raise RequestError(f"{at}: {kind} is in the list twice.", param=at)
        if kind in KNOWN:
            named[kind] = edit, at
        else:
            unknown.append(f"{kind:.60}")
    if unknown:
        log.info("Edits of the context of types that are not known here are left out: %.200r", ", ".join(unknown))
    return named


def _clear_thoughts(edit: Mapping[str, Any], at: str) -> ClearThoughts:
    match edit.get("keep"):
        case None:
            return ClearThoughts()
        case "all" | {"type": "all"}:
            return ClearThoughts(None)
        case {"type": "thinking_turns"} as keep:
            return ClearThoughts(_number(keep, f"{at}.keep", 1))
        case _:
            pass
    raise RequestError(f'{at}.keep has to be "all", or of the type thinking_turns with a value.', param=f"{at}.keep")


def _clear_tool_uses(edit: Mapping[str, Any], at: str) -> ClearToolUses:
    usual, trigger, inputs = ClearToolUses(), edit.get("trigger"), edit.get("clear_tool_inputs")
    unit, value = usual.unit, usual.trigger
    match trigger:
        case None:
            pass
        case {"type": ("input_tokens" | "tool_uses") as unit}:
            value = _number(trigger, f"{at}.trigger", 0)
        case _:
            told = f"{at}.trigger has to be of the type input_tokens or tool_uses."
            raise RequestError(told, param=f"{at}.trigger")
    return ClearToolUses(
        unit,
        value,
        keep=_amount(edit, "keep", "tool_uses", at, usual.keep),
        at_least=_amount(edit, "clear_at_least", "input_tokens", at, usual.at_least),
        excluded=_names(edit.get("exclude_tools"), f"{at}.exclude_tools"),
        inputs=inputs if isinstance(inputs, bool) else _names(inputs, f"{at}.clear_tool_inputs"),
    )


def _compacts(edit: Mapping[str, Any], at: str) -> CompactionRequest:
    pauses = edit.get("pause_after_compaction")
    if pauses is not None and not isinstance(pauses, bool):
        where = f"{at}.pause_after_compaction"
        raise RequestError(f"{where} has to be true or false.", param=where)
    trigger = _amount(edit, "trigger", "input_tokens", at, COMPACT_AT, LEAST_COMPACT_AT)
    return CompactionRequest(trigger, _instructions(edit, at), pauses=bool(pauses))


def _summarized(compaction: Mapping[str, Any]) -> CompactionRequest:
    if compaction.get("type") != "summarize":
        raise RequestError("compaction.type has to be summarize.", param="compaction.type")
    return CompactionRequest(instructions=_instructions(compaction, "compaction"))


def _instructions(wish: Mapping[str, Any], at: str) -> str:
    said = wish.get("instructions")
    if said is not None and not isinstance(said, str):
        raise RequestError(f"{at}.instructions has to be a text.", param=f"{at}.instructions")
    return (said or "").strip()


def _amount(edit: Mapping[str, Any], name: str, kind: str, at: str, usual: int, least: int = 0) -> int:
    """Return the value of a field of the form {type, value}, or what is usual without one."""
    if (given := edit.get(name)) is None:
        return usual
    where = f"{at}.{name}"
    if _object(given, where).get("type") != kind:
        raise RequestError(f"{where}.type has to be {kind}.", param=f"{where}.type")
    return _number(given, where, least)


def _number(given: Mapping[str, Any], where: str, least: int) -> int:
    value = given.get("value")
    if type(value) is not int or value < least:
        raise RequestError(f"{where}.value has to be a whole number of {least:,} or more.", param=f"{where}.value")
    return value


def _names(given: Any, where: str) -> frozenset[str]:
    if given is None:
        return frozenset()
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise RequestError(f"{where} has to be a list of names of tools.", param=where)
    return frozenset(given)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"{where} has to be an object.", param=where)
    return value
