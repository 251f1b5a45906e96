"""JSON as upstreams send it: Python reads NaN and Infinity, but what is written from them no client can read."""

import json
import math
from typing import Any


def parse_upstream_json(text: bytes) -> Any:
    """Return the value, with null for numbers that JSON does not have.

    Raises ValueError where it is no JSON, or nested too deeply to be read.
    """
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None
