"""One regular expression that finds every special token of a model, the longest one at each place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

Branches = dict[str, "Branches"]
END = ""


def special_token_pattern(texts: Collection[str]) -> re.Pattern[str] | None:
    """Return the expression, None for no texts.

    It is built as a tree of common beginnings: with a flat list of a thousand alternatives each of them would
    be tried at every "<" of a prompt.
    """
    tree: Branches = {}
    for text in texts:
        branch = tree
        for character in text:
            branch = branch.setdefault(character, {})
        branch[END] = {}
    if not tree:
        return None
    try:
        return re.compile(_expression(tree))
    except RecursionError:  # runs of one character, hundreds long, each a token of its own
        return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))


def _expression(branches: Branches) -> str:
    """Return an expression for the rest of all texts below a branch; longer ones are tried first."""
    rest = ""
    while len(branches) == 1 and END not in branches:
        ((character, branches),) = branches.items()
        rest += re.escape(character)
    if not branches or branches.keys() == {END}:
        return rest
    ways = "|".join(re.escape(character) + _expression(below) for character, below in branches.items() if character)
    return f"{rest}(?:{ways})" + ("?" if END in branches else "")
