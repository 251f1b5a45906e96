"""Repairs JSON as models get it wrong: quotes of Python, commas too many, brackets too few."""

import json
from contextlib import suppress
from typing import Any, Final

MOST_REPAIRED: Final = 16_000
"""Letters of broken JSON that are repaired, within 50 ms; of four times as many it would take sixteen times as long."""


def repaired_json(text: str) -> Any:
    """Return the value that broken JSON means; None where it means none, or is too long to be looked at."""
    if len(text) > MOST_REPAIRED:
        return None
    from json_repair import repair_json

    with suppress(RecursionError):
        return repair_json(text, return_objects=True, skip_json_loads=True)
    return None


def sound(arguments: str) -> str:
    """Return the arguments of a whole call as the JSON of an object, where they can be read as one."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        repaired = repaired_json(arguments)
        return json.dumps(repaired, ensure_ascii=False) if isinstance(repaired, dict) else arguments
    return arguments
