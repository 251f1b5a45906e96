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
from scripted_pruner import is_prune_order, text_of
from serving import Served
from small_window import ask_whole, orders_of, small_window, turns_of
from told_summaries import SignedPlans, signatures_in

from elbowroom.server.keys import Timing

Body = dict[str, Any]
Message = dict[str, Any]
WINDOW: Final = 2048
QUIET: Final = 0.005
WORDS: Final = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain", "sun", "bell")
NUMBERED: Final = re.compile(r"(?:Question|Answer) number (\d+)")


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@dataclass(slots=True)
class Walker:
    """Asks, asks again, edits, and goes back; every message that is written is unlike all others.

    `seen` are the histories that have been asked about, with the owner of each.
    """

    chance: random.Random
    seen: list[tuple[str, list[Message]]] = field(default_factory=list)
    written: int = 0

    def text(self, kind: str, words: int) -> str:
        """Return a new text."""
        self.written += 1
        return f"{kind} number {self.written}: {' '.join(self.chance.choice(WORDS) for _ in range(words))}."

    def next(self, owner: str) -> list[Message]:
        """Return the history that is asked about next, by whichever way."""
        own = [messages for name, messages in self.seen if name == owner]
        way = self.chance.choice(("on", "on", "on", "on", "on", "again", "edit", "branch", "back"))
        if not own:
            return [{"role": "system", "content": "You keep the log."}, self.question()]
        if way == "on":
            return [*own[-1], {"role": "assistant", "content": self.text("Answer", 110)}, self.question()]
        if way == "edit":
            return [*own[-1][:-1], self.question()]
        if way == "branch":
            return [*own[-1][: self.chance.randrange(1, len(own[-1]), 2)], self.question()]
        return own[-1] if way == "again" else self.chance.choice(own)

    def question(self) -> Message:
        """Return a new question."""
        return {"role": "user", "content": self.text("Question", self.chance.choice((5, 20, 150)))}


def numbers_in(messages: list[Message]) -> set[str]:
    """Return the numbers of the texts that are in messages, or are spoken of there."""
    return {number for message in messages for number in NUMBERED.findall(text_of(message))}


def numbers_behind(name: str, told: dict[str, list[Message]]) -> set[str]:
    """Return the numbers of all that a summary stands for, with what those stand for that it was told.

    That is what its order lists: of the last messages, which stay, it knows as well, and should not speak.
    """
    earlier = (numbers_behind(other, told) for other in signatures_in(told[name]))
    return numbers_in(told[name][-1:]).union(*earlier)


def check(prompt: list[Message], messages: list[Message], told: dict[str, list[Message]]) -> None:
    """Fail where a prompt is not made of the client's own messages and of what was summed up of them alone."""
    own = numbers_in(messages)
    assert numbers_in(prompt) <= own
    for name in signatures_in(prompt):
        assert numbers_behind(name, told) <= own, f"{name} stands for what is not in this conversation"
    assert all(message in messages or signatures_in([message]) for message in prompt)
    assert prompt[-1] == messages[-1]
    assert signatures_in(prompt) or prompt == messages


async def walk(served: Served, walker: Walker, studio: Any, pruner: SignedPlans, steps: int) -> int:
    """Go so many steps; return how many of the conversations that came back were paid for once more."""
    paid_again = 0
    for _ in range(steps):
        owner = walker.chance.choice(("ada", "ben"))
        messages = walker.next(owner)
        is_known = (owner, messages) in walker.seen
        orders = len(orders_of(studio))
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages, "user": owner})
        assert status == 200, answer
        walker.seen.append((owner, messages))
        [turn] = [chat for chat in studio.chats if chat.body["messages"][-1] == messages[-1]][-1:]
        check(turn.body["messages"], messages, pruner.told)
        paid_again += is_known and len(orders_of(studio)) > orders
    return paid_again


async def walked(folder: Path, seed: int, steps: int, *, background: bool) -> SignedPlans:
    """Walk, and check every request."""
    pruner, walker = SignedPlans(), Walker(random.Random(seed))

    def says(body: Body) -> str:
        return "Yes."

    chosen = f"background = {str(background).lower()}"
    async with small_window(
        folder, says, window=WINDOW, compaction=chosen, prune=pruner, timing=Timing(quiet=QUIET)
    ) as (served, studio):
        paid_again = await walk(served, walker, studio, pruner, steps)
        assert background or paid_again == 0
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])
        assert all(is_prune_order(chat.body) or chat in turns_of(studio) for chat in studio.chats)
    return pruner


@pytest.mark.parametrize("background", [False, True], ids=["in the turn", "behind the answer"])
async def test_a_walk(tmp_path: Path, *, background: bool) -> None:
    """A hundred steps of two people, each with a tree of branches."""
    pruner = await walked(tmp_path, 2, 100, background=background)
    assert len(pruner.told) >= 3


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("background", [False, True], ids=["in the turn", "behind the answer"])
async def test_long_walks(tmp_path: Path, seed: int, *, background: bool) -> None:
    """Three hundred steps, in several ways."""
    pruner = await walked(tmp_path, seed, 300, background=background)
    assert len(pruner.told) >= 8
