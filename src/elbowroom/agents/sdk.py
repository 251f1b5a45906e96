"""Loads the OpenAI Agents SDK with its tracing off, which would otherwise upload prompts where a key is set."""

import asyncio
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from elbowroom.caches import importing

TRACING_SWITCH: Final = "OPENAI_AGENTS_DISABLE_TRACING"
_LOADING = threading.Lock()
"""Two threads that import the SDK at once can see halves of its modules, which refer to each other."""


class SdkLoader:
    """Loads the SDK once, in a thread, when a client first lists or asks agents; tried again after a failure.

    It takes 60 MiB, which a server that answers for raw models only does without.
    """

    def __init__(self) -> None:
        self._loading: asyncio.Task[Any] | None = None

    def begin(self, load: Callable[[], Any]) -> "asyncio.Task[Any]":
        """Begin to load the SDK and then to `load` what needs it, unless that is done or under way.

        Returns the task, which results in what `load` returns.
        """
        if self._loading is None or (self._loading.done() and self._loading.exception()):
            self._loading = asyncio.create_task(asyncio.to_thread(_loaded, load))
        return self._loading


def _loaded(load: Callable[[], Any]) -> Any:
    load_sdk()
    return load()


@cache
def load_sdk() -> None:
    """Import the SDK, which takes a thread about a second. Nothing is uploaded, now or later.

    Tracing is off in the environment before the import and in the SDK's own switch, and no processor is left.
    """
    with _LOADING, importing():
        os.environ[TRACING_SWITCH] = "1"
        import agents  # importing it is what this function is for

        agents.set_tracing_disabled(True)
        agents.set_trace_processors([])
