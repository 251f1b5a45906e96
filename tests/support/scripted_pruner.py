"""A model that knows its conversation by heart, and answers the orders of a compaction with a valid plan."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from elbowroom.demo import Script, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from long_conversations import Conversation

Body = dict[str, Any]
ORDER: Final = "Answer with one JSON object and nothing else"
ROW: Final = re.compile(r"^(\d+) \| \w+ \| (.*) \| \d+$", re.MULTILINE)
GROUP: Final = re.compile(r'<group id="(\d+)">\n\w+: (.*)')
MOST_WORDS: Final = re.compile(r"at most (\d+) words")
TAILS: Final = (800, 400, 200, 100, 50, 24)
"""How much of the end of an answer tells where it was stopped, in characters: the more, the surer."""


def is_prune_order(body: Body) -> bool:
    """Tell whether this request is a compaction's order and not a turn of the conversation."""
    last = body["messages"][-1]
    return last["role"] == "user" and ORDER in text_of(last)


def text_of(message: Body) -> str:
    """Return the text of a message, whose content may be a string, parts or nothing."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def listed_groups(body: Body) -> dict[int, str]:
    """Return the ids of the groups that an order lists, with the first words of each."""
    order = text_of(body["messages"][-1])
    found = ROW.findall(order) or GROUP.findall(order)
    return {int(number): words for number, words in found}


def valid_plan(body: Body) -> str:
    """Return a plan within the order's length that speaks of the listed groups and keeps the last of them."""
    groups = listed_groups(body)
    limit = MOST_WORDS.search(text_of(body["messages"][-1]))
    words = int(limit[1]) // 3 if limit else 60
    told = " ".join(f"Then came: {first[:40]}." for first in groups.values()).split()[: max(20, words)]
    return json.dumps(
        {
            "retain": "The log of the ferry is kept in full sentences, and nothing is promised in a storm.",
            "summary": f"{len(groups)} earlier messages were exchanged. {' '.join(told)}",
            "keep": list(groups)[-1:],
        },
        ensure_ascii=False,
    )


class KnowsByHeart:
    """An `on_request` for the simulated LM Studio: says what the conversation says, whatever the client sent.

    `orders` are the requests of compactions, `continued` those that asked to go on with an answer that was stopped.
    """

    def __init__(self, conversation: Conversation, prune: Callable[[Body], Script | str] = valid_plan) -> None:
        self._conversation = conversation
        self._prune = prune
        self.orders: list[Body] = []
        self.continued: list[Body] = []

    def __call__(self, body: Body) -> Script | str | None:
        """Return the plan for an order, else the next thing that the assistant says."""
        if is_prune_order(body):
            self.orders.append(body)
            answer = self._prune(body)
            return Script(Text(answer, whole=True)) if isinstance(answer, str) else answer
        messages = body["messages"]
        found = [
            (at, exchange)
            for at, message in enumerate(messages)
            if message["role"] == "user" and (exchange := self._conversation.exchange_of(text_of(message)))
        ]
        if not found:
            return None
        at, exchange = found[-1]
        answered = sum(bool(message.get("tool_calls")) for message in messages[at:])
        if answered < len(exchange.rounds):
            calls = exchange.rounds[answered]
            return Script(*(ToolCall(call.name, call.arguments_text) for call in calls))
        if messages[-1]["role"] == "user" and messages[-2]["role"] == "assistant" and len(messages) - 1 != at:
            self.continued.append(body)
            return rest_of(exchange.reply, text_of(messages[-2]))
        return exchange.reply


def rest_of(answer: str, said: str) -> str:
    """Return what of an answer comes after the place where it was stopped."""
    return answer[stopped_at(answer, said) :]


def stopped_at(answer: str, said: str) -> int:
    """Return after how many characters an answer was stopped, of which this is the end or the whole.

    Raises ValueError where that cannot be told.
    """
    if answer.startswith(said):
        return len(said)
    for length in TAILS:
        if answer.count(tail := said[-length:]) == 1:
            return answer.index(tail) + len(tail)
    raise ValueError(f"this is not what was said: {said[-80:]!r}")


def in_deltas(answer: str, lengths: Callable[[], int]) -> Script:
    """Return the script that sends a text in deltas of these lengths, in characters."""
    steps: list[Text] = []
    start = 0
    while start < len(answer):
        end = start + lengths()
        steps.append(Text(answer[start:end], whole=True))
        start = end
    return Script(*steps)
