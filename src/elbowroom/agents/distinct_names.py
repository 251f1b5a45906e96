"""Names of tools such that no two are the same to the model."""

import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from elbowroom.agents.own_tool import OwnTool
from elbowroom.agents.reply import name_in_lm_studio

LONGEST_NAME: Final = 64
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
    return f"{name[: LONGEST_NAME - HASH_DIGITS - 1]}_{digits}"


def _clashes(tool: OwnTool, shared: Counter[str], reserved: Collection[str]) -> bool:
    form = name_in_lm_studio(tool.name)
    return shared[form] > 1 or form in reserved


def _free_name(tool: OwnTool, used: Collection[str]) -> str:
    wanted = name_in_lm_studio(f"{tool.source}_{tool.name}")
    if len(wanted) <= LONGEST_NAME and wanted not in used:
        return wanted
    tries = (shortened(wanted, f"{tool.source}/{tool.name}" + "/" * n) for n in itertools.count())
    return next(name for name in tries if name not in used)
