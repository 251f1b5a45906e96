"""A client that sends the whole history each time pays for a compaction once: seen in what reaches the model."""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import MODEL, RAW_MODEL
from counted_models import FileTokenizer, write_counted_model
from flushes import background_ended
from long_conversations import KINDS, Conversation, Exchange, Kind, conversation
from patient_counting import wait_for_counts
from request_checks import assert_fits, assert_paired
from scripted_pruner import KnowsByHeart, is_prune_order, listed_groups, text_of, valid_plan
from serving import serve, settings_for
from stateless_client import StatelessClient, openai_client

from elbowroom.context.seam import CONTINUE
from elbowroom.context.transcript import written
from elbowroom.context.unasked import FENCE
from elbowroom.demo import RecordedRequest, Script, SimulatedLMStudio, SimulatedModel, SimulatedTokenizer
from elbowroom.server.state import Timing

Body = dict[str, Any]
Message = dict[str, Any]
QUIET: Final = 0.01
MESSAGES_FOR_EACH_COMPACTION: Final = 10
"""Five turns of a question and an answer. Results are messages as well; calls, and what comes back unasked, count by
their size."""
RUNG: Final = re.compile(r": compacted from .* \((\w+)")
MASKED: Final = "Results of tools are shortened: "
MARK: Final = re.compile(r"(?:Request|依頼) \d+|\(answer \d+\)")
CALLED: Final = re.compile(r"notes/\d+\.md")
SHOWN: Final = re.compile(rf"^\w+: ({MARK.pattern})|({CALLED.pattern})", re.MULTILINE)
GROUP: Final = re.compile(r'<group id="(\d+)">\n(.*?)\n</group>', re.DOTALL)
UNLISTED: Final = re.compile(r"^(\d+) to (\d+) \| older groups", re.MULTILINE)
log = logging.getLogger(__name__)
TOKENIZER = SimulatedTokenizer()


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def size(text: str) -> int:
    """Return the tokens of a text as the simulator counts them."""
    return len(TOKENIZER.split(text))


def is_warm_up(body: Body) -> bool:
    """Tell whether a request is there for the engine's cache alone."""
    return body.get("max_tokens") == 1


class RoomMade(logging.Handler):
    """Notes by which rung room was made, each time; "masked" where old results of tools are shorter."""

    def __init__(self) -> None:
        super().__init__()
        self.ways: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note what a line of the log tells."""
        told = record.getMessage()
        if found := RUNG.search(told):
            self.ways.append(found[1])
        elif told.startswith(MASKED):
            self.ways.append("masked")

    @property
    def compactions(self) -> int:
        """Return how often something was summarised."""
        return len(self.ways) - self.ways.count("masked")


def marks(message: Message) -> list[str]:
    """Return what no other message of the conversation has: its number, else where its calls read."""
    begins = MARK.match(text_of(message))
    called = CALLED.findall(json.dumps(message.get("tool_calls") or ""))
    return [begins[0], *called] if begins else called


def handed_over(order: Body) -> list[str]:
    """Return the marks of what an order hands to the pruning agent."""
    text = text_of(order["messages"][-1])
    if shown := GROUP.findall(text):
        return [mark for _, group in shown for found in SHOWN.findall(group) for mark in found if mark]
    groups: list[list[str]] = []
    for message in order["messages"][:-1]:
        groups += [] if message["role"] == "tool" else [[]]
        groups[-1] += marks(message)
    ids = set(listed_groups(order))
    for first, last in UNLISTED.findall(text):
        ids |= set(range(int(first), int(last) + 1))
    return [mark for number in ids for mark in groups[number]]


def plan_in_whole_words(order: Body) -> str:
    """Return a valid plan in which no name or fence is broken off: half of one was said by nobody."""
    begins = [" ".join(re.findall(r"\w+", words[:40])[:-1]) for words in listed_groups(order).values()]
    most = len(json.loads(valid_plan(order))["summary"].split())
    told = " ".join(f"Then came: {words}." for words in begins).split()[:most]
    return json.dumps({**json.loads(valid_plan(order)), "summary": " ".join(told)}, ensure_ascii=False)


class Pays(KnowsByHeart):
    """Says something to a request for one token as well, and notes what compactions are paid for.

    `made_before` has how often room was made before each request, `compacted_before` how often something was
    summarised before each order. `paid` is what orders have handed over, `again` what of that the conversation had no
    more, or what two orders of one compaction have. `came_back` is what came back unasked, by the messages that it
    stands behind.
    """

    def __init__(self, talk: Conversation, room: RoomMade) -> None:
        super().__init__(talk, plan_in_whole_words)
        self._room = room
        self._standing: set[str] = set()
        self._ordered: set[str] = set()
        self.made_before: list[int] = []
        self.compacted_before: list[int] = []
        self.paid: Counter[str] = Counter()
        self.again: set[str] = set()
        self.came_back: dict[str, str] = {}

    def __call__(self, body: Body) -> Script | str | None:
        """Return what to say."""
        self.made_before.append(len(self._room.ways))
        if is_prune_order(body):
            self._note_order(body)
        elif not is_warm_up(body):
            self._note_turn(body["messages"])
        return "Yes." if is_warm_up(body) else super().__call__(body)

    def _note_turn(self, messages: list[Message]) -> None:
        """Note what a turn has sent."""
        self._standing, self._ordered = {mark for message in messages for mark in marks(message)}, set()
        asked = text_of(next(message for message in reversed(messages) if message["role"] == "user"))
        said, fence, back = asked.partition(f"<{FENCE}>")
        if fence:
            self.came_back[said] = back

    def _note_order(self, order: Body) -> None:
        """Note what an order hands over."""
        found = set(handed_over(order))
        self.compacted_before.append(self._room.compactions)
        self.again |= {mark for mark in found if self.paid[mark] and mark not in self._standing} | found & self._ordered
        self._ordered |= found
        self.paid.update(found)


@dataclass(slots=True)
class Replay:
    """What the requests of a conversation came to, in which the model has made `calls`.

    `reused` counts the prompts that begin with the one before, `anew` those between which room was made.
    """

    room: RoomMade
    script: Pays
    calls: list[str] = field(default_factory=list)
    reused: int = 0
    anew: int = 0


def lasting(body: Body) -> list[Message]:
    """Return the messages of a prompt without an order to go on, and without the end of the answer before it."""
    messages: list[Message] = body["messages"]
    if messages[-1]["content"] == CONTINUE:
        return messages[:-2]
    return messages[:-1] if is_warm_up(body) else messages


def check_prefixes(replay: Replay, chats: list[RecordedRequest], tokenizer: FileTokenizer | None) -> None:
    """Fail where a prompt does not begin with the bytes of the one before it, unless room was made between them."""
    sent = zip(chats, replay.script.made_before, strict=True)
    prompts = [(chat, made) for chat, made in sent if not is_prune_order(chat.body)]
    for (before, made_before), (after, made_after) in pairwise(prompts):
        earlier = lasting(before.body)
        if after.body["messages"][: len(earlier)] != earlier:
            assert made_after > made_before, "a prompt has changed, and no room was made"
            replay.anew += 1
            continue
        replay.reused += 1
        if tokenizer is not None:
            rendered, whole = (tokenizer.render(one) for one in (earlier, after.body["messages"]))
            assert whole.startswith(rendered.removesuffix("<|im_start|>assistant\n"))


async def replayed(
    folder: Path, talk: Conversation, window: int, *, background: bool, file: Path | None = None
) -> Replay:
    """Have the conversation with a client that keeps nothing but its history, and check every request."""
    room = RoomMade()
    script = Pays(talk, room)
    replay = Replay(room, script)
    tokenizer = FileTokenizer(file) if file else None
    loaded = SimulatedModel(MODEL, loaded_context_length=window, tokenizer=tokenizer)
    files = f'model_files = {{ "{MODEL}" = "{file}" }}' if file else ""
    chosen = f"[compaction]\nbackground = {str(background).lower()}\n"
    async with (
        SimulatedLMStudio([loaded], on_request=script) as studio,
        serve(
            folder, settings_for(studio.base_url, agents=chosen, provider=files), timing=Timing(quiet=QUIET)
        ) as served,
        openai_client(served.url) as api,
    ):
        with logged(room):
            client = StatelessClient(api, RAW_MODEL, talk)
            for exchange in talk.exchanges:
                reply = await client.exchange(exchange)
                assert reply.text == exchange.reply
                await background_ended(served)
            replay.calls = [written(message) for message in client.history if message.get("tool_calls")]
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])
        check_prefixes(replay, studio.chats, tokenizer)
    return replay


@contextmanager
def logged(handler: logging.Handler) -> Iterator[None]:
    """Let a handler have what the program tells."""
    program = logging.getLogger("elbowroom")
    level = program.level
    program.setLevel(logging.INFO)
    program.addHandler(handler)
    try:
        yield
    finally:
        program.removeHandler(handler)
        program.setLevel(level)


def check(replay: Replay, talk: Conversation) -> None:
    """Fail where an order came to nothing, something was paid for anew, or there were too many compactions.

    What stays word for word beside a summary is handed over once more, when it goes.
    """
    room, script = replay.room, replay.script
    log.info("%s: %s, %d reused, %d anew", talk.kind, Counter(room.ways), replay.reused, replay.anew)
    assert set(room.ways) <= {"plan", "masked"}
    assert sorted(set(script.compacted_before)) == list(range(room.compactions)), "an order came to nothing"
    assert not script.again, "what was summarised is paid for once more"
    assert max(script.paid.values()) <= 2
    texts = [text for exchange in talk.exchanges for text in texts_of(exchange)]
    said, beside = (sum(map(len, each)) for each in (texts, [*replay.calls, *script.came_back.values()]))
    assert room.compactions * MESSAGES_FOR_EACH_COMPACTION <= len(texts) * (said + beside) / said


def texts_of(exchange: Exchange) -> list[str]:
    """Return the texts of an exchange's messages: what is asked, what calls return, and the answer."""
    return [exchange.user, *(call.result for calls in exchange.rounds for call in calls), exchange.reply]


@pytest.mark.slow
@pytest.mark.parametrize(
    "background",
    [pytest.param(False, id="in the turn"), pytest.param(True, id="behind the answer", marks=pytest.mark.long)],
)
async def test_some_turns(tmp_path: Path, *, background: bool) -> None:
    """Several compactions, each paid once, and all other prompts begin with the one before."""
    file = write_counted_model(tmp_path / "model.gguf")
    tokenizer = FileTokenizer(file)
    talk = conversation("plain", 34, 8192, lambda text: len(tokenizer.encode(text)))
    replay = await replayed(tmp_path, talk, 8192, background=background, file=file)
    check(replay, talk)
    assert replay.room.compactions >= 2


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("background", [False, True], ids=["in the turn", "behind the answer"])
@pytest.mark.parametrize("window", [4096, 8192])
@pytest.mark.parametrize("kind", KINDS)
async def test_two_hundred_turns(tmp_path: Path, kind: Kind, window: int, *, background: bool) -> None:
    """The same with 200 turns of messages of a fiftieth of the window on average."""
    talk = conversation(kind, 200, window, size)
    replay = await replayed(tmp_path, talk, window, background=background)
    check(replay, talk)
