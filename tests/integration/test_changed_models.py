"""A chat whose model is changed goes on: what was compacted for one model is found again by another."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import MODEL, RAW_MODEL
from patient_counting import wait_for_counts
from request_checks import assert_fits
from serving import Served
from small_window import Body, history, orders_of, small_window, turns_of
from spread_variants import spread
from told_summaries import SignedPlans

from elbowroom.context import ledger
from elbowroom.demo import SimulatedLMStudio, SimulatedModel

Message = dict[str, Any]
OTHER: Final = "meta-llama-3.1-8b-instruct"
RAW_OTHER: Final = f"lmstudio/{OTHER}"
SAID: Final = {MODEL: "The ninth pier, as always.", OTHER: "It leaves from pier nine."}
SMALL, LARGE = 4096, 16_384
FULL: Final = 34
"""Exchanges that fill the small window past the trigger."""
CHAT: Final = {"X-Conversation-Id": "the ferry"}
IN_TURN: Final = "background = false"


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def other(window: int) -> SimulatedModel:
    """Return another model, with another tokenizer and another template."""
    return SimulatedModel(OTHER, loaded_context_length=window)


def says(body: Body) -> str:
    """Answer as one of the two models."""
    return SAID[body["model"]]


async def ask(served: Served, model: str, messages: list[Message], headers: dict[str, str] | None = None) -> Message:
    """Ask, and return the answer as the client has it."""
    body = {"model": model, "messages": messages}
    async with served.http.post(served.chat_url, json=body, headers=headers or {}) as response:
        answer = await response.json()
        assert response.status == 200, answer
    said: Message = answer["choices"][0]["message"]
    return {"role": "assistant", "content": said["content"]}


def prompts_of(studio: SimulatedLMStudio, model: str) -> list[list[Message]]:
    """Return the prompts that a model was sent for turns, in order; each fits."""
    turns = [chat for chat in turns_of(studio) if chat.body["model"] == model]
    for turn in turns:
        assert_fits(turn)
    return [turn.body["messages"] for turn in turns]


async def conversations(served: Served) -> list[Body]:
    """Return the list of conversations."""
    async with served.http.get(f"{served.url}/v1/conversations") as response:
        found: list[Body] = (await response.json())["data"]
    return found


async def answers_of(served: Served, conversation: str) -> list[tuple[str, str]]:
    """Return all answers of a conversation in the order in which they came, with who gave them."""
    async with served.http.get(f"{served.url}/v1/conversations/{conversation}/export") as response:
        found = (await response.json())["messages"]
    return [(each["agent"], each["message"]["content"]) for each in found if each["turn"]]


def more(answer: Message, question: str) -> list[Message]:
    """Return an answer and the question after it."""
    return [answer, {"role": "user", "content": question}]


@pytest.mark.parametrize("headers", [{}, CHAT], ids=["known by its words", "named"])
async def test_another_model_has_what_was_compacted(tmp_path: Path, headers: dict[str, str]) -> None:
    """The other model gets the same compaction, asks no pruning agent, and goes on in the same conversation."""
    async with small_window(
        tmp_path, says, compaction=IN_TURN, window=SMALL, prune=SignedPlans(), others=[other(SMALL)]
    ) as (served, studio):
        chat = history(FULL)
        answer = await ask(served, RAW_MODEL, chat, headers)
        compacted = prompts_of(studio, MODEL)[-1]
        assert len(orders_of(studio)) == 1
        chat += more(answer, "And tomorrow?")
        answer = await ask(served, RAW_OTHER, chat, headers)
        assert answer["content"] == SAID[OTHER]
        assert prompts_of(studio, OTHER)[-1] == [*compacted, *chat[-2:]]
        chat += more(answer, "And on Sunday?")
        await ask(served, RAW_MODEL, chat, headers)
        assert prompts_of(studio, MODEL)[-1] == [*compacted, *chat[-4:]]
        assert len(orders_of(studio)) == 1
        (row,) = await conversations(served)
        assert row["agent"] == RAW_MODEL
        assert row["compaction_count"] == 1
        given = [(RAW_MODEL, SAID[MODEL]), (RAW_OTHER, SAID[OTHER]), (RAW_MODEL, SAID[MODEL])]
        assert await answers_of(served, row["id"]) == given


async def test_the_list_tells_who_answered_last(tmp_path: Path) -> None:
    """A conversation stands under the model that has answered last, and is found by its name."""
    async with small_window(tmp_path, says, window=SMALL, others=[other(SMALL)]) as (served, _):
        chat = history(1)
        chat += more(await ask(served, RAW_MODEL, chat), "And tomorrow?")
        await ask(served, RAW_OTHER, chat)
        assert [row["agent"] for row in await conversations(served)] == [RAW_OTHER]
        for agent, found in ((RAW_OTHER, 1), (RAW_MODEL, 0)):
            async with served.http.get(f"{served.url}/v1/conversations", params={"agent": agent}) as response:
                assert len((await response.json())["data"]) == found


async def test_an_agent_shares_nothing_with_its_model(tmp_path: Path) -> None:
    """What an agent was compacted for holds what only it was told: its model, asked by itself, begins anew."""
    async with small_window(tmp_path, says, compaction=IN_TURN, window=SMALL, prune=SignedPlans()) as (served, studio):
        await ask(served, "writer", history(FULL))
        orders = len(orders_of(studio))
        await ask(served, RAW_MODEL, history(FULL))
        assert len(orders_of(studio)) > orders
        assert len(await conversations(served)) == 2


async def test_a_conversation_that_was_made_shares_nothing_with_raw_chats(tmp_path: Path) -> None:
    """What another program asks a raw model after the same words is not written into what a program has made."""
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    async with small_window(tmp_path, says, window=SMALL) as (served, _):
        items = {"items": [{"type": "message", **message} for message in said]}
        async with served.http.post(f"{served.url}/v1/conversations", json=items) as response:
            made = (await response.json())["id"]
        await ask(served, RAW_MODEL, [*said, {"role": "user", "content": "Which pier?"}])
        rows = {row["id"]: row["agent"] for row in await conversations(served)}
        assert (len(rows), rows[made]) == (2, "")
        async with served.http.get(f"{served.url}/v1/conversations/{made}/items") as response:
            assert len((await response.json())["data"]) == len(said)


@pytest.mark.slow
async def test_a_smaller_window_compacts_more_and_the_larger_one_stays(tmp_path: Path) -> None:
    """A model with a smaller window has its own compaction, and the one with the larger keeps what it had."""
    async with small_window(
        tmp_path, says, compaction=IN_TURN, window=LARGE, prune=SignedPlans(), others=[other(SMALL)]
    ) as (served, studio):
        chat = history(160)
        chat += more(await ask(served, RAW_MODEL, chat), "And tomorrow?")
        large = prompts_of(studio, MODEL)[-1]
        assert len(orders_of(studio)) == 1
        chat += more(await ask(served, RAW_OTHER, chat), "And on Sunday?")
        small = prompts_of(studio, OTHER)[-1]
        orders = len(orders_of(studio))
        assert orders > 1
        assert len(small) < len(large)
        chat += more(await ask(served, RAW_MODEL, chat), "And on Monday?")
        assert prompts_of(studio, MODEL)[-1] == [*large, *chat[-6:-2]]
        await ask(served, RAW_OTHER, chat)
        assert prompts_of(studio, OTHER)[-1] == [*small, *chat[-4:]]
        assert len(orders_of(studio)) == orders


@pytest.mark.slow
async def test_a_model_that_had_the_whole_still_has_it(tmp_path: Path) -> None:
    """More than half of the large window is full: what was compacted for the small one is not for the other."""
    models = [other(SMALL)]
    async with small_window(tmp_path, says, compaction=IN_TURN, window=LARGE, prune=SignedPlans(), others=models) as (
        served,
        studio,
    ):
        chat = history(75)
        for model, question in ((RAW_MODEL, "And tomorrow?"), (RAW_OTHER, "And on Sunday?"), (RAW_MODEL, "And then?")):
            chat += [await ask(served, model, chat), {"role": "user", "content": question}]
        assert orders_of(studio)
        assert prompts_of(studio, MODEL)[-1] == chat[:-2]


@pytest.mark.slow
@pytest.mark.parametrize(("windows", "headers"), spread([(SMALL, SMALL), (LARGE, SMALL)], [CHAT, {}]))
async def test_two_models_side_by_side(tmp_path: Path, windows: tuple[int, int], headers: dict[str, str]) -> None:
    """Two models that are asked the same at once each give their own answer, in branches of one conversation.

    Each is sent what goes on with its own last prompt, but for its own compactions, also where those of the other one,
    whose window is smaller, are newer.
    """
    async with small_window(
        tmp_path, says, compaction=IN_TURN, window=windows[0], prune=SignedPlans(), others=[other(windows[1])]
    ) as (served, studio):
        chat, given = history(30 if windows[0] == SMALL else 160), []
        for turn in range(8):
            both = [ask(served, model, chat, headers) for model in (RAW_MODEL, RAW_OTHER)]
            answers = await asyncio.gather(*both)
            assert [answer["content"] for answer in answers] == [SAID[MODEL], SAID[OTHER]]
            given += [(RAW_MODEL, SAID[MODEL]), (RAW_OTHER, SAID[OTHER])]
            told = f"And on day {turn} of the fair? " + "The boat was late and the sea was rough again. " * 8
            chat += more(answers[turn % 2], told)
        rows = await conversations(served)
        found = [answer for row in rows for answer in await answers_of(served, row["id"])]
        assert sorted(found) == sorted(given)
        assert len(rows) == 1
        for model, window in zip((MODEL, OTHER), windows, strict=True):
            prompts = prompts_of(studio, model)
            before_last = [(one[:-1], other) for one, other in pairwise(prompts)]  # what came back with it may differ
            anew = sum(other[: len(one)] != one for one, other in before_last)
            assert anew <= (1 if window == LARGE else 4), (model, anew)


def old_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each raw model have a seed of its own, as it had before they shared one."""
    monkeypatch.setattr(ledger, "RAW", "no name has this")


@pytest.mark.parametrize("headers", [{}, CHAT], ids=["known by its words", "named"])
async def test_a_store_of_before(tmp_path: Path, headers: dict[str, str]) -> None:
    """A conversation that was begun when each model had its own keys goes on with its compaction, and is no new one."""
    with pytest.MonkeyPatch.context() as patched:
        old_seeds(patched)
        async with small_window(tmp_path, says, compaction=IN_TURN, window=SMALL, prune=SignedPlans()) as (
            served,
            studio,
        ):
            chat = history(FULL)
            chat += more(await ask(served, RAW_MODEL, chat, headers), "And tomorrow?")
            compacted = prompts_of(studio, MODEL)[-1]
            (before,) = await conversations(served)
    async with small_window(
        tmp_path, says, compaction=IN_TURN, window=SMALL, prune=SignedPlans(), others=[other(SMALL)]
    ) as (served, studio):
        for question in ("And on Sunday?", "And on Monday?"):
            answer = await ask(served, RAW_MODEL, chat, headers)
            assert prompts_of(studio, MODEL)[-1] == [*compacted, *chat[len(history(FULL)) :]]
            chat += more(answer, question)
        (row,) = await conversations(served)
        assert row["id"] == before["id"]
        assert len(await answers_of(served, row["id"])) == 3
        assert not orders_of(studio)
        await ask(served, RAW_OTHER, chat, headers)
        assert prompts_of(studio, OTHER)


USER, GREETING = {"role": "user", "content": "About the ferry."}, {"role": "assistant", "content": "Hello, what is it?"}


@pytest.mark.parametrize("first", [[USER], [GREETING], [USER, USER]], ids=["two questions", "a greeting", "three"])
async def test_a_store_of_before_whose_first_answer_comes_late(tmp_path: Path, first: list[Message]) -> None:
    """A conversation of before is found by its words, also where it begins with several questions or a greeting."""
    chat = [*first, {"role": "user", "content": "Which pier?"}]
    with pytest.MonkeyPatch.context() as patched:
        old_seeds(patched)
        async with small_window(tmp_path, says, window=SMALL) as (served, _):
            for question in ("And tomorrow?", "And on Sunday?"):
                chat += more(await ask(served, RAW_MODEL, chat), question)
            (before,) = await conversations(served)
    async with small_window(tmp_path, says, window=SMALL) as (served, _):
        await ask(served, RAW_MODEL, chat)
        assert [row["id"] for row in await conversations(served)] == [before["id"]]
