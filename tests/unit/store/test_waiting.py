"""What waits to be written stays within its bounds."""

import random
from collections import Counter

import pytest
from kept_outputs import ME, read, text_of
from standing_clock import Clock
from stored_conversations import queued, whole

from elbowroom.context.conversation import Queued, ReplyGrew
from elbowroom.store.backlog import Waiting, WaitingChanges
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.changes import Batch
from elbowroom.store.outputs import SAFE_SECONDS, WriteBehindToolOutputs
from elbowroom.store.sql import SqlStore
from elbowroom.store.write_behind import WriteBehindStore


async def never(store: SqlStore, item: str | Batch) -> None:
    """Write nothing."""
    raise StoreUnavailable("never")


def noise(number: int) -> str:
    """Return a text that compression makes no smaller than 100,000 bytes."""
    return random.Random(number).randbytes(100_000).hex()


def outputs_that_wait(most_bytes: int, clock: Clock) -> WriteBehindToolOutputs:
    """Return outputs whose store never opens."""

    async def begin() -> SqlStore:
        raise StoreUnavailable("never")

    return WriteBehindToolOutputs(WriteBehindStore("none", begin), most_bytes, clock)


def test_the_items_that_were_used_longest_ago_go_first() -> None:
    """With one too many, or too many bytes, those go that were neither put nor got lately."""
    waiting: Waiting[str, str] = Waiting("texts", never, most=3, most_bytes=100)
    for name in "abc":
        waiting.put(name, name, 10)
    assert waiting.get("a") == "a"
    waiting.put("d", "d", 10)
    waiting.trim()
    assert waiting.items() == ["c", "a", "d"]
    waiting.put("e", "e", 85)
    waiting.trim()
    assert waiting.items() == ["d", "e"]
    waiting.put("f", "f", 101)
    waiting.trim()
    assert waiting.items() == []


def test_replacing_an_item_frees_what_it_took() -> None:
    """The same key put again and again takes the room of one; what was written is let go, but not what replaced it."""
    waiting: Waiting[str, str] = Waiting("texts", never, most_bytes=100)
    waiting.put("other", "other", 50)
    for number in range(10):
        waiting.put("a", f"a{number}", 50)
    waiting.trim()
    assert waiting.items() == ["other", "a9"]
    other, a = waiting.waiting()
    waiting.refused(other)
    assert waiting.items() == ["a9", "other"]
    waiting.put("a", "new", 10)
    waiting.written(a)
    waiting.written(other)
    assert waiting.items() == ["new"]
    assert waiting.held.keys() == {"a"}


async def test_outputs_that_nobody_used_for_longest_go_first() -> None:
    """With one too many, the one goes that was neither kept, found, read nor named lately."""
    clock = Clock()
    outputs = outputs_that_wait(600_000, clock)
    refs = [await outputs.keep(ME, "read", noise(number)) for number in range(5)]
    await outputs.find(ME, refs[0].id)
    assert len(await read(outputs, refs[1].id)) > 0
    await outputs.in_use(ME, [refs[2].id])
    await outputs.keep(ME, "read", noise(3))
    clock.now += SAFE_SECONDS
    new = await outputs.keep(ME, "read", noise(5))
    assert [await outputs.find(ME, ref.id) for ref in [*refs, new]] == [*refs[:4], None, new]


async def test_outputs_that_were_kept_within_the_minute_stay() -> None:
    """However much it is, what an answer has just kept can be read; it goes when the minute is over."""
    clock = Clock()
    outputs = outputs_that_wait(10, clock)
    refs = [await outputs.keep(ME, "read", noise(number)) for number in range(3)]
    assert [await text_of(outputs, ref.id) for ref in refs] == [noise(number) for number in range(3)]
    clock.now += SAFE_SECONDS - 1
    assert await outputs.keep(ME, "search", noise(0)) == refs[0]
    assert all([await outputs.find(ME, ref.id) for ref in refs])
    clock.now += 1
    last = await outputs.keep(ME, "read", "last")
    assert [await outputs.find(ME, ref.id) for ref in [*refs, last]] == [refs[0], None, None, last]


def test_what_goes_when_too_many_changes_wait(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest turns go first and each as a whole, then what people have said; what is in the queue goes last."""
    lost: list[int] = []
    waiting = WaitingChanges(never, lambda: lost.append(waiting.let_go), most_bytes=125_000)
    item = Queued(queued("q", "c0"))
    for number in range(30):
        waiting.note([*whole(f"c{number}", "x" * 1000), item])
        waiting.waiting()
    before = waiting.waiting()
    waiting.trim()
    after = [change for batch in waiting.waiting() for change in batch.changes]
    assert waiting.let_go == sum(len(batch.changes) for batch in before) - len(after)
    assert after.count(item) == 30
    turns = [turn for change in after if (turn := getattr(change, "turn", ""))]
    assert set(Counter(turns).values()) == {Counter(getattr(change, "turn", "") for change in whole("c"))["c-t"]}
    assert "c0-t" not in turns
    waiting.trim()
    assert lost == [waiting.let_go]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_what_is_said_until_a_batch_is_made_is_in_it() -> None:
    """Who is asked when a batch is made is asked once for it; the oldest change that waits is as old as that demand."""
    waiting = WaitingChanges(never, lambda: None)
    said: list[str] = ["one "]

    def hand_on() -> None:
        waiting.note([ReplyGrew("a", "text", "".join(said))])

    assert waiting.oldest is None
    waiting.note_when_writing(hand_on)
    waiting.note_when_writing(hand_on)
    since = waiting.oldest
    said.append("two")
    [batch] = waiting.waiting()
    assert batch.changes == (ReplyGrew("a", "text", "one two"),)
    assert since is not None
    assert waiting.oldest == batch.since == since
    assert waiting.waiting() == [batch]
    waiting.written(batch)
    assert waiting.oldest is None
