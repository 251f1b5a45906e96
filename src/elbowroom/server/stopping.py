"""How the server is asked to stop, and what it does for those it is answering then."""

import asyncio
import logging
import os
import signal
import threading
from types import FrameType
from typing import Final

from aiohttp import web

from elbowroom.server.guard import HEALTH, Handler
from elbowroom.server.keys import RUNNING
from elbowroom.server.running import RunningAnswers

log = logging.getLogger(__name__)
FINISHING_SECONDS: Final = 5.0
"""How long answers that are running may go on after the server was asked to stop."""
LONGEST_STOP_SECONDS: Final = 25.0
"""How long a stop takes at most: what has not ended by itself then, such as a tool in a thread, is left."""
ASKS_TO_STOP: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""Ctrl-C, the system's request, a terminal that is closed, and what Windows' consoles send; each where it exists."""


class StopRequests:
    """What the person and the system ask for: `asked` is set at the first signal, `pressed` at the second.

    A third one ends the process as a crash would.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.pressed = asyncio.Event()

    @classmethod
    def listen(cls) -> "StopRequests":
        """Take the signals of this process from here on.

        To be called before anything is opened, so that everything is closed however early the end comes.
        """
        requests = cls()
        for name in ASKS_TO_STOP:
            number = signal.Signals.__members__.get(name)
            if number is not None and not (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):  # nohup
                _take(number, requests)
        return requests

    def add(self) -> None:
        """Take one request to stop."""
        if not self.asked.is_set():
            self.asked.set()
        elif not self.pressed.is_set():
            self.pressed.set()
        else:
            log.warning("Ended at the third request; what was not stored yet is lost.")
            os._exit(1)


def _take(number: signal.Signals, requests: StopRequests) -> None:
    loop = asyncio.get_running_loop()

    def from_outside(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(requests.add)

    try:
        loop.add_signal_handler(number, requests.add)
    except NotImplementedError:  # Windows
        signal.signal(number, from_outside)


async def finish_answers(running: RunningAnswers, requests: StopRequests) -> None:
    """Return once the running answers have finished, or may go on no longer; no new ones are begun meanwhile."""
    running.close()
    if not running:
        log.info("Stopping.")
        return
    answers = "1 answer" if len(running) == 1 else f"{len(running)} answers"
    log.info("Stopping: %s may go on for %.0f s. Ask once more to end now.", answers, FINISHING_SECONDS)
    await _finished(running, requests)


async def _finished(running: RunningAnswers, requests: StopRequests) -> None:
    waiting = [asyncio.create_task(running.finished()), asyncio.create_task(requests.pressed.wait())]
    try:
        await asyncio.wait(waiting, timeout=FINISHING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    if running:
        log.info("The answers that are not finished are ended; what was said is stored.")


def bound_the_stop(seconds: float = LONGEST_STOP_SECONDS) -> None:
    """End the process after so many seconds, whatever holds it up: threads cannot be stopped from outside."""
    timer = threading.Timer(seconds, _give_up)
    timer.daemon = True
    timer.start()


def _give_up() -> None:
    log.error("The stop took longer than %.0f s; it ends here, with something still running.", LONGEST_STOP_SECONDS)
    os._exit(1)


@web.middleware
async def refuse_while_stopping(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse new requests, but for `/health`, from the moment the server is asked to stop."""
    if request.path != HEALTH:
        request.app[RUNNING].check_open()
    return await handler(request)
