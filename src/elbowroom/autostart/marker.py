"""The line that tells what elbowroom has written from what a person has, and whether it was changed since."""

import hashlib
import re
from typing import Final

WORDS: Final = "Written by `elbowroom autostart on`, and removed by `off` unless it is changed;"
SUM: Final = re.compile(rf"^.*{re.escape(WORDS)} sum (?P<sum>[0-9a-f]{{32}}).*\n", re.MULTILINE)


def marked(head: str, body: str, comment: str = "# {}") -> str:
    """Return the text with a marker line between its head and its body; `comment` is the form of one in the format."""
    return f"{head}{comment.format(f'{WORDS} sum {_sum_of(head + body)}')}\n{body}"


def is_as_written(text: str) -> bool:
    """Tell whether a text has the marker line and is otherwise, to the letter, what was marked."""
    found = SUM.search(text)
    return found is not None and _sum_of(text[: found.start()] + text[found.end() :]) == found["sum"]


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
