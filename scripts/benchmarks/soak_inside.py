"""Runs elbowroom and measures from inside: `soak_inside.py FILE serve ...` appends a line of JSON a second to the file.

The longest hold of the event loop is that of one callback, in CPU time of its thread, so that other programs on the
machine do not count. The lag of writing is how long the first change of a batch had waited when its commit was done.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from elbowroom.cli import main
from elbowroom.store.backlog import WaitingChanges
from elbowroom.store.changes import Batch

EVERY: Final = 1.0


class Inside:
    """What was seen since the last line."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.held = 0.0
        self.held_by = ""
        self.turned = 0.0
        self.lags: list[float] = []

    def watch(self) -> None:
        """Measure every callback of the loop and every batch that is written."""
        run, written = getattr(asyncio.Handle, "_run"), WaitingChanges.written  # noqa: B009  # it has no other name

        def measured(handle: asyncio.Handle) -> Any:
            began, wall = time.thread_time(), time.perf_counter()
            done = run(handle)
            held = time.thread_time() - began
            self.turned = max(self.turned, time.perf_counter() - wall)
            if held > self.held:
                self.held, self.held_by = held, named(handle)
            return done

        def noted(waiting: WaitingChanges, batch: Batch) -> None:
            self.loop = self.loop or asyncio.get_running_loop()
            self.lags.append(time.monotonic() - batch.since)
            written(waiting, batch)

        replace(asyncio.Handle, "_run", measured)
        replace(WaitingChanges, "written", noted)

    def line(self) -> str:
        """Return what was seen as JSON, and begin anew."""
        lags, self.lags = self.lags, []
        seen = {
            "at": time.time(),
            "hold": self.held,
            "by": self.held_by,
            "wall": self.turned,
            "lag": max(lags, default=0.0),
            "lags": [round(lag, 4) for lag in lags],
            "tasks": len(asyncio.all_tasks(self.loop)) if self.loop else 0,
        }
        self.held, self.held_by, self.turned = 0.0, "", 0.0
        return json.dumps(seen)


def replace(owner: type[Any], name: str, function: Callable[..., Any]) -> None:
    """Put a function in the place of a method."""
    setattr(owner, name, function)


def named(handle: asyncio.Handle) -> str:
    """Return what a callback was: for a step of a task, the coroutine."""
    callback: Any = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return str(getattr(task.get_coro(), "__qualname__", task.get_name()))
    return str(getattr(callback, "__qualname__", callback))


def write(inside: Inside, path: Path) -> None:
    """Append a line every second for as long as the process lives."""
    with path.open("a", encoding="utf-8") as file:
        while True:
            time.sleep(EVERY)
            file.write(inside.line() + "\n")
            file.flush()


if __name__ == "__main__":
    own = Inside()
    own.watch()
    threading.Thread(target=write, args=(own, Path(sys.argv[1])), daemon=True).start()
    sys.exit(main(sys.argv[2:]))
