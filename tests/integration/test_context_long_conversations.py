"""Long conversations over a small window: every request fits, every reply arrives, and what is pinned stays."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from chatting import AGENT, MODEL, RAW_MODEL
from counted_models import FileTokenizer, write_counted_model
from demanding_templates import SPOKEN, alternating, refusing
from long_conversations import KINDS, LARGEST_SHARE, Conversation, Kind, conversation
from patient_counting import wait_for_counts
from request_checks import assert_fits, assert_paired, assert_pinned, is_shortened
from scripted_pruner import KnowsByHeart, is_prune_order
from serving import serve, settings_for
from spread_variants import sample, spread
from stateless_client import StatelessClient, openai_client

from elbowroom.agents.conversations import beginning
from elbowroom.demo import SimulatedLMStudio, SimulatedModel, SimulatedTokenizer
from elbowroom.store import write_behind
from elbowroom.tokens.errors import TemplateFailed

ALTERNATING = alternating(f"{SPOKEN} and message.role != 'tool' and not message.tool_calls")
log = logging.getLogger(__name__)
TOKENIZER = SimulatedTokenizer()
PATIENT_STORE = write_behind.Patience(opening=60.0)


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    # A busy machine or disk is slow, and that is no failure.
    monkeypatch.setattr(beginning, "OPENING_SECONDS", 60.0)
    monkeypatch.setattr(beginning, "LOOK_UP_SECONDS", 60.0)
    monkeypatch.setattr(write_behind, "Patience", lambda: PATIENT_STORE)


def size(text: str) -> int:
    """Return the tokens of a text as the simulator counts them."""
    return len(TOKENIZER.split(text))


class Strict(SimulatedTokenizer):
    """A model whose template refuses what real ones refuse: orphans, a late system message, nothing from a user."""

    def count_tokens(self, messages: list[dict[str, object]], tools: list[dict[str, object]] | None = None) -> int:
        """Return the tokens of the whole prompt."""
        roles = [str(message["role"]) for message in messages]
        try:
            assert_paired(messages)
        except AssertionError as error:
            raise ValueError(str(error)) from error
        if "system" in roles[1:] or "user" not in roles:
            raise ValueError(f"these roles cannot be rendered: {roles}")
        return super().count_tokens(messages, tools)


class RefusingFile(FileTokenizer):
    """A model with a file whose template refuses messages as LM Studio says it."""

    def count_tokens(self, messages: list[dict[str, object]], tools: list[dict[str, object]] | None = None) -> int:
        """Return the tokens of the whole prompt."""
        try:
            return super().count_tokens(messages, tools)
        except TemplateFailed as error:
            raise ValueError(str(error)) from error


@asynccontextmanager
async def talking(
    folder: Path, talk: Conversation, window: int, model: str = RAW_MODEL, file: Path | None = None
) -> AsyncIterator[tuple[StatelessClient, SimulatedLMStudio, KnowsByHeart]]:
    """Run all that a conversation needs: a model with this window that knows it by heart, elbowroom, a client.

    The model is that of the file where there is one, and else counted by asking it.
    """
    script = KnowsByHeart(talk)
    tokenizer = RefusingFile(file) if file else Strict()
    loaded = SimulatedModel(MODEL, loaded_context_length=window, tokenizer=tokenizer)
    files = f'model_files = {{ "{MODEL}" = "{file}" }}' if file else ""
    async with (
        SimulatedLMStudio([loaded], on_request=script) as studio,
        serve(folder, settings_for(studio.base_url, agents=AGENT, provider=files)) as served,
        openai_client(served.url) as api,
    ):
        yield StatelessClient(api, model, talk), studio, script


async def talk_through(
    folder: Path, talk: Conversation, window: int, model: str = RAW_MODEL, file: Path | None = None
) -> dict[str, int]:
    """Have the whole conversation, check every request and reply, and return how often what happened."""
    compactions = seen = 0
    async with talking(folder, talk, window, model, file) as (client, studio, script):
        for exchange in talk.exchanges:
            before = list(client.history)
            reply = await client.exchange(exchange)
            assert reply.text == exchange.reply
            assert reply.finish_reason == "stop"
            turns = [chat for chat in studio.chats[seen:] if not is_prune_order(chat.body)]
            for chat in turns:
                assert_pinned(chat.body["messages"], talk.system, exchange.user)
                compactions += is_shortened(chat.body["messages"], before)
            seen = len(studio.chats)
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])
            assert chat.status in (200, None)  # one that elbowroom itself has ended has none
        return {
            "turns": len(talk.exchanges),
            "requests": client.requests,
            "compactions": compactions,
            "orders": len(script.orders),
            "continued": len(script.continued),
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    sample(KINDS, "japanese"),  # the quick tests have tools with a demanding template
)
async def test_short_run(tmp_path: Path, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    """A window of 4096 is filled and overflows for a few turns: compacted at least twice, and no alarm is raised."""
    talk = conversation(kind, 12 if kind == "tools" else 22, 4096, size)
    figures = await talk_through(tmp_path, talk, 4096, model="writer" if kind == "tools" else RAW_MODEL)
    log.info("%s, window %d: %s", kind, 4096, figures)
    assert figures["compactions"] >= 2
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.long), "tools"])
async def test_demanding_template(tmp_path: Path, kind: Kind) -> None:
    """A template that wants alternating roles and ids of nine characters refuses no request of a compacted history."""
    demanding = refusing("message.tool_calls and message.tool_calls[0].id | length != 9", ALTERNATING)
    file = write_counted_model(tmp_path / "model.gguf", demanding)
    tokenizer = RefusingFile(file)
    with pytest.raises(ValueError, match="refuses these messages"):
        tokenizer.count_tokens([{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}])
    talk = conversation(kind, 12 if kind == "tools" else 22, 4096, lambda text: len(tokenizer.encode(text)))
    figures = await talk_through(tmp_path, talk, 4096, file=file)
    assert figures["compactions"] >= 2


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("window", [4096, 8192])
@pytest.mark.parametrize("kind", KINDS)
async def test_two_hundred_turns(tmp_path: Path, kind: Kind, window: int, caplog: pytest.LogCaptureFixture) -> None:
    """200 turns of messages of a fiftieth of the window on average and a tenth at most: compacted at least 10 times."""
    talk = conversation(kind, 200, window, size)
    figures = await talk_through(tmp_path, talk, window)
    log.info("%s, window %d: %s", kind, window, figures)
    assert figures["compactions"] >= 10
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(("kind", "window"), spread(KINDS, [4096, 8192]))
def test_sizes_of_messages(kind: Kind, window: int) -> None:
    """The messages of the long runs are as large as promised: otherwise these would show nothing."""
    talk = conversation(kind, 200, window, size)
    texts = [text for exchange in talk.exchanges for text in (exchange.user, exchange.reply)]
    texts += [call.result for exchange in talk.exchanges for calls in exchange.rounds for call in calls]
    shares = [size(text) / window for text in texts]
    assert 0.015 < sum(shares) / len(shares) <= 0.02
    assert 0.08 < max(shares) <= LARGEST_SHARE
    users = [exchange.user for exchange in talk.exchanges]
    assert len(set(users)) == len(users)
