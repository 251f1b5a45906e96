"""The registry of what runs: a person's stop ends one turn and nothing else, the server's stop ends everything."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from elbowroom.agents.answer import AnswerEvent, Notice
from elbowroom.agents.running import (
    ChatKey,
    ConversationStatus,
    Running,
    RunningAnswer,
    ServerStopping,
    StoodStill,
    stoppable,
)
from elbowroom.providers.base import TextDelta


@contextmanager
def entered_turn(running: Running, owner: str, conversation: str, name: str = "") -> Iterator[RunningAnswer]:
    """Run a turn of a conversation in the current task; a person's stop ends the block."""
    with running.entered() as turn:
        turn.owner, turn.conversation, turn.name = owner, conversation, name
        with stoppable(turn):
            yield turn


class Turn:
    """A turn that waits in its block; `after` is what its task has done afterwards."""

    def __init__(self, running: Running, conversation: str = "conv_1", name: str = "") -> None:
        self.entered: asyncio.Future[RunningAnswer] = asyncio.get_running_loop().create_future()
        self.after = ""
        self.task = asyncio.create_task(self._run(running, conversation, name))

    async def _run(self, running: Running, conversation: str, name: str) -> None:
        with entered_turn(running, "anna", conversation, name) as turn:
            self.entered.set_result(turn)
            await asyncio.sleep(60)
        await asyncio.sleep(0)  # the task is not cancelled any more
        self.after = "went on"


async def test_stop_ends_the_block() -> None:
    """The task goes on after it as if nothing had happened, and all that wait for its end are told once it has."""
    running = Running()
    turns = [Turn(running), Turn(running), Turn(running, "conv_2")]
    entered = [await turn.entered for turn in turns]
    assert await running.cancel("anna", "conv_1") == 2
    assert [one.is_stopped for one in entered] == [True, True, False]
    await asyncio.wait([turn.task for turn in turns[:2]])
    assert [turn.after for turn in turns] == ["went on", "went on", ""]
    assert turns[0].task.cancelling() == 0
    assert await running.cancel("anna", "conv_1") == 0
    assert await running.cancel("otto", "conv_2") == 0
    turns[2].task.cancel()
    await asyncio.wait([turns[2].task])
    assert turns[2].task.cancelled()
    assert running.status("anna", "conv_2") == ConversationStatus("idle")


async def test_nothing_is_said_after_a_standstill() -> None:
    """What came while the server stood still reaches no client, though the task that reads it is ended later."""
    running, heard = Running(), list[str]()
    turn = Turn(running)
    entered = await turn.entered

    async def read() -> None:
        for word in ("Before", "After"):
            entered.saw([TextDelta(word)])
            heard.append(word)
            await asyncio.sleep(0)

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    running.wake(12.0)
    await asyncio.wait([reading, turn.task])
    assert reading.cancelled()
    assert isinstance(turn.task.exception(), StoodStill)
    assert heard == ["Before"]


@pytest.mark.parametrize("stops_first", [True, False])
async def test_cancellation_at_the_same_moment(stops_first: bool) -> None:
    """A client that leaves in the moment of the stop cancels the task: nobody is left to go on for."""
    running = Running()
    turn = Turn(running)
    entered = await turn.entered
    for is_stop in (stops_first, not stops_first):
        if is_stop:
            entered.stop()
        else:
            turn.task.cancel()
    await asyncio.wait([turn.task])
    assert turn.task.cancelled()
    assert turn.after == ""
    assert entered.ended.done()


async def test_failure_at_the_same_moment() -> None:
    """A turn that fails while it is stopped fails, and its task is not left cancelled."""

    async def run() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError from None

    async def turn(running: Running) -> str:
        try:
            with entered_turn(running, "", "conv_1"):
                await run()
        except ValueError:
            await asyncio.sleep(0)
        return "went on"

    running = Running()
    task = asyncio.create_task(turn(running))
    await asyncio.sleep(0)
    assert await running.cancel("", "conv_1") == 1
    assert await task == "went on"


async def test_last_words_are_stopped_by_a_second_stop() -> None:
    """The first stop ends the work, a second one the last words; one that comes with the first changes nothing."""
    running = Running()
    said: list[str] = []
    begun = asyncio.Event()

    async def turn() -> None:
        with entered_turn(running, "", "conv_1") as entered:
            with stoppable(entered):
                await asyncio.sleep(60)
            assert entered.wants_last_words
            with entered.saying_last_words():
                begun.set()
                await asyncio.sleep(60)
            said.append(entered.phase)

    task = asyncio.create_task(turn())
    await asyncio.sleep(0)
    first = asyncio.create_task(running.cancel("", "conv_1", last_words=True))
    again = asyncio.create_task(running.cancel("", "conv_1", last_words=True))
    await begun.wait()
    assert not first.done()
    assert running.status("", "conv_1").phase == "last words"
    assert await running.cancel("", "conv_1") == 1
    assert (await first, await again) == (1, 1)
    await task
    assert said == ["last words"]


async def test_status_and_names() -> None:
    """A conversation is found by its id and by its client's name, for its owner; it says how far it is."""
    running = Running()
    turn = Turn(running, "conv_1", "the ferry")
    entered = await turn.entered
    assert running.find("anna", "conv_1") == running.find("anna", "the ferry") == "conv_1"
    assert running.find("otto", "the ferry") is None
    told: list[AnswerEvent] = [
        Notice("compacting", "...", is_done=False),
        Notice("compacted", "..."),
        TextDelta("Yes."),
    ]
    phases = []
    for event in told:
        entered.saw([event])
        phases.append(running.status("anna", "conv_1").phase)
    assert phases == ["compacting", "prefill", "streaming"]
    status = running.status("anna", "conv_1")
    assert (status.status, status.turns, status.since) == ("running", 1, entered.since)
    await running.cancel("anna", "conv_1")
    assert running.find("anna", "the ferry") is None


CHAT: ChatKey = ("lmstudio", "qwen3-8b", "chat-1")


async def test_one_entry_serves_all_who_ask() -> None:
    """From its arrival a chat holds up its tasks; once its conversation is known it is a turn; then it is gone."""
    running = Running()
    with running.entered(CHAT) as answer:
        assert len(running) == 1
        assert running.delays(CHAT)
        assert (running.of("anna"), running.phases()) == ([], [])
        answer.owner, answer.conversation, answer.id = "anna", "conv_1", "turn_1"
        assert running.of("anna") == [answer]
        assert running.phases() == ["waiting"]
        assert running.is_running("anna", "turn_1")
        assert not running.is_running("otto", "turn_1")
    assert len(running) == 0
    assert not running.delays(CHAT)
    assert answer.ended.done()


async def test_stop_of_the_server_ends_every_answer() -> None:
    """Each ends with an error that says so, its task is not left cancelled, and no new one begins."""
    running = Running()
    begun = asyncio.Event()

    async def answer() -> str:
        try:
            with running.entered():
                begun.set()
                await asyncio.sleep(60)
        except ServerStopping as error:
            await asyncio.sleep(0)
            return error.message
        return ""

    task = asyncio.create_task(answer())
    await begun.wait()
    running.stop()
    assert "is being stopped; the text so far is kept" in await task
    await running.finished()
    with pytest.raises(ServerStopping, match="takes no new requests"), running.entered():
        pass


async def test_a_closed_server_lets_its_answers_go_on() -> None:
    """It takes no new ones; a client that leaves cancels the task as ever."""
    running = Running()
    turn = Turn(running)
    await turn.entered
    running.close()
    with pytest.raises(ServerStopping):
        running.check_open()
    assert len(running) == 1
    turn.task.cancel()
    await asyncio.wait([turn.task])
    assert turn.task.cancelled()
    await running.finished()
