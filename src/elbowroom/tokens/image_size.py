"""How large a picture is, from the first bytes of its file: PNG, JPEG, GIF, WebP and BMP, without decoding it."""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Final

READ_AHEAD: Final = 1 << 20
"""Bytes looked at: a JPEG may carry this much before it says how large it is."""
JPEG_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
JPEG_LONE_MARKERS: Final = frozenset({0x01, *range(0xD0, 0xD9)})


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Width and height in pixels."""

    width: int
    height: int


def image_size(data: bytes) -> ImageSize | None:
    """Return the size of a picture, None where its kind is not known or it is damaged."""
    try:
        size = _size(data)
    except (struct.error, IndexError):
        return None
    return size if size is not None and size.width > 0 and size.height > 0 else None


def size_in_data_url(url: str) -> ImageSize | None:
    """Return the size of the picture in a `data:` URL, None for any other URL."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    start = body[: READ_AHEAD * 4 // 3 // 4 * 4]
    try:
        return image_size(base64.b64decode(start + "=" * (-len(start) % 4)))
    except (binascii.Error, ValueError):
        return None


def _size(data: bytes) -> ImageSize | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ImageSize(*struct.unpack_from(">II", data, 16))
    if data.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ImageSize(*struct.unpack_from("<HH", data, 6))
    if data.startswith(b"BM"):
        width, height = struct.unpack_from("<ii", data, 18)
        return ImageSize(width, abs(height))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp_size(data)
    return None


def _jpeg_size(data: bytes) -> ImageSize | None:
    """Go from segment to segment up to the one that begins the frame."""
    position = 2
    while data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
        elif marker in JPEG_LONE_MARKERS:
            position += 2
        elif marker in JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return ImageSize(width, height)
        else:
            (length,) = struct.unpack_from(">H", data, position + 2)
            position += 2 + length
    return None


def _webp_size(data: bytes) -> ImageSize | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return ImageSize(width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return ImageSize((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X":
        (width,), (height,) = struct.unpack_from("<I", data, 24), struct.unpack_from("<I", data, 26)
        return ImageSize((width & 0xFFFFFF) + 1, (height >> 8) + 1)
    return None
