"""A prompt that does not fit, in every wording and shape, is one and the same error for every client."""

import asyncio
import json
from pathlib import Path
from typing import Any, Literal, get_args

import provider_fixtures
import pytest
from chatting import eventually
from fake_upstream import FakeUpstream, chunk, says, says_in_parts, streams
from outcome import Outcome, chat
from serving import Served, serve, settings_for
from spread_variants import sample, spread, spread_few

from elbowroom.demo import Error, Overflow, Raw, Reasoning, Reply, Script, SimulatedLMStudio, WaitFor, wording

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
LMStudioWording = Literal["A", "B", "C", "D", "E", "F", "G"]
H = "request (6009 tokens) exceeds the available context size (4096 tokens), try increasing it"
J = "This model's maximum context length is 4096 tokens. However, you requested 6009 tokens (6009 in the messages)."
OVERFLOWS = {name: wording(name, 6009, 4096, "gemma3") for name in get_args(LMStudioWording)} | {"H": H, "J": J}
TOLD = ("A", "E", "F", "J")
"""Those that name both numbers, none, and the window alone, and another server's."""
SAME = sorted(set(OVERFLOWS) - set(TOLD))
"""Those that say what A says; the table of all wordings, in the tests of units, tells that each is read so."""
NUMBERS = {"A": "6009", "B": "6009", "C": "6009", "D": "6009", "E": "exceeded", "F": "4096", "G": "6009"}


studio, managed = provider_fixtures.studio, provider_fixtures.managed
upstream, relaying = provider_fixtures.upstream, provider_fixtures.relaying


def assert_overflow(outcome: Outcome, name: str) -> None:
    """Check that this is the error every library knows as a context overflow, with the numbers in its words."""
    assert outcome.error is not None
    assert outcome.error["code"] == "context_length_exceeded"
    assert outcome.error["type"] == "invalid_request_error"
    assert outcome.error["param"] == "messages"
    assert "maximum context length is" in outcome.message
    assert NUMBERS.get(name, "6009") in outcome.message


@pytest.mark.parametrize(("name", "stream"), spread_few(TOLD, SAME, [True, False]))
async def test_each_overflow_of_lm_studio_before_a_word(
    managed: Served, studio: SimulatedLMStudio, name: str, *, stream: bool
) -> None:
    """As a 400 with a bare string, or as an event in a stream that began with 200: a real 400 for the client."""
    text = OVERFLOWS[name]
    for script in (Script(Reply(400, {"error": text})), Script(Error(text)), Script(Raw(b": wait\n\n"), Error(text))):
        studio.scripts.clear()
        studio.enqueue(script, repeat=True)
        outcome = await chat(managed, "lmstudio/tiny", stream=stream)
        assert outcome.status == 400
        assert_overflow(outcome, name)


async def test_a_refused_conversation_is_as_full_as_the_engine_says(managed: Served, studio: SimulatedLMStudio) -> None:
    """Its gauge has both numbers as the engine counts: the window that was learned is in tokens of another size."""
    studio.enqueue(Script(Reply(400, {"error": OVERFLOWS["H"]})), repeat=True)
    assert (await chat(managed, "lmstudio/tiny", stream=False)).status == 400
    async with managed.http.get(f"{managed.url}/v1/conversations") as response:
        [row] = (await response.json())["data"]
    assert (row["context"]["tokens"], row["context"]["window"]) == (6009, 4096)


@pytest.mark.parametrize(("name", "first"), spread_few(TOLD, SAME, ["Half a", Reasoning("Hm")]))
async def test_each_overflow_of_lm_studio_after_the_first_word(
    managed: Served, studio: SimulatedLMStudio, name: str, first: Reasoning | str
) -> None:
    """The words so far are kept, and an error frame ends the stream, in one packet with them or later."""
    for steps in ((first, Error(OVERFLOWS[name])), (first, WaitFor(soon()), Error(OVERFLOWS[name]))):
        studio.enqueue(Script(*steps))
        outcome = await chat(managed, "lmstudio/tiny", stream=True)
        assert outcome.status == 200
        assert outcome.text == ("Half a" if first == "Half a" else "")
        assert_overflow(outcome, name)
    studio.enqueue(Script(first, Error(OVERFLOWS[name])))
    outcome = await chat(managed, "lmstudio/tiny", stream=False)
    assert outcome.status == 400
    assert_overflow(outcome, name)


def soon() -> asyncio.Event:
    """Return an event that is set in a moment."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, event.set)
    return event


@pytest.mark.parametrize(("name", "streamed"), spread(["policy", "A", "C", "G", "empty"], ["event", "status"]))
async def test_a_prompt_over_the_window_is_never_answered_as_if_it_fitted(
    studio: SimulatedLMStudio, tmp_path: Path, name: Any, streamed: Any
) -> None:
    """The engine's own refusals, and the empty answer with usage that recent versions give, are an overflow."""
    studio.overflow = Overflow(prompt=name, streamed=streamed)
    settings = f"{settings_for(studio.base_url)}[compaction]\nenabled = false\n"  # else the text is shortened
    for stream in (True, False):
        async with serve(tmp_path, settings) as managed:
            outcome = await chat(managed, "lmstudio/tiny", stream=stream, text="word " * 6000)
        assert outcome.status == 400
        assert outcome.error is not None
        assert outcome.error["code"] == "context_length_exceeded"
        assert "4096" in outcome.message


@pytest.mark.parametrize(("name", "stream"), spread_few(TOLD, SAME, [True, False]))
async def test_each_overflow_of_a_generic_upstream(
    relaying: Served, upstream: FakeUpstream, name: str, *, stream: bool
) -> None:
    """As a string, in either object, with 400 or 500, whole or in packets, or inside a 200: always the same 400."""
    text = OVERFLOWS[name]
    objects: list[Any] = [
        {"error": text},
        {"error": {"message": text, "type": "exceed_context_size_error", "n_prompt_tokens": 6009, "n_ctx": 4096}},
        {"object": "error", "message": text, "type": "BadRequestError", "code": 400},
    ]
    answers = [says(body, status=status) for body in objects for status in (400, 500, 200)]
    raw = json.dumps(objects[0]).encode()
    answers += [
        says(text, status=400),
        says_in_parts(raw[:20], raw[20:], content_type="application/json", status=400),
        says_in_parts(raw[:20], raw[20:], content_type="application/json"),
    ]
    for answer in answers:
        upstream.answers[CHAT] = answer
        outcome = await chat(relaying, "openai/m", stream=stream)
        assert outcome.status == 400
        assert_overflow(outcome, name)


@pytest.mark.parametrize("name", sample(OVERFLOWS, *TOLD))
async def test_each_overflow_in_a_generic_stream(relaying: Served, upstream: FakeUpstream, name: str) -> None:
    """Named or not, as an object, a string or bare text, before and after the first word."""
    text = OVERFLOWS[name].encode()
    events = [
        b'data: {"error": {"message": "%s"}}\n\n' % text,
        b'data: {"error": "%s"}\n\n' % text,
        b'data: {"object": "error", "message": "%s"}\n\n' % text,
        b'event: error\ndata: {"message": "%s"}\n\n' % text,
        b"event: error\ndata: %s\n\n" % text,
    ]
    for event in events:
        upstream.answers[CHAT] = streams(event)
        outcome = await chat(relaying, "openai/m", stream=True)
        assert outcome.status == 400
        assert_overflow(outcome, name)
        for parts in ([chunk({"content": "Half a"}), event], [chunk({"content": "Half a"}) + event + DONE]):
            upstream.answers[CHAT] = streams(*parts)
            outcome = await chat(relaying, "openai/m", stream=True)
            assert (outcome.status, outcome.text) == (200, "Half a")
            assert_overflow(outcome, name)


async def test_a_shared_pool_that_is_full_fails_all_and_is_named(managed: Served, studio: SimulatedLMStudio) -> None:
    """When another program's requests fill the one window, an answer gets the overflow with its words kept."""
    studio.overflow = Overflow(shared_pool=True)
    together = asyncio.Event()
    studio.enqueue(Script("word ", WaitFor(together), "word " * 3000), repeat=True)
    direct = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stream": True}

    async def other_program() -> None:
        async with managed.http.post(f"{studio.base_url}/v1/chat/completions", json=direct) as response:
            await response.read()

    others = [asyncio.create_task(other_program()) for _ in range(2)]
    asking = asyncio.create_task(chat(managed, "lmstudio/tiny", stream=True))
    await eventually(lambda: len(studio.chats) == 3, "not all of them are at work", seconds=30)
    together.set()
    outcome = await asking
    await asyncio.gather(*others)
    assert outcome.text.startswith("word")
    assert outcome.error is not None
    assert outcome.error["code"] == "context_length_exceeded"
