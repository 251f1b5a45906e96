"""Embeddings in the form that a client has asked for."""

import base64
import struct
from collections.abc import Mapping
from typing import Any


def packed_as_asked(answer: dict[str, Any], encoding: Any) -> dict[str, Any]:
    """Return an answer with its vectors as base64 where that was asked for: little-endian floats of 32 bits.

    Local engines answer with numbers whatever was asked. `openai` for JavaScript asks for base64 unless told otherwise,
    and up to version 6 takes numbers for it: its vectors are then short, wrong, and no error.
    """
    rows = answer.get("data")
    if encoding != "base64" or not isinstance(rows, list):
        return answer
    return {**answer, "data": [_packed(row) for row in rows]}


def _packed(row: Any) -> Any:
    vector = row.get("embedding") if isinstance(row, Mapping) else None
    if not isinstance(vector, list):
        return row
    try:
        packed = struct.pack(f"<{len(vector)}f", *vector)
    except (struct.error, OverflowError):
        return row
    return {**row, "embedding": base64.b64encode(packed).decode()}
