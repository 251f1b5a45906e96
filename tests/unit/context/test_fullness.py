"""A prompt is as full as it should be: no words are removed from one that leaves most of the window empty."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from compacting import FORGETFUL, used
from spread_variants import spread

from elbowroom.context.budget import Budget, Send
from elbowroom.context.compaction import Cannot, Compaction, Ladder, Layout, Wishes, is_summary_message
from elbowroom.context.effects import Aside, Ask, AskPruner, Count, KeepText, PrunerFailed
from elbowroom.context.fitting import Shortener
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.outputs import ref_to
from elbowroom.context.planner import BEFORE_REQUEST, IN_ANSWER, Alone, Climb, Planner
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message, called, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.context.effects import Work

WINDOWS = (2048, 3072, 4096, 8192, 16_384, 32_768)
JOURNEYS = range(240)
QUICK = 41
"""One journey in so many is made in the quick suite, which goes through all windows."""
PIECE = re.compile(r"\w{1,5}|[^\w\s]")
WORDS = re.findall(
    r"\w+", "the boat left pier nine before noon, nobody saw which rope had been cut; it drifted past a lamp"
)
ASKED = ("go on", "And then?", "weiter", "What of the last line?", "Now the same for the other pier, please.")


@lru_cache(4096)
def tokens(text: str) -> int:
    """Return the tokens of a text, about as many as a usual vocabulary has."""
    return len(PIECE.findall(text))


def size(messages: Sequence[Message]) -> int:
    """Return the tokens of a prompt."""
    said = sum(tokens(text_of(message)) + 5 for message in messages)
    return said + sum(tokens(name) + tokens(arguments) for message in messages for name, arguments in called(message))


@dataclass
class Chat:
    """A conversation that goes on and on in one window, and whatever its plans need."""

    random: Random
    window: int
    is_answering: bool
    turns: int | None
    history: Prompt = field(default_factory=Prompt)
    made: list[tuple[int, int]] = field(default_factory=list)
    """How many tokens there were whenever something was removed, and how many were sent."""

    def words(self, most: int) -> str:
        """Return some text; each number stands in it once, but for a text that says the same again and again.

        Where a person wants few turns, nothing but quotations fills the room, and these never repeat themselves.
        """
        said, random = list[str](), self.random
        if self.turns is None and random.random() < 0.3:
            return "The boat left pier nine before noon. " * max(1, int(most * random.random() ** 2) // 8)
        for _ in range(max(3, int(most * random.random() ** 2))):
            said.append(random.choice(WORDS) if random.random() < 0.8 else str(random.randrange(10**6)))
            said.append(random.choice((" ", " ", " ", ". ", "\n")))
        return "".join(said)

    def step(self) -> None:
        """Let the person say something, and the model answer; make the prompt fit before each of both."""
        share = self.random.choice((20, 8, 3, 1))
        asked = self.random.choice(ASKED) if self.random.random() < 0.5 else self.words(self.window // (4 * share))
        self._say([{"role": "user", "content": asked}])
        if self.random.random() < 0.3:
            self._say(used("read", {"path": self.words(3)}, self.words(self.window // share), "c1"))
        answer = self.words(self.window // share)
        if self.random.random() < 0.3:
            self.history = self.history.stopped(answer)
            self._fit(IN_ANSWER)
        self._say([{"role": "assistant", "content": answer}], fits=False)

    def _say(self, messages: Sequence[Message], *, fits: bool = True) -> None:
        items = Prompt.of([*(item.message for item in self.history.items if item.origin != "piece"), *messages])
        self.history = items
        if fits:
            self._fit(BEFORE_REQUEST)

    def _fit(self, purpose: Any) -> None:
        manager = AgentContextManager(Budget(self.window), history=self.history)
        planner = Planner(manager, Shortener(manager, tokens, shortens=True))
        before = size(self.history.sent())
        decision = self._run(planner.first_decision() if purpose is BEFORE_REQUEST else planner.next_decision(purpose))
        if not isinstance(decision, Send):
            self._run(planner.carry_out(decision, has_said=True))
        self.history = manager.history
        if (after := size(self.history.sent())) < before:
            self.made.append((before, after))

    def _run(self, plan: Work[Any]) -> Any:
        answer: Any = None
        failure: Exception | None = None
        while True:
            try:
                effect = plan.send(answer) if failure is None else plan.throw(failure)
            except StopIteration as end:
                return end.value
            answer = failure = None
            if isinstance(effect, AskPruner) and not self.is_answering:
                failure = PrunerFailed("nobody answers")
            else:
                answer = self._answer(effect)

    def _answer(self, effect: Any) -> Any:
        match effect:
            case Count(messages):
                return size(messages)
            case Aside():
                return effect.work()
            case KeepText():
                return ref_to("", effect.text)
            case Ask.PINS:
                return {}
            case Ask.OTHERS:
                return False, None
            case Alone():
                return self._run(effect.plan(False))
            case Climb():
                return self._climbed(effect)
            case AskPruner():
                return FORGETFUL
            case _:
                return None

    def _climbed(self, effect: Climb) -> Compaction | Cannot:
        decision = effect.decision
        layout = Layout(Budget(self.window), decision.target, tokens, self.turns, is_firm=decision.is_firm)
        pruner = self if self.random.random() < 0.9 else None
        ladder = Ladder(layout, pruner, Wishes(), asks_pruner=decision.asks_pruner)
        done: Compaction | Cannot = self._run(ladder.climb(effect.prompt.transcript))
        return done

    @property
    def shares_prefix(self) -> bool:
        """Tell whether the pruning agent is the conversation's own model."""
        return True

    def can_write(self, result: int) -> int | None:
        """Return that nobody waits for it."""
        return None


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.long] if n % QUICK else []) for n in JOURNEYS])
def test_no_prompt_is_below_a_quarter_of_the_window_while_words_were_removed(seed: int) -> None:
    """Whatever was said, before a request and in an answer, in small and large windows, with a plan and without."""
    random = Random(seed)
    window, turns = WINDOWS[seed % len(WINDOWS)], random.choice((None, None, 1, 2, 5))
    chat = Chat(random, window, random.random() < 0.7, turns)
    for _ in range(random.randrange(6, 20)):
        chat.step()
        for before, after in chat.made:
            assert after >= chat.window // 4, (chat.window, before, after)
        chat.made.clear()


@pytest.mark.parametrize(
    ("window", "exchanges", "opening"), spread((4096, 8192, 32_768), (4, 9, 60), (20, 120, 400, 900))
)
def test_a_result_that_is_cut_anyway_leaves_room_for_what_a_compaction_keeps(
    window: int, exchanges: int, opening: int
) -> None:
    """The first request stays word for word, and a summary stands for what was said since."""
    chat = Chat(Random(opening), window, True, None)
    first = {"role": "user", "content": "".join(f"{chat.words(8)} " for _ in range(99))}
    while tokens(first["content"]) > opening:
        first["content"] = first["content"].rpartition(" ")[0]
    said: list[Message] = [first]
    for _ in range(exchanges):
        said += [
            {"role": "assistant", "content": chat.words(window // 20)},
            {"role": "user", "content": chat.words(window // 20)},
        ]
    rows = "".join(f"Row {row} of the tide table: {row * row}.\n" for row in range(window))
    chat.history = Prompt.of([*said, *used("read", {"path": "tides"}, rows, "c1")])
    chat._fit(BEFORE_REQUEST)
    sent = chat.history.messages
    assert first in sent
    assert any(map(is_summary_message, sent)) or all(each in sent for each in said)
    assert size(sent[:-1]) >= min(size(said), chat.window // 4 - 40)
    assert text_of(sent[-1]).startswith("Row 0 of the tide table")
