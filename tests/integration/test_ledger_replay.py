"""A client that sends the whole history each time pays for a compaction once: seen in what reaches the model."""

import asyncio
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import MODEL, RAW_MODEL, eventually
from counted_models import FileTokenizer, write_counted_model
from long_conversations import KINDS, Conversation, Kind, conversation
from patient_counting import wait_for_counts
from request_checks import assert_fits, assert_paired
from scripted_pruner import KnowsByHeart, is_prune_order
from serving import serve, settings_for
from stateless_client import StatelessClient, openai_client

from elbowroom.context.seam import CONTINUE
from elbowroom.demo import RecordedRequest, Script, SimulatedLMStudio, SimulatedModel, SimulatedTokenizer
from elbowroom.server.state import Timing

Body = dict[str, Any]
Message = dict[str, Any]
QUIET: Final = 0.01
MESSAGES_FOR_EACH_COMPACTION: Final = 10
"""Five turns of a question and an answer; calls and results are messages as well."""
COMPACTED: Final = re.compile(r": compacted from \d+ to \d+ tokens in [\d.]+ s \((\w+)")
log = logging.getLogger(__name__)
TOKENIZER = SimulatedTokenizer()


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    wait_for_counts(monkeypatch)
    caplog.set_level(logging.INFO, "elbowroom")


def size(text: str) -> int:
    """Return the tokens of a text as the simulator counts them."""
    return len(TOKENIZER.split(text))


def is_warm_up(body: Body) -> bool:
    """Tell whether a request is there for the engine's cache alone."""
    return body.get("max_tokens") == 1


class AlsoWarmsUp(KnowsByHeart):
    """Has something to say to a request for one token as well."""

    def __call__(self, body: Body) -> Script | str | None:
        """Return what to say."""
        return "Yes." if is_warm_up(body) else super().__call__(body)


@dataclass(slots=True)
class Replay:
    """What the requests of a conversation came to, turn by turn; a turn's part includes the work behind its answer.

    `reused` counts the requests whose beginning was the prompt before it, `anew` those that a compaction had changed.
    """

    compactions: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    rungs: list[str] = field(default_factory=list)
    reused: int = 0
    anew: int = 0


def compactions_in(records: Iterable[logging.LogRecord]) -> list[str]:
    """Return the rung of each compaction that a log speaks of."""
    found = (COMPACTED.search(record.getMessage()) for record in records)
    return [match[1] for match in found if match]


def is_settled(caplog: pytest.LogCaptureFixture, script: KnowsByHeart, orders: int) -> bool:
    """Tell whether each order since the first so many of them has led to a compaction."""
    return len(script.orders) - orders <= len(compactions_in(caplog.records))


def lasting(body: Body) -> list[Message]:
    """Return the messages of a prompt without an order to go on, and without the end of the answer before it."""
    messages: list[Message] = body["messages"]
    if messages[-1]["content"] == CONTINUE:
        return messages[:-2]
    return messages[:-1] if is_warm_up(body) else messages


def check_prefixes(replay: Replay, prompts: list[RecordedRequest], tokenizer: FileTokenizer | None) -> None:
    """Fail where a prompt does not begin with the bytes of the one before it, unless a compaction is between them."""
    for before, after in pairwise(prompts):
        earlier = lasting(before.body)
        if after.body["messages"][: len(earlier)] != earlier:
            replay.anew += 1
            continue
        replay.reused += 1
        if tokenizer is not None:
            rendered, whole = (tokenizer.render(one) for one in (earlier, after.body["messages"]))
            assert whole.startswith(rendered.removesuffix("<|im_start|>assistant\n"))


async def replayed(
    folder: Path,
    talk: Conversation,
    window: int,
    caplog: pytest.LogCaptureFixture,
    *,
    background: bool,
    file: Path | None = None,
) -> Replay:
    """Have the conversation with a client that keeps nothing but its history, and check every request."""
    replay, script = Replay(), AlsoWarmsUp(talk)
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
        client = StatelessClient(api, RAW_MODEL, talk)
        for exchange in talk.exchanges:
            orders = len(script.orders)
            caplog.clear()
            reply = await client.exchange(exchange)
            assert reply.text == exchange.reply
            if background:
                await asyncio.sleep(6 * QUIET)
                await eventually(partial(is_settled, caplog, script, orders), "an order came to nothing")
            rungs = compactions_in(caplog.records)
            replay.rungs += rungs
            replay.compactions.append(len(rungs))
            replay.orders.append(len(script.orders) - orders)
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])
        check_prefixes(replay, [chat for chat in studio.chats if not is_prune_order(chat.body)], tokenizer)
    return replay


def check(replay: Replay, talk: Conversation) -> None:
    """Fail where more was done than one order for each compaction, and one compaction for so many messages."""
    log.info("%s: %s", talk.kind, replay)
    assert replay.orders == replay.compactions
    assert set(replay.rungs) == {"plan"}
    texts = [[exchange.user, exchange.reply, *chain.from_iterable(exchange.rounds)] for exchange in talk.exchanges]
    assert sum(replay.compactions) <= sum(map(len, texts)) / MESSAGES_FOR_EACH_COMPACTION
    assert replay.anew <= sum(replay.compactions)


@pytest.mark.slow
@pytest.mark.parametrize(
    "background",
    [pytest.param(False, id="in the turn"), pytest.param(True, id="behind the answer", marks=pytest.mark.long)],
)
async def test_some_turns(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, background: bool) -> None:
    """Several compactions, each paid once, and all other prompts begin with the one before."""
    file = write_counted_model(tmp_path / "model.gguf")
    tokenizer = FileTokenizer(file)
    talk = conversation("plain", 34, 8192, lambda text: len(tokenizer.encode(text)))
    replay = await replayed(tmp_path, talk, 8192, caplog, background=background, file=file)
    check(replay, talk)
    assert sum(replay.compactions) >= 2


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("background", [False, True], ids=["in the turn", "behind the answer"])
@pytest.mark.parametrize("window", [4096, 8192])
@pytest.mark.parametrize("kind", KINDS)
async def test_two_hundred_turns(
    tmp_path: Path, kind: Kind, window: int, caplog: pytest.LogCaptureFixture, *, background: bool
) -> None:
    """The same with 200 turns of messages of a fiftieth of the window on average."""
    talk = conversation(kind, 200, window, size)
    replay = await replayed(tmp_path, talk, window, caplog, background=background)
    check(replay, talk)
