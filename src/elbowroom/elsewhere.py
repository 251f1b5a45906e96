"""How folders and files of people and of other programs are looked at: the one door to all that may never answer.

A pipe in a vault or a network share that is gone holds whoever reads it for ever. So each look runs in a thread of its
own, few at a time for each place and in all, has a time limit, and reads plain files only. A thread that hangs is left
behind: it takes no place from anything else, and does not keep the process.
"""

import asyncio
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from elbowroom.errors import ElbowroomError

MOST_AT_A_PLACE: Final = 4
"""How many threads one place may hold: where they hang, nobody waits for it again until one comes back."""
MOST: Final = 32
LOOK_SECONDS: Final = 5.0
"""How long a look may take that a person waits for."""
WORK_SECONDS: Final = 60.0
"""How long work in a large vault may take, such as a search through all notes."""
Value = TypeVar("Value")


class NotAnswering(ElbowroomError):
    """A folder of a person or another program does not answer, as a network share that is gone."""

    status = 503
    code = "folder_not_answering"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} does not answer: a network share that is gone, a disk that hangs, or a pipe in the place of a "
            "file. Nothing else waits for it. Mend it, or take it away, and try again."
        )


class Elsewhere:
    """The threads that look at places; one is for a whole process."""

    def __init__(self, most_at_a_place: int = MOST_AT_A_PLACE, most: int = MOST) -> None:
        self._most_at_a_place = most_at_a_place
        self._most = most
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    async def look(self, place: str | Path, work: Callable[[], Value], seconds: float = LOOK_SECONDS) -> Value:
        """Return what the work returns that looks at a place; what it has begun it finishes, also where nobody waits.

        Raises what the work raises, and NotAnswering where that takes too long, or threads that hang are in the way.
        """
        place, loop = str(place), asyncio.get_running_loop()
        done: asyncio.Future[Value] = loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                while not self._enter(place):  # noqa: ASYNC110  # threads of other loops may leave too
                    await asyncio.sleep(0.01)
                run = partial(self._run, place, work, loop, done)
                threading.Thread(target=run, daemon=True, name="elsewhere").start()
                return await done
        except TimeoutError:
            if done.done() and not done.cancelled():
                raise  # it is the work's own
            raise NotAnswering(place) from None

    def _enter(self, place: str) -> bool:
        with self._lock:
            if self._held[place] >= self._most_at_a_place or self._held.total() >= self._most:
                return False
            self._held[place] += 1
            return True

    def _run(
        self, place: str, work: Callable[[], Value], loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Value]"
    ) -> None:
        value: Value | None = None
        failure: Exception | None = None
        try:
            value = work()
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            failure = error
        finally:
            with self._lock:
                self._held[place] -= 1
                if not self._held[place]:
                    del self._held[place]

        def settle() -> None:
            if done.done():
                return
            if failure is not None:
                done.set_exception(failure)
            else:
                done.set_result(value)  # type: ignore[arg-type]  # it is what the work has returned

        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the program has ended meanwhile
            return


ELSEWHERE: Final = Elsewhere()
look = ELSEWHERE.look


def read_plain(path: Path, most: int | None = None) -> bytes:
    """Return a plain file, of `most` bytes where that is given; nothing waits for a pipe or a device.

    Raises OSError, also where it is no plain file, and ValueError where it is larger.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no plain file")
        content = file.read(-1 if most is None else most + 1)
    if most is not None and len(content) > most:
        raise ValueError("it is too large")
    return content
