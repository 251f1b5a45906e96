"""How folders and files of people and of other programs are looked at: the one door to all that may never answer.

A pipe in a vault or a network share that is gone holds whoever reads it for ever. So each look runs in a thread of its
own, few at a time for each place and in all, has a time limit, and reads plain files only. A thread that hangs is left
behind: it takes no place from anything else, and does not keep the process.
"""

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Final, TypeVar

from elbowroom.errors import ElbowroomError

MOST_AT_A_PLACE: Final = 4
"""How many threads one place may hold: where they hang, nobody waits for it again until one comes back."""
MOST: Final = 32
GLANCE_SECONDS: Final = 0.5
"""How long a look may take for which a program stands still."""
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
        self._looking: dict[Future[Any], str] = {}
        self._hanging: set[Future[Any]] = set()
        self._lock = threading.Lock()

    async def look(self, place: str | Path, work: Callable[[], Value], seconds: float = LOOK_SECONDS) -> Value:
        """Return what the work returns that looks at a place; what it has begun it finishes, also where nobody waits.

        Raises what the work raises, and NotAnswering where that takes too long, or threads that hang are in the way.
        """
        place, looking, now = str(place), None, asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(now + (min(seconds, GLANCE_SECONDS) if self._only_hangs(place) else seconds))
        try:
            async with limit:
                while (looking := self._begun(place, work)) is None:  # noqa: ASYNC110  # others end in threads
                    await asyncio.sleep(0.01)
                limit.reschedule(now + seconds)
                return await asyncio.wrap_future(looking)
        except TimeoutError:
            if not limit.expired():
                raise  # it is the work's own
            raise self._given_up(place, looking) from None

    def glance(self, place: str | Path, work: Callable[[], Value], seconds: float = GLANCE_SECONDS) -> Value:
        """Return the same to who has no loop and stands still meanwhile."""
        looking = self._begun(str(place), work)
        if looking is None or not wait([looking], seconds).done:
            raise self._given_up(str(place), looking)
        return looking.result()

    def _only_hangs(self, place: str) -> bool:
        """Tell whether all threads that a place may have hang there."""
        with self._lock:
            return [self._looking[one] for one in self._hanging].count(place) >= self._most_at_a_place

    def _begun(self, place: str, work: Callable[[], Value]) -> Future[Value] | None:
        """Begin to look; return None where that has to wait for another look."""
        looking: Future[Value] = Future()
        with self._lock:
            there = list(self._looking.values()).count(place)
            if there >= self._most_at_a_place or len(self._looking) >= self._most:
                return None
            self._looking[looking] = place
        looking.set_running_or_notify_cancel()  # nobody can cancel it now
        threading.Thread(target=self._run, args=(work, looking), daemon=True, name="elsewhere").start()
        return looking

    def _given_up(self, place: str, looking: Future[Any] | None) -> NotAnswering:
        with self._lock:
            if looking in self._looking:
                self._hanging.add(looking)
        return NotAnswering(place)

    def _run(self, work: Callable[[], Value], looking: Future[Value]) -> None:
        value: Value | None = None
        failure: Exception | None = None
        try:
            value = work()
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            failure = error
        finally:
            with self._lock:
                del self._looking[looking]
                self._hanging.discard(looking)
        if failure is not None:
            looking.set_exception(failure)
        else:
            looking.set_result(value)  # type: ignore[arg-type]  # it is what the work has returned


ELSEWHERE: Final = Elsewhere()
look = ELSEWHERE.look
glance = ELSEWHERE.glance


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
