"""The simulated model as a pruning agent: it writes down what the user has asked, as a small model might."""

import json
import re
from typing import Final

from elbowroom.demo.script import Body, Script
from elbowroom.demo.tokenizer import content_text

_ORDER: Final = re.compile(r"Answer with one JSON object and nothing else, at most (\d+) words")
_ASKED: Final = re.compile(r"^\d+ \| user \| (.*) \| \d+$|^<group id=\"\d+\">\nuser: (.{1,60})", re.MULTILINE)
"""What the user has asked, as an order lists it after a conversation, and as another one shows the material itself."""


def summary_of_order(body: Body) -> Script | None:
    """Return the plan that a compaction orders of a pruning agent; None where nothing is to be summarised."""
    order = content_text(body["messages"][-1].get("content"))
    most, asked = _ORDER.search(order), _ASKED.findall(order)
    if most is None or not asked:
        return None
    words = " ".join(f"The user wrote: {listed or shown}." for listed, shown in asked).split()
    return Script(json.dumps({"retain": "", "summary": " ".join(words[: int(most[1])])}, ensure_ascii=False))
