"""How much the tools that read outputs may return within one step of a model."""

import asyncio
from collections.abc import Callable


class Quota:
    """Tokens that are shared by all calls of one step, also by those that run at the same time.

    `size_of` counts the tokens of a text; it is called in a thread.
    """

    def __init__(self, tokens: int, size_of: Callable[[str], int]) -> None:
        self._granted = self._left = max(0, tokens)
        self._size_of = size_of
        self._turn = asyncio.Lock()

    def begin_step(self, tokens: int) -> None:
        """Grant the calls of the model's next step so many tokens; what was left of the last is gone."""
        self._granted = self._left = max(0, tokens)

    @property
    def left(self) -> int:
        """Return how many tokens this step may still take."""
        return self._left

    async def fill(self, compose: Callable[[int, Callable[[str], int]], str]) -> str:
        """Return what `compose(tokens, size_of)` makes of what is left, and take it off.

        It runs in a thread and returns "" where nothing fits; a sentence that says so is returned then.
        """
        async with self._turn:
            text = await asyncio.to_thread(compose, self._left, self._size_of)
            if text:
                self._left -= await asyncio.to_thread(self._size_of, text)
                return text
        if self._left < self._granted:
            return "[Nothing more fits this step: what was read has used up its room. Make this call again next.]"
        return "[There is no room in the model's window to read outputs. Tell the user that it needs a larger one.]"
