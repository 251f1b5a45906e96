"""Why the engine had to read a conversation again: the reason, the tokens and the seconds, wherever they are told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from cancelling import PATIENCE, ask
from chatting import MODEL, RAW_MODEL, eventually, function_spec
from read_metrics import text_of_metrics, value
from serving import Served, serve, settings_for
from small_window import ANSWER, history, small_window, turns_of
from spread_variants import spread

from elbowroom.agents.turn import recovery
from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.logs.formats import FIELDS

Body = dict[str, Any]
OTHER: Final = "gemma-3-4b-it"
TALK: Final = "talk-1"


def talk(exchanges: int = 4, **fields: Any) -> Body:
    """Return a request with so many exchanges before the question."""
    return {"model": RAW_MODEL, "messages": history(exchanges), "stream": True, **fields}


def followed(body: Body, **fields: Any) -> Body:
    """Return the next request of the conversation, with the answer and another question."""
    more = [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And the first one?"}]
    return {**body, "messages": [*body["messages"], *more], **fields}


def with_message(body: Body, place: int, content: str) -> Body:
    """Return a request in which one message says something else."""
    messages = list(body["messages"])
    messages[place] = {**messages[place], "content": content}
    return {**body, "messages": messages}


@asynccontextmanager
async def studio_with_cache(folder: Path, *, tells: bool) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run elbowroom before an engine with one slot for each of two models, which tells what it had in its cache."""
    models = [SimulatedModel(name, loaded_context_length=8192, parallel=1) for name in (MODEL, OTHER)]
    async with SimulatedLMStudio(models, tells_cached=tells, on_request=lambda _: ANSWER) as studio:
        async with serve(folder, settings_for(studio.base_url)) as served:
            yield served, studio
            await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")


async def losses_of(served: Served, *, turns: int = 2) -> list[dict[str, Any]]:
    """Return what the answers of so many turns say of the cache, the oldest first, once all of them are kept."""
    async with asyncio.timeout(PATIENCE):
        while len(answers := await answers_of(served)) < turns:  # noqa: ASYNC110  # a store knows no events
            await asyncio.sleep(0.01)
    return [row["cache_lost"] for row in answers if row["cache_lost"] is not None]


async def answers_of(served: Served) -> list[dict[str, Any]]:
    """Return the answers of the conversation that are kept now."""
    async with served.http.get(f"{served.url}/v1/conversations/{TALK}/messages?limit=200&branch=all") as response:
        assert response.status == 200, await response.text()
        return [row for row in (await response.json())["data"] if row["turn"]]


Second = Callable[[Body], Body]
CHANGES: Final[dict[str, Second]] = {
    "system_changed": lambda body: with_message(body, 0, "You keep another log, and answer in French."),
    "messages_changed": lambda body: with_message(body, 3, "Was anything noted?"),
    "tools_changed": lambda body: {**body, "tools": [function_spec("ring_bell")]},
    "model_changed": lambda body: {**body, "model": f"lmstudio/{OTHER}"},
}


@pytest.mark.parametrize(("reason", "tells"), spread(CHANGES, [True, False]))
async def test_what_the_client_has_changed(tmp_path: Path, reason: str, tells: bool) -> None:
    """Each change is named, with the tokens by the engine's own figure, or by our count where it tells none."""
    async with studio_with_cache(tmp_path, tells=tells) as (served, studio):
        first = talk()
        await ask(served, first, TALK)
        await ask(served, CHANGES[reason](followed(first)), TALK)
        [lost] = await losses_of(served)
        before, now = studio.chats
        assert lost["reason"] == reason
        assert lost["is_measured"] is tells
        assert lost["at"] == (4 if reason == "messages_changed" else None)
        could_have = min(before.prompt_tokens or 0, now.prompt_tokens or 0)
        if tells:
            assert lost["tokens"] == could_have - now.reused_tokens
        else:
            assert lost["tokens"] == pytest.approx(could_have - now.reused_tokens, abs=30)
        assert lost["seconds"] >= 0
        model = f"lmstudio/{now.body['model']}"
        assert await value(served, "cache_lost_tokens_total", model=model, reason=reason) == lost["tokens"]
        assert await value(served, "cache_lost_tokens_total") == lost["tokens"]
        assert await value(served, "cache_lost_seconds_total") == pytest.approx(lost["seconds"], abs=0.001)


@pytest.mark.parametrize("tells", [True, False], ids=["told", "not told"])
async def test_nothing_is_lost_by_going_on(tmp_path: Path, tells: bool) -> None:
    """A conversation that only grows has lost nothing, nor has a new one that begins with the same words."""
    async with studio_with_cache(tmp_path, tells=tells) as (served, _):
        body = talk(1)
        for _turn in range(3):
            await ask(served, body, TALK)
            body = followed(body)
        await ask(served, talk(0), "talk-2")
        assert await losses_of(served, turns=3) == []
        assert "cache_lost_tokens_total{" not in await text_of_metrics(served)


@pytest.mark.parametrize("tells", [True, False], ids=["told", "not told"])
async def test_another_request_in_between(tmp_path: Path, caplog: pytest.LogCaptureFixture, tells: bool) -> None:
    """Where an engine with one slot has answered somebody else since, that is the reason; the log tells it, too."""
    caplog.set_level("INFO")
    async with studio_with_cache(tmp_path, tells=tells) as (served, studio):
        first = talk()
        await ask(served, first, TALK)
        await ask(served, {"model": RAW_MODEL, "messages": [{"role": "user", "content": "A tram?"}]}, "talk-2")
        await ask(served, followed(first), TALK)
        [lost] = await losses_of(served)
        assert lost["reason"] == "other_request"
        before, _, now = studio.chats
        reused = now.reused_tokens if tells else 0
        assert lost["tokens"] == (before.prompt_tokens or 0) - reused
        [told] = [record for record in caplog.records if "read again" in record.getMessage()]
        assert told.getMessage().endswith(f"; {lost['told']}")
        assert getattr(told, FIELDS)["cache_lost"] == lost


@pytest.mark.parametrize("is_told_otherwise", [False, True])
async def test_an_engine_that_forgets(tmp_path: Path, is_told_otherwise: bool) -> None:
    """Where nothing has changed and nobody was in between, the engine itself has forgotten the prompt.

    Unless the arguments of its template are others than before.
    """
    async with studio_with_cache(tmp_path, tells=True) as (served, studio):
        first = talk()
        await ask(served, first, TALK)
        studio.reload(MODEL, 8192)
        arguments = {"chat_template_kwargs": {"enable_thinking": False}} if is_told_otherwise else {}
        await ask(served, followed(first, **arguments), TALK)
        [lost] = await losses_of(served)
        reason = "arguments_changed" if is_told_otherwise else "engine_forgot"
        assert (lost["reason"], lost["tokens"]) == (reason, studio.chats[0].prompt_tokens)


async def test_a_model_that_was_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing in its cache, whether its engine says so or not."""
    monkeypatch.setattr(recovery, "QUIET_SECONDS", 0)
    async with studio_with_cache(tmp_path, tells=False) as (served, studio):
        first = talk()
        await ask(served, first, TALK)
        studio.unload(MODEL)
        await ask(served, followed(first), TALK)
        [lost] = await losses_of(served)
        assert (lost["reason"], lost["tokens"]) == ("engine_forgot", studio.chats[0].prompt_tokens)


async def test_a_compaction(tmp_path: Path) -> None:
    """What is read again after a compaction says so."""
    async with small_window(tmp_path) as (served, studio):
        studio.tells_cached = True
        await ask(served, {**talk(4), "model": "writer"}, TALK)
        await ask(served, {**talk(8), "model": "writer"}, TALK)
        [*_, lost] = await losses_of(served)
        now = turns_of(studio)[-1]
        assert lost["reason"] == "compacted"
        assert 0 < lost["tokens"] <= (now.prompt_tokens or 0) - now.reused_tokens
        assert lost["told"].endswith("the conversation was compacted")
