"""Somebody who goes to and fro in a conversation: no prompt ever knows what another branch or a later turn has told."""

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import RAW_MODEL
from patient_counting import wait_for_counts
from request_checks import assert_fits, assert_paired
from scripted_pruner import rest_of, text_of
from serving import Served
from small_window import ask_whole, orders_of, small_window
from told_summaries import SignedPlans, signatures_in

from elbowroom.context.seam import CONTINUE
from elbowroom.demo import SimulatedLMStudio
from elbowroom.server.state import Timing

Body = dict[str, Any]
Message = dict[str, Any]
WINDOW: Final = 2048
QUIET: Final = 0.005
WORDS: Final = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain", "sun", "bell")
BACKGROUND = pytest.mark.parametrize("background", [False, True], ids=["in the turn", "behind the answer"])
LONG_ANSWERS = pytest.mark.parametrize("long_answers", [0.0, 0.2], ids=["short answers", "long answers too"])
LEFT_OUT: Final = re.compile(r"\n\[([0-9,]+) characters are left out here\.\]\n")
QUOTED: Final = re.compile(r"^- (?:Assistant: )?(.+)$", re.MULTILINE)
NUMBERED: Final = re.compile(r"(?:Question|Answer) number (\d+)")


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@dataclass(slots=True)
class Walker:
    """A client that asks, asks again, edits, and goes back, and the model that answers it.

    Every text is unlike all others; of the answers, one in so many is longer than the window. `seen` are the requests
    so far: who asked, the history, and the answer.
    """

    chance: random.Random
    long_answers: float = 0.0
    seen: list[tuple[str, list[Message], str]] = field(default_factory=list)
    answer: str = ""
    written: int = 0

    def text(self, kind: str, sentences: int) -> str:
        """Return a new text."""
        self.written += 1
        told = (f"The {' '.join(self.chance.sample(WORDS, 6))}.\n" for _ in range(sentences))
        return f"{kind} number {self.written}.\n{''.join(told)}"

    def next(self, owner: str) -> list[Message]:
        """Return the history that is asked about next, by whichever way."""
        own = [(messages, answer) for name, messages, answer in self.seen if name == owner]
        way = self.chance.choice(("on", "on", "on", "on", "on", "again", "edit", "branch", "back"))
        if not own:
            return [{"role": "system", "content": "You keep the log."}, self.question()]
        messages, answer = own[-1]
        if way == "on":
            return [*messages, {"role": "assistant", "content": answer.strip()}, self.question()]
        if way == "edit":
            return [*messages[:-1], self.question()]
        if way == "branch":
            return [*messages[: self.chance.randrange(1, len(messages), 2)], self.question()]
        return messages if way == "again" else self.chance.choice(own)[0]

    def question(self) -> Message:
        """Return a new question."""
        return {"role": "user", "content": self.text("Question", self.chance.choice((1, 3, 20)))}

    def says(self, body: Body) -> str:
        """Answer as the model."""
        if is_warm_up(body):
            return "Yes."
        if body["messages"][-1]["content"] == CONTINUE:
            return rest_of(self.answer, text_of(body["messages"][-2]))
        self.answer = self.text("Answer", 250 if self.chance.random() < self.long_answers else 16)
        return self.answer


def is_warm_up(body: Body) -> bool:
    """Tell whether a request is there for the engine's cache alone."""
    return body.get("max_tokens") == 1


def numbers_in(messages: list[Message]) -> set[str]:
    """Return the numbers of the texts that are in messages, or are spoken of there."""
    return {number for message in messages for number in NUMBERED.findall(text_of(message))}


def numbers_behind(name: str, told: dict[str, list[Message]]) -> set[str]:
    """Return the numbers of all that a summary stands for, with what those stand for that it was told.

    That is what its order lists: of the last messages, which stay, it knows as well, and should not speak.
    """
    earlier = (numbers_behind(other, told) for other in signatures_in(told[name]))
    return numbers_in(told[name][-1:]).union(*earlier)


def is_said(text: str, said: list[str]) -> bool:
    """Tell whether a text was said, or is the end of what was, or all of it but as many characters as it tells."""
    head, *divided = LEFT_OUT.split(text)
    if not divided:
        return any(text.strip() in each for each in said)
    number, tail = divided
    whole = len(head) + int(number.replace(",", "")) + len(tail)
    return any(each.startswith(head) and each.endswith(tail) and len(each) == whole for each in said)


def is_summary(text: str) -> bool:
    """Tell whether a compaction has written a text."""
    return text.startswith("<elbowroom-summary>")


def is_quoted(text: str, said: list[str]) -> bool:
    """Tell whether a summary in whose room a pruning agent's own words were left out quotes what was said alone."""
    quoted = QUOTED.findall(text)
    return is_summary(text) and all(any(line in each for each in said) for line in quoted)


def check(prompt: list[Message], messages: list[Message], told: dict[str, list[Message]]) -> None:
    """Fail where a prompt is not made of the client's own messages and of what was summed up of them alone."""
    own = numbers_in(messages)
    assert numbers_in(prompt) <= own
    for name in signatures_in(prompt):
        assert numbers_behind(name, told) <= own, f"{name} stands for what is not in this conversation"
    said = [text_of(message) for message in messages]
    texts = [text_of(message) for message in prompt]
    for message, text in zip(prompt, texts, strict=True):
        assert signatures_in([message]) or is_said(text, said) or is_quoted(text, said)
    assert prompt[-1] == messages[-1]
    assert prompt == messages or any(map(is_summary, texts))


async def walk(served: Served, walker: Walker, studio: SimulatedLMStudio, pruner: SignedPlans, steps: int) -> int:
    """Go so many steps, and check each; return how many of the requests that came again were paid for again."""
    paid_again = 0
    for _ in range(steps):
        owner = walker.chance.choice(("ada", "ben"))
        messages = walker.next(owner)
        is_known = any((owner, messages) == earlier[:2] for earlier in walker.seen)
        orders, requests = len(orders_of(studio)), len(studio.chats)
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages, "user": owner})
        assert status == 200, answer
        [choice] = answer["choices"]
        assert choice["finish_reason"] == "stop"
        assert choice["message"]["content"] == walker.answer
        walker.seen.append((owner, messages, walker.answer))
        prompts = [chat.body["messages"] for chat in studio.chats[requests:] if not is_warm_up(chat.body)]
        [prompt] = [prompt for prompt in prompts if prompt[-1] == messages[-1]]
        check(prompt, messages, pruner.told)
        paid_again += is_known and len(orders_of(studio)) > orders
    return paid_again


async def walked(folder: Path, seed: int, steps: int, *, background: bool, long_answers: float) -> SignedPlans:
    """Walk, and check every request."""
    pruner, walker = SignedPlans(), Walker(random.Random(seed), long_answers)
    chosen, timing = f"background = {str(background).lower()}", Timing(quiet=QUIET)
    async with small_window(folder, walker.says, window=WINDOW, compaction=chosen, prune=pruner, timing=timing) as (
        served,
        studio,
    ):
        paid_again = await walk(served, walker, studio, pruner, steps)
        assert background or long_answers or paid_again == 0
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])
    return pruner


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "background", "long_answers"),
    [
        pytest.param(40, False, 0.0, id="in the turn-short answers"),
        pytest.param(100, False, 0.2, id="in the turn-long answers too", marks=pytest.mark.long),
        pytest.param(40, True, 0.0, id="behind the answer-short answers"),
        pytest.param(100, True, 0.2, id="behind the answer-long answers too", marks=pytest.mark.long),
    ],
)
async def test_a_walk(tmp_path: Path, steps: int, *, background: bool, long_answers: float) -> None:
    """Many steps of two people, each with a tree of branches."""
    pruner = await walked(tmp_path, 2, steps, background=background, long_answers=long_answers)
    assert len(pruner.told) >= 3


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3, 11))
@LONG_ANSWERS
@BACKGROUND
async def test_long_walks(tmp_path: Path, seed: int, *, background: bool, long_answers: float) -> None:
    """Three hundred steps, in several ways."""
    pruner = await walked(tmp_path, seed, 300, background=background, long_answers=long_answers)
    assert len(pruner.told) >= 8
