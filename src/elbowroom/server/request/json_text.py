"""Parses the JSON of a body: quickly, within limits, and so that other threads get their turn meanwhile.

Neither parser lets another thread run while it parses, so a large body is parsed in parts. What the fast parser refuses
is left to the standard library's, which says what is wrong, and takes halves of surrogate pairs.
"""

import gc
import json
import math
import operator
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, compress, repeat
from typing import Any, Final, NoReturn

import msgspec

from elbowroom.errors import BodyTooLarge, RequestError

MAX_DEPTH: Final = 128
MAX_VALUES: Final = 300_000
"""As many as 100,000 messages of one text each have; parsing so many takes some 30 milliseconds."""
VALUE_BYTES: Final = 2
"""The fewest bytes that a value takes, with the sign before it or, if it is empty, around it."""
SIGNS: Final = (b",", b"[", b"{")
"""Each value but the first stands after one of these."""
LARGE: Final = 4 * 2**20
"""Bytes from which on a value is parsed in parts."""
LEVELS: Final = 8
"""How deep a large value is taken apart; each level is read once more for it."""
PIECE: Final = 256 * 1024
CONTAINERS: Final = frozenset({dict, list})
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
FIRST: Final = re.compile(rb"[ \t\r\n]*(.)")
WHITE_SPACE: Final = b" \t\r\n"
REST_OF_ESCAPE: Final = re.compile(rb"\\*.?", re.DOTALL)
"""What must not be cut off from a piece that may end with backslashes."""
CUT: Final = re.compile(rb"(?<=[^\\])(?=\\(?!u[dD][c-fC-F]))|(?<=[^\\]{6})(?=[^\\\x80-\xbf])", re.DOTALL)
"""A place in a text where neither a character nor an escape is cut: right before an escape that is no second half of a
pair, or six bytes and more after the last one and before the first byte of a character."""


_COUNTING: Final = threading.Lock()
_parsers = 0
"""How many threads parse now."""


def parsed(body: bytearray) -> Any:
    """Return the value that a body holds.

    Raises RequestError where it is no JSON or nested too deeply, BodyTooLarge where it has too many values.
    """
    if len(body) > MAX_VALUES * VALUE_BYTES:
        _check_values(body)
    if body.startswith(BYTE_ORDER_MARK):
        body = body[len(BYTE_ORDER_MARK) :]
    try:
        value = msgspec.json.decode(body) if len(body) <= PIECE else _quickly(body, LEVELS)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _strictly(body)
    _check_depth(value)
    return value


def _check_values(body: bytearray) -> None:
    """Refuse a body with too many values, before there is an object for each of them.

    Counting the signs takes no time but counts those in texts; only where these are too many, texts are left out.
    """
    if _signs_in(body) >= MAX_VALUES and _values_in(body) > MAX_VALUES:
        raise BodyTooLarge(f"The body has more than {MAX_VALUES:,} values: elbowroom takes at most so many at once.")


def _signs_in(body: bytearray) -> int:
    """Return how many of the signs a body holds."""
    starts = range(0, len(body), PIECE)
    return sum(body.count(sign, start, start + PIECE) for start in starts for sign in SIGNS)


def _values_in(body: bytearray) -> int:
    """Return how many values JSON holds, and no more than a piece's beyond the limit; keys are none."""
    values, start, in_text = 1, 0, False
    while start < len(body) and values <= MAX_VALUES:
        end = REST_OF_ESCAPE.match(body, min(start + PIECE, len(body))).end()  # type: ignore[union-attr]  # "" matches
        parts = body[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[in_text::2])
        values += sum(map(outside.count, SIGNS))
        in_text ^= len(parts) % 2 == 0
        start = end
    return values


def _quickly(text: bytearray | msgspec.Raw, levels: int) -> Any:
    """Return the value of JSON text; a large one is parsed part by part.

    Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError where the other parser has to look at it.
    """
    view = memoryview(text)
    first = FIRST.match(view) if len(view) > LARGE and levels else None
    match first and first[1]:
        case b"{":
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            return {name: _quickly(part, levels - 1) for name, part in members.items()}
        case b"[":
            return [_quickly(part, levels - 1) for part in msgspec.json.decode(text, type=list[msgspec.Raw])]
        case b'"' if first:
            return _text(view[first.start(1) + 1 : _end_of(view) - 1])
        case _:
            with _collector_off():
                return msgspec.json.decode(text)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Keep the garbage collector from looking at all objects again and again while threads make many new ones."""
    _change_parsers(1)
    try:
        yield
    finally:
        _change_parsers(-1)


def _change_parsers(by: int) -> None:
    """Note that a parser begins or ends; the collector is off while any is at work."""
    global _parsers  # the collector is one for all threads too
    with _COUNTING:
        _parsers += by
        (gc.disable if _parsers else gc.enable)()


def _end_of(view: memoryview) -> int:
    """Return where a value ends that may have white space after it."""
    return next(end for end in range(len(view), 0, -1) if view[end - 1] not in WHITE_SPACE)


def _text(inside: memoryview) -> str:
    """Return the text that stands between two quotes."""
    pieces, start = [], 0
    while start < len(inside):
        cut = CUT.search(inside, start + PIECE)
        end = cut.start() if cut else len(inside)
        pieces.append(msgspec.json.decode(b'"%b"' % bytes(inside[start:end]), type=str))
        start = end
    return "".join(pieces)


def _strictly(body: bytearray) -> Any:
    """Return the value of a body by the standard library's parser. Raises RequestError."""
    try:
        return json.loads(body.decode(), parse_float=_finite, parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeDecodeError as error:
        raise RequestError(f"The body is not valid JSON: it is not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise RequestError(f"The body is not valid JSON: {error}.") from None
    except ValueError:  # json.loads raises it for numbers with too many digits
        raise RequestError("The body is not valid JSON for elbowroom: a number in it has too many digits.") from None


def _too_deep() -> RequestError:
    return RequestError(f"The body is nested more than {MAX_DEPTH} levels deep.")


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(f"The body is not valid JSON: {name} is not a JSON number.")


def _finite(digits: str) -> float:
    """Return the number. Raises RequestError where it is too large for a float: Infinity is no JSON."""
    number = float(digits)
    if math.isinf(number):
        raise RequestError(f"The body is not valid JSON for elbowroom: {digits[:40]} is too large a number.")
    return number


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        kinds = [*map(type, level)]
        if CONTAINERS.isdisjoint(kinds):
            return
        objects = compress(level, map(operator.is_, kinds, repeat(dict)))
        lists = compress(level, map(operator.is_, kinds, repeat(list)))
        level = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(lists)]
    raise _too_deep()
