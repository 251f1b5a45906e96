"""The size of pictures, and the tokens they take."""

import base64
import struct
from typing import Any

import pytest

from elbowroom.tokens.images import (
    CAUTIOUS_TOKENS,
    GEMMA3,
    GEMMA4,
    MISTRAL3,
    PIXTRAL,
    QWEN2_VL,
    QWEN3_VL,
    ImageRule,
    ImageSize,
    ImageTokens,
    image_rule_of,
    image_size,
    images_in,
    size_in_data_url,
)

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + bytes(9)
EXIF = b"\xff\xe1" + struct.pack(">H", 2 + 300) + bytes(300)
JPEG = b"\xff\xd8" + EXIF + b"\xff\xff\xc2" + struct.pack(">HBHH", 17, 8, 480, 640) + bytes(10)
GIF = b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(9)
BMP = b"BM" + bytes(12) + struct.pack("<Iii", 40, 640, -480) + bytes(20)
WEBP = b"RIFF" + bytes(4) + b"WEBP"
LOSSY = WEBP + b"VP8 " + bytes(4) + b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", 640, 480)
LOSSLESS = WEBP + b"VP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 639 | 479 << 14)
EXTENDED = WEBP + b"VP8X" + bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
PICTURES = {
    "png": PNG,
    "jpeg": JPEG,
    "gif": GIF,
    "bmp": BMP,
    "webp": LOSSY,
    "webp lossless": LOSSLESS,
    "webp extended": EXTENDED,
}


def data_url(data: bytes) -> str:
    """Return a picture as a URL."""
    return "data:image/x;base64," + base64.b64encode(data).decode()


@pytest.mark.parametrize("kind", PICTURES)
def test_size_is_read_from_the_first_bytes(kind: str) -> None:
    """Every kind of picture tells its width and height."""
    assert image_size(PICTURES[kind]) == ImageSize(640, 480)
    assert size_in_data_url(data_url(PICTURES[kind] + bytes(5000))) == ImageSize(640, 480)


@pytest.mark.parametrize("kind", PICTURES)
def test_damaged_picture_has_no_size(kind: str) -> None:
    """A picture cut off anywhere has its size or none, and never an error."""
    for length in range(len(PICTURES[kind])):
        assert image_size(PICTURES[kind][:length]) in (None, ImageSize(640, 480))


def test_what_is_no_picture_has_no_size() -> None:
    """Other data, links, broken URLs and pictures without any area have no size."""
    assert image_size(b"") is image_size(b"plain text") is image_size(WEBP + b"ABCD" + bytes(20)) is None
    assert image_size(PNG[:16] + bytes(8)) is None
    for url in ("https://example.org/a.png", "data:image/png;base64", "data:image/png,abc", "data:;base64,\u00e9"):
        assert size_in_data_url(url) is None


@pytest.mark.parametrize(
    ("rule", "size", "tokens"),
    [
        (GEMMA3, (4000, 10), 258),
        (QWEN2_VL, (640, 480), 23 * 17 + 2),
        (QWEN2_VL, (28, 28), 9 + 2),
        (QWEN2_VL, (8000, 6000), 73 * 55 + 2),
        (QWEN3_VL, (640, 480), 20 * 15 + 2),
        (GEMMA4, (640, 480), 13 * 10 + 2),
        (PIXTRAL, (512, 256), 32 * 16 + 15 + 1),
        (MISTRAL3, (640, 480), 23 * 17 + 16 + 1),
        (MISTRAL3, (100, 20_000), 2 * 452 + 451 + 1),
    ],
)
def test_rules_count_as_the_engine_does(rule: ImageRule, size: tuple[int, int], tokens: int) -> None:
    """Pictures of all sizes are fitted into the model's squares, marks and row ends included."""
    assert rule.count(ImageSize(*size)) == tokens


@pytest.mark.parametrize(
    ("name", "architecture", "rule"),
    [
        ("qwen2.5-vl-7b-instruct", None, QWEN2_VL),
        ("qwen/qwen3-vl-8b", None, QWEN3_VL),
        ("Google/Gemma-3-12B", None, GEMMA3),
        ("google/gemma-4-31b", None, GEMMA4),
        ("mistralai/mistral-small-3.2", None, MISTRAL3),
        ("my-model", "qwen2vl", QWEN2_VL),
        ("my-model", "gemma3", GEMMA3),
        ("my-model", "llama", None),
    ],
)
def test_rule_is_found_by_name_or_architecture(name: str, architecture: str | None, rule: ImageRule | None) -> None:
    """Models whose rule is known are found, others have none."""
    assert image_rule_of(name, architecture) is rule


def test_pictures_in_messages_are_found() -> None:
    """Pictures of both dialects count; text, links and odd parts do not disturb."""
    parts: list[Any] = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": data_url(PNG)}},
        {"type": "input_image", "image_url": data_url(JPEG)},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url"},
        "text",
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": parts}, {"role": "user", "content": "no picture"}, {}]
    size = ImageSize(640, 480)
    assert list(images_in(messages)) == [size, size, None, None]
    assert ImageTokens().count("m", messages, QWEN3_VL) == 2 * 302 + 2 * 1026


def test_unknown_models_are_learned() -> None:
    """A model without a rule is counted with care until a prompt has shown what a picture takes."""
    messages = [{"role": "user", "content": [{"type": "image_url"}] * 3}]
    images = ImageTokens()
    assert images.count("m", messages, None) == 3 * CAUTIOUS_TOKENS
    images.observe("m", 2, 1154)
    images.observe("m", 0, 50)
    images.observe("m", 1, -5)
    assert images.count("m", messages, None) == 3 * 577
    assert images.count("other", messages, None) == 3 * CAUTIOUS_TOKENS
