"""What the model would get without elbowroom, in a prompt of the same size: three things that others do."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pruners import ORDER, TOKENS_A_WORD, Agent
from sizes import size_of

from elbowroom.context.transcript import SYSTEM_ROLES, Message, Transcript, messages_of
from elbowroom.demo.overflow import truncate

SUMMARY: Final = "Summary of the conversation so far:\n"
PART_OF_SUMMARY: Final = 2
"""The summary may take one part in so many of the prompt; the last messages have the rest."""


def last_messages(history: Sequence[Message], most: int) -> list[Message]:
    """Return the system messages and as many of the last groups as fit in so many tokens."""
    transcript = Transcript.of(history)
    system = [group for group in transcript.groups if group.kind == "system"]
    others = [group for group in transcript.groups if group.kind != "system"]
    left = most - sum(size_of(message) for message in messages_of(system))
    start = len(others)
    while start > 0 and (taken := sum(map(size_of, others[start - 1].messages))) <= left:
        left -= taken
        start -= 1
    return [*messages_of(system), *messages_of(others[start:])]


def without_the_middle(history: Sequence[Message], most: int) -> list[Message]:
    """Return what LM Studio's default policy leaves of a history in so many tokens: its first question, and its end."""
    sizes = [size_of(message) for message in history]
    if sum(sizes) < most:
        return [*history]
    return list(truncate([dict(message) for message in history], sum(sizes), sizes, most, "truncateMiddle").messages)


@dataclass(slots=True)
class Summarised:
    """One plain summary by a pruning agent, written anew each time from the last one and what was said since."""

    agent: Agent
    messages: list[Message] = field(default_factory=list)

    def compact(self, most: int) -> None:
        """Put a summary in the place of what was said, and leave as many of the last messages as fit beside it."""
        system = [message for message in self.messages if message["role"] in SYSTEM_ROLES]
        first = [message for message in system if not str(message["content"]).startswith(SUMMARY)]
        room = (most - sum(map(size_of, first))) // PART_OF_SUMMARY
        order = f"{ORDER}. Summarise the conversation in at most {int(room / TOKENS_A_WORD)} words."
        told = _told(self.agent.answer({"messages": [*self.messages, {"role": "user", "content": order}]}))
        rest = [message for message in self.messages if message["role"] not in SYSTEM_ROLES]
        self.messages = last_messages([*first, {"role": "system", "content": SUMMARY + told}, *rest], most)


def _told(answer: str) -> str:
    """Return the words of an answer, whatever its form."""
    try:
        plan: Any = json.loads(answer)
    except ValueError:
        return answer
    return f"{plan['retain']}\n{plan['summary']}" if isinstance(plan, dict) else answer
