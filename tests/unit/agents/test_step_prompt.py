"""The prompt of a step: what would be sent is counted, the same work is done once, and a tool may join it."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from elbowroom.agents.prompt import counters
from elbowroom.agents.prompt.body import StepRequest
from elbowroom.agents.prompt.counters import MANY, HistoryCounter, TemplateFacts
from elbowroom.agents.prompt.step_prompt import StepPrompt
from elbowroom.agents.request import parse_chat_request
from elbowroom.agents.tools.recall import Recaller
from elbowroom.context.budget import Budget
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.prompt import Prompt
from elbowroom.context.seam import CONTINUE
from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.transcript import Message
from elbowroom.providers.base import ModelInfo
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.files import StreamCounter

USER: Message = {"role": "user", "content": "Which harbour?"}
ANSWER: Message = {"role": "assistant", "content": "The old one."}


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


def step_prompt(way: ByLetters, window: int = 8192, recaller: Recaller | None = None, **fields: Any) -> StepPrompt:
    """Return the prompt of a chat's first step, in a window of so many letters."""
    request = parse_chat_request({"model": "m", "messages": [USER], **fields})
    shape = StepRequest(request, "m", {}, None, request.tools, step=1)
    facts = TemplateFacts(TemplateDemands(), TemplateDemands(), False, "none")
    counter = HistoryCounter(TokenCounter("m", None, [way]), shape.body(()), facts, len)
    manager = AgentContextManager(Budget(window), history=Prompt.of([USER]))
    running = StreamCounter.__new__(StreamCounter)  # no answer grows here
    return StepPrompt(shape, ModelInfo("m", "lm", "M"), manager, counter, running, recaller)


async def test_what_was_measured_is_not_counted_again_when_it_is_sent() -> None:
    """Measuring a history, asking for what is sent, and measuring that body count once."""
    way = ByLetters()
    prompt = step_prompt(way)
    most = await prompt.most([USER, ANSWER])
    body = await prompt.body([USER, ANSWER])
    size = await prompt.size(body)
    assert most == size.count.at_most == len("Which harbour?The old one.")
    assert way.asked == [body["messages"]]


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
    prompt = step_prompt(way)

    def noted(history: Sequence[Message], *_: TemplateDemands) -> list[Message]:
        threads.add(threading.get_ident())
        return list(history)

    monkeypatch.setattr(StepRequest, "with_instructions", lambda _, history: noted(history))
    monkeypatch.setattr(counters, "normalise", noted)
    asking = {"its size": prompt.most, "what is sent": prompt.sent, "its form": prompt.counter.normalised}
    await asking[asked](messages)
    assert threads
    assert threading.get_ident() not in threads


async def test_the_same_history_with_something_else_behind_it_is_counted_anew() -> None:
    """What is put around a history may change while the history does not; the count follows."""
    way = ByLetters()
    prompt = step_prompt(way)
    before = await prompt.most([USER])
    prompt.manager.history = prompt.manager.history.stopped("The old")
    assert await prompt.sent([USER]) == [USER, {"role": "user", "content": CONTINUE}]
    assert await prompt.most([USER]) == before + len(CONTINUE)
    assert len(way.asked) == 2


async def test_a_message_that_changed_in_one_word_is_counted_anew() -> None:
    """Histories are told apart by what they say."""
    prompt = step_prompt(ByLetters())
    before = await prompt.most([USER, ANSWER])
    assert await prompt.most([USER, {**ANSWER, "content": "The older one."}]) == before + 2


async def test_a_tool_that_is_offered_and_taken_back() -> None:
    """What is sent and counted has it from the offer on; taken back, the request is the one before."""
    recaller = Recaller()
    prompt = step_prompt(ByLetters(), 32_768, recaller)
    before = await prompt.body([USER])
    assert await prompt.offer()
    assert (await prompt.body([USER]))["tools"] == prompt.counter.body["tools"] == [recaller.tool.spec]
    assert prompt.unoffered.body([USER]) == before
    assert not await prompt.offer()  # it is there already
    prompt = step_prompt(ByLetters(), 32_768, recaller := Recaller())
    assert await prompt.offer()
    prompt.take_back()
    assert await prompt.body([USER]) == before
    assert not prompt.counter.body.get("tools")
    assert not recaller.is_offered


@pytest.mark.parametrize(
    "fields",
    [{"window": 2048}, {"tool_choice": "none"}, {"response_format": {"type": "json_object"}}, {"recaller": None}],
    ids=["no room", "no tools wanted", "a grammar", "no such tool"],
)
async def test_a_tool_that_is_not_offered(fields: dict[str, Any]) -> None:
    """A window that it would fill, a client that wants no calls, and a reply in a form leave the request as it is."""
    prompt = step_prompt(ByLetters(), **{"window": 32_768, "recaller": Recaller(), **fields})
    before = await prompt.body([USER])
    assert not await prompt.offer()
    assert await prompt.body([USER]) == before


async def test_the_prompt_after_a_reply_leaves_its_own_as_it_is() -> None:
    """It ends with the reply, and what happens to it is not seen in the prompt of the step."""
    prompt = step_prompt(ByLetters())
    after = prompt.after(ANSWER)
    assert after.manager.history.messages == [USER, ANSWER]
    assert after.manager.budget == prompt.manager.budget
    after.manager.could_not_compact()
    assert prompt.manager.history.messages == [USER]
    assert prompt.manager.strikes == 0
