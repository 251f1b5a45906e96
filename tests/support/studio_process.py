"""A simulated LM Studio in a process of its own, which can be killed: `studio_process.py PORT NAME JOURNAL`.

Its answers are words that nobody says twice, over all its lives. Its journal has a line of JSON for each prompt that
came, for each compaction that was answered to the end, and for each look at which its window was fuller
than ever before, or held too much, with when the newest request came that is being answered.
"""

import asyncio
import hashlib
import itertools
import json
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from soak_studio import ORDER, plan

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, Text

MODEL: Final = "crowd-model"
WINDOW: Final = 16_384
PIECES_A_SECOND: Final = 30.0
LOOK_EVERY: Final = 0.02
LONG: Final = "Tell me everything"
"""A question that has these words gets an answer of seven seconds."""
SHORT_WORDS, LONG_WORDS = (10, 60), (200, 201)
GROUPS: Final = re.compile(r"^\d+ \| .*$", re.MULTILINE)
PERSON: Final = re.compile(r"person \d+")
AGAIN: Final = "Your last attempt could not be used"


def answers(name: str, life: int) -> Iterator[str]:
    """Yield the beginning of each answer's words, without its numbers."""
    return (f"{name}{life * 1_000_000 + number}" for number in itertools.count())


def lives(journal: Path) -> int:
    """Return how many processes have written this journal."""
    return journal.read_text(encoding="utf-8").count('"life"') if journal.exists() else 0


async def serve(port: int, name: str, journal: Path, life: int) -> None:
    """Answer until the process is ended."""
    said, rng = answers(name, life), random.Random(f"{name} {life}")

    def answer(body: dict[str, Any]) -> Script:
        last = json.dumps(body["messages"][-1])
        if ORDER in last:
            return Script(Text(plan(last), whole=True))
        word, count = next(said), rng.randrange(*(LONG_WORDS if re.search(LONG, last) else SHORT_WORDS))
        return Script("".join(f"{word}.{place} " for place in range(count)))

    model = SimulatedModel(MODEL, loaded_context_length=WINDOW, max_context_length=WINDOW, parallel=16)
    studio = SimulatedLMStudio([model], port=port, on_request=answer, tokens_per_second=PIECES_A_SECOND)
    with journal.open("a", encoding="utf-8") as file:
        file.write(f'{{"life": {life}}}\n')
        async with studio:
            await _record(studio, file)


def compacted(order: str) -> str:
    """Return what tells a compaction from others: the messages that are to be summarised."""
    groups = "".join(GROUPS.findall(order.replace("\\n", "\n"))) or order
    return hashlib.sha256(groups.encode()).hexdigest()


def person_of(order: str) -> str:
    """Return whose conversation an order is about."""
    found = PERSON.search(order)
    return found[0] if found else ""


async def _record(studio: SimulatedLMStudio, file: TextIO) -> None:
    noted, paid, fullest = set[int](), set[int](), 0

    def write(**fields: object) -> None:
        file.write(f"{json.dumps(fields)}\n")
        file.flush()

    while True:
        for request in list(studio.requests):
            if request.counted_tokens is not None and request.number not in noted:
                noted.add(request.number)
                write(prompt=request.counted_tokens, window=request.window)
            if request.number not in paid and request.phase == "done" and request.status == 200:
                paid.add(request.number)
                last = json.dumps(request.body["messages"][-1]) if "messages" in (request.body or ()) else ""
                if ORDER in last and AGAIN not in last:
                    asked, answered = request.received_at, request.finished_at
                    write(compaction=compacted(last), person=person_of(last), asked=asked, answered=answered)
        for instance in studio.residency.instances.values():
            if instance.pool_tokens > min(fullest, instance.context_length):
                fullest = max(fullest, instance.pool_tokens)
                came = [each.received_at for each in studio.requests if each.finished_at is None and each.window]
                now = time.monotonic()
                write(held=instance.pool_tokens, window=instance.context_length, at=now, newest=max(came, default=now))
        await asyncio.sleep(LOOK_EVERY)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), lives(Path(sys.argv[3]))))
