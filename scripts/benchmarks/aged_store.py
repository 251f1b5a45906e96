"""Makes the store of a server that has been in use for long, by the code of the elbowroom that runs this.

`aged_store.py FOLDER CONVERSATIONS TURNS LONG` writes the database of a server whose data are in that folder. It notes
what a server would have noted, in batches. Older checkouts have the same names in other modules.
"""

import asyncio
import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from past import AGENT, LONG_NAME, OWNER, SYSTEM, Past, id_of, talk
from upstream import WINDOW

AT_ONCE, TURNS_AT_ONCE = 10, 100
"""The most conversations, and turns of each, that are written in one transaction."""
MODULES = (
    "elbowroom.context.conversation",
    "elbowroom.context.conversation_changes",
    "elbowroom.context.step_usage",
    "elbowroom.context.ledger",
    "elbowroom.settings.model",
    "elbowroom.store.store",
    "elbowroom.store.opening",
)
SECONDS_A_DAY = 86_400.0
TRIES = 60


class Code:
    """What is needed of an elbowroom, by name, wherever it is in this checkout."""

    def __init__(self) -> None:
        self._modules: list[Any] = []
        for name in MODULES:
            try:
                self._modules.append(importlib.import_module(name))
            except ModuleNotFoundError:
                continue

    def __getattr__(self, name: str) -> Any:
        return next(getattr(module, name) for module in self._modules if hasattr(module, name))


async def make(folder: Path, past: Past) -> None:
    """Write all conversations, the oldest first."""
    code = Code()
    store = code.open_store(code.StoreSettings(), {"ELBOWROOM_DATA_DIR": str(folder)})
    try:
        for changes in batches(code, past):
            store.conversations.note(changes)
            await written(store)
    finally:
        await store.aclose()


async def written(store: Any) -> None:
    """Wait until all that was noted is on the disk; a busy machine takes long to open the database."""
    for _ in range(TRIES):
        if await store.conversations.settled():
            return
        await asyncio.sleep(1.0)
    raise RuntimeError("The store of the past could not be written; its log above says why.")


def batches(code: Code, past: Past) -> Iterator[list[Any]]:
    """Yield the changes of all conversations; those are written together that change the store alike."""
    now, apart = time.time(), past.days * SECONDS_A_DAY / max(past.conversations, 1)
    for first in range(0, past.conversations, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, past.conversations))
        ways = [
            changes_of(code, number, "", past.turns, now - apart * (past.conversations - number)) for number in numbers
        ]
        for at_once in zip(*ways, strict=True):
            yield [change for changes in at_once for change in changes]
    yield from changes_of(code, past.conversations, LONG_NAME, past.long, now - 60.0)


def changes_of(code: Code, number: int, name: str, turns: int, at: float) -> Iterator[list[Any]]:
    """Yield what a server notes of a conversation: its beginning, then some turns at a time."""
    conversation, said = id_of(number), talk(number, turns)
    chain = code.Chain.of(OWNER, AGENT, [SYSTEM, *said])
    system = code.archive_of(code.Chain.of(OWNER, AGENT, [SYSTEM]), [SYSTEM])[0]
    changes = [
        code.ConversationBegun(conversation, OWNER, name, AGENT, at),
        code.Heard(conversation, system.key, system.parent, SYSTEM, at),
    ]
    parents = (chain.seed, *chain.keys[1::2])
    for turn in range(turns):
        asked, answered = chain.keys[2 * turn : 2 * turn + 2]
        changes.append(code.Heard(conversation, asked, parents[turn], said[2 * turn], at + turn))
        answer = said[2 * turn + 1]["content"]
        changes += turn_of(code, conversation, f"turn_{number:x}_{turn}", (asked, answered), answer, at + turn)
        if turn % TURNS_AT_ONCE == TURNS_AT_ONCE - 1 or turn == turns - 1:
            yield changes
            changes = []


def turn_of(code: Code, conversation: str, turn: str, keys: tuple[str, str], said: str, at: float) -> Iterator[Any]:
    """Yield what a server notes of one answer; `keys` are those of the question and of the answer."""
    reply, usage = f"{turn}.1", code.StepUsage(input=1_000, output=100)
    fill = code.ContextFill(1_100, WINDOW, WINDOW // 5 * 4, WINDOW // 10 * 9)
    yield code.TurnBegun(turn, conversation, keys[0], AGENT, at)
    yield code.ReplyBegun(turn, reply, at)
    yield code.ReplyGrew(reply, "text", said)
    yield code.ReplyEnded(reply, "complete")
    yield code.StepUsed(turn, AGENT, usage, fill, at)
    yield code.TurnEnded(turn, "complete", keys[1], at)


if __name__ == "__main__":
    where, *sizes = sys.argv[1:]
    asyncio.run(make(Path(where), Past(*map(int, sizes))))
