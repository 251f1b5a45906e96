"""Answers that are stopped because the window is nearly full, and go on: the client reads them as one text.

Run with `--log-cli-level=INFO` to see how many stops there were, and what happened at those that cannot be joined
without a trace.
"""

import asyncio
import logging
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, RAW_MODEL, chunks_of, finish_of
from patient_counting import wait_for_counts
from scripted_pruner import in_deltas, is_prune_order, stopped_at, text_of, valid_plan
from serving import Served, serve, settings_for
from serving import text_of as text_of_frames

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel

log = logging.getLogger(__name__)
WINDOW = 1000
HOW_MANY = pytest.mark.parametrize("stops", [10, pytest.param(250, marks=pytest.mark.long)])
AT_ONCE = 5
ASKED = re.compile(r"Question (\d+):")
NOUNS = ("harbour", "ferry", "rope", "ledger", "signal", "engine", "captain", "timetable", "bridge", "lamp")
THRICE = "The bell rang once more over the water.\n"
Resume = Callable[[str, int, random.Random], str]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def exactly(answer: str, place: int, chance: random.Random) -> str:
    """Go on where the answer was stopped."""
    return answer[place:]


def repeating(answer: str, place: int, chance: random.Random) -> str:
    """Go on, and say the last 12 to 160 characters again."""
    return answer[place - chance.randint(12, 160) :]


def repeating_little(answer: str, place: int, chance: random.Random) -> str:
    """Go on, and say up to eleven characters again."""
    return answer[place - chance.randint(1, 11) :]


def losing_space(answer: str, place: int, chance: random.Random) -> str:
    """Go on, but leave out the white space that stands there."""
    return answer[place:].lstrip()


def answer_to(number: int) -> str:
    """Return a text with all that is hard to cut: lists, code, one line thrice, Japanese, sentences without end."""
    chance = random.Random(number)
    parts = [chance.choice(PARTS)(chance) for _ in range(60)]
    parts.insert(chance.randint(0, 20), THRICE * 3)
    return "".join(parts)[: chance.randint(2400, 3400)].strip() + f" The end of answer {number}."


def _sentence(chance: random.Random) -> str:
    one, other = chance.sample(NOUNS, 2)
    return f"The {one} of Mr. Berg left the {other} at {chance.randint(1, 23)}.{chance.randint(10, 59)} o'clock. "


def _paragraph_end(chance: random.Random) -> str:
    return f"{_sentence(chance).strip()}\n\n"


def _list(chance: random.Random) -> str:
    rows = "".join(f"{row}. the {chance.choice(NOUNS)}, e.g. no. {chance.randint(1, 999)}\n" for row in range(1, 5))
    return f"\n\n{rows}\n"


def _code(chance: random.Random) -> str:
    name = chance.choice(NOUNS)
    return f"\n\n```python\ndef {name}(x: int) -> int:\n    return x * {chance.randint(2, 999)}\n```\n\n"


def _japanese(chance: random.Random) -> str:
    return f"船は{chance.randint(2, 99)}番桟橋を出た。港は静かだった！\n"


def _without_end(chance: random.Random) -> str:
    return ", ".join(f"{chance.choice(NOUNS)} {chance.randint(100, 999)}" for _ in range(30)) + " and so on. "


PARTS = (_sentence, _sentence, _sentence, _paragraph_end, _list, _code, _japanese, _without_end)


@dataclass(slots=True)
class StoppedModel:
    """An `on_request` that is stopped in the middle of long answers and goes on in its own way.

    `places` has the character after which it was stopped for each time, by the number of the question.
    """

    resume: Resume
    places: dict[int, list[int]] = field(default_factory=dict)

    def __call__(self, body: dict[str, Any]) -> Script:
        """Return the answer to the question, or the rest of it where it had begun."""
        if is_prune_order(body):
            return Script(valid_plan(body))
        if body["max_tokens"] == 1:  # the server has the engine read a conversation beforehand
            return Script("-")
        messages = body["messages"]
        [*_, number] = (int(found) for message in messages for found in ASKED.findall(text_of(message)))
        answer = answer_to(number)
        chance = random.Random(f"{number} {len(self.places.get(number, ()))}")
        if ASKED.match(text_of(messages[-1])):
            return in_deltas(answer, lambda: chance.randint(1, 24))
        place = stopped_at(answer, text_of(messages[-2]))
        self.places.setdefault(number, []).append(place)
        return in_deltas(self.resume(answer, place, chance), lambda: chance.randint(1, 24))


@dataclass(frozen=True, slots=True)
class Delivered:
    """One answer as it should be and as the client had it, and after which characters it was stopped."""

    number: int
    expected: str
    text: str
    finish_reason: str
    places: tuple[int, ...]

    @property
    def stops(self) -> int:
        """Return how often it was stopped."""
        return len(self.places)

    @property
    def is_ambiguous(self) -> bool:
        """Tell whether it was stopped where it says the same again, so that nobody can tell a repetition from it."""
        return any(_says_again(self.expected, place) for place in self.places)


async def ask(served: Served, number: int) -> tuple[str, str]:
    """Ask a question after a random history, streamed or not; return the text and the finish_reason."""
    chance = random.Random(f"history {number}")
    history = [
        {"role": ("user", "assistant")[turn % 2], "content": "".join(_sentence(chance) for _ in range(3))}
        for turn in range(2 * chance.randint(0, 4))
    ]
    question = f"Question {number}: {'what else? ' * chance.randint(1, 40)}"
    messages = [*history, {"role": "user", "content": question}]
    if number % 2:
        body = {"model": RAW_MODEL, "messages": messages, "stream": True}
        async with served.http.post(served.chat_url, json=body) as response:
            assert response.status == 200, await response.text()
            chunks = chunks_of(await response.read())
            return text_of_frames(chunks), finish_of(chunks)
    async with served.http.post(served.chat_url, json={"model": RAW_MODEL, "messages": messages}) as response:
        answer = await response.json()
        assert response.status == 200, answer
        [choice] = answer["choices"]
        return choice["message"]["content"], choice["finish_reason"]


async def answers(folder: Path, resume: Resume, least: int) -> list[Delivered]:
    """Ask questions until the model was stopped at least so often."""
    model = StoppedModel(resume)
    loaded = SimulatedModel(MODEL, loaded_context_length=WINDOW, parallel=AT_ONCE)
    delivered: list[Delivered] = []
    async with (
        SimulatedLMStudio([loaded], on_request=model) as studio,
        serve(folder, settings_for(studio.base_url)) as served,
    ):
        while sum(one.stops for one in delivered) < least:
            numbers = range(len(delivered) + 1, len(delivered) + 1 + AT_ONCE)
            for number, (text, finish) in zip(
                numbers, await asyncio.gather(*(ask(served, number) for number in numbers)), strict=True
            ):
                places = tuple(model.places.get(number, ()))
                delivered.append(Delivered(number, answer_to(number), text, finish, places))
            assert delivered[-1].number < 2 * least, "the answers are hardly ever stopped"
        assert all(chat.fitted for chat in studio.chats)
    log.info("%s: %d stops in %d answers", resume.__name__, sum(one.stops for one in delivered), len(delivered))
    return delivered


@pytest.mark.slow
@HOW_MANY
@pytest.mark.parametrize("resume", [exactly, repeating])
async def test_an_answer_reads_as_if_it_had_not_been_stopped(tmp_path: Path, resume: Resume, stops: int) -> None:
    """No character is missing or there twice, and a line that the answer has thrice is there thrice.

    Only where it is stopped between these lines can nobody tell which of them is a repetition.
    """
    delivered = await answers(tmp_path, resume, stops)
    clear = [one for one in delivered if not one.is_ambiguous]
    assert len(clear) > 0.7 * len(delivered)
    for one in clear:
        assert one.text == one.expected, first_difference(one)
        assert one.finish_reason == "stop"
        assert one.text.count(THRICE) == one.expected.count(THRICE)
    report("ambiguous", [one for one in delivered if one.is_ambiguous])


@pytest.mark.slow
@HOW_MANY
async def test_short_repetitions_are_passed_on(tmp_path: Path, stops: int) -> None:
    """What may be chance stays in the text. Nothing is lost, and no more is added than was repeated."""
    delivered = await answers(tmp_path, repeating_little, stops)
    for one in delivered:
        assert one.is_ambiguous or is_within(one.expected, one.text), first_difference(one)
        assert len(one.text) - len(one.expected) <= 11 * one.stops
    report("repeats up to 11 characters", delivered)


@pytest.mark.slow
@HOW_MANY
async def test_lost_white_space(tmp_path: Path, stops: int) -> None:
    """White space that the model does not write again is the only thing that may be missing."""
    delivered = await answers(tmp_path, losing_space, stops)
    for one in delivered:
        assert one.is_ambiguous or _dense(one.text) == _dense(one.expected), first_difference(one)
    report("loses white space", delivered)


def report(what: str, delivered: list[Delivered]) -> None:
    """Log how many answers differ, and by how much."""
    different = [one for one in delivered if one.text != one.expected]
    changed = [len(one.text) - len(one.expected) for one in different]
    log.info("%s: %d of %d answers differ, by %s characters", what, len(different), len(delivered), sorted(changed))


def first_difference(one: Delivered) -> str:
    """Return both texts around the place where they part."""
    length = min(len(one.text), len(one.expected))
    at = next((at for at in range(length) if one.text[at] != one.expected[at]), length)
    span = slice(max(0, at - 60), at + 60)
    return f"answer {one.number}, character {at}: {one.text[span]!r} instead of {one.expected[span]!r}"


def is_within(short: str, long: str) -> bool:
    """Tell whether all characters of one text are in the other, in their order."""
    letters = iter(long)
    return all(letter in letters for letter in short)


def _says_again(text: str, place: int) -> bool:
    """Tell whether what follows a place is what stands right before it."""
    before, after = text[:place].rstrip(), text[place:].lstrip()
    return any(before.endswith(after[:length]) for length in range(10, 200))


def _dense(text: str) -> str:
    return "".join(text.split())
