"""Background work meets the next turn: nobody waits for what has been given up, and nobody is forgotten."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from chatting import eventually

from elbowroom.agents.admission import Admission, Priority, jobs
from elbowroom.agents.admission.jobs import Background, Job
from elbowroom.agents.answer import AnswerEvent, Notice
from elbowroom.agents.ask import Question, ReplyReader, ask
from elbowroom.agents.turn.compactor import Compactor
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.providers.base import StreamEvent, TextDelta

POOL = ("lmstudio", "tiny")
DONE = Compaction((), "plan", 10, 5, 1, "", 0)


@dataclass
class Manages:
    """A provider whose requests are admitted."""

    id: str = POOL[0]
    manages_context: bool = True

    async def stream(self, body: Any, info: Any) -> AsyncGenerator[list[StreamEvent], None]:
        yield [TextDelta("Yes.")]


@dataclass
class Model:
    """A model of it."""

    id: str = POOL[1]
    slots: int | None = None


def compacting(release: asyncio.Event) -> Callable[[Job], Awaitable[None]]:
    """Return work that compacts until it is released."""

    async def work(job: Job) -> None:
        job.is_compacting = True
        await release.wait()
        job.compacted(DONE)

    return work


async def test_a_turn_does_not_wait_for_work_that_has_given_way() -> None:
    """Between finding the work and waiting for it another request may have ended it: the turn goes on at once."""
    admission = Admission()
    background = Background(admission.background_may_start, quiet_seconds=0.01)
    release = asyncio.Event()
    background.begin("key", POOL, compacting(release))
    job = background._jobs["key"]
    await eventually(lambda: job.is_compacting, "nothing is compacted")
    assert background.claim(["key"]) is job
    job.give_way()
    with admission.running.chat((*POOL, "other")):
        async with admission.admitted(POOL, capacity=100, tokens=100, prompt=1, priority=Priority.CHAT):
            assert await asyncio.wait_for(job.awaited(), 1) is None
    await background.aclose()


async def test_work_that_is_ended_before_it_has_run_leaves_no_trace() -> None:
    """Nobody waits for what was cancelled in the moment in which it was begun, nor is its conversation known."""
    background = Background(lambda pool: True, quiet_seconds=0.01)
    release = asyncio.Event()
    claimed = background.begin("claimed", POOL, compacting(release), "a", "dana")
    assert background.claim(["claimed"]) is None
    replaced = background.begin("replaced", POOL, compacting(release), "b", "dana")
    release.set()
    background.begin("replaced", POOL, compacting(release), "b", "dana")
    assert not any(await asyncio.wait_for(asyncio.gather(claimed.outcome, replaced.outcome), 10))
    assert background.conversations() == {"b"}
    await eventually(lambda: not background.conversations(), "it is not done")


async def test_chats_that_are_about_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat is at work from its calls to its next request, for its owner and model alone, and not for ever."""
    background = Background(lambda pool: True)
    assert not background.is_at_work(POOL, "dana")
    background.goes_on("calls", POOL, "dana")
    others = ((POOL, "kim"), (("lmstudio", "other"), "dana"))
    assert background.is_at_work(POOL, "dana")
    assert not any(background.is_at_work(*other) for other in others)
    assert background.claim(["begun", "another chat"]) is None
    assert background.is_at_work(POOL, "dana")
    assert background.claim(["begun", "calls", "results"]) is None
    assert not background.is_at_work(POOL, "dana")
    background.goes_on("calls", POOL, "dana")
    monkeypatch.setattr(jobs, "GOES_ON_WITHIN", 0.0)
    assert not background.is_at_work(POOL, "dana")
    background.goes_on("more calls", POOL, "dana")
    assert list(background._going_on) == ["more calls"]


@pytest.mark.parametrize(
    ("of_one_order", "owner", "is_there"), [(True, "dana", True), (False, "dana", False), (True, "kim", False)]
)
async def test_a_chat_that_waits_for_another_one(
    monkeypatch: pytest.MonkeyPatch, of_one_order: bool, owner: str, is_there: bool
) -> None:
    """Who works off one order for longer than a chat is waited for may do so for a chat that waits meanwhile."""
    background, loop = Background(lambda pool: True), asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    background.goes_on("the order", POOL, "dana")
    for call in range(5):
        now += jobs.GOES_ON_WITHIN * 0.4
        background.goes_on(f"call {call}", POOL, owner, of_one_order=of_one_order)
        background.claim([f"call {call}"])
    assert background.is_at_work(POOL, "dana") is is_there
    now += jobs.GOES_ON_WITHIN
    assert not background.is_at_work(POOL, "dana")


async def test_a_chat_that_was_abandoned_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others go on meanwhile, after an hour nobody is taken to come back to it."""
    background, loop = Background(lambda pool: True), asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    background.goes_on("the abandoned", POOL, "dana")
    at_work = list[bool]()
    for call in range(30):
        now += jobs.GOES_ON_WITHIN * 0.4
        background.goes_on(f"call {call}", POOL, "dana", of_one_order=True)
        background.claim([f"call {call}"])
        at_work.append(background.is_at_work(POOL, "dana"))
    assert at_work == sorted(at_work, reverse=True)
    assert at_work[0]
    assert not at_work[-1]


async def test_work_that_two_wait_for_does_not_give_way_when_one_leaves() -> None:
    """Two windows show the same conversation; one is closed."""
    admission = Admission()
    background = Background(admission.background_may_start, quiet_seconds=0.01)
    release = asyncio.Event()
    background.begin("key", POOL, compacting(release))
    job = background._jobs["key"]
    await eventually(lambda: job.is_compacting, "nothing is compacted")
    attempt = job.attempt
    leaves, stays = asyncio.create_task(job.awaited()), asyncio.create_task(job.awaited())
    await asyncio.sleep(0.01)
    leaves.cancel()
    await asyncio.wait([leaves])
    job.give_way()
    release.set()
    assert await asyncio.wait_for(stays, 60) is DONE
    assert job.attempt is attempt
    await background.aclose()


async def test_work_gives_way_as_soon_as_nobody_waits_for_it_any_more() -> None:
    """Another chat asks for the model while a turn waits for the work, and the turn is stopped."""
    admission = Admission()
    background = Background(admission.background_may_start, quiet_seconds=0.01)
    background.begin("key", POOL, compacting(asyncio.Event()))
    job = background._jobs["key"]
    await eventually(lambda: job.is_compacting, "nothing is compacted")
    attempt = job.attempt
    assert attempt is not None
    waiting = [asyncio.create_task(job.awaited()) for _ in range(2)]
    await asyncio.sleep(0)
    job.give_way()
    for waits in waiting:
        assert not attempt.cancelling()
        waits.cancel()
        await asyncio.wait([waits])
    await eventually(attempt.cancelled, "nobody waits for it, and it is still in the way")
    await background.aclose()


async def test_a_turn_does_not_wait_behind_others_for_work_of_a_lower_rank() -> None:
    """Another chat has the model between two requests of the work, which ask for it as work in the background."""
    admission = Admission()
    background = Background(admission.background_may_start, quiet_seconds=0.01)
    may_go_on = asyncio.Event()
    question = Question(cast("Any", Manages()), cast("Any", Model()), {"max_tokens": 0}, 90, 100)

    async def work(job: Job) -> None:
        for _ in range(2):
            await ask(question, ReplyReader(), admission, rank=job)
            await may_go_on.wait()

    background.begin("key", POOL, work)
    job = background._jobs["key"]
    await eventually(lambda: job.is_compacting, "nothing is compacted")
    async with admission.admitted(POOL, capacity=100, tokens=100, prompt=1, priority=Priority.CHAT):
        may_go_on.set()
        await eventually(lambda: admission.waiting(POOL), "it asks for nothing more")
        assert await asyncio.wait_for(job.awaited(), 60) is None
    await background.aclose()


async def test_work_that_is_given_up_is_not_said_to_have_failed() -> None:
    """The turn compacts by itself then: only after that there is something to tell."""
    told: list[AnswerEvent] = []

    async def tell(events: Sequence[AnswerEvent]) -> None:
        told.extend(events)

    unused = cast("Any", None)
    job = Job("key", asyncio.get_running_loop().create_future())
    job.compacted(None)
    assert not await Compactor(unused, unused, tell).await_job(job)
    assert [event.kind for event in told if isinstance(event, Notice)] == ["compacting"]
