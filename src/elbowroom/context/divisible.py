"""A message is divisible: of one that does not fit the end stays word for word, but for answers the beginning too."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from elbowroom.context.transcript import Message, is_blank, text_of, with_text

LEAST: Final = 200
"""Characters that stay of a message at least; from fewer nobody sees where it stopped."""
NEAR: Final = 80
"""Characters within which a text is cut at the end of a line, sentence or word instead of in the middle of it."""
HEAD_SHARE: Final = (2, 3)
"""How much of what stays is the beginning, but of an answer."""
LONGEST_TOKEN: Final = 20
"""Characters; a text with more of them for each token of room has no room, and is not counted."""
TRIES: Final = 6
STOPS: Final = ("\n", ". ", " ")
LEFT_OUT: Final = "[{:,} characters are left out here.]"
NOTE: Final = re.compile(re.escape(LEFT_OUT).replace(re.escape("{:,}"), r"[\d,]+"))


@dataclass(frozen=True, slots=True)
class Divided:
    """A `whole` message in two: `shown` stays of it, word for word, and `rest` does not."""

    whole: Message
    shown: Message
    rest: Message


def is_divisible(message: Message) -> bool:
    """Tell whether a part of a message can stay: it is the text of a user, an answer or a result, without calls."""
    has_text = bool(text_of(message).strip()) and not is_blank(message.get("content"))
    return has_text and message.get("role") in ("user", "assistant", "tool") and not message.get("tool_calls")


def divided(message: Message, length: int) -> Divided | None:
    """Return the message in two, with about so many characters shown; None where it cannot be divided so."""
    text = text_of(message)
    if not is_divisible(message) or len(text) <= length:
        return None
    if message.get("role") == "assistant":
        head, tail = ends(text, 0, length)
        shown = tail
    else:
        head, tail = _both_ends(text, length)
        shown = f"{head}\n{LEFT_OUT.format(len(text) - len(head) - len(tail))}\n{tail}"
    rest = text[len(head) : len(text) - len(tail)]
    left_out = {"role": message["role"], "content": rest}
    return Divided(message, with_text(message, shown), left_out) if rest.strip() else None


def without_note(text: str) -> str:
    """Return the text of a message that was divided without the note of ours on how much of it is left out."""
    return NOTE.sub("", text)


def within(message: Message, room: int, size: Callable[[str], int]) -> Divided | None:
    """Return the message in two, with as much of it shown as takes so many tokens; None where all of it fits.

    At least `LEAST` characters are shown. `size` counts a text.
    """
    text = text_of(message)
    if fits(text, room, size):
        return None

    def taken(length: int) -> int:
        parts = divided(message, length)
        return size(text_of(parts.shown)) if parts is not None else room + 1

    return divided(message, max(LEAST, _longest(len(text) - 1, room, taken)))


def beginning_and_end(text: str, room: int, size: Callable[[str], int], note: Callable[[int], str]) -> str:
    """Return a text within so many tokens: whole, or its beginning and end with a note between them.

    The note tells how many characters are left out. It stands alone where it takes all the room. `size` counts a text.
    """
    if fits(text, room, size):
        return text

    def shown(length: int) -> str:
        head, tail = _both_ends(text, length)
        return "\n".join(filter(None, (head, note(len(text) - len(head) - len(tail)), tail)))

    return shown(_longest(len(text) - 1, room, lambda length: size(shown(length))))


def fits(text: str, room: int, size: Callable[[str], int]) -> bool:
    """Tell whether a text takes at most so many tokens; one that is too long by its length alone is not counted."""
    return len(text) <= LONGEST_TOKEN * room and size(text) <= room


def _longest(most: int, room: int, taken: Callable[[int], int]) -> int:
    """Return about the largest length up to the most that takes so many tokens; 0 where none was found.

    It lies where a line between what fits and what is too long says. After two that are too long it is looked for in
    the middle: a text whose ends are denser than what is between them would stay too long in guess after guess.
    """
    longest, fitting, over, too_many = 0, 0, most + 1, 0
    length, was_over = min(most, 4 * max(0, room)), False
    for _ in range(TRIES):
        if not longest < length < over:
            break
        tokens = taken(length)
        is_over = tokens > room
        if is_over:
            over, too_many = length, tokens
        else:
            longest, fitting = length, tokens
        if not too_many:
            length = min(most, longest * room // max(1, fitting))
        elif is_over and was_over:
            length = (longest + over) // 2
        else:
            length = longest + (over - longest) * (room - fitting) // (too_many - fitting) - NEAR // 4
        was_over = is_over
    return longest


def _both_ends(text: str, length: int) -> tuple[str, str]:
    """Return the beginning and the end of a text, of about so many characters together."""
    part, whole = HEAD_SHARE
    return ends(text, length * part // whole, length - length * part // whole)


def ends(text: str, head: int, tail: int) -> tuple[str, str]:
    """Return the beginning and the end of a text, of about so many characters each, in whole lines or words."""
    if head:
        head = next((place for stop in STOPS if (place := _before(text, stop, head)) > 0), head)
    start = max(head, len(text) - tail)
    if tail:
        start = next((place for stop in STOPS if 0 < (place := _after(text, stop, start)) < len(text)), start)
    return text[:head], text[start:] if tail else ""


def _before(text: str, stop: str, at: int) -> int:
    return text.rfind(stop, max(0, at - NEAR), at) + 1


def _after(text: str, stop: str, at: int) -> int:
    found = text.find(stop, max(0, at - 1), at + NEAR)
    return found + len(stop) if found >= 0 else 0
