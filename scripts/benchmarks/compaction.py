"""How long one compaction takes without the model's own work, and how long it holds up the event loop.

The history is about 32,000 tokens of talk, calls and results; the pruning agent answers at once. Prompts have been
counted before, as they have in a conversation that grows.
"""

import asyncio
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from remembering import reminders
from servers import Checkout

from elbowroom.agents.prompt import carried_out
from elbowroom.context.budget import Budget
from elbowroom.context.compaction.ladder import Ladder
from elbowroom.context.compaction.layout import Layout
from elbowroom.context.compaction.order import Wishes
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.effects import Count, Effect
from elbowroom.context.transcript import Message, Transcript
from elbowroom.tokens.families.counter import FamilyCounter
from elbowroom.tokens.families.families import family_of

TOKENS = 32_000
WINDOW = TOKENS * 5 // 4
ANSWER = json.dumps(
    {
        "retain": "The user keeps notes about boats and wants the list of harbours in order.",
        "summary": "Many notes were read and compared. Most of them are in order; some await a decision.",
        "keep": [],
    }
)
WORDS = (
    "the a boat note list harbour order we it is was read and or then with about of to in for that this line part page "
    "wind tide crew rope sail deck open close find keep write change small large first last early late clear"
)


@dataclass(frozen=True, slots=True)
class Compactions:
    """What was measured in a round: seconds of each compaction, and the longest the event loop was held up in each.

    `reminders` are the seconds of CPU until what comes back unasked is found in a past of 10,000 messages, and
    `long_reminders` in one of 50,000.
    """

    seconds: tuple[float, ...]
    longest_blocks: tuple[float, ...]
    reminders: tuple[float, ...]
    long_reminders: tuple[float, ...]


class Counted:
    """Counts by the family of Qwen 2.5."""

    def __init__(self) -> None:
        self._counter = FamilyCounter(family_of("qwen2.5-7b-instruct"))

    async def prompt(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a prompt."""
        return self._counter.count_chat(messages).tokens

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self._counter.count_text(text)


class AtOnce:
    """A pruning agent that answers without a model."""

    window = 2 * WINDOW
    shares_prefix = True

    def can_write(self, result: int) -> int | None:
        """Return that nobody waits for it."""
        return None


def prose(chance: random.Random, words: int) -> str:
    """Return sentences with a figure or a name here and there."""
    said = chance.choices(WORDS.split(), k=words)
    said[:: max(1, words // 3)] = [f"{chance.randrange(9999)}" for _ in said[:: max(1, words // 3)]]
    return " ".join(said).capitalize() + "."


def turn(chance: random.Random, number: int) -> list[dict[str, Any]]:
    """Return a question, a call with its result, and an answer."""
    path = f"notes/{chance.choice(WORDS.split())}/{number}.md"
    call = {
        "id": f"call{number}",
        "type": "function",
        "function": {"name": "read", "arguments": f'{{"path": "{path}"}}'},
    }
    lines = [{"line": line, "text": prose(chance, 12)} for line in range(12)]
    return [
        {"role": "user", "content": f"Look at {path}. {prose(chance, 60)} Never change the dates."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call{number}", "content": json.dumps(lines)},
        {"role": "assistant", "content": f"I have read {path}. {prose(chance, 180)}"},
    ]


async def history(counter: Counted, tokens: int) -> list[dict[str, Any]]:
    """Return a conversation of so many tokens that ends with a question."""
    chance = random.Random(1)
    messages: list[dict[str, Any]] = [{"role": "system", "content": prose(chance, 300)}]
    while await counter.prompt(messages) < tokens:
        messages += turn(chance, len(messages))
    return [*messages, {"role": "user", "content": "Which harbour comes next?"}]


async def longest_block(stop: asyncio.Event) -> float:
    """Return the longest that this task had to wait for its turn until the event."""
    longest, before = 0.0, time.perf_counter()
    while not stop.is_set():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return longest


async def compactions(count: int) -> Compactions:
    """Compact the same history so many times, and ask ten times as many questions about long pasts."""
    counter = Counted()
    messages = await history(counter, TOKENS)
    before = await counter.prompt(messages)
    budget = Budget(WINDOW)
    ladder = Ladder(Layout(budget, budget.target(0), counter.text), AtOnce(), Wishes())

    async def answer(effect: Effect) -> object:
        return await counter.prompt(effect.messages) if isinstance(effect, Count) else ANSWER

    seconds, blocks = [], []
    for _ in range(count + 1):
        stop = asyncio.Event()
        watch = asyncio.create_task(longest_block(stop))
        await asyncio.sleep(0)
        start = time.perf_counter()
        climb = ladder.climb(Transcript.of(messages), before)
        done = await carried_out(climb, answer, in_thread=False)
        seconds.append(time.perf_counter() - start)
        stop.set()
        blocks.append(await watch)
        if not isinstance(done, Compaction) or done.rung != "plan":
            raise AssertionError(f"the history was not compacted by the plan: {done}")
    found = [reminders(counter.text, size, 10 * count) for size in (10_000, 50_000)]
    return Compactions(tuple(seconds[1:]), tuple(blocks[1:]), *found)


async def compaction_rounds(
    checkouts: Mapping[str, Checkout], rounds: int, count: int, rng: random.Random
) -> dict[str, list[Compactions]]:
    """Compact with each checkout in a process of its own, once a round in shuffled order."""
    code = "import asyncio, dataclasses, json, compaction\n"
    code += f"print(json.dumps(dataclasses.asdict(asyncio.run(compaction.compactions({count})))))"
    seen: dict[str, list[Compactions]] = {name: [] for name in checkouts}
    for _ in range(rounds):
        for name in rng.sample(list(checkouts), k=len(checkouts)):
            found = await asyncio.to_thread(checkouts[name].evaluate, code)
            unknown = (math.nan,)  # what an older checkout does not measure is no number
            figures = {each.name: tuple(found.get(each.name, unknown)) for each in fields(Compactions)}
            seen[name].append(Compactions(**figures))
    return seen
