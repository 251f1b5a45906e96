"""How many tokens pictures take: by the model's own rule where it is known, else by what its engine reported.

The rules are those of llama.cpp's image processing (MIT License; see THIRD_PARTY_NOTICES): the sizes of patches and
the limits that its `clip.cpp` sets for each kind of projector, the way its `mtmd-image.cpp` fits a picture into
them, and the tokens that its `mtmd.cpp` puts around. Mistral's agrees with its own package, mistral-common.
"""

import base64
import binascii
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.caches import Recent

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
    comma = url.find(",")
    if comma < 0 or not url.startswith("data:") or not url.endswith(";base64", 0, comma):
        return None
    start = url[comma + 1 : comma + 1 + READ_AHEAD * 4 // 3 // 4 * 4]
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
    """Read the segments up to the first one of a frame, which has the size."""
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


LIKELY_SIZE: Final = ImageSize(1024, 1024)
"""Taken for pictures whose size cannot be seen, such as those that a link names."""
CAUTIOUS_TOKENS: Final = 1024
"""Taken for every picture of a model without a rule that has reported nothing yet."""
CAPACITY: Final = 256


@dataclass(frozen=True, slots=True)
class FixedImages:
    """All pictures take the same number of tokens."""

    tokens: int

    def count(self, size: ImageSize) -> int:
        """Return the tokens of one picture."""
        del size
        return self.tokens


@dataclass(frozen=True, slots=True)
class PatchedImages:
    """A picture is fitted into `least` to `most` squares of `side` pixels, a token each.

    `around` are tokens that mark its beginning and end; with `breaks` every row but the last ends with one more.
    """

    side: int
    least: int
    most: int
    around: int = 2
    breaks: bool = False

    def count(self, size: ImageSize) -> int:
        """Return the tokens of one picture."""
        columns, rows = self._squares(size.width), self._squares(size.height)
        area, square = size.width * size.height, self.side**2
        if columns * rows > self.most:
            shrunk = math.sqrt(area / (self.most * square))
            columns, rows = (max(1, math.floor(length / shrunk / self.side)) for length in (size.width, size.height))
        elif columns * rows < self.least:
            grown = math.sqrt(self.least * square / area)
            columns, rows = (math.ceil(length * grown / self.side) for length in (size.width, size.height))
        return columns * rows + (rows - 1 if self.breaks else 0) + self.around

    def _squares(self, length: int) -> int:
        return max(1, math.floor(length / self.side + 0.5))


ImageRule = FixedImages | PatchedImages

GEMMA3: Final = FixedImages(258)
GEMMA4: Final = PatchedImages(48, 70, 1120)
QWEN2_VL: Final = PatchedImages(28, 8, 4096)
QWEN3_VL: Final = PatchedImages(32, 8, 4096)
PIXTRAL: Final = PatchedImages(16, 8, 1024, around=1, breaks=True)
MISTRAL3: Final = PatchedImages(28, 8, 1024, around=1, breaks=True)
LLAVA: Final = FixedImages(576)

RULES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), rule)
    for pattern, rule in (
        (r"gemma[-_. ]?4", GEMMA4),
        (r"gemma[-_. ]?3", GEMMA3),
        (r"qwen[-_. ]?2(?:[._]5)?[-_. ]?vl", QWEN2_VL),
        (r"qwen[-_. ]?3", QWEN3_VL),
        (r"pixtral", PIXTRAL),
        (r"mistral[-_. ]?3|mistral[-_. ]?small[-_. ]?3|ministral[-_. ]?3|magistral|devstral", MISTRAL3),
        (r"llava", LLAVA),
    )
)
"""Patterns in a model's name or architecture, and the rule of the models that have them."""


def image_rule_of(name: str, architecture: str | None = None) -> ImageRule | None:
    """Return a model's rule, by its name, else by its architecture; None where it is not known."""
    for text in (name, architecture or ""):
        for pattern, rule in RULES:
            if pattern.search(text):
                return rule
    return None


def images_in(messages: Sequence[Mapping[str, Any]]) -> Iterator[ImageSize | None]:
    """Yield the size of every picture in OpenAI-style messages, None where it is not in the message."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, Mapping) and part.get("type") in ("image_url", "input_image"):
                url = part.get("image_url")
                url = url.get("url") if isinstance(url, Mapping) else url
                yield size_in_data_url(url) if isinstance(url, str) else None


class ImageTokens:
    """Counts the pictures of conversations; learns from the engine's reports for models without a rule."""

    def __init__(self) -> None:
        self._learned = Recent[str, float]("picture_sizes", CAPACITY)

    def count(self, model: str, messages: Sequence[Mapping[str, Any]], rule: ImageRule | None) -> int:
        """Return about how many tokens all pictures in the messages take."""
        sizes = list(images_in(messages))
        if rule is None:
            return round((self._learned.get(model) or CAUTIOUS_TOKENS) * len(sizes))
        return sum(rule.count(size or LIKELY_SIZE) for size in sizes)

    def observe(self, model: str, images: int, tokens: int) -> None:
        """Learn from a prompt whose pictures took so many tokens: the engine's number without the count of the text."""
        if images <= 0 or tokens <= 0:
            return
        self._learned.put(model, tokens / images)
