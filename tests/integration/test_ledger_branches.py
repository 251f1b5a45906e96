"""Edits, other answers, branches, owners and agents: each finds the compaction that was made for it, and no other."""

from pathlib import Path
from typing import Any, Final

import pytest
from chatting import AGENT, MODEL, RAW_MODEL
from patient_counting import wait_for_counts
from request_checks import assert_fits
from serving import Served
from small_window import ANSWER, QUESTION, history, orders_of, small_window, turns_of
from told_summaries import SignedPlans, signatures_in

from elbowroom.demo import SimulatedLMStudio

Message = dict[str, Any]
WINDOW: Final = 4096
FULL: Final = 33
"""Exchanges that fill the small window past the trigger."""
FULL_AGAIN: Final = 51
"""Exchanges that do so once more where the first of them have been compacted, and that one order still lists."""
IN_TURN: Final = "background = false"
EDITOR: Final = f'{AGENT}[[agents]]\nid = "editor"\nname = "The Editor"\ninstructions = "You help with notes."\n'
TWO_AGENTS: Final = f'{EDITOR}model = "{MODEL}"\n'


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


async def ask(served: Served, messages: list[Message], headers: dict[str, str] | None = None, **fields: Any) -> str:
    """Ask without streaming and return the answer's text."""
    body = {"model": RAW_MODEL, "messages": messages, **fields}
    async with served.http.post(served.chat_url, json=body, headers=headers) as response:
        answer = await response.json()
        assert response.status == 200, answer
        return str(answer["choices"][0]["message"]["content"])


def prompts_of(studio: SimulatedLMStudio) -> list[list[Message]]:
    """Return the messages of all requests that were turns; all fit."""
    for chat in studio.chats:
        assert_fits(chat)
    return [chat.body["messages"] for chat in turns_of(studio)]


def answered(messages: list[Message], question: str, answer: str = ANSWER) -> list[Message]:
    """Return the history one turn later."""
    return [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": question}]


def asking(question: str, messages: list[Message]) -> list[Message]:
    """Return the history with another question at its end."""
    return [*messages[:-1], {"role": "user", "content": question}]


async def test_another_answer_another_question_and_back(tmp_path: Path) -> None:
    """Regenerate, an edit of the last question and of the one before it, and the way back: one order in all."""
    first = history(FULL)
    edited_before = [*first[:-3], {"role": "user", "content": "What was noted last?"}]
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        await ask(served, first)
        assert len(orders_of(studio)) == 1
        await ask(served, first)
        await ask(served, asking("And the first one?", first))
        await ask(served, answered(first, "And tomorrow?"))
        await ask(served, edited_before)
        await ask(served, answered(edited_before, QUESTION))
        await ask(served, answered(first, "And tomorrow?"))
        assert len(orders_of(studio)) == 1
        original, again, edited, later, before, _, back = prompts_of(studio)
    assert again == original
    assert edited == asking("And the first one?", original)
    assert later == answered(original, "And tomorrow?") == back
    assert before == [*original[:-3], edited_before[-1]]
    assert signatures_in(original) == ["alpha"]


async def test_a_branch_from_before_a_compaction(tmp_path: Path) -> None:
    """It stands on the compaction before, or on the words themselves; what came later is not in it, and not lost."""
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        await ask(served, history(FULL))
        await ask(served, history(FULL_AGAIN))
        assert len(orders_of(studio)) == 2
        await ask(served, asking("And what of crossing forty?", history(40)))
        await ask(served, asking("And what of crossing five?", history(5)))
        await ask(served, answered(history(FULL_AGAIN), "And tomorrow?"))
        await ask(served, history(FULL))
        assert len(orders_of(studio)) == 2
        first, second, middle, early, back, first_again = prompts_of(studio)
    assert signatures_in(first) == ["alpha"]
    assert "bravo" in signatures_in(second)
    assert middle[: len(first) - 1] == first[:-1]
    assert "bravo" not in signatures_in(middle)
    assert early == asking("And what of crossing five?", history(5))
    assert back == answered(second, "And tomorrow?")
    assert first_again == first


async def test_a_branch_that_grows_is_compacted_by_itself(tmp_path: Path) -> None:
    """An edited early question that lies under a compaction: the branch is compacted anew, the original stays."""
    first = history(FULL)
    branch = [*first[:3], {"role": "user", "content": "Tell me of the whales. " * 8}, *first[4:]]
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        await ask(served, first)
        await ask(served, branch)
        assert len(orders_of(studio)) == 2
        await ask(served, answered(first, "And tomorrow?"))
        await ask(served, answered(branch, "And tomorrow?"))
        assert len(orders_of(studio)) == 2
        assert [signatures_in(prompt) for prompt in prompts_of(studio)] == [["alpha"], ["bravo"], ["alpha"], ["bravo"]]


async def test_an_edit_of_what_was_kept_beside_the_summary(tmp_path: Path) -> None:
    """The summary may speak of a message that it kept: where that is another one, the summary is not used."""
    first = history(FULL)
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        await ask(served, first)
        [prompt] = prompts_of(studio)
        kept = next(message for message in prompt[2:] if not signatures_in([message]))
        edited = [{**kept, "content": "The boat was lost. " * 12} if message == kept else message for message in first]
        await ask(served, edited)
        await ask(served, answered(first, "And tomorrow?"))
        assert [signatures_in(sent) for sent in prompts_of(studio)] == [["alpha"], ["bravo"], ["alpha"]]


@pytest.mark.slow
async def test_answers_continued_wherever_a_compaction_ends(tmp_path: Path) -> None:
    """Each earlier answer goes on as if nothing had come after it: it is there, and never a summary of it."""
    whole = history(FULL)
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans(keeps=False)) as (
        served,
        studio,
    ):
        await ask(served, whole)
        for end in range(3, len(whole), 2):
            await ask(served, whole[:end])
            assert prompts_of(studio)[-1][-2:] == whole[end - 2 : end]


@pytest.mark.parametrize("way", ["X-OpenWebUI-User-Id", "X-Elbowroom-User", "user"])
async def test_owners_share_nothing(tmp_path: Path, way: str) -> None:
    """Two people with the very same words: each conversation is compacted by itself, and each finds its own."""

    async def ask_as(name: str, messages: list[Message]) -> None:
        fields = {"user": name} if way == "user" else {}
        await ask(served, messages, None if fields else {way: name}, **fields)

    first = history(FULL)
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        for name in ("ada", "ben"):
            await ask_as(name, first)
        for name in ("ben", "ada"):
            await ask_as(name, answered(first, "And tomorrow?"))
        assert len(orders_of(studio)) == 2
        assert [signatures_in(prompt) for prompt in prompts_of(studio)] == [["alpha"], ["bravo"], ["bravo"], ["alpha"]]


@pytest.mark.slow
async def test_agents_share_nothing(tmp_path: Path) -> None:
    """One person with two agents of the same words and the same model, and the model itself: each has its own."""
    first = history(FULL)
    models = ("writer", "editor", RAW_MODEL)
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans(), agents=TWO_AGENTS) as (
        served,
        studio,
    ):
        for model in models:
            await ask(served, first, {"X-Elbowroom-User": "ada"}, model=model)
        for model in models:
            await ask(served, answered(first, "And tomorrow?"), {"X-Elbowroom-User": "ada"}, model=model)
        assert len(orders_of(studio)) == 3
        signed = [signatures_in(prompt) for prompt in prompts_of(studio)]
    assert signed == [["alpha"], ["bravo"], ["charlie"]] * 2


async def test_a_fork_has_its_parents_compaction(tmp_path: Path) -> None:
    """The id of the chat says nothing: the same history under another one is the same conversation."""
    first = history(FULL)
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        await ask(served, first, {"X-OpenWebUI-Chat-Id": "one"})
        await ask(served, answered(first, "And tomorrow?"), {"X-OpenWebUI-Chat-Id": "another"})
        assert len(orders_of(studio)) == 1
        assert [signatures_in(prompt) for prompt in prompts_of(studio)] == [["alpha"], ["alpha"]]
