"""What it costs to find the passages that come back unasked with a question, in a past of thousands of messages.

The past is indexed, as it is from the second question on. Words are as common as in a language: the n-th is said once
in n times of the first.
"""

import random
import time
from collections.abc import Callable
from functools import cache
from itertools import accumulate

from elbowroom.agents.tools.recall import PastIndex, PastMessage
from elbowroom.context.unasked import MOST_TOKENS, chosen, pointed_at

VOCABULARY = 20_000
WORDS_SAID = 25
WORDS_ASKED = 6
LETTERS = "etaoinshrdlu"
PROMPT = 40
"""So many messages stand in the prompt besides."""


@cache
def vocabulary() -> tuple[list[str], list[float]]:
    """Return words, the most common first, with their summed weights."""
    words = ["".join(LETTERS[number // 12**place % 12] for place in range(4)) for number in range(VOCABULARY)]
    return words, [*accumulate(1 / (place + 1) for place in range(VOCABULARY))]


def said(chance: random.Random) -> str:
    """Return a sentence."""
    words, weights = vocabulary()
    return f"{' '.join(chance.choices(words, cum_weights=weights, k=WORDS_SAID))}."


def reminders(size_of: Callable[[str], int], messages: int, count: int) -> tuple[float, ...]:
    """Return the seconds of CPU for each of so many questions; each has words of a message that was said."""
    chance = random.Random(messages)
    past = [PastMessage(number, ("user", "assistant")[number % 2], said(chance), None) for number in range(messages)]
    index, others = PastIndex.of(past), " ".join(said(chance) for _ in range(PROMPT))
    seconds = []
    for _ in range(count + 1):
        question = f"{' '.join(chance.sample(chance.choice(past).text.split(), k=WORDS_ASKED))}?"
        begun = time.process_time()
        places = pointed_at(question, index.found(question), others)
        passages = [index.passages[place] for place in places if place < len(index.passages)]
        chosen(passages, others, MOST_TOKENS, size_of)
        seconds.append(time.process_time() - begun)
    return tuple(seconds[1:])
