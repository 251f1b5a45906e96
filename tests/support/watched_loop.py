"""elbowroom on an event loop of its own thread, of which each callback's CPU time is measured."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serve


class WatchedLoop:
    """An event loop on a thread of its own; `longest` is the most CPU time that one of its callbacks has taken.

    CPU time of the thread alone, so that neither a busy machine nor other threads count.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest = 0.0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="watched")
        run = asyncio.events.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            if threading.current_thread() is not self.thread:
                run(handle)
                return
            began = time.thread_time()
            run(handle)
            self.longest = max(self.longest, time.thread_time() - began)

        monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
        self.thread.start()

    async def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop and return its result; the caller's own loop goes on."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """Stop the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@asynccontextmanager
async def served_apart(
    folder: Path, settings: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Served, WatchedLoop]]:
    """Run elbowroom on a watched loop; the client and the upstream of a test stay on the loop of the test."""
    watched = WatchedLoop(monkeypatch)
    serving = serve(folder, settings)
    try:
        yield await watched.call(serving.__aenter__()), watched
    finally:
        await watched.call(serving.__aexit__(None, None, None))
        await watched.call(watched.loop.shutdown_default_executor())
        watched.end()
