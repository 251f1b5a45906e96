"""What was said in the year before: many conversations that begin alike, and one that never ended.

All have the same system prompt, every third the same first message. Everything follows from the number of a
conversation, so that those who ask later know what is kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from upstream import FILE_MODEL, WORDS

Said = dict[str, str]
AGENT = f"lmstudio/{FILE_MODEL}"
OWNER = ""
"""The only person that uses the server and gives no name."""
SYSTEM: Said = {
    "role": "system",
    "content": "You help with notes, letters and plans, in short sentences. Ask where something is unclear, and name "
    f"the note from which you know it. Never change a date.{WORDS * 4}",
}
GREETING = "Good morning! What is still open from yesterday?"
LONG_NAME = "the conversation that never ended"
QUESTION, ANSWER = 120, 400  # characters


@dataclass(frozen=True, slots=True)
class Past:
    """So many conversations of so many turns each, and one of `long` turns, over the days that are kept."""

    conversations: int
    turns: int
    long: int
    days: float = 80.0

    def quick(self) -> Self:
        """Return the same at a size that is made in a second."""
        return type(self)(self.conversations // 200, self.turns, self.long // 200, self.days)


YEAR = Past(conversations=10_000, turns=10, long=25_000)


def id_of(number: int) -> str:
    """Return the id of a stored conversation."""
    return f"conv_{number:024x}"


def talk(number: int, turns: int, begin: int = 0) -> list[Said]:
    """Return the turns of a conversation from one on, without the system prompt: a question and an answer each."""
    return [message for turn in range(begin, turns) for message in exchange(number, turn)]


def exchange(number: int, turn: int) -> Iterator[Said]:
    """Yield a question and its answer."""
    is_greeting = turn == 0 and number % 3 == 0
    question = GREETING if is_greeting else f"Question {turn} of {number}: {words(number + turn, QUESTION)}?"
    yield {"role": "user", "content": question}
    yield {"role": "assistant", "content": f"Answer {turn} to {number}: {words(7 * number + turn, ANSWER)}."}


def words(start: int, characters: int) -> str:
    """Return words of about this length in all; they begin at another word for each start."""
    place = WORDS.index(" ", start % (len(WORDS) - 20))
    text = WORDS[place:] + WORDS * (characters // len(WORDS) + 1)
    return text[1:characters].rpartition(" ")[0]
