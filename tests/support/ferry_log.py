"""A chat about a ferry's crossings for the tests of the gauge: with a tool, thoughts and long answers."""

import json
from typing import Any, Final

from chatting import MODEL

from elbowroom.demo import Reasoning, Script, ToolCall

Body = dict[str, Any]
WINDOW: Final = 4096
TURNS: Final = 40
MOST_OFF: Final = 0.02
AGENT: Final = (
    f'[[agents]]\nid = "writer"\nname = "The Writer"\ninstructions = "{"You keep the log of the ferry. " * 20}"\n'
    f'model = "{MODEL}"\n'
)
LONG: Final = "The sea was calm on this crossing, the boat was half full, and the harbour was reached in time. " * 5


def says(body: Body) -> Script | str:
    """Look in the log for every third question, think before every fourth answer."""
    asked = [message for message in body["messages"] if message["role"] == "user"]
    number = int(asked[-1]["content"].split()[-1]) if asked[-1]["content"].split()[-1].isdigit() else 0
    if number % 3 == 0 and body.get("tools") and body["messages"][-1]["role"] == "user":
        return Script(ToolCall("read_log", json.dumps({"crossing": number})))
    words = f"On crossing {number}: {LONG}"
    return Script(Reasoning("Let me think about that for a while. " * 12), words) if number % 4 == 0 else words


async def read_log(crossing: int) -> str:
    """Read what was noted on a crossing."""
    return f"Crossing {crossing}: " + "wind from the west, " * 25


def check(off: list[tuple[int, int, int]]) -> None:
    """Fail where a gauge was off: each is the number of the turn, what was shown, and the prompt that came."""
    wrong = [each for each in off if abs(each[1] - each[2]) > MOST_OFF * each[2]]
    assert not wrong, wrong
