"""Closes an upstream that has begun to answer and then falls silent; costs next to nothing for each piece it hears."""

import asyncio

import aiohttp


class SilenceWatch:
    """Watches one response from the first `heard` on. Time counts only while somebody reads.

    A timeout around each read would cost a timer for every token; this has one timer, which looks again later.
    """

    def __init__(self, response: aiohttp.ClientResponse, seconds: float) -> None:
        self._response = response
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_reading = False
        self.has_expired = False

    def heard(self) -> None:
        """Note that something has come."""
        self._heard_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if not self.is_reading:  # the client is slow, not the upstream
            self._heard_at = self._loop.time()
        left = self._heard_at + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self.has_expired = True
            self._response.close()
