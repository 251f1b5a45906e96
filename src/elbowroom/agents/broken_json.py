"""Repairs JSON as models get it wrong: quotes of Python, commas too many, brackets too few."""

import json
from contextlib import suppress
from typing import Any, Final

from elbowroom.context.compaction import depths_in

MOST_REPAIRED: Final = 16_000
"""Letters of broken JSON, times their levels, that are repaired, in 150 ms at most: nothing else is done meanwhile."""


def repaired_json(text: str) -> Any:
    """Return the value that broken JSON means; None where it means none, has no end, or is too long or deep to tell.

    A value that one letter more would change has no end: it may be half of what was meant, and is not guessed.
    """
    if len(text) > MOST_REPAIRED or len(text) * levels(text) > MOST_REPAIRED:
        return None
    from json_repair import repair_json

    with suppress(ValueError, RecursionError):  # nested too deep
        meant, with_more = (repair_json(it, return_objects=True, skip_json_loads=True) for it in (text, f"{text}x"))
        return meant if meant == with_more else None
    return None


def sound(arguments: str) -> str:
    """Return the arguments of a whole call as the JSON of an object, where they can be read as one."""
    try:
        json.loads(arguments)
    except json.JSONDecodeError:
        repaired = repaired_json(arguments)
        return json.dumps(repaired, ensure_ascii=False) if isinstance(repaired, dict) else arguments
    except (ValueError, RecursionError):  # a number too long to be read, or too many levels, but no mistake to repair
        return arguments
    return arguments


def levels(text: str) -> int:
    """Return how deep the values of JSON, sound or broken, are nested; 0 where they are not."""
    return max(depths_in(text), default=0)
