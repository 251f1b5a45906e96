"""The pruning agent, asked over real HTTP: what it is sent, and that nothing but a plan is taken for an answer."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from chatting import eventually
from fake_upstream import FakeUpstream, chunk, fake_upstream, says, streams
from sample_chat import READ_NOTE
from shared_state import bare_settings, bare_shared

from elbowroom.agents.admission import Job
from elbowroom.agents.catalog import Catalog, Target
from elbowroom.agents.prompt.counters import HistoryCounters
from elbowroom.agents.turn.pruner import Conversation, PruningAgent, choose_pruner, wishes_of
from elbowroom.agents.turn.state import Shared
from elbowroom.context.compaction.answer import Plan, read_prune_answer
from elbowroom.context.compaction.order import Wishes, listing_order
from elbowroom.context.effects import PrunerFailed
from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.demo.script import Cut, Error, Pause, Raw, Reasoning, Reply, Script, Text, ToolCall
from elbowroom.providers.base import Provider
from elbowroom.providers.lmstudio.provider import LMStudio
from elbowroom.providers.openai_compatible import OpenAICompatible
from elbowroom.settings.model import AgentSettings, CompactionSettings
from elbowroom.tokens.file_counter import CountingTools

MODEL, OTHER, THINKER = "qwen2.5-7b-instruct", "llama-3.2-3b-instruct", "qwen3-8b"
PLAN = json.dumps({"retain": "Only metric units.", "summary": "They measured the garden together.", "keep": [2]})
CONVERSATION = [
    {"role": "system", "content": "You help with notes."},
    {"role": "user", "content": "How wide is the garden?"},
    {"role": "assistant", "content": "Twelve metres."},
    {"role": "user", "content": "And how long?"},
]
ORDER = {"role": "user", "content": "Summarise the above."}
LISTING = listing_order([], "", Wishes(), 100)
BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": CONVERSATION,
    "tools": [READ_NOTE],
    "top_p": 0.9,
    "stop": ["\n"],
    "tool_choice": "required",
    "response_format": {"type": "text"},
    "max_completion_tokens": 4000,
}


def sim(key: str, window: int = 8192, **fields: Any) -> SimulatedModel:
    """Return a loaded model of the simulator."""
    return SimulatedModel(key, loaded_context_length=window, **fields)


@asynccontextmanager
async def lmstudio(*models: SimulatedModel) -> AsyncIterator[tuple[SimulatedLMStudio, LMStudio]]:
    """Run a simulated LM Studio and its provider; no request may be left open."""
    async with SimulatedLMStudio(models or [sim(MODEL)]) as studio, aiohttp.ClientSession() as http:
        tools = CountingTools()
        provider = LMStudio("lmstudio", studio.base_url, http, tools=tools, home="/no")
        try:
            yield studio, provider
            await eventually(lambda: studio.open_requests == 0, "requests are left open")
        finally:
            await provider.aclose()
            await tools.aclose()


def conversation_of(body: Mapping[str, Any]) -> Conversation:
    """Return the conversation of a body that is sent as it stands."""
    return Conversation(body, body["messages"], list)


async def pruner_of(provider: Provider, model: str = MODEL, body: Mapping[str, Any] | None = None) -> PruningAgent:
    """Return the pruning agent of a conversation, or a model of its own where there is no body."""
    info = await provider.ready(model)
    history = await HistoryCounters().of(provider, info, body or {})
    window = info.loaded_context or 4096
    conversation = conversation_of(body) if body else None
    return PruningAgent(provider, info, history, bare_shared(), known_window=window, conversation=conversation)


async def failure_of(pruner: PruningAgent, cap: int = 100) -> str:
    """Return why there is no answer."""
    with pytest.raises(PrunerFailed) as caught:
        await pruner.ask([*CONVERSATION, ORDER], cap)
    return str(caught.value)


@pytest.mark.parametrize(("pause", "most"), [(None, None), (40.0, 360), (20.0, 0)])
async def test_a_plan_is_written_while_the_person_reads(pause: float | None, most: int | None) -> None:
    """In the pause the engine reads the order and the result as well, as fast as it was measured to."""
    async with lmstudio() as (studio, provider):
        studio.enqueue(PLAN)
        job = Job("", asyncio.get_running_loop().create_future(), usual_pause=pause)
        pruner = replace(await pruner_of(provider, body=BODY), job=job)
        assert pruner.can_write(6000) is None
        await pruner.ask([*CONVERSATION, ORDER], 100)
        pool = pruner.shared.admission.pool((provider.id, MODEL))
        assert pool is not None
        pool.rate.learn(3000, 10)
        for _ in range(3):  # the plan has come at once
            pool.writing.learn(2000, 100)
        assert pruner.can_write(6000) == most


async def test_own_model_gets_the_conversations_own_bytes() -> None:
    """Messages and tools are the conversation's, the order is behind them; what would shape the answer is left out."""
    async with lmstudio() as (studio, provider):
        studio.enqueue(PLAN)
        pruner = await pruner_of(provider, body=BODY)
        assert pruner.shares_prefix
        assert await pruner.ask([*CONVERSATION, ORDER], 100) == PLAN
        [sent] = [chat.body for chat in studio.chats]
    assert sent["messages"] == [*CONVERSATION, ORDER]
    assert sent["tools"] == [READ_NOTE]
    assert (sent["top_p"], sent["max_tokens"], sent["stream"]) == (0.9, 100, True)
    assert sent["temperature"] <= 0.3
    assert not {"stop", "tool_choice", "response_format", "max_completion_tokens", "chat_template_kwargs"} & sent.keys()
    assert BODY["messages"] is CONVERSATION


async def test_own_model_gets_parts_without_the_conversation() -> None:
    """Groups that are listed need no tools: the form of the answer is asked for instead."""
    async with lmstudio() as (studio, provider):
        studio.enqueue(PLAN)
        pruner = await pruner_of(provider, body=BODY)
        assert await pruner.ask(LISTING, 100) == PLAN
        [sent] = [chat.body for chat in studio.chats]
    assert "tools" not in sent
    assert sent["messages"] == LISTING
    assert sent["response_format"]["type"] == "json_schema"


async def test_what_is_sent_around_the_history_is_sent_here_too() -> None:
    """Instructions that the server puts in front belong to the bytes that the engine has read."""

    def dress(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [{"role": "system", "content": "Be brief."}, *messages]

    history = CONVERSATION[1:]
    async with lmstudio() as (studio, provider):
        studio.enqueue(PLAN)
        info = await provider.ready(MODEL)
        counter = await HistoryCounters().of(provider, info, BODY)
        told = Conversation({**BODY, "messages": dress(history)}, history, dress)
        pruner = PruningAgent(provider, info, counter, bare_shared(), known_window=8192, conversation=told)
        await pruner.ask([*history, ORDER], 100)
        [sent] = [chat.body for chat in studio.chats]
    assert sent["messages"] == [*dress(history), ORDER]


async def test_usage_is_kept_apart() -> None:
    """What the engine reports for each answer is there to be added up."""
    async with lmstudio() as (studio, provider):
        studio.enqueue(PLAN, PLAN)
        pruner = await pruner_of(provider, body=BODY)
        for _ in range(2):
            await pruner.ask([*CONVERSATION, ORDER], 100)
        assert [used.prompt for used in pruner.used] == [chat.prompt_tokens for chat in studio.chats]


BAD_ANSWERS: dict[str, tuple[Script, str]] = {
    "a tool call": (Script(ToolCall("read_note", {"path": "a"}), "and more"), "tool call"),
    "cut off": (Script(Text(PLAN[:50]), finish_reason="length"), "cut off"),
    "cut off behind the summary": (Script(Text(PLAN[:-2]), finish_reason="length"), "cut off"),
    "a plan in the thoughts, then a call": (Script(Reasoning(PLAN), ToolCall("read_note", {})), "tool call"),
    "thoughts alone": (Script(Reasoning("I wonder what they want from me.")), "thinking"),
    "nothing at all": (Script(), "without a word"),
    "nothing, cut": (Script(finish_reason="length"), "empty"),
    "an error": (Script(Text("{"), Error("Model is unloaded.")), "could not answer"),
    "a status": (Script(Reply(500, {"error": "out of memory"})), "out of memory"),
    "a refusal of the request": (Script(Reply(400, {"error": "no such thing"})), "no such thing"),
    "a socket that closes": (Script(Text(PLAN[:40]), Cut()), "could not answer"),
    "garbage": (Script(Raw(b"data: <html>\n\n")), "could not answer"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_bad_answer_is_a_reason_in_words(name: str) -> None:
    """C10, C12, C13: nothing but a whole answer comes through, and every failure is of the one kind."""
    script, reason = BAD_ANSWERS[name]
    async with lmstudio() as (studio, provider):
        studio.enqueue(script, repeat=True)
        assert reason in await failure_of(await pruner_of(provider, body=BODY))
        assert len(studio.chats) == 1


GOOD_ANSWERS: dict[str, Script] = {
    "in the thoughts": Script(Reasoning(PLAN)),
    "whole, although cut": Script(Text(PLAN + "\n\n And now"), finish_reason="length"),
    "before a tool call": Script(Text(PLAN), ToolCall("read_note", {"path": "a"})),
    "behind thoughts": Script(Reasoning("What do they want?"), Text(PLAN)),
    "in one piece": Script(Text(PLAN, whole=True)),
}


@pytest.mark.parametrize("name", GOOD_ANSWERS)
async def test_usable_plan_is_taken_wherever_it_is(name: str) -> None:
    """A whole plan is read, whatever stands around it."""
    async with lmstudio() as (studio, provider):
        studio.enqueue(GOOD_ANSWERS[name])
        pruner = await pruner_of(provider, body=BODY)
        answer = read_prune_answer(await pruner.ask([*CONVERSATION, ORDER], 100))
    assert answer == Plan("Only metric units.", "They measured the garden together.", (2,))


@pytest.mark.fault("endless generation", "compaction", "left at twice the tokens")
async def test_endless_answer_is_cut() -> None:
    """An upstream that does not know max_tokens is left at twice as much as was asked for, its socket closed."""
    words = chunk({"content": "over and over again " * 5})

    async with fake_upstream({"/v1/chat/completions": streams(*[words] * 400)}) as fake:
        async with openai(fake) as provider:
            reason = await failure_of(await pruner_of(provider, body=BODY), cap=100)
    assert "did not end" in reason


async def test_silent_upstream_can_be_left() -> None:
    """Whoever cancels gets the cancellation, and the connection is closed at once."""
    async with lmstudio() as (studio, provider):
        studio.enqueue(Script("{", Pause(60)))
        pruner = await pruner_of(provider, body=BODY)
        asking = asyncio.create_task(pruner.ask([*CONVERSATION, ORDER], 100))
        await studio.wait_until(lambda: studio.chats and studio.chats[-1].completion_tokens)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await eventually(lambda: studio.disconnects, "the socket stays open")


async def test_answer_fits_into_the_window() -> None:
    """The length asked for is what is left of the window; where nothing is left, nothing is sent."""
    long = [*CONVERSATION, {"role": "user", "content": "word " * 900}]
    async with lmstudio(sim(MODEL, 1500)) as (studio, provider):
        studio.enqueue(PLAN)
        pruner = await pruner_of(provider, body={**BODY, "messages": long})
        await pruner.ask([*long, ORDER], 1000)
        [chat] = studio.chats
        assert chat.counted_tokens is not None
        assert chat.counted_tokens + chat.body["max_tokens"] < 1500
        with pytest.raises(PrunerFailed, match="of the 1500 tokens"):
            await pruner.ask([*long, {"role": "user", "content": "word " * 900}], 1000)
        assert len(studio.chats) == 1


@asynccontextmanager
async def openai(fake: FakeUpstream) -> AsyncIterator[OpenAICompatible]:
    """Run a provider in front of a fake upstream."""
    async with aiohttp.ClientSession() as http:
        yield OpenAICompatible("openai", f"{fake.url}/v1", http)


async def test_refused_form_is_not_asked_for_again() -> None:
    """A server without JSON by schema is asked once more without it, and never again with it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if "response_format" in await request.json():
            return await says({"error": {"message": "response_format is not supported"}}, 400)(request)
        return await streams(chunk({"content": PLAN}), chunk({}, "stop"), b"data: [DONE]\n\n")(request)

    async with fake_upstream({"/v1/chat/completions": answer}) as fake, openai(fake) as provider:
        pruner = await pruner_of(provider, "any")
        for _ in range(2):
            assert await pruner.ask(LISTING, 100) == PLAN
        assert ["response_format" in asked.json for asked in fake.asked] == [True, False, False]
        assert {asked.path for asked in fake.asked} == {"/v1/chat/completions"}


@pytest.mark.fault("overflow refused", "compaction", "the window is learned")
async def test_overflow_teaches_the_window() -> None:
    """A window that was only assumed shrinks to what the refusal names."""
    overflow = {"error": {"message": "This model's maximum context length is 2048 tokens.", "code": "x"}}
    async with fake_upstream({"/v1/chat/completions": says(overflow, 400)}) as fake, openai(fake) as provider:
        pruner = await pruner_of(provider, "any")
        assert "did not fit" in await failure_of(pruner)
        assert pruner.window == 2048


async def test_thinking_model_has_room_to_think() -> None:
    """C10: where thinking may not be kept away, it does not eat up the answer."""
    async with lmstudio(sim(THINKER, reasoning=True)) as (studio, provider):
        studio.enqueue(PLAN, PLAN)
        pruner = await pruner_of(provider, THINKER, {**BODY, "model": THINKER})
        await pruner.ask([*CONVERSATION, ORDER], 100)
        [sent] = [chat.body for chat in studio.chats]
    assert sent["max_tokens"] > 1000
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}


CRITIC = AgentSettings(
    id="critic", model=OTHER, instructions="Keep every number.", sampling={"top_k": 5}, tools=("read_note",)
)


async def chosen(
    provider: LMStudio,
    *,
    agents: Sequence[AgentSettings] = (CRITIC,),
    shared: Shared | None = None,
    **settings: Any,
) -> PruningAgent:
    """Choose the pruning agent of a conversation with the raw model."""
    histories = HistoryCounters()
    info = await provider.ready(MODEL)
    return await choose_pruner(
        bare_settings(CompactionSettings(**settings), Catalog(agents, {"lmstudio": provider}), shared),
        Target(f"lmstudio/{MODEL}", provider, MODEL),
        info,
        conversation_of(BODY),
        await histories.of(provider, info, BODY),
        8192,
        None,
    )


async def test_same_is_the_conversations_model() -> None:
    """By default the conversation's own model prunes, and so it does when it is named itself."""
    async with lmstudio() as (_, provider):
        named: list[dict[str, Any]] = [{}, {"model": MODEL}, {"pruning_agent": f"lmstudio/{MODEL}"}]
        for settings in named:
            pruner = await chosen(provider, **settings)
            assert (pruner.model, pruner.window, pruner.shares_prefix) == (MODEL, 8192, True)


async def test_another_agent_brings_its_own() -> None:
    """C09: instructions, sampling, model and window are the other agent's; it gets no tools."""
    async with lmstudio(sim(MODEL), sim(OTHER, 4096)) as (studio, provider):
        pruner = await chosen(provider, pruning_agent="critic")
        assert (pruner.model, pruner.window, pruner.shares_prefix) == (OTHER, 4096, False)
        studio.enqueue(PLAN)
        await pruner.ask(LISTING, 100)
        [sent] = [chat.body for chat in studio.chats]
    assert sent["model"] == OTHER
    assert sent["top_k"] == 5
    assert "tools" not in sent
    assert sent["messages"][0]["content"].startswith("Keep every number.\n\nYou shorten")


async def test_another_model_of_the_same_provider() -> None:
    """`model` replaces nothing but the model."""
    async with lmstudio(sim(MODEL), sim(OTHER, 4096)) as (_, provider):
        pruner = await chosen(provider, model=OTHER)
        assert (pruner.model, pruner.window, pruner.shares_prefix) == (OTHER, 4096, False)


@pytest.mark.fault("connection refused", "compaction", "the conversation's own model prunes")
@pytest.mark.parametrize(
    "agents", [(), (CRITIC.model_copy(update={"enabled": False}),), (CRITIC.model_copy(update={"model": "gone"}),)]
)
async def test_agent_that_cannot_be_had(agents: Sequence[AgentSettings], caplog: pytest.LogCaptureFixture) -> None:
    """Missing, disabled or without its model: the conversation's own model prunes, and the log says so once."""
    shared = bare_shared()
    async with lmstudio() as (_, provider):
        for _ in range(3):
            pruner = await chosen(provider, agents=agents, shared=shared, pruning_agent="critic")
            assert (pruner.model, pruner.shares_prefix) == (MODEL, True)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


def test_wishes_are_those_of_the_settings() -> None:
    """Every word that the person has set reaches the order."""
    settings = CompactionSettings(
        summary_prompt="s", summary_directives=("sd",), retain_prompt="r", retain_directives=("rd",)
    )
    assert wishes_of(settings) == Wishes("s", ("sd",), "r", ("rd",))
