"""A task is one request to the model, cut to its window, with a limit for the answer; nothing else is done about it."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from own_tools import toolbox_of
from task_prompts import FOOT, HEAD, TITLE, title_body, title_order

from elbowroom.agents.answer import AnswerEvent
from elbowroom.agents.catalog import Catalog, Target
from elbowroom.agents.request import parse_chat_request
from elbowroom.agents.task import MOST_COUNTS, MOST_RETRIES, answer_task
from elbowroom.agents.task_history import MARK
from elbowroom.agents.turn.state import RunSettings, Shared
from elbowroom.context.budget import Budget
from elbowroom.context.seam import notice_line
from elbowroom.errors import ContextOverflow, EmptyReply, RequestError
from elbowroom.providers.base import (
    Finished,
    ModelInfo,
    ModelManagement,
    PassedAnswer,
    SlotFiles,
    StreamEvent,
    TextDelta,
    UsageReport,
)
from elbowroom.settings.model import (
    AgentSettings,
    CompactionSettings,
    MemorySettings,
    StoreSettings,
    ToolOutputSettings,
)
from elbowroom.store import open_store
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter

WINDOW = 1000
Body = Mapping[str, Any]
SPARSE = "\nUSER: Considerations notwithstanding, circumnavigation remained extraordinarily straightforward."
DENSE = "\nASSISTANT: a b c d e f g h i j k l m n o p q r s t u v w x y z"


def words(messages: Sequence[Body]) -> int:
    """Return how many words the messages have."""
    return sum(len(str(message["content"]).split()) for message in messages)


@dataclass
class Words:
    """Counts words as tokens, exactly; it cannot where `fails_at` is reached."""

    counts: int = 0
    fails_at: int | None = None

    async def count_text(self, text: str) -> TokenCount:
        return TokenCount(len(text.split()), "exact")

    async def count_chat(self, messages: Sequence[Body], tools: Sequence[Body], arguments: Body) -> TokenCount:
        self.counts += 1
        if self.counts == self.fails_at:
            raise ValueError("the tokenizer has gone")
        return TokenCount(words(messages), "exact")


@dataclass
class Engine:
    """A provider with one model, which says the title; `refusals` are raised instead, one for each request."""

    id: str = "engine"
    manages_context: bool = True
    has_own_tool_format: bool = False
    management: ModelManagement | None = None
    slot_files: SlotFiles | None = None
    window: int = WINDOW
    ruler: Words = field(default_factory=Words)
    refusals: list[Exception] = field(default_factory=list)
    says_before: str = ""
    bodies: list[Body] = field(default_factory=list)

    async def models(self) -> Sequence[ModelInfo]:
        return [await self.ready("m")]

    async def ready(self, model: str) -> ModelInfo:
        return ModelInfo(id=model, provider=self.id, name=model, loaded_context=self.window)

    async def stream(self, body: Body, info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        self.bodies.append(body)
        if self.refusals:
            if self.says_before:
                yield [TextDelta(self.says_before)]
            raise self.refusals.pop(0)
        prompt = words(body["messages"])
        yield [TextDelta(TITLE), Finished("stop"), UsageReport({"prompt_tokens": prompt, "completion_tokens": 5})]

    def passed(self, path: str, body: Mapping[str, Any]) -> AbstractAsyncContextManager[PassedAnswer]:
        """Not asked for here."""
        raise NotImplementedError

    async def overflow_policy(self, model: str) -> str | None:
        return None

    async def counter(self, info: ModelInfo) -> TokenCounter:
        return TokenCounter("m", None, [self.ruler])

    async def aclose(self) -> None:
        """Nothing is under way."""

    @property
    def sent(self) -> str:
        """Return the text of the last message that was sent last."""
        return str(self.bodies[-1]["messages"][-1]["content"])


async def ask(engine: Engine, body: dict[str, Any], **agent: Any) -> list[AnswerEvent]:
    """Have the engine answer a task for an agent; return what the client was shown."""
    shown: list[AnswerEvent] = []

    async def sink(events: Sequence[AnswerEvent]) -> None:
        shown.extend(events)

    settings = AgentSettings(id="writer", model="m", provider="engine", **agent)
    target = Target("writer", engine, "m", settings)
    store = open_store(StoreSettings(url="sqlite+aiosqlite:///:memory:"), {})
    async with aclosing(store), aclosing(Shared.over(store, toolbox_of(lambda target: ()))) as shared:
        run_settings = RunSettings(
            CompactionSettings(),
            Catalog((), {}),
            "pass",
            ToolOutputSettings(),
            MemorySettings(),
            shared,
            task_history="whole",
        )
        answer = await answer_task(target, parse_chat_request(body), sink, run_settings)
    assert "".join(answer.text) == TITLE
    assert answer.finish_reason == "stop"
    assert answer.usage == {"prompt_tokens": words(engine.bodies[-1]["messages"]), "completion_tokens": 5}
    return shown


def task(history: str, **fields: Any) -> dict[str, Any]:
    """Return the body of a task with this history in it."""
    return {**title_body(0), "messages": [{"role": "user", "content": title_order(history)}], **fields}


@pytest.mark.parametrize(
    "history",
    [SPARSE * 2000, DENSE * 2000, SPARSE * 1000 + DENSE * 1000, DENSE * 50 + SPARSE * 1000 + DENSE * 50],
    ids=["sparse", "dense", "turning", "dense at its ends"],
)
@pytest.mark.parametrize("limit", [None, 20, 1000])
async def test_as_much_as_fits_with_few_counts(history: str, limit: int | None) -> None:
    """However the words are spread, nearly all of the room is used; beside it is room for the answer."""
    engine = Engine()
    shown = await ask(engine, task(history, max_tokens=limit))
    assert shown == [TextDelta(TITLE)]
    assert engine.ruler.counts <= 2 + MOST_COUNTS
    [body] = engine.bodies
    prompt = words(body["messages"])
    assert WINDOW * 0.9 < Budget(WINDOW, max_tokens=limit).occupied(prompt) <= WINDOW
    assert 0 < body["max_tokens"] <= min(limit or WINDOW, WINDOW - prompt)
    assert engine.sent.startswith(HEAD)
    assert engine.sent.endswith(FOOT)


async def test_what_fits_is_counted_once() -> None:
    """The common case costs one count and changes nothing."""
    engine = Engine()
    await ask(engine, body := task(DENSE * 3))
    assert engine.ruler.counts == 1
    assert engine.bodies[0]["messages"] == body["messages"]


async def test_several_long_texts_are_cut_together() -> None:
    """Where the longest text alone does not free enough, the next ones give of theirs too; orders give nothing."""
    engine = Engine()
    order = {"role": "system", "content": "Order. " * 300}
    messages = [{"role": "user", "content": f"{word} " * 1000} for word in ("transcription", "interpretation", "notes")]
    await ask(engine, {**task(""), "messages": [order, *messages], "max_tokens": 10}, sampling={})
    system, *rest = engine.bodies[0]["messages"]
    assert system == order
    assert [MARK in message["content"] for message in rest] == [True, True, True]
    assert WINDOW * 0.8 < words(engine.bodies[0]["messages"]) <= WINDOW - 10
    assert engine.ruler.counts <= 2 + MOST_COUNTS


@pytest.mark.parametrize("fails_at", [1, 2, 3])
async def test_what_cannot_be_counted_is_sent_as_it_is(fails_at: int, caplog: pytest.LogCaptureFixture) -> None:
    """The engine may judge a prompt that nobody can count; the log says so."""
    engine = Engine(ruler=Words(fails_at=fails_at))
    await ask(engine, body := task(DENSE * 200, max_tokens=77))
    [sent] = engine.bodies
    assert sent["messages"] == body["messages"]
    assert sent["max_tokens"] == 77
    assert "could not be counted" in caplog.text


async def test_an_answer_may_be_shorter_than_what_was_asked_for() -> None:
    """An order that leaves room for an answer, if not for one of the length that was asked for, is sent."""
    engine = Engine()
    fixed = "word " * (WINDOW - WINDOW // 8 - 1)
    await ask(
        engine, {**task(""), "messages": [{"role": "system", "content": fixed}, {"role": "user", "content": "?"}]}
    )
    assert engine.bodies[0]["max_tokens"] == WINDOW // 8


async def test_an_order_without_room() -> None:
    """An order that takes the room of the shortest answer is refused with the numbers, and never sent."""
    engine = Engine()
    fixed = "word " * (WINDOW - WINDOW // 8)
    messages = [{"role": "system", "content": fixed}, {"role": "user", "content": DENSE * 100}]
    with pytest.raises(ContextOverflow) as raised:
        await ask(engine, {**task(""), "messages": messages})
    assert engine.bodies == []
    assert raised.value.window == WINDOW
    assert raised.value.prompt_tokens is not None
    assert raised.value.prompt_tokens > WINDOW
    assert str(raised.value.prompt_tokens) in raised.value.message


@pytest.mark.parametrize("named", [400, None, WINDOW])
@pytest.mark.parametrize("refusals", range(1, MOST_RETRIES + 1))
async def test_a_refused_prompt_is_cut_further(named: int | None, refusals: int) -> None:
    """The engine knows its window better; where it does not name a smaller one, the next prompt is shorter anyway."""
    engine = Engine(refusals=[ContextOverflow("too long", window=named) for _ in range(refusals)])
    await ask(engine, task(DENSE * 100))
    sizes = [words(body["messages"]) for body in engine.bodies]
    assert len(sizes) == refusals + 1
    assert sizes == sorted(set(sizes), reverse=True)
    if named == 400:
        assert sizes[1] + engine.bodies[1]["max_tokens"] <= 400


@pytest.mark.parametrize(
    ("says_before", "fails_at", "named", "requests"),
    [
        ("", None, None, 1 + MOST_RETRIES),
        ("", None, 20, 1),
        ('{ "ti', None, None, 1),
        ("", 1, None, 1),
        ("", 2, None, 1),
    ],
    ids=["always", "window too small for the order", "in the middle of the answer", "uncounted", "counted once"],
)
async def test_a_refusal_that_stays(says_before: str, fails_at: int | None, named: int | None, requests: int) -> None:
    """Where nothing shorter can be sent, or the answer has begun, the engine's own refusal is what is raised."""
    refusals: list[Exception] = [ContextOverflow("too long", window=named)] * (2 + MOST_RETRIES)
    engine = Engine(refusals=refusals, says_before=says_before, ruler=Words(fails_at=fails_at))
    with pytest.raises(ContextOverflow, match=r"^too long$"):
        await ask(engine, task(DENSE * 10))
    assert len(engine.bodies) == requests


async def test_other_failures_are_not_tried_again() -> None:
    """What is no overflow ends the task at once, as it ends a chat."""
    engine = Engine(refusals=[EmptyReply("nothing")] * 2)
    with pytest.raises(EmptyReply):
        await ask(engine, task(DENSE))
    assert len(engine.bodies) == 1


@pytest.mark.parametrize("manages", [True, False])
async def test_what_is_sent(manages: bool) -> None:
    """The client's fields and tools and the agent's sampling, but for what ends its answers; no instructions."""
    engine = Engine(manages_context=manages)
    tools = [{"type": "function", "function": {"name": "emit_title", "parameters": {"type": "object"}}}]
    body = task(DENSE, tools=tools, top_p=0.5, metadata={"a": 1}, max_completion_tokens=30)
    sampling = {"temperature": 0.1, "top_p": 0.9, "max_tokens": 7, "stop": "}", "n_predict": 9, "cache_prompt": True}
    await ask(engine, body, instructions="Speak like a pirate.", sampling=sampling)
    assert engine.bodies == [
        {
            "model": "m",
            "messages": body["messages"],
            "tools": tools,
            "temperature": 0.1,
            "top_p": 0.5,
            "metadata": {"a": 1},
            "cache_prompt": True,
            "max_tokens": 30,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


async def test_our_notices_are_not_part_of_the_conversation() -> None:
    """A notice that a client sends back as the assistant's words is taken out, as in a chat."""
    engine = Engine()
    said = {"role": "assistant", "content": f"Yes.{notice_line('Context compacted.')}And on."}
    await ask(engine, {**task(""), "messages": [{"role": "user", "content": "Is it?"}, said, *task("")["messages"]]})
    assert "compacted" not in str(engine.bodies)


async def test_a_limit_that_is_no_number() -> None:
    """A wrong max_tokens is the client's mistake, told before anything is sent."""
    engine = Engine()
    with pytest.raises(RequestError, match="max_tokens"):
        await ask(engine, task(DENSE, max_tokens="many"))
    assert engine.bodies == []
