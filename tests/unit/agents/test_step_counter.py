"""A step's counter counts what would be sent, and does the same work once."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from elbowroom.agents.prompt import counters
from elbowroom.agents.prompt.counters import MANY, HistoryCounter, StepCounter, TemplateFacts
from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.transcript import Message
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.files import StreamCounter

USER: Message = {"role": "user", "content": "Which harbour?"}
ANSWER: Message = {"role": "assistant", "content": "The old one."}
ORDER: Message = {"role": "user", "content": "Go on."}


class ByLetters:
    """A way of counting: letters of all contents. It notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[Message]] = []

    async def count_text(self, text: str) -> TokenCount:
        """Count a text."""
        return TokenCount(len(text), "exact")

    async def count_chat(
        self, messages: Sequence[Message], tools: Sequence[Message], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Count messages."""
        self.asked.append(list(messages))
        return TokenCount(sum(len(message["content"]) for message in messages), "exact")


def step_counter(way: ByLetters, behind: list[Message]) -> StepCounter:
    """Return a counter that copies messages and puts others behind them, as a step does."""
    counter = TokenCounter("m", None, [way])
    history = HistoryCounter(counter, {}, TemplateFacts(TemplateDemands(), TemplateDemands(), False, "none"), len)
    running = StreamCounter.__new__(StreamCounter)  # no answer grows here
    return StepCounter(history, running, lambda messages: [dict(one) for one in (*messages, *behind)])


async def test_what_was_measured_is_not_counted_again_when_it_is_sent() -> None:
    """Measuring a history, asking for what is sent, and measuring that body count once."""
    way = ByLetters()
    counter = step_counter(way, [])
    prompt = await counter.prompt([USER, ANSWER])
    sent = await counter.sent([USER, ANSWER])
    size = await counter.size({"messages": list(sent)})
    assert prompt == size.count.at_most == len("Which harbour?The old one.")
    assert way.asked == [sent]


@pytest.mark.parametrize(
    "messages",
    [[USER] * 2 * MANY, [{"role": "assistant", "content": "", "tool_calls": [{"id": "c"}] * MANY}]],
    ids=["messages", "calls"],
)
@pytest.mark.parametrize("asked", ["its size", "what is sent", "its form"])
async def test_a_long_history_is_brought_into_its_form_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, messages: list[Message], asked: str
) -> None:
    """The loop's own thread does none of the work whose length grows with the history, whatever is asked."""
    way, threads = ByLetters(), set[int]()
    counter = step_counter(way, [])
    dress = counter.dress

    def noted(history: Sequence[Message], *_: TemplateDemands) -> Sequence[Message]:
        threads.add(threading.get_ident())
        return dress(history)

    counter.dress = noted
    monkeypatch.setattr(counters, "normalise", noted)
    asking = {"its size": counter.prompt, "what is sent": counter.sent, "its form": counter.history.normalised}
    await asking[asked](messages)
    assert threads
    assert threading.get_ident() not in threads


async def test_the_same_history_with_something_else_behind_it_is_counted_anew() -> None:
    """What is put around a history may change while the history does not; the count follows."""
    way = ByLetters()
    behind: list[Message] = []
    counter = step_counter(way, behind)
    before = await counter.prompt([USER])
    behind.append(ORDER)
    assert await counter.sent([USER]) == [USER, ORDER]
    assert await counter.prompt([USER]) == before + len("Go on.")
    assert len(way.asked) == 2


async def test_a_message_that_changed_in_one_word_is_counted_anew() -> None:
    """Histories are told apart by what they say."""
    counter = step_counter(ByLetters(), [])
    before = await counter.prompt([USER, ANSWER])
    assert await counter.prompt([USER, {**ANSWER, "content": "The older one."}]) == before + 2
