"""What runs in a server now: every request has one entry, from its arrival to its end.

The entry is what a stop of the server ends, what a person stops, and what `/api/live` shows. A chat's entry also has
the key by which tasks - titles, tags - wait for it: they ask a model only when no chat needs it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Literal

from elbowroom.agents.answer import AnswerEvent, Compacted, Notice
from elbowroom.agents.request import NOBODY, Caller
from elbowroom.context.conversation import ContextFill
from elbowroom.errors import ElbowroomError, TooManyAtOnce

ENDING_SECONDS: Final = 5.0
"""How long a stopped turn may take to end; it closes what it has open within milliseconds, as a rule."""
GRACE_SECONDS: Final = 20.0
"""How long the model may take to say what was left undone."""
CUT_OFF: Final = "elbowroom is being stopped; the text so far is kept. Ask again when it runs."
REFUSED: Final = "elbowroom is being stopped and takes no new requests. Ask again when it runs."

Phase = Literal["waiting", "loading", "prefill", "streaming", "tool", "compacting", "last words"]
"""How far a turn is; it is `waiting` for other requests of the model, or for what its agent needs to begin."""
PHASES_TOLD: Final[dict[str, Phase]] = {
    "loading": "loading",
    "loaded": "prefill",
    "compacting": "compacting",
    "compacted": "prefill",
    "not compacted": "prefill",
    "waiting": "waiting",
    "waited": "prefill",
    "reading": "prefill",
    "tool call": "tool",
    "tool result": "tool",
}
"""The phase that begins with a notice of each kind."""

ChatKey = tuple[str, str, str]
"""A provider's id, a model's, and a chat's; the last is empty where the client has not named the chat."""


class ServerStopping(ElbowroomError):
    """The server is being stopped: it ends its running answers and takes no new requests.

    `retry_after` says in how many seconds it is worth asking again.
    """

    status = 503
    code = "server_stopping"
    retry_after = 5

    def __init__(self, message: str = CUT_OFF) -> None:
        super().__init__(message)


class StoodStill(ElbowroomError):
    """The server stood still while others went on, which may have taken what it did."""

    status = 503
    code = "server_stood_still"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"This server stood still for {seconds:.0f} s, and others may have gone on with the conversation. The text "
            "so far is kept; ask again."
        )


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    """Whether a conversation is being answered: since when, in seconds of the epoch, and how far the answer is.

    `turns` counts the branches that are answered at once; the other fields are those of the oldest turn.
    """

    status: Literal["running", "idle"]
    since: float | None = None
    phase: Phase | None = None
    turns: int = 0


@dataclass(slots=True, eq=False)
class RunningAnswer:
    """One request that is being answered in `task`; `ended` is done when the answer is.

    The answer of a turn has an `owner`, the `name` that the client gives the conversation, and the `id` of the turn;
    its owner sees and stops it as a turn of its `conversation` from the moment when that is known. `agent` and `model`
    answer now, and `filling` returns how full the model's window is; it is None where nobody knows. `spoke_at` is when
    the first word or thought came, by the monotonic clock. `doing` is what the last notice that began a phase said.
    `is_stopped` says that a person has stopped the turn: its answer is what was said until then. `wants_last_words`
    says that the model is to tell what was left undone. `dropping` are the ids of the messages that the stop takes
    out of the queue; `has_told` says that the client was told of them. `failure` is what ends the answer from outside.
    `is_ending` says that the cancellation of a stop has not arrived yet.
    """

    task: "asyncio.Task[object]"
    ended: "asyncio.Future[None]"
    owner: str = ""
    conversation: str = ""
    name: str = ""
    id: str = ""
    since: float = field(default_factory=time.time)
    phase: Phase = "waiting"
    agent: str = ""
    model: str = ""
    filling: Callable[[], ContextFill | None] | None = None
    spoke_at: float | None = None
    doing: str = ""
    is_stopped: bool = False
    wants_last_words: bool = False
    dropping: Collection[str] = ()
    has_told: bool = False
    failure: ElbowroomError | None = None
    is_ending: bool = False

    @property
    def fill(self) -> ContextFill | None:
        """Return how full the window is now; None where nobody knows."""
        return self.filling() if self.filling is not None else None

    def saw(self, events: Sequence[AnswerEvent]) -> None:
        """Derive the phase from what the client is shown. Raises CancelledError where it is to be shown no more.

        The task that reads the model hears of that a moment after the one that answers.
        """
        if self.failure is not None:
            raise asyncio.CancelledError
        last = events[-1]
        if isinstance(last, Compacted):
            return
        if not isinstance(last, Notice):
            if self.phase not in ("streaming", "last words"):
                self.phase = "streaming"
                self.spoke_at = self.spoke_at or time.monotonic()
        elif last.kind in PHASES_TOLD:
            self.phase = PHASES_TOLD[last.kind]
            self.doing = last.text

    def stop(self, *, last_words: bool = False, dropping: Collection[str] = ()) -> None:
        """Stop the turn where it is; while the model says its last words, stop those."""
        self.dropping = dropping or self.dropping
        if self.is_ending:
            return
        self.wants_last_words = last_words and not self.is_stopped
        self.is_stopped = self.is_ending = True
        self.task.cancel()

    @contextmanager
    def saying_last_words(self) -> Iterator[None]:
        """Run the model's last words, which a second stop ends."""
        self.phase = "last words"
        with stoppable(self):
            yield


@contextmanager
def stoppable(turn: RunningAnswer | None) -> Iterator[None]:
    """Run a block that a stop of the turn ends at once; the code after the block goes on.

    A cancellation from anywhere else passes through, even one that comes at the same moment. A task, or an agent that
    another one asks, has no turn and is not stopped.
    """
    if turn is None:
        yield
        return
    before, was_ending = turn.task.cancelling() - turn.is_ending, False
    try:
        try:
            yield
        finally:
            was_ending, turn.is_ending = turn.is_ending, False
            if was_ending:
                turn.task.uncancel()
    except asyncio.CancelledError:
        if not was_ending or turn.task.cancelling() > before:
            raise


class Running:
    """The registry of one server's running requests, on its event loop. It is open until it is closed.

    While it `is_leaving`, the server has been asked to stop: who chooses between servers is to choose another one.
    `refilled` counts how often the window of a conversation has become another size behind its answer. Of one person at
    most `most_of_one` answers run at a time, with 0 any number.
    """

    def __init__(self) -> None:
        self.most_of_one = 0
        self._answers: list[RunningAnswer] = []
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_stopping = False
        self.is_leaving = self.is_closed = False
        self.refilled = 0
        self._chats: Counter[ChatKey] = Counter()
        self._waiting_tasks: Counter[tuple[str, str]] = Counter()
        self._tasks_at_work: dict[Callable[[], object], ChatKey] = {}
        self._sleepers: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._answers)

    @contextmanager
    def entered(self, chat: ChatKey | None = None, caller: Caller = NOBODY) -> Iterator[RunningAnswer]:
        """Run an answer in the current task; `chat` is the key by which tasks wait for it, if they do.

        Raises TooManyAtOnce where as many answers for the caller run as may, and ServerStopping where the server is
        closed, or stops before the answer's end. A client that leaves cancels the task instead.
        """
        self.check_open()
        owner = "" if caller.is_task else caller.owner  # a task may be one that a chat waits for
        if owner and self.most_of_one and [each.owner for each in self._answers].count(owner) >= self.most_of_one:
            raise TooManyAtOnce(self.most_of_one)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a handler runs in a task
        answer = RunningAnswer(task, asyncio.get_running_loop().create_future(), owner)
        self._answers.append(answer)
        self._is_empty.clear()
        try:
            with self.chat(chat) if chat is not None else nullcontext():
                yield answer
        except asyncio.CancelledError:
            failure = ServerStopping() if self._is_stopping else answer.failure
            if failure is None:
                raise
            task.uncancel()
            raise failure from None
        finally:
            self._answers.remove(answer)
            answer.filling = None  # which knows the whole answer, and is known by it
            answer.ended.set_result(None)
            if not self._answers:
                self._is_empty.set()

    def check_open(self) -> None:
        """Raise ServerStopping where no new answers may begin."""
        if self.is_closed:
            raise ServerStopping(REFUSED)

    def leave(self) -> None:
        """Ask for no more requests; those that come all the same are answered."""
        self.is_leaving = True

    def close(self) -> None:
        """Let no new answers begin; the running ones go on."""
        self.is_leaving = self.is_closed = True

    async def finished(self) -> None:
        """Wait until no answer is running."""
        await self._is_empty.wait()

    def stop(self) -> None:
        """End all answers, and let no new ones begin."""
        self.close()
        self._is_stopping = True
        for answer in self._answers:
            answer.task.cancel()

    def wake(self, seconds: float) -> None:
        """End the turns of conversations, since this server stood still for so long that others may go on with them."""
        for answer in self._answers:
            if answer.conversation and answer.failure is None:
                answer.failure = StoodStill(seconds)
                answer.task.cancel()

    def phases(self) -> list[Phase]:
        """Return the phases of all turns, whoever owns them."""
        return [answer.phase for answer in self._answers if answer.conversation]

    def of(self, owner: str, conversation: str | None = None) -> list[RunningAnswer]:
        """Return the owner's running turns, or those of one conversation, the oldest first."""
        own = (answer for answer in self._answers if answer.conversation and answer.owner == owner)
        return [turn for turn in own if conversation in (None, turn.conversation)]

    def conversations(self, *, but: RunningAnswer | None = None) -> set[str]:
        """Return the conversations that are being answered, whoever owns them; one answer may be left out."""
        return {answer.conversation for answer in self._answers if answer.conversation and answer is not but}

    def of_conversation(self, conversation: str) -> list[RunningAnswer]:
        """Return the turns of the conversation with this id, whoever owns it, the oldest first."""
        return [answer for answer in self._answers if conversation and answer.conversation == conversation]

    def find(self, owner: str, conversation: str) -> str | None:
        """Return the id of the running conversation with this id, or else with this name."""
        own = self.of(owner)
        if any(turn.conversation == conversation for turn in own):
            return conversation
        return next((turn.conversation for turn in own if turn.name == conversation), None)

    def status(self, owner: str, conversation: str) -> ConversationStatus:
        """Tell whether the conversation with this id is being answered, and how far the answer is."""
        turns = self.of(owner, conversation)
        if not turns:
            return ConversationStatus("idle")
        return ConversationStatus("running", turns[0].since, turns[0].phase, len(turns))

    def is_running(self, owner: str, turn_id: str) -> bool:
        """Tell whether the owner's turn with this id is running."""
        return bool(self._with_id(owner, turn_id))

    async def cancel(
        self, owner: str, conversation: str, *, last_words: bool = False, dropping: Collection[str] = ()
    ) -> int:
        """Stop all turns of the conversation with this id; return how many there were, once they have ended.

        Each tells its client which messages with the ids `dropping` wait still: nobody will read them. A turn that does
        not end within some seconds is no longer waited for. Cancelling this call leaves the turns stopped.
        """
        return await stopped(self.of(owner, conversation), last_words=last_words, dropping=dropping)

    async def cancel_turn(self, owner: str, turn_id: str) -> None:
        """Stop the one turn with this id, if it runs, as `cancel` does."""
        await stopped(self._with_id(owner, turn_id), last_words=False)

    async def turn_ended(self, owner: str, turn_id: str) -> None:
        """Wait until the one turn with this id has ended, if it runs."""
        if answers := self._with_id(owner, turn_id):
            await asyncio.wait([answer.ended for answer in answers])

    def _with_id(self, owner: str, turn_id: str) -> list[RunningAnswer]:
        """Return the owner's turn with this id, also before its conversation is known."""
        return [answer for answer in self._answers if answer.owner == owner and answer.id == turn_id]

    @contextmanager
    def chat(self, key: ChatKey) -> Iterator[None]:
        """Mark a chat as running with a model until the block ends; tasks that are in its way leave."""
        self.make_way(key)
        self._chats[key] += 1
        try:
            yield
        finally:
            self._chats[key] -= 1
            if not self._chats[key]:
                del self._chats[key]
            for woken in self._sleepers:
                if not woken.done():
                    woken.set_result(None)
            self._sleepers.clear()

    def make_way(self, chat: ChatKey) -> None:
        """Ask the tasks to leave that are in the way of a chat: those with its model, and its own."""
        *model, chat_id = chat
        for leave, (*its_model, its_chat) in list(self._tasks_at_work.items()):
            if its_model == model or (chat_id and its_chat == chat_id):
                leave()

    @contextmanager
    def task_at_work(self, task: ChatKey, leave: Callable[[], object]) -> Iterator[None]:
        """Let a task run; `leave` is called, perhaps several times, when a chat begins and the task is in its way."""
        self._tasks_at_work[leave] = task
        try:
            yield
        finally:
            del self._tasks_at_work[leave]

    def delays(self, task: ChatKey) -> bool:
        """Tell whether a running chat delays this task: its own, or any of the model where the task names none.

        Its own may be with another model: a client may have titles written by one of its choice.
        """
        *model, chat_id = task
        return any(key[2] == chat_id if chat_id else [*key[:2]] == model for key in self._chats)

    @contextmanager
    def task_waiting(self, task: ChatKey) -> Iterator[None]:
        """Count a task among those that wait for a chat, until the block ends."""
        model = task[:2]
        self._waiting_tasks[model] += 1
        try:
            yield
        finally:
            self._waiting_tasks[model] -= 1
            if not self._waiting_tasks[model]:
                del self._waiting_tasks[model]

    def waiting_tasks(self, provider: str, model: str) -> int:
        """Return how many tasks wait for chats of a model."""
        return self._waiting_tasks[provider, model]

    async def chats_ended(self, task: ChatKey) -> None:
        """Wait until no running chat delays this task; chats that begin meanwhile are waited for too."""
        while self.delays(task):
            woken = asyncio.get_running_loop().create_future()
            self._sleepers.append(woken)
            await woken


async def stopped(turns: Sequence[RunningAnswer], *, last_words: bool, dropping: Collection[str] = ()) -> int:
    """Stop these turns and wait for their ends; return how many there are."""
    for turn in turns:
        turn.stop(last_words=last_words, dropping=dropping)
    if turns:
        seconds = ENDING_SECONDS + (GRACE_SECONDS if last_words else 0)
        await asyncio.wait([turn.ended for turn in turns], timeout=seconds)
    return len(turns)
