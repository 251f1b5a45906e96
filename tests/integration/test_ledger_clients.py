"""What clients do to a history between two turns: the compaction is found wherever the conversation is the same one."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import RAW_MODEL, function_spec
from patient_counting import wait_for_counts
from request_checks import assert_fits
from small_window import ANSWER, QUESTION, ask_whole, history, orders_of, small_window, turns_of
from spread_variants import sample
from told_summaries import SignedPlans, signatures_in

Message = dict[str, Any]
Change = Callable[[list[Message]], list[Message]]
WINDOW: Final = 4096
FULL: Final = 34
IN_TURN: Final = "background = false"
FILE: Final = '<source id="1" name="notes.txt">The pier was painted in spring.</source>\n' * 4
TEMPLATE: Final = f"### Task:\nRespond to the user query using the provided context.\n\n<context>\n{FILE}</context>\n\n"
NEXT: Final[list[Message]] = [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And tomorrow?"}]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def of_role(role: str, change: Callable[[Message], Message]) -> Change:
    """Return the change of every message of a role."""
    return lambda messages: [change(message) if message["role"] == role else message for message in messages]


def with_calls(prefix: str) -> Change:
    """Return the change that puts a call and its result behind some questions, with ids of this kind."""

    def change(messages: list[Message]) -> list[Message]:
        changed: list[Message] = []
        for at, message in enumerate(messages):
            changed.append(message)
            if at % 30 == 1 and at < len(messages) - 1:
                call = {"id": f"{prefix}{at}", "type": "function"}
                function = {"name": "look", "arguments": f'{{"path": "{at}"}}'}
                changed.append({"role": "assistant", "content": "", "tool_calls": [{**call, "function": function}]})
                changed.append({"role": "tool", "tool_call_id": f"{prefix}{at}", "content": f"Nothing at {at}."})
        return changed

    return change


def last_question_with_file(messages: list[Message]) -> list[Message]:
    """Put the files around the last question, as Open WebUI does for as long as it is the last."""
    return [*messages[:-1], {"role": "user", "content": TEMPLATE + messages[-1]["content"]}]


def unanswered_in_the_middle(messages: list[Message]) -> list[Message]:
    """Leave out an answer that never came: two questions in a row."""
    return [*messages[:20], *messages[21:]]


def as_it_is(messages: list[Message]) -> list[Message]:
    """Change nothing."""
    return messages


SAME: Final[dict[str, tuple[Change, Change]]] = {
    "white space around answers": (
        of_role("assistant", lambda said: {**said, "content": f"\n {said['content']} \n"}),
        as_it_is,
    ),
    "thoughts that come back or not": (
        of_role("assistant", lambda said: {**said, "reasoning_content": "Hm.", "reasoning_details": [{"data": "x"}]}),
        as_it_is,
    ),
    "a date in the system message": (
        of_role("system", lambda system: {**system, "content": f"{system['content']} It is 10:59:44."}),
        of_role("system", lambda system: {**system, "content": f"{system['content']} It is 11:07:02."}),
    ),
    "files around the last question": (last_question_with_file, as_it_is),
    "calls with other ids": (with_calls("call_"), with_calls("chatcmpl-tool-")),
    "two questions in a row": (unanswered_in_the_middle, unanswered_in_the_middle),
    "text in parts": (
        of_role("user", lambda asked: {**asked, "content": [{"type": "text", "text": asked["content"]}]}),
        as_it_is,
    ),
    "notices within answers": (
        of_role("assistant", lambda said: {**said, "content": f"> *elbowroom: Loading model...*\n\n{said['content']}"}),
        as_it_is,
    ),
}


@pytest.mark.parametrize(
    "name",  # what else does not count of a message, `test_canonical.py` has in a table
    sample(
        SAME,
        "a date in the system message",
        "files around the last question",
        "calls with other ids",
        "two questions in a row",
        "notices within answers",
    ),
)
async def test_the_same_conversation(tmp_path: Path, name: str) -> None:
    """The second turn has what the first one paid for, behind the system message that it brings itself."""
    at_first, later = SAME[name]
    first = at_first(history(FULL))
    second = [*later(history(FULL)), *NEXT]
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        for messages in (first, second):
            body = {"model": RAW_MODEL, "messages": messages, "tools": [function_spec("look")]}
            status, answer = await ask_whole(served, body)
            assert status == 200, answer
        assert len(orders_of(studio)) == 1
        before, after = (chat.body["messages"] for chat in turns_of(studio))
        assert signatures_in(before) == signatures_in(after) == ["alpha"]
        assert after[0] == second[0]
        assert after[-2:] == NEXT
        if name not in ("files around the last question", "calls with other ids"):
            assert len(after) == len(before) + 2
        assert_fits(turns_of(studio)[-1])


EDITED: Final[Message] = {"content": "I was not there when it happened. " * 9}
CHANGED: Final[dict[str, Change]] = {
    "an edited answer": lambda messages: [
        *messages[:2],
        {**messages[2], "content": "I was not there. " * 9},
        *messages[3:],
    ],
    "an edited question": lambda messages: [
        messages[0],
        {**messages[1], "content": "Who was there? " * 9},
        *messages[2:],
    ],
    "a message that is missing": lambda messages: [messages[0], *messages[2:]],
    "another role": lambda messages: [messages[0], {**messages[1], "role": "assistant"}, *messages[2:]],
}


@pytest.mark.parametrize("name", sample(CHANGED, "an edited answer", "a message that is missing"))
async def test_another_conversation(tmp_path: Path, name: str) -> None:
    """Where words under the compaction are others, it is not used: the conversation is compacted by itself."""
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        for messages in (history(FULL), CHANGED[name](history(FULL))):
            status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages})
            assert status == 200, answer
        assert [signatures_in(chat.body["messages"]) for chat in turns_of(studio)] == [["alpha"], ["bravo"]]


async def test_a_chat_about_a_file_that_streams(tmp_path: Path) -> None:
    """It begins like a task and is none: it is compacted, and the turn after it pays nothing."""
    first = last_question_with_file(history(FULL))
    second = last_question_with_file([*history(FULL), *NEXT])
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        for messages in (first, second):
            body = {"model": RAW_MODEL, "messages": messages, "stream": True}
            async with served.http.post(served.chat_url, json=body) as response:
                assert response.status == 200
                await response.read()
        assert len(orders_of(studio)) == 1
        before, after = (chat.body["messages"] for chat in turns_of(studio))
    assert before[-1] == first[-1]
    assert after == [*before[:-1], {"role": "user", "content": QUESTION}, NEXT[0], second[-1]]


async def test_two_models_side_by_side(tmp_path: Path) -> None:
    """The same request twice at the same moment: both are answered, and the turn after them pays nothing."""
    async with small_window(tmp_path, compaction=IN_TURN, window=WINDOW, prune=SignedPlans()) as (served, studio):
        body = {"model": RAW_MODEL, "messages": history(FULL)}
        answers = await asyncio.gather(*(ask_whole(served, body) for _ in range(2)))
        assert [status for status, _ in answers] == [200, 200]
        orders = len(orders_of(studio))
        await ask_whole(served, {**body, "messages": [*history(FULL), *NEXT]})
        assert len(orders_of(studio)) == orders <= 2


@pytest.mark.slow
async def test_reminders_between_the_turns(tmp_path: Path) -> None:
    """Claude Code sends reminders as system messages: after a compaction each prompt goes on from the one before it.

    The engine reads what is new alone, until the next compaction.
    """
    calm = "The sea was calm. " * 14
    messages: list[Message] = [{"role": "system", "content": "You are a coding agent."}]
    async with small_window(tmp_path) as (served, studio):
        for number in range(24):
            messages.append({"role": "user", "content": f"{number}. {calm}"})
            if number % 2:
                messages.append({"role": "system", "content": f"<system-reminder>{number}</system-reminder>"})
            _, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages})
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        prompts = [chat.body["messages"] for chat in turns_of(studio)]
    compacted = [at for at in range(1, len(prompts)) if len(prompts[at]) <= len(prompts[at - 1])]
    assert len(compacted) > 1
    for at in {*range(1, len(prompts))}.difference(compacted):
        assert prompts[at][: len(prompts[at - 1])] == prompts[at - 1]
