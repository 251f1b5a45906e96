"""A model whose one answer does not fit beside its conversation, so that it is compacted while it is written."""

from typing import Any, Final

from scripted_pruner import rest_of, text_of
from small_window import QUESTION, history

FIRST: Final = history(5)
LOG: Final = "".join(
    f"On day {day} the ferry left pier {day % 9} with {day * 7} people on board.\n" for day in range(40)
)


def writes_the_log(body: dict[str, Any]) -> str:
    """Write the log, and go on with it where it was stopped."""
    messages = body["messages"]
    return LOG if text_of(messages[-1]) == QUESTION else rest_of(LOG, text_of(messages[-2]))
