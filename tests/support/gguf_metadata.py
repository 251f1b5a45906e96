"""Reads the metadata of a GGUF file: every key with its value and type, nothing interpreted."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gguf import GGUFValueType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Scalar = bytes | str | int | float | bool
FIRST_KEY_AT: Final = 24  # after the magic, the version, and the numbers of tensors and keys
STRUCT_CODES: Final = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata value of a GGUF file with its type; `item` is the type of an array's items."""

    value: Scalar | Sequence[Scalar]
    kind: GGUFValueType
    item: GGUFValueType | None = None


def read_metadata(path: Path) -> dict[str, Entry]:
    """Read every metadata value of a GGUF file, strings as bytes."""
    data = path.read_bytes()
    if data[:4] != b"GGUF":
        raise ValueError(f"{path} is no GGUF file")
    (count,) = struct.unpack_from("<Q", data, 16)
    entries, position = {}, FIRST_KEY_AT
    for _ in range(count):
        key, position = _string(data, position)
        (kind,) = struct.unpack_from("<I", data, position)
        entries[key.decode()], position = _entry(data, position + 4, GGUFValueType(kind))
    return entries


def _string(data: bytes, position: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<Q", data, position)
    start = position + 8
    return data[start : start + length], start + length


def _entry(data: bytes, position: int, kind: GGUFValueType) -> tuple[Entry, int]:
    if kind is not GGUFValueType.ARRAY:
        values, position = _values(data, position, kind, 1)
        return Entry(values[0], kind), position
    item_number, length = struct.unpack_from("<IQ", data, position)
    item = GGUFValueType(item_number)
    values, position = _values(data, position + 12, item, length)
    return Entry(values, kind, item), position


def _values(data: bytes, position: int, kind: GGUFValueType, count: int) -> tuple[list[Scalar], int]:
    if kind is GGUFValueType.STRING:
        texts: list[Scalar] = []
        for _ in range(count):
            text, position = _string(data, position)
            texts.append(text)
        return texts, position
    layout = struct.Struct(f"<{count}{STRUCT_CODES[kind]}")
    return list(layout.unpack_from(data, position)), position + layout.size
