"""The list of models that is asked for once and kept for a moment."""

import asyncio
from collections.abc import Sequence

import pytest

from elbowroom.errors import UpstreamUnreachable
from elbowroom.providers import upstream as upstreams
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.upstream import RecentModels


class Upstream:
    """A list that takes its time: each attempt waits for `go`; `answers` are what the attempts give, in order."""

    def __init__(self, *answers: Sequence[ModelInfo] | UpstreamUnreachable) -> None:
        self._answers = list(answers)
        self.attempts = 0
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.now = 100.0

    async def fetch(self) -> Sequence[ModelInfo]:
        """Return or raise the next answer."""
        self.attempts += 1
        self.begun.set()
        answer = self._answers.pop(0)
        await self.go.wait()
        if isinstance(answer, UpstreamUnreachable):
            raise answer
        return answer

    def kept(self) -> RecentModels:
        """Return the list under test, which keeps an answer for three seconds."""
        return RecentModels(self.fetch, lambda: self.now, 3.0)


OLD = [ModelInfo("old", "p", "old")]
NEW = [ModelInfo("new", "p", "new")]


async def test_all_who_ask_together_get_one_answer() -> None:
    """Ten who ask at once cost one request."""
    upstream = Upstream(OLD)
    models = upstream.kept()
    asking = [asyncio.create_task(models.get()) for _ in range(10)]
    await asyncio.sleep(0)
    upstream.go.set()
    assert await asyncio.gather(*asking) == [OLD] * 10
    assert upstream.attempts == 1


async def test_an_answer_is_kept_for_its_time_and_no_longer() -> None:
    """Up to three seconds the list is as it was; then it is asked for again."""
    upstream = Upstream(OLD, NEW)
    upstream.go.set()
    models = upstream.kept()
    assert await models.get() == OLD
    upstream.now += 3.0
    assert await models.get() == OLD
    upstream.now += 0.1
    assert await models.get() == NEW


async def test_all_who_waited_share_a_failure() -> None:
    """An upstream that is down costs a crowd one attempt, not one after the other; who comes later tries anew."""
    upstream = Upstream(UpstreamUnreachable("down"), NEW)
    models = upstream.kept()
    asking = [asyncio.create_task(models.get()) for _ in range(10)]
    await asyncio.sleep(0)
    upstream.go.set()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [UpstreamUnreachable] * 10
    assert upstream.attempts == 1
    assert await models.get() == NEW


async def test_a_failure_is_not_covered_up_by_an_older_list() -> None:
    """When the list can no longer be read, nobody is shown the one before."""
    upstream = Upstream(OLD, UpstreamUnreachable("down"))
    upstream.go.set()
    models = upstream.kept()
    await models.get()
    upstream.now += 10
    with pytest.raises(UpstreamUnreachable):
        await models.get()


async def test_one_who_leaves_does_not_take_the_others_along() -> None:
    """The client that happened to ask first may leave: the others get the answer to its question."""
    upstream = Upstream(OLD, NEW)
    models = upstream.kept()
    first, second = (asyncio.create_task(models.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    upstream.go.set()
    assert await second == OLD
    assert upstream.attempts == 1


async def test_a_list_from_before_a_change_does_not_pass_for_fresh() -> None:
    """A list that was asked for before a model was loaded is not what those see who ask afterwards."""
    upstream = Upstream(OLD, NEW)
    models = upstream.kept()
    before = asyncio.create_task(models.get())
    await upstream.begun.wait()
    models.forget()
    after = asyncio.create_task(models.get())
    await asyncio.sleep(0)
    upstream.go.set()
    assert await before == OLD
    assert await after == NEW
    assert await models.get() == NEW
    assert upstream.attempts == 2


async def test_a_forgotten_list_is_read_again() -> None:
    """After a load or a refused prompt the next one to ask gets a new list at once."""
    upstream = Upstream(OLD, NEW)
    upstream.go.set()
    models = upstream.kept()
    await models.get()
    models.forget()
    assert await models.get() == NEW


async def test_a_new_list_was_asked_for_after_the_question() -> None:
    """Who needs to know what is loaded now gets neither a kept list nor one that was asked for before."""
    upstream = Upstream(OLD, OLD, NEW)
    models = upstream.kept()
    upstream.go.set()
    await models.get()
    upstream.go.clear()
    before = asyncio.create_task(models.get_new())
    await asyncio.sleep(0)
    after = asyncio.create_task(models.get_new())
    await asyncio.sleep(0)
    upstream.go.set()
    assert await before == OLD
    assert await after == NEW


async def test_all_who_need_a_new_list_at_the_same_time_share_the_next_one() -> None:
    """A crowd that comes while a list is being read costs one request more, not one each."""
    upstream = Upstream(OLD, NEW)
    models = upstream.kept()
    first = asyncio.create_task(models.get_new())
    await asyncio.sleep(0)
    crowd = [asyncio.create_task(models.get_new()) for _ in range(10)]
    await asyncio.sleep(0)
    upstream.go.set()
    assert await first == OLD
    assert await asyncio.gather(*crowd) == [NEW] * 10
    assert upstream.attempts == 2


async def test_a_busy_upstream_is_not_waited_for_where_a_fresh_list_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to three seconds an old list serves where the new one does not come; after that the request waits for it."""
    monkeypatch.setattr(upstreams, "PATIENCE_SECONDS", 0.01)
    upstream = Upstream(OLD, NEW, NEW)
    models = upstream.kept()
    upstream.go.set()
    await models.get()
    upstream.go.clear()
    assert await models.get_new() == OLD
    await asyncio.sleep(0.01)
    assert await models.get() == OLD
    upstream.now += 3.1
    waiting = asyncio.create_task(models.get_new())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    upstream.go.set()
    assert await waiting == NEW


async def test_a_failure_to_read_a_new_list_is_shared_and_told() -> None:
    """An upstream that is gone is gone, whatever the list said a moment ago."""
    upstream = Upstream(OLD, UpstreamUnreachable("down"), NEW)
    models = upstream.kept()
    upstream.go.set()
    await models.get()
    upstream.go.clear()
    asking = [asyncio.create_task(models.get_new()) for _ in range(3)]
    await asyncio.sleep(0)
    upstream.go.set()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["down"] * 3
    assert await models.get() == NEW
