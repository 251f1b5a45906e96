"""Patterns that models write, in an engine whose time grows with the text alone: no pattern can make it hang."""

import re
from typing import Final

import re2

from elbowroom.errors import RequestError

LONGEST_PATTERN: Final = 1000
LARGEST_PROGRAM: Final = 10_000
"""How many instructions a pattern may become: each of them may have to be tried at each byte."""
MEMORY: Final = 8 * 2**20
MEMORY_TO_TRY: Final = 2**20
"""With so much a pattern that is far too large is refused before much time goes into it."""

TOO_LARGE: Final = (
    "The pattern is too large. Use smaller numbers of repetitions, or * and + instead of numbers, and fewer classes "
    "such as \\pL."
)

_LAZY: Final = re.compile(r"[*+?}]\?")


class LinearPattern:
    """A pattern that finds where lines match. It raises RequestError, which says what to do, where it is none.

    Text and places are in bytes of UTF-8, with lone surrogates as three bytes each. `^` and `$` are the ends of a line,
    and no match goes over one. Other threads run while it searches.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        if not pattern:
            raise RequestError("The pattern is empty. Give text or a regular expression to search for.")
        if len(pattern) > LONGEST_PATTERN:
            raise RequestError(
                f"The pattern has {len(pattern)} characters, more than the {LONGEST_PATTERN} that are taken. "
                "Search for a part of it."
            )
        # Where a match begins does not depend on greed. A match that ends early is found early.
        flags = "(?m)" if _LAZY.search(pattern) else "(?mU)"
        try:
            content = (flags + pattern).encode("utf-8", "surrogatepass")
            is_too_large = re2.compile(content, _options(ignore_case, MEMORY_TO_TRY)).programsize > LARGEST_PROGRAM
            self._compiled = re2.compile(content, _options(ignore_case, MEMORY))
        except re2.error as error:
            raise RequestError(_refusal(error)) from error
        finally:
            re2.purge()  # it would keep the last 128 patterns with all the memory they took
        if is_too_large:
            raise RequestError(TOO_LARGE)

    def search(self, text: bytes, begin: int, end: int) -> tuple[int, int] | None:
        """Return where the first match in `text[begin:end]` begins and ends; what is around it counts as around it."""
        match = self._compiled.search(text, begin, end)
        return match.span() if match else None


def _options(ignore_case: bool, memory: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.never_capture = True
    options.case_sensitive = not ignore_case
    options.max_mem = memory
    return options


def _refusal(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    if "too large" in words:
        return TOO_LARGE
    return (
        f"The pattern cannot be searched for: {words}. The syntax is RE2's: look-ahead, look-behind, back references "
        "and possessive or atomic groups do not exist in it. Search for a simpler pattern and look through what it "
        "finds; put a backslash before a special character that is meant as it stands."
    )
