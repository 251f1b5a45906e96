"""Plays recorded conversations with real tool servers, one after another, as one long conversation each."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tool_history import RECORDED

from elbowroom.context.compaction import find_identifiers
from elbowroom.context.templates.repair import repair
from elbowroom.context.transcript import SYSTEM_ROLES, Message, text_of
from elbowroom.quality.conversations import Fact, Known

PATTERNS: Final = ("livemcp_*.json", "taubench_*.json")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A conversation that begins with one recording and goes on with the others.

    Its facts are the identifiers of the user.
    """

    name: str
    messages: tuple[Message, ...]
    kind: str = "recorded"
    language: str = "English"

    def turns(self, window: int) -> Iterator[tuple[list[Message], Known]]:
        """Yield what was said up to each answer of the assistant; the window changes nothing."""
        known = Known()
        turn: list[Message] = []
        for at, message in enumerate(self.messages):
            turn.append(message)
            if message.get("role") == "user":
                for found in find_identifiers(text_of(message)):
                    known.facts[found.core] = Fact(found.core, "recorded", "user", [found.core])
            follows = self.messages[at + 1 : at + 2]
            is_answer = message.get("role") == "assistant" and not message.get("tool_calls")
            if is_answer and follows and follows[0].get("role") == "user":
                yield turn, known
                turn = []


def all_recorded(folder: Path = RECORDED) -> list[Recorded]:
    """Return the recorded conversations; none where they are not there."""
    paths = sorted(path for pattern in PATTERNS for path in folder.glob(pattern))
    said = [json.loads(path.read_text(encoding="utf-8"))["messages"] for path in paths]
    chained = []
    for start, path in enumerate(paths):
        following = [said[(start + at) % len(said)] for at in range(len(said))]
        rest = [message for each in following[1:] for message in each if message.get("role") not in SYSTEM_ROLES]
        chained.append(Recorded(path.stem, tuple(repair([*following[0], *rest]))))
    return chained
