"""What the engine reads around a compaction: what is compacted is read once, behind the answer or before the next."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from chatting import MODEL
from engine_as_lmstudio import engine_as_lmstudio
from long_conversations import Conversation, Kind, conversation
from prefix_reuse import REAL, Reading, Template, reading_of
from scripted_pruner import is_prune_order, valid_plan
from serving import Served, serve, settings_for
from stateless_client import Message, StatelessClient, openai_client
from waiting import until

from elbowroom.context.budget import Budget
from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.server.state import Timing
from elbowroom.tokens.files.loading import load_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from llama_server import LlamaServer
    from recording_relay import RecordingRelay

WINDOW: Final = 8192
SHORT_ANSWER: Final[dict[str, Any]] = {"max_tokens": 24, "temperature": 0, "seed": 7}
LONG_ANSWER: Final = 900
"""Tokens of an answer that passes the trigger."""
QUICK: Final = Timing(quiet=0.02)
KINDS: Final = pytest.mark.parametrize("kind", ["plain", "tools"])
PLAIN_FIRST: Final = pytest.mark.parametrize("kind", ["plain", pytest.param("tools", marks=pytest.mark.long)])
AROUND: Final = 12
"""Tokens that a template puts around a message, the opening of the answer included, and where words have met."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that has reached the engine; `reading` is None where its answer was not read to the end."""

    body: dict[str, Any]
    reading: Reading | None

    @property
    def is_order(self) -> bool:
        """Tell whether it orders a compaction."""
        return is_prune_order(self.body)

    @property
    def is_warm_up(self) -> bool:
        """Tell whether it only lets the engine read."""
        return bool(self.body["max_tokens"] == 1)

    @property
    def prompt(self) -> int:
        """Return the tokens of its prompt."""
        assert self.reading is not None
        return self.reading.prompt

    @property
    def cached(self) -> int:
        """Return how many of them the engine had read before."""
        assert self.reading is not None
        return self.reading.cached

    @property
    def processed(self) -> int:
        """Return how many tokens it read anew."""
        return self.prompt - self.cached


@dataclass(slots=True)
class Chat:
    """A client's conversation through elbowroom; `turns` are the requests of its turns, oldest first."""

    client: StatelessClient
    upstream: RecordingRelay
    served: Served
    turns: list[Sent] = field(default_factory=list)

    async def turn(self, number: int) -> Sent:
        """Have one exchange; return the request that was its turn."""
        self.client.take_in(self.client.conversation.exchanges[number])
        reply = await self.client.ask()
        self.client.history.append({"role": "assistant", "content": reply.text})
        turn = next(sent for sent in reversed(self.sent) if not sent.is_order and not sent.is_warm_up)
        self.turns.append(turn)
        return turn

    async def count(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> int:
        """Return the tokens of a prompt, with messages in the form that the template takes."""
        body = {"model": self.client.model, "messages": list(messages), **({"tools": list(tools)} if tools else {})}
        async with self.served.http.post(f"{self.served.chat_url}/input_tokens", json=body) as response:
            return int((await response.json())["input_tokens"])

    async def warmed_up(self) -> Sent:
        """Wait until the engine has read what was compacted behind the last answer; return the request for that."""
        await until(lambda: self.sent and self.sent[-1].is_warm_up and self.sent[-1].reading)
        return self.sent[-1]

    @property
    def sent(self) -> list[Sent]:
        """Return all chat requests, oldest first."""
        return [
            Sent(request.json(), reading_of(bytes(request.answer)) if b'"timings"' in request.answer else None)
            for request in self.upstream.requests
            if request.is_chat
        ]


@asynccontextmanager
async def chat(
    folder: Path,
    engine: LlamaServer,
    talk: Conversation,
    fields: dict[str, Any],
    *,
    background: bool,
    pruner: str = "",
    threshold: float = 0.8,
) -> AsyncIterator[Chat]:
    """Begin a conversation with the engine; with a `pruner` another server, at this address, prunes it."""
    table = f"[compaction]\nbackground = {str(background).lower()}\nthreshold_ratio = {threshold}\n"
    if pruner:
        table += 'pruning_agent = "critic"\n[[agents]]\nid = "critic"\nname = "Critic"\nprovider = "other"\n'
        table += f'instructions = "You prune."\nmodel = "{MODEL}"\n'
        table += f'[[providers]]\nid = "other"\nkind = "lmstudio"\nbase_url = "{pruner}"\n'
    files = f'model_files = {{ tiny = "{engine.model}" }}'
    async with (
        engine_as_lmstudio(engine) as upstream,
        serve(folder, settings_for(upstream.base_url, agents=table, provider=files), timing=QUICK) as served,
        openai_client(served.url) as api,
    ):
        yield Chat(StatelessClient(api, "lmstudio/tiny", talk, fields), upstream, served)


def talk_for(engine: LlamaServer, kind: Kind, share: float) -> Conversation:
    """Return a conversation whose messages take so many fiftieths of the window on average."""
    window = int(engine.options.context_length * share)
    return conversation(kind, 200, window, load_model(engine.model).text.tokenizer.count)


async def fill_up(talk: Chat) -> int:
    """Let a conversation have happened until its next answer will pass the trigger; return the number of its turn."""
    budget = Budget(WINDOW, max_tokens=LONG_ANSWER)
    most = budget.trigger - budget.reserve(0) - 100
    before: list[Message] = []
    for exchange in talk.client.conversation.exchanges:
        told = list(talk.client.history)
        talk.client.take_in(exchange)
        if await talk.count(talk.client.history, talk.client.conversation.tools) > most:
            talk.client.history[:] = before
            return exchange.number - 2
        talk.client.history.append({"role": "assistant", "content": exchange.reply})
        before = told
    raise AssertionError("the conversation is too short")


async def over_the_trigger(
    folder: Path, engine: LlamaServer, kind: Kind, *, background: bool, pruner: str = "", moves_tools: bool = False
) -> tuple[Chat, Sent, int]:
    """Pass the trigger with an answer, and go on with another turn.

    Return the chat, the request of that turn, and how many tokens of its prompt stand behind what it shares with the
    one before: the client's new ones, and the tools where a template `moves_tools` behind the last question.
    """
    *_, full_stop = await engine.tokenize(".")  # a row of them is written as one token when it is read again
    words = {"ignore_eos": True, "logit_bias": [[full_stop, -100]]}
    fields = {**SHORT_ANSWER, "max_tokens": LONG_ANSWER, "extra_body": words}
    told = talk_for(engine, kind, 0.15)
    async with chat(folder, engine, told, fields, background=background, pruner=pruner) as talk:
        number = await fill_up(talk)
        await talk.turn(number)
        assert not any(sent.is_order for sent in talk.sent)
        if background:
            await talk.warmed_up()
        before = list(talk.client.history)
        turn = await talk.turn(number + 1)
        new = talk.client.history[len(before) : -1]
        question = [before[0], {"role": "user", "content": "."}]
        least = await talk.count(question)
        moved = await talk.count(question, told.tools) - least if moves_tools and told.tools else 0
        return talk, turn, await talk.count([before[0], *new]) - least + moved


def before_first_mask(before: Sent, after: Sent) -> list[Message] | None:
    """Return what stands before the first call whose result the later request has shortened, None without one."""
    earlier, later = before.body["messages"], after.body["messages"]
    changed = next((at for at, (old, new) in enumerate(zip(earlier, later, strict=False)) if old != new), None)
    if changed is None:
        return None
    old, new = earlier[changed], later[changed]
    assert old["role"] == new["role"] == "tool"
    assert len(new["content"]) < len(old["content"])
    asked = next(at for at in range(changed, 0, -1) if later[at]["role"] == "user")
    return list(later[: asked + 1])


@pytest.mark.long
@KINDS
async def test_in_the_foreground(tmp_path: Path, engine: LlamaServer, kind: Kind) -> None:
    """Whatever a turn sends, compacted or not, is cached whole for the next; so is the conversation for an order.

    Where old results of tools are masked instead, all before the first of them is cached, and in the turn after that
    all again. The order, whose words take three tokens each of this vocabulary, has room behind 70 % of the window.
    """
    told = talk_for(engine, kind, 1.5)
    async with chat(tmp_path, engine, told, SHORT_ANSWER, background=False, threshold=0.7) as talk:
        compactions = 0
        for number in range(100):
            seen = len(talk.sent)
            turn = await talk.turn(number)
            orders = [sent for sent in talk.sent[seen:] if sent.is_order]
            if number and not orders:
                assert turn.processed < WINDOW // 2
                whole = talk.turns[-2].prompt
                stays = before_first_mask(talk.turns[-2], turn)
                assert turn.cached >= (whole if stays is None else await talk.count(stays, told.tools) - AROUND)
            if orders and not compactions:
                assert orders[0].cached >= talk.turns[-2].prompt
            if compactions == 2 and not orders:
                return
            compactions += bool(orders)
    raise AssertionError("it was not compacted twice")


@pytest.mark.slow
@PLAIN_FIRST
async def test_behind_an_answer(tmp_path: Path, engine: LlamaServer, kind: Kind) -> None:
    """The turn behind a compaction in the background reads the new messages and nothing else."""
    loaded = SimulatedModel(MODEL, loaded_context_length=4 * WINDOW)
    async with SimulatedLMStudio([loaded], on_request=valid_plan) as studio:
        _, turn, new = await over_the_trigger(tmp_path, engine, kind, background=True, pruner=studio.base_url)
    assert turn.prompt < WINDOW * 0.6, "nothing was compacted"
    assert turn.processed <= new + AROUND


@pytest.mark.long
@KINDS
async def test_without_background(tmp_path: Path, engine: LlamaServer, kind: Kind) -> None:
    """Without it the same turn has to read what was compacted, beside waiting for it."""
    talk, turn, new = await over_the_trigger(tmp_path, engine, kind, background=False)
    assert any(sent.is_order for sent in talk.sent)
    assert turn.processed > 5 * new


@pytest.mark.long
@pytest.mark.timeout(600)
@KINDS
@pytest.mark.parametrize("template", REAL, ids=lambda template: template.name)
async def test_behind_an_answer_with_a_real_template(
    tmp_path: Path, engine_for: Callable[[str, str], LlamaServer], template: Template, kind: Kind
) -> None:
    """What the engine has read behind the answer is what the next turn begins with, whatever the template does."""
    engine = engine_for(template.name, template.vocabulary)
    loaded = SimulatedModel(MODEL, loaded_context_length=4 * WINDOW)
    async with SimulatedLMStudio([loaded], on_request=valid_plan) as studio:
        moves = "Mistral" in template.name
        _, turn, new = await over_the_trigger(
            tmp_path, engine, kind, background=True, pruner=studio.base_url, moves_tools=moves
        )
    assert turn.prompt < WINDOW * 0.6, "nothing was compacted"
    assert turn.processed <= new + AROUND, (turn.reading, new)
