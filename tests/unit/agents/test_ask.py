"""A model is asked one way: what is sent, who waits for whom, and what is known of a request that ends early."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from admitted_requests import new_admission
from manual_clock import settle

from elbowroom.agents.admission import Admission, Job, Priority, Ticket
from elbowroom.agents.ask import MARGIN, THINKING_ROOM, Question, ReplyReader, ask, beside
from elbowroom.agents.prompt import HistoryCounter
from elbowroom.agents.prompt.counters import TemplateFacts, ThinkingSwitch
from elbowroom.context.conversation import StepUsage
from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.transcript import Message
from elbowroom.errors import ContextOverflow, ElbowroomError, EmptyReply
from elbowroom.providers.base import Finished, ModelInfo, Provider, StreamEvent, TextDelta, UsageReport
from elbowroom.store import ALL_TOKENS, Servers, WindowTokens
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter

WINDOW = 1000
POOL = ("scripted", "tiny")
INFO = ModelInfo("tiny", "scripted", "tiny", loaded_context=WINDOW)
ASKED: Message = {"role": "user", "content": "x" * 300}
YES: list[StreamEvent] = [
    TextDelta("Yes"),
    Finished("stop"),
    UsageReport({"prompt_tokens": 290, "completion_tokens": 1}),
]
Script = Sequence[StreamEvent | ElbowroomError]


class Scripted:
    """A provider that answers each request by a script, event by event, as often as the gate is opened."""

    id = POOL[0]
    slot_files = None

    def __init__(self, script: Script = YES, *, manages_context: bool = True) -> None:
        self.manages_context = manages_context
        self.script = script
        self.bodies: list[Mapping[str, Any]] = []
        self.infos: list[ModelInfo] = []
        self.open = 0
        self.gate: asyncio.Event | None = None

    async def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a request."""
        self.bodies.append(body)
        self.infos.append(info)
        self.open += 1
        try:
            for event in self.script:
                await (asyncio.sleep(0) if self.gate is None else self.gate.wait())
                if isinstance(event, ElbowroomError):
                    raise event
                yield [event]
        finally:
            self.open -= 1


class Noting(ReplyReader):
    """A reader that notes when its request begins and ends."""

    def __init__(self, *, accepts_empty: bool = False) -> None:
        super().__init__()
        self.noted: list[str] = []
        self._accepts_empty = accepts_empty

    def begin(self, body: Mapping[str, Any]) -> None:
        self.noted.append("begun")

    def accept_empty(self) -> bool:
        return self._accepts_empty

    async def end(self) -> None:
        await asyncio.sleep(0)
        self.noted.append("whole")

    def ended(self, ticket: Ticket | None) -> None:
        """Note that the request has ended."""
        self.noted.append("ended")


class ByLetters:
    """Counts the letters of all contents, and may be off by ten tokens."""

    async def count_chat(
        self, messages: Sequence[Message], tools: Sequence[Message], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Count messages."""
        return TokenCount(sum(len(message["content"]) for message in messages) - 10, "exact", error_bound=10)


def question(provider: Scripted, prompt: int = 300, most: int = 100, **fields: Any) -> Question:
    """Return a question of this size, to the scripted model."""
    return Question(cast("Provider", provider), INFO, {"max_tokens": most}, prompt, WINDOW, **fields)


async def asked_beside(
    *, most: int = 150, window: int = WINDOW, thinks: ThinkingSwitch | None = None, manages: bool = True, **chosen: Any
) -> Question:
    """Build a question of 300 tokens beside a conversation; the model may think where its switch is somewhere."""
    facts = TemplateFacts(TemplateDemands(), TemplateDemands(), thinks is not None, thinks or "none")
    history = HistoryCounter(cast("TokenCounter", ByLetters()), {}, facts, len)
    provider = cast("Provider", Scripted(manages_context=manages))
    return await beside(provider, INFO, window, history, {"messages": [ASKED], "max_tokens": most}, **chosen)


@pytest.mark.parametrize(
    ("most", "window", "thinks", "least", "limit", "has_room"),
    [
        (150, WINDOW, None, 100, 150, True),
        (150, 300 + MARGIN + 120, None, 100, 120, True),
        (150, 300 + MARGIN + 99, None, 100, 99, False),
        (50, 300 + MARGIN + 50, None, 100, 50, True),  # it wants no more
        (150, 300 + MARGIN + 120, None, 150, 120, False),
        (150, 300 + MARGIN + 1, None, 1, 1, True),
        (150, 200, None, 1, -MARGIN - 100, False),
        (150, 9000, "at the end", 100, 150 + THINKING_ROOM, True),
        (150, WINDOW, "at the end", 100, WINDOW - 300 - MARGIN, True),
    ],
)
async def test_an_answer_gets_what_the_window_leaves(
    most: int, window: int, thinks: ThinkingSwitch | None, least: int, limit: int, has_room: bool
) -> None:
    """`max_tokens` is what is wanted, with room for thoughts, and never more than fits; too little is told."""
    found = await asked_beside(most=most, window=window, thinks=thinks, least=least)
    assert (found.prompt, found.body["max_tokens"], found.has_room) == (300, limit, has_room)


@pytest.mark.parametrize(
    ("thinks", "keeps_prefix", "is_off"),
    [("at the end", True, True), ("elsewhere", True, False), ("elsewhere", False, True), ("none", False, False)],
)
async def test_thinking_is_switched_off_where_the_prefix_stays(
    thinks: ThinkingSwitch, keeps_prefix: bool, is_off: bool
) -> None:
    """A switch in the middle of the prompt is not touched where the engine has the conversation in its cache."""
    found = await asked_beside(thinks=thinks, keeps_prefix=keeps_prefix)
    assert found.optional == ({"chat_template_kwargs": {"enable_thinking": False}} if is_off else {})


async def test_nothing_is_counted_where_the_provider_manages_the_context() -> None:
    """The answer gets all that is wanted; about how long the prompt is, its bytes tell."""
    found = await asked_beside(window=1, manages=False)
    assert (found.prompt, found.body["max_tokens"], found.has_room) == (0, 150, True)
    assert 300 // 4 < found.rough < 400 // 4


async def test_a_question_waits_for_those_before_it() -> None:
    """Chats go before tasks and background work; all hold prompt and answer, and are sent one after the other."""
    admission, _ = new_admission()
    first = Scripted()
    first.gate = asyncio.Event()
    asking = [asyncio.create_task(ask(question(first), ReplyReader(), admission, held=WINDOW))]
    await settle()
    order: list[Priority] = []
    ranks = (Priority.BACKGROUND, Priority.TASK, Priority.CHAT)

    async def told(rank: Priority) -> None:
        async def admitted(ticket: Ticket | None) -> ModelInfo:
            assert ticket is not None
            assert (ticket.tokens, ticket.prompt) == (800, 700)
            order.append(rank)
            return INFO

        await ask(question(Scripted(), 700), ReplyReader(), admission, rank=rank, admitted=admitted)

    for rank in ranks:
        asking.append(asyncio.create_task(told(rank)))
        await settle()
    assert not order
    first.gate.set()
    await asyncio.gather(*asking)
    assert order == [Priority.CHAT, Priority.TASK, Priority.BACKGROUND]
    assert admission.held(POOL) == 0


async def test_a_job_knows_when_it_has_the_model() -> None:
    """Its request has the job's rank, and may be ended by whoever needs the model."""
    admission, _ = new_admission()
    job = Job("key", asyncio.get_running_loop().create_future())
    tickets: list[Ticket | None] = []

    async def admitted(ticket: Ticket | None) -> ModelInfo:
        tickets.append(ticket)
        assert job.is_compacting
        return INFO

    await ask(question(Scripted()), ReplyReader(), admission, rank=job, admitted=admitted)
    [ticket] = tickets
    assert ticket is not None
    assert (ticket.priority, ticket.on_preempt) == (Priority.BACKGROUND, job.give_way)


class BusyElsewhere(Servers):
    """Another server's chats hold a model, beside which there is no room for background work."""

    async def hold(
        self, pool: str, capacity: int, tokens: int, rank: int, look: Callable[[float], Awaitable[None]]
    ) -> WindowTokens:
        """Hold tokens for whoever is no background work."""
        if rank == Priority.BACKGROUND:
            await asyncio.Event().wait()
        return ALL_TOKENS


async def test_a_job_that_waits_for_other_servers_makes_way() -> None:
    """It has the engine's only slot already, as far as this server knows, and leaves it to a chat that comes."""
    admission, info = Admission(servers=BusyElsewhere()), replace(INFO, slots=1)
    job = Job("key", asyncio.get_running_loop().create_future())
    waiting = replace(question(Scripted(), 100), info=info)
    job.attempt = asyncio.create_task(ask(waiting, ReplyReader(), admission, rank=job))
    await settle()
    chat = replace(question(Scripted(), 100), info=info)
    await asyncio.wait_for(ask(chat, reader := ReplyReader(), admission), 10)
    assert "".join(reader.reply.text) == "Yes"
    assert job.attempt.cancelled()
    assert admission.held(POOL) == 0


@pytest.mark.parametrize("has_admission", [True, False])
async def test_nobody_waits_where_nothing_is_held(has_admission: bool) -> None:
    """A provider that manages the context by itself is asked at once, and so is whoever needs no admission."""
    admission, _ = new_admission()
    provider = Scripted(manages_context=not has_admission)
    async with admission.admitted(POOL, capacity=WINDOW, tokens=WINDOW, prompt=1, priority=Priority.CHAT):
        await ask(question(provider), reader := Noting(), admission if has_admission else None, ended=reader.ended)
    assert reader.noted == ["begun", "whole", "ended"]
    assert "".join(reader.reply.text) == "Yes"


async def test_what_servers_may_refuse_is_sent_with_the_rest() -> None:
    """Optional fields go over those of the body."""
    provider = Scripted()
    await ask(question(provider, optional={"max_tokens": 1, "grammar": ""}), ReplyReader())
    assert provider.bodies == [{"max_tokens": 1, "grammar": ""}]


async def test_what_no_longer_fits_is_not_sent() -> None:
    """Whoever was admitted may find that the window is another one by now: nothing begins, and nothing stays held."""
    admission, _ = new_admission()
    provider, reader = Scripted(), Noting()

    async def admitted(ticket: Ticket | None) -> None:
        return None

    await ask(question(provider), reader, admission, admitted=admitted, ended=reader.ended)
    assert (provider.bodies, reader.noted, admission.held(POOL)) == ([], [], 0)


async def test_the_model_is_asked_as_it_is_when_the_question_is_sent() -> None:
    """It may have been loaded anew meanwhile, and whoever was admitted may have the answer bounded by that."""
    provider, body = Scripted(), {"max_tokens": 100}
    now = replace(INFO, loaded_context=500)

    async def admitted(ticket: Ticket | None) -> ModelInfo:
        body["max_tokens"] = 50
        return now

    await ask(Question(cast("Provider", provider), INFO, body), ReplyReader(), admitted=admitted)
    assert (provider.bodies, provider.infos) == ([{"max_tokens": 50}], [now])


async def test_an_overflow_gives_everything_back() -> None:
    """The engine has read nothing of a prompt that it refuses: the next request need not wait."""
    admission, _ = new_admission()
    reader = Noting()
    overflow = ContextOverflow("Too long.", window=200)
    with pytest.raises(ContextOverflow) as raised:
        await ask(question(Scripted([overflow])), reader, admission, ended=reader.ended)
    assert raised.value is overflow
    assert reader.noted == ["begun", "ended"]
    assert reader.used(300, len) is None
    assert admission.held(POOL) == 0


@pytest.mark.parametrize("accepts", [True, False])
async def test_an_empty_reply_is_the_readers_matter(accepts: bool) -> None:
    """It is the end of the answer where the reader accepts it, else a failure."""
    reader = Noting(accepts_empty=accepts)
    asking = ask(question(Scripted([EmptyReply("Nothing.")])), reader, ended=reader.ended)
    if accepts:
        await asking
    else:
        with pytest.raises(EmptyReply):
            await asking
    assert reader.noted == (["begun", "whole", "ended"] if accepts else ["begun", "ended"])


async def test_what_was_enough_is_accounted_for() -> None:
    """A reader that has enough leaves, the upstream is closed, and what has come is counted."""

    class Brief(Noting):
        async def take(self, events: list[StreamEvent]) -> None:
            self.gather(events)
            self.has_enough = True

    provider = Scripted([TextDelta("A long "), TextDelta("story."), Finished("stop")])
    await ask(question(provider), reader := Brief())
    assert (reader.generated, provider.open) == ("A long ", 0)
    assert reader.used(300, len) == StepUsage(300, 7, is_counted=True)


async def test_a_request_may_be_cancelled_at_each_of_its_awaits() -> None:
    """Wherever that is, the upstream is closed, the end of what was sent is told once, and its tokens are known.

    What the engine may still be reading is held, and nothing else.
    """
    places = range(100)
    for place in places:
        admission, clock = new_admission()
        provider, reader = Scripted(), Noting()
        busy = asyncio.create_task(ask(question(Scripted()), ReplyReader(), admission, held=WINDOW))
        await asyncio.sleep(0)
        asking = asyncio.create_task(ask(question(provider), reader, admission, ended=reader.ended))
        for _ in range(place):
            await asyncio.sleep(0)
        is_done = asking.done()
        asking.cancel()
        await asyncio.wait([asking, busy])
        await settle()
        assert provider.open == 0, place
        assert reader.noted.count("ended") == reader.noted.count("begun"), place
        assert (reader.used(300, len) is not None) == bool(reader.pieces or reader.usage), place
        await clock.elapse(3600)
        assert admission.held(POOL) == 0, place
        if is_done:
            break
    else:
        pytest.fail(f"it is not done after {len(places)} turns of the loop")
    assert reader.noted == ["begun", "whole", "ended"]


async def test_whoever_leaves_while_the_prompt_is_read_leaves_its_place_behind() -> None:
    """The engine does not stop in the middle of a prompt: until it has read it, nobody else gets the room."""
    admission, clock = new_admission()
    provider = Scripted()
    provider.gate = asyncio.Event()
    asking = asyncio.create_task(ask(question(provider), ReplyReader(), admission))
    await settle()
    asking.cancel()
    await asyncio.wait([asking])
    assert admission.held(POOL) == 400
    await clock.elapse(3600)
    assert admission.held(POOL) == 0
