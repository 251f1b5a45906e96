"""Opens compressed bodies, piece by piece, so that none takes more memory than a plain body may."""

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aiohttp import hdrs, web

from elbowroom.errors import BodyTooLarge, RequestError, UnsupportedMediaType

PIECE_BYTES: Final = 64 * 1024
WINDOW_LOG: Final = 23
"""The largest window of zstd: 8 MiB, as much as RFC 9659 lets a body ask for."""
GZIP_BITS: Final = 31
ZLIB_BITS: Final = 15
DEFLATE_BITS: Final = -15
ZLIB_METHOD: Final = 8
ZLIB_CHECK: Final = 31
PLAIN: Final = "identity"


class UnsupportedCoding(UnsupportedMediaType):
    """The body is compressed in a way that is not taken; the answer's Accept-Encoding tells those that are."""


def coding_of(request: web.Request) -> str:
    """Return how the body of a request is compressed; PLAIN where it is not. Raises UnsupportedCoding."""
    named = ", ".join(request.headers.getall(hdrs.CONTENT_ENCODING, [])).strip().lower() or PLAIN
    if named != PLAIN and named not in OPENERS:
        taken = f"send it plain, or compressed once with {', '.join([*OPENERS][:-1])} or {[*OPENERS][-1]}"
        if "," in named:
            raise UnsupportedCoding(f"The body is compressed more than once ({named[:60]}): {taken}.")
        raise UnsupportedCoding(f"The body is compressed with {named[:60]!r}, which elbowroom does not open: {taken}.")
    return named


def opened(coding: str, packed: bytes | bytearray, most: int) -> bytearray:
    """Return what a body compressed in this way holds.

    Raises BodyTooLarge as soon as that is more than `most` bytes, and RequestError where the body is broken.
    """
    body = bytearray()
    for piece in _read(coding, packed):
        body += piece
        if len(body) > most:
            raise BodyTooLarge(f"Opened, the body is larger than the {most // 2**20} MiB that elbowroom takes.")
    return body


def _read(coding: str, packed: bytes | bytearray) -> Iterator[bytes]:
    try:
        yield from OPENERS[coding](packed)
    except Exception as error:  # each library has errors of its own
        raise RequestError(
            f"The body cannot be opened as {coding}: it is broken, was cut short, or something follows it."
        ) from error


def _pieces(packed: bytes | bytearray) -> Iterator[bytes]:
    for start in range(0, len(packed), PIECE_BYTES):
        yield bytes(packed[start : start + PIECE_BYTES])


def _gzip(packed: bytes | bytearray) -> Iterator[bytes]:
    return _inflated(packed, GZIP_BITS)


def _deflate(packed: bytes | bytearray) -> Iterator[bytes]:
    """Yield what zlib's form holds, or what bare deflate does, which some clients send under the same name."""
    has_head = packed[:1] and packed[0] & 0xF == ZLIB_METHOD and not int.from_bytes(packed[:2]) % ZLIB_CHECK
    return _inflated(packed, ZLIB_BITS if has_head else DEFLATE_BITS)


def _inflated(packed: bytes | bytearray, bits: int) -> Iterator[bytes]:
    inflater = zlib.decompressobj(bits)
    for piece in _pieces(packed):
        rest = piece
        while rest:
            yield inflater.decompress(rest, PIECE_BYTES)
            rest = inflater.unconsumed_tail
        if inflater.unused_data:
            break
    yield inflater.flush()
    if inflater.unused_data or not inflater.eof:
        raise EOFError


def _brotli(packed: bytes | bytearray) -> Iterator[bytes]:
    import brotli

    opener = brotli.Decompressor()
    for piece in _pieces(packed):
        out = opener.process(piece, output_buffer_limit=PIECE_BYTES)
        while out:  # what is left inside is told by nothing else
            yield out
            out = b"" if opener.is_finished() else opener.process(b"", output_buffer_limit=PIECE_BYTES)
    if not opener.is_finished():
        raise EOFError


def _zstd(packed: bytes | bytearray) -> Iterator[bytes]:
    if sys.version_info >= (3, 14):
        from compression.zstd import DecompressionParameter, ZstdDecompressor
    else:
        from backports.zstd import DecompressionParameter, ZstdDecompressor

    opener = ZstdDecompressor(options={DecompressionParameter.window_log_max: WINDOW_LOG})
    for piece in _pieces(packed):
        yield opener.decompress(piece, PIECE_BYTES)
        while not (opener.needs_input or opener.eof):
            yield opener.decompress(b"", PIECE_BYTES)
    if opener.unused_data or not opener.eof:
        raise EOFError


OPENERS: Final[Mapping[str, Callable[[bytes | bytearray], Iterator[bytes]]]] = {
    "gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
