"""Runs work on files in a thread that nobody has to wait for: a disk that hangs must not keep the doctor."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


async def in_thread(work: Callable[[], Value]) -> Value:
    """Return what the work returns; cancelled, it goes on by itself and ends with the program at the latest."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Value] = loop.create_future()

    def settle(value: Value | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]  # it is what the work has returned

    def run() -> None:
        value, failure = None, None
        try:
            value = work()
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            failure = error
        try:
            loop.call_soon_threadsafe(settle, value, failure)
        except RuntimeError:  # the program has ended meanwhile
            return

    threading.Thread(target=run, daemon=True, name="doctor").start()
    return await done
