"""Two chats on a woven loop, with all that may come in between: a cancel, a client that leaves, a compaction, a fault.

The chats, their recorders, the queue for the model, the compaction in the background and the store are elbowroom's;
only the model is a script, which says words that occur once, so that one that is lost or comes twice is seen.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from failing_statements import FullDisk, files_on
from scripted_pruner import is_prune_order, text_of, valid_plan
from watched_stream import statuses_of
from woven_loop import WovenLoop, run_woven

from elbowroom.agents.answer import AnswerEvent
from elbowroom.agents.answering import answer
from elbowroom.agents.catalog import Catalog, Target
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.request import Caller, own_request
from elbowroom.agents.turn import RunSettings, Shared
from elbowroom.context.conversation import Conversation, KeptMessage
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import Finished, ModelInfo, Provider, StreamEvent, TextDelta, UsageReport
from elbowroom.server.encode import FrameEncoder
from elbowroom.settings.model import CompactionSettings, MemorySettings, StoreSettings, ToolOutputSettings
from elbowroom.store import Store, open_store
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter

OWNER: Final = "ada"
WINDOW: Final = 4096
INFO: Final = ModelInfo("qwen2.5-7b-instruct", "lmstudio", "Qwen", state="loaded", loaded_context=WINDOW)
POOL: Final = (INFO.provider, INFO.id)
PAUSES: Final = (0.0, 0.0, 0.005, 0.02, 0.1)
QUIET: Final = 0.1
BEFORE: Final = (range(2600, 2900), range(200, 500))
"""Tokens that the two chats have before: the first is compacted with its next question, or after the answer."""
EXCHANGES: Final = 6
TURNS: Final = 3
WORDS: Final = 24
LETTERS: Final = 200
"""How much of a plan comes at a time."""
PATIENCE: Final = 300.0
"""Seconds of the loop's clock in which two chats have to be over; they take some twenty."""
RESTING: Final = 90.0
"""Seconds after which nothing is left to do: prompts are read, compactions made, and a store that failed is tried."""


def size_of(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return how many tokens the scripted model takes messages for."""
    return sum(4 + len(text_of(dict(message))) // 4 for message in messages)


def history(tokens: int) -> list[dict[str, Any]]:
    """Return a conversation of about so many tokens."""
    noted = "the sea was calm and the boat half full, "
    said = f"On this crossing {noted * (tokens * 4 // len(noted) // EXCHANGES)}as always."
    messages = [{"role": "system", "content": "You keep the log of the ferry."}]
    for number in range(EXCHANGES):
        messages.append({"role": "user", "content": f"What was noted on crossing {number}?"})
        messages.append({"role": "assistant", "content": said})
    return messages


class ByLetters:
    """Counts prompts as the scripted model does."""

    async def count_text(self, text: str) -> TokenCount:
        return TokenCount(len(text) // 4, "exact")

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], arguments: Mapping[str, Any]
    ) -> TokenCount:
        return TokenCount(size_of(messages), "exact")


class ScriptedModel:
    """A provider whose only model answers each question with words of its own; `asked` counts the questions.

    `complaints` are requests that no model should get, and `open` counts those that are being answered.
    """

    id = INFO.provider
    manages_context = True
    has_own_tool_format = False
    management = slot_files = None

    def __init__(self, loop: WovenLoop) -> None:
        self.asked: Counter[str] = Counter()
        self.orders = 0
        self.open = 0
        self.complaints: list[str] = []
        self._loop = loop
        self._counter = TokenCounter(INFO.id, None, [ByLetters()])

    async def ready(self, model: str) -> ModelInfo:
        await self.pause()
        return INFO

    async def overflow_policy(self, model: str) -> str | None:
        return None

    async def counter(self, info: ModelInfo) -> TokenCounter:
        return self._counter

    async def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        prompt = size_of(body["messages"])
        if prompt >= WINDOW:
            self.complaints.append(f"a prompt of {prompt} tokens was sent")
        self.open += 1
        try:
            await self.pause(10)
            pieces = self._pieces(body)
            for piece in pieces:
                yield [TextDelta(piece)]
                await self.pause()
            said = sum(map(len, pieces)) // 4
            usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
            yield [Finished("stop"), UsageReport(usage)]
        finally:
            self.open -= 1

    def _pieces(self, body: Mapping[str, Any]) -> list[str]:
        if is_prune_order(dict(body)):
            self.orders += 1
            plan = valid_plan(dict(body))
            return [plan[start : start + LETTERS] for start in range(0, len(plan), LETTERS)]
        if body["max_tokens"] == 1:
            return ["."]
        question = text_of(body["messages"][-1])
        self.asked[question] += 1
        return [f"{question.split()[0]}-{number} " for number in range(WORDS)]

    async def pause(self, times: int = 1) -> None:
        """Take a moment that the loop chooses."""
        await asyncio.sleep(times * self._loop.random.choice(PAUSES))


@dataclass
class Asked:
    """A question of a chat and what came of it, as its client has it; `left` says that the client did not stay."""

    question: str
    text: str = ""
    stream: bytes = b""
    recorder: TurnRecorder | None = None
    finish: str = ""
    error: str = ""
    left: bool = False


class Scene:
    """One schedule: all that runs in it, and what is wrong with it in the end."""

    def __init__(self, loop: WovenLoop, path: Path, disk: FullDisk) -> None:
        self.loop = loop
        self.random = loop.random
        self.disk = disk
        self.model = ScriptedModel(loop)
        self.path = path
        self.store = self._open_store()
        self.shared = Shared.over(
            self.store, cast("Any", None), quiet_seconds=QUIET, conversations=self.store.conversations
        )
        provider = cast("Provider", self.model)
        catalog = Catalog([], {INFO.provider: provider})
        self.target = Target(f"{INFO.provider}/{INFO.id}", provider, INFO.id)
        self.settings = RunSettings(
            CompactionSettings(), catalog, "pass", ToolOutputSettings(), MemorySettings(), self.shared
        )
        self.asked: list[Asked] = []
        self.wrong: list[str] = []
        loop.set_exception_handler(lambda _, context: self.wrong.append(f"asyncio: {context}"))

    def _open_store(self) -> Store:
        url = f"sqlite:///{self.path}"
        return open_store(StoreSettings(url=url, retention_days=0, max_gb=1000), {})

    async def play(self) -> list[str]:
        """Let it all happen; return what is wrong."""
        actors = [self._chat(number) for number in range(2)]
        meddlers = [self._cancel(), self._cancel(), self._look()]
        self.store.open_soon()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*actors, *meddlers)
        self.disk.is_healed = True
        if self.random.random() < 0.5:
            await asyncio.sleep(RESTING)
            await self._check_rest()
        await self.shared.aclose()
        await self.store.aclose()
        await asyncio.sleep(1)
        self._check_end()
        await self._check_kept()
        return self.wrong

    async def _chat(self, number: int) -> None:
        """Hold a conversation, which a client sends whole with each question."""
        name = self.random.choice(("", f"chat {number}"))
        messages = history(self.random.choice(BEFORE[number]))
        for turn in range(TURNS):
            await self._wait(2.0)
            asked = Asked(f"q{number}{turn} Which pier does the last ferry leave from?")
            self.asked.append(asked)
            messages.append({"role": "user", "content": asked.question})
            await self._client(asked, name, messages)
            if asked.text:
                messages.append({"role": "assistant", "content": asked.text})

    async def _client(self, asked: Asked, name: str, messages: Sequence[dict[str, Any]]) -> None:
        """Ask, and stay to the end, or leave at some moment."""
        asking = asyncio.create_task(self._ask(asked, name, tuple(messages)))
        leaves = self.random.random() < 0.2
        await asyncio.wait([asking], timeout=self.random.random() * 4 if leaves else None)
        if not asking.done():
            asked.left = True
            asking.cancel()
            await asyncio.wait([asking])
        if not asking.cancelled() and (error := asking.exception()) is not None:
            raise error

    async def _ask(self, asked: Asked, name: str, messages: tuple[dict[str, Any], ...]) -> None:
        """Answer a request as the route for chats does."""
        encoder = FrameEncoder(self.target.name)

        async def sink(events: Sequence[AnswerEvent]) -> None:
            asked.stream += encoder.events(events)
            asked.text += "".join(event.text for event in events if isinstance(event, TextDelta))
            if self.random.random() < 0.2:
                await self.model.pause()

        def begun(recorder: TurnRecorder) -> None:
            asked.recorder = recorder

        caller = Caller(OWNER, name, known_by="name")
        request = replace(own_request(self.target.name, messages), caller=caller)
        try:
            said = await answer(self.target, request, self.settings, sink, begun)
        except ElbowroomError as error:
            asked.error = error.message
            asked.stream += encoder.failure(error)
            return
        asked.finish = "stopped" if said.is_interrupted else "whole"
        asked.stream += encoder.end(said)

    async def _cancel(self) -> None:
        """Stop what runs in some conversation at some moment, as the route for that does."""
        await self._wait(12.0)
        running = [one for one in self.asked if one.recorder is not None and not (one.finish or one.error or one.left)]
        if running and (recorder := self.random.choice(running).recorder) is not None and recorder.conversation:
            await self.shared.running.cancel(OWNER, recorder.conversation)
            await self.shared.background.end(recorder.conversation)

    async def _look(self) -> None:
        """Look at the list of conversations while they go on, and read the newest."""
        await self._wait(12.0)
        rows = await self.store.conversations.rows(OWNER)
        if rows:
            await self.store.conversations.read(OWNER, rows[0].id)

    async def _wait(self, longest: float) -> None:
        await asyncio.sleep(self.random.random() * longest)

    async def _check_rest(self) -> None:
        """Check that nothing is held or unwritten once everybody has gone, and that the store is used again."""
        admission = self.shared.admission
        self._expect(admission.held(POOL) == 0, f"{admission.held(POOL)} tokens of the model are held")
        self._expect(self.store.lag == 0, f"words wait for {self.store.lag:.1f} s to be written")
        await self.store.conversations.rows(OWNER)
        await asyncio.sleep(1)
        self._expect(not self.store.is_failing, "the store is not tried again")

    def _check_end(self) -> None:
        admission, tasks = self.shared.admission, asyncio.all_tasks(self.loop) - {asyncio.current_task()}
        self._expect(not tasks, f"tasks are left: {tasks}")
        self._expect(admission.held(POOL) == 0, f"{admission.held(POOL)} tokens of the model are held at the end")
        self._expect(admission.waiting(POOL) == 0, "somebody waits for the model at the end")
        self._expect(len(self.shared.running) == 0, "answers are running at the end")
        self._expect(self.model.open == 0, "a request is open upstream")
        self.wrong += self.model.complaints
        for question, times in self.model.asked.items():
            self._expect(times == 1, f"the model was asked {times} times: {question}")
        for asked in self.asked:
            self._check_client(asked)

    def _check_client(self, asked: Asked) -> None:
        """Check what one client has got."""
        words = [f"{asked.question.split()[0]}-{number}" for number in range(WORDS)]
        got = asked.text.split()
        self._expect(got == words[: len(got)], f"{asked.question}: the client got {asked.text!r}")
        self._expect(asked.finish != "whole" or got == words, f"{asked.question}: not whole: {asked.text!r}")
        self._expect(bool(asked.finish or asked.left), f"{asked.question}: failed: {asked.error}")
        statuses = statuses_of(asked.stream)
        is_open = bool(statuses) and not statuses[-1]["done"]
        self._expect(asked.left or not is_open, f"{asked.question}: a notice is open: {statuses[-1:]}")

    async def _check_kept(self) -> None:
        """Check that the file has what the clients had, once."""
        store = self._open_store()
        try:
            rows = await store.conversations.rows(OWNER)
            kept = [await store.conversations.read(OWNER, row.id) for row in rows]
        finally:
            await store.aclose()
        turns: dict[str, list[KeptMessage]] = {}
        for conversation in kept:
            assert conversation is not None
            self._check_heard(conversation)
            for message in conversation.messages:
                turns.setdefault(message.turn, []).append(message)
        for asked in self.asked:
            if asked.recorder is not None:
                self._check_turn(asked, turns.get(asked.recorder.id, []))

    def _check_heard(self, conversation: Conversation) -> None:
        keys = Counter(message.key for message in conversation.messages if not message.turn)
        twice = [key for key, times in keys.items() if times > 1]
        self._expect(not twice, f"{conversation.row.id}: messages are kept twice: {twice}")

    def _check_turn(self, asked: Asked, messages: Sequence[KeptMessage]) -> None:
        text = "".join(text_of(dict(message.message)) for message in messages)
        self._expect(text == asked.text, f"{asked.question}: kept is {text!r}, the client got {asked.text!r}")
        statuses = {message.status for message in messages}
        wanted = {"complete"} if asked.finish == "whole" else {"interrupted", "complete"}
        self._expect(statuses <= wanted, f"{asked.question}: {asked.finish}, kept as {statuses}")

    def _expect(self, is_so: bool, wrong: str) -> None:
        if not is_so:
            self.wrong.append(wrong)


class Failures(logging.Handler):
    """Collects what elbowroom has logged as a mistake of its own: errors with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(f"logged: {record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def failures_logged() -> Iterator[Failures]:
    """Collect them in this block."""
    handler, log = Failures(), logging.getLogger("elbowroom")
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)


def play(seed: int, folder: Path) -> list[str]:
    """Play the schedule of this number; return what is wrong with it, nothing where all is well."""
    return played(seed, folder)[0]


def played(seed: int, folder: Path) -> tuple[list[str], Scene]:
    """Play it and return the scene as well."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{seed}.db"
    scenes: list[Scene] = []

    async def scene(loop: WovenLoop) -> list[str]:
        disk.sound, disk.most = loop.random.randrange(400), loop.random.choice((0, 1, 3, 40))
        scenes.append(Scene(loop, path, disk))
        return await scenes[0].play()

    disk = FullDisk(0, 0)
    with failures_logged() as logged, files_on(disk):
        try:
            wrong = run_woven(seed, scene)
        except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to this schedule
            wrong = [*(scenes[0].wrong if scenes else ()), f"it broke: {error!r}"]
    return [*wrong, *logged.found], scenes[0]
