"""What a tool does, as far as the history of its calls is concerned."""

import re
from collections.abc import Mapping
from typing import Final

from elbowroom.settings.tool_sections import ToolKind

VERBS: Final[dict[ToolKind, str]] = {
    "read": "read get fetch open view show cat load download head tail retrieve peek",
    "write": (
        "write create edit patch append delete rename save update insert replace remove move copy add put set upload "
        "mkdir modify overwrite prepend"
    ),
    "execute": "run exec execute bash shell sh cmd command terminal test tests eval evaluate invoke build compile",
    "query": "search list find grep query count lookup ls glob browse filter select",
}
KIND_OF_VERB: Final[dict[str, ToolKind]] = {verb: kind for kind, verbs in VERBS.items() for verb in verbs.split()}
CHANGES_WHATEVER_ELSE: Final = "replace"
WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\dA-Za-z_]+")


def kind_of(name: str, declared: Mapping[str, ToolKind]) -> ToolKind:
    """Return what is declared of a tool; of any other what the words of its name say, "other" where they say nothing.

    Of several words the first decides, so that `execute_query` executes; but what searches and replaces writes. Only
    whole words count: `research_notes` is no search.
    """
    if name in declared:
        return declared[name]
    words = words_in(name)
    if CHANGES_WHATEVER_ELSE in words:
        return "write"
    return next((KIND_OF_VERB[word] for word in words if word in KIND_OF_VERB), "other")


def words_in(name: str) -> list[str]:
    """Return the words of a name in lower case: between signs and digits, and where a capital begins one."""
    return [word.casefold() for word in WORD.findall(name)]
