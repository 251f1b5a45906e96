"""JSON as upstreams send it: Python reads NaN and Infinity, but what is written from them no client can read."""

import json
import math
from typing import Any


def parse_upstream_json(text: bytes) -> Any:
    """Return the value, with null for numbers that JSON does not have.

    Raises ValueError where it is no JSON, or nested too deeply to be read.
    """
    try:
        value, end = _READER.raw_decode(written := text.decode().removeprefix("\ufeff").strip())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(written):
        raise ValueError("more than one JSON value")
    return value


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


# One reader for all chunks: making one for each, as json.loads does with options, costs more than reading a chunk.
_READER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
