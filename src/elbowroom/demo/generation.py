"""One request at work inside a loaded model."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class GenerationError(Exception):
    """The engine gave up in the middle of an answer; the message is what LM Studio says then."""


class Generation:
    """What a request occupies in the model: its prompt and what has been generated so far, in tokens.

    Every pause goes through it, so that an unload or a full pool ends the request at once.
    """

    def __init__(self, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self._failure: str | None = None
        self._failed = asyncio.Event()

    @property
    def total_tokens(self) -> int:
        """Its share of the window."""
        return self.prompt_tokens + self.completion_tokens

    def fail(self, message: str) -> None:
        """End it with this message, at its next or running pause."""
        self._failure = message
        self._failed.set()

    def check(self) -> None:
        """Raise GenerationError if it has been ended."""
        if self._failure is not None:
            raise GenerationError(self._failure)

    async def pause(self, seconds: float) -> None:
        """Let that much time pass, or be ended earlier."""
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._failed.wait()
            except TimeoutError:
                pass
        else:
            await asyncio.sleep(0)
        self.check()

    async def until(self, wait: Callable[[], Awaitable[Any]]) -> None:
        """Wait for something, or be ended earlier."""
        waits = [asyncio.ensure_future(wait()), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in waits:
                waiting.cancel()
        self.check()
