"""The third check: how full the window is while an answer streams, and where the answer may be stopped."""

from typing import Final

from elbowroom.agents.admission import Ticket
from elbowroom.context.manager import AgentContextManager, StreamVerdict
from elbowroom.context.seam import StopFinder
from elbowroom.tokens.stream_count import StreamCounter

GROWS_BY: Final = 16
"""An answer that is longer than its reserve takes one sixteenth of the window at a time."""
EARLY: Final = 2
"""It asks for that when one in so many parts of what it takes at a time is left,"""
URGENT: Final = 4
"""and where it was refused, again when one in so many is: then it has to stop."""


class StreamWatch:
    """Follows one answer as it comes. `said` is what of it the client has had from earlier requests.

    Everything that the model generates is counted: visible text, thoughts and calls. Far from the edge a bound in
    bytes is enough, also for what the request holds of the window by its `ticket`; the tokenizer is asked only where
    that could be at 90 % of the window, and where others need the room. An answer that others leave no room for
    `lacks_room`: it is stopped.
    """

    def __init__(
        self, manager: AgentContextManager, counter: StreamCounter, said: str, ticket: Ticket | None = None
    ) -> None:
        self.is_stopped = False
        self.lacks_room = False
        self._has_ended = False
        self._manager = manager
        self._counter = counter
        self._ticket = ticket
        self._grows_by = max(1, manager.budget.window // GROWS_BY)
        self._bytes = 0
        self._counted = self._counted_bytes = 0
        self._harmless = self._least_left(0)
        if ticket is not None:
            ticket.settled = self._needed
        self._uncounted: list[str] = []
        self._text = [said]
        self._finder: StopFinder | None = None

    @property
    def generated(self) -> int:
        """Return how many tokens have come. Nothing is counted before somebody wants to know, and nothing twice."""
        if self._uncounted:
            for text in self._uncounted:
                self._counter.feed(text)
            self._uncounted.clear()
            self._counted, self._counted_bytes = self._counter.value, self._bytes
        return self._counted

    def end(self) -> None:
        """Take note that the model has ended by itself: there is nothing left to be stopped."""
        self._has_ended = True

    def count(self, text: str) -> None:
        """Take note of what the model has generated, whatever becomes of it."""
        self._uncounted.append(text)
        self._bytes += size_in_bytes(text)

    def keep_text(self, text: str) -> str:
        """Return how much of the next visible piece belongs to the answer: all of it, or less where it stops."""
        verdict = self._verdict()
        if verdict == "go on" and self._finder is None:
            self._text.append(text)
            return text
        if self._finder is None:
            self._finder = StopFinder("".join(self._text))
        place = self._finder.feed(text)
        if verdict == "go on" or (verdict == "stop at a good place" and place is None):
            return text
        self.is_stopped = True
        return text if place is None else text[:place]

    def pass_thought(self, text: str) -> None:
        """Look at a piece of the model's thinking, which may be stopped behind any line."""
        verdict = self._verdict()
        self.is_stopped = verdict == "stop now" or (verdict == "stop at a good place" and "\n" in text)

    def pass_call(self) -> None:
        """Look at a piece of a tool call: half a call is of no use, so it is stopped only where it must be."""
        self.is_stopped = self._verdict() == "stop now"

    def _verdict(self) -> StreamVerdict:
        if self._has_ended or self._bytes < self._harmless or self._fits_by_bytes():
            return "go on"
        generated, self.lacks_room = self.generated, False
        verdict = self._manager.while_streaming(generated)
        if verdict == "go on":
            verdict = self._beside_others(self._manager.prompt + generated)
        if verdict == "go on":
            self._harmless = self._bytes + self._least_left(generated)
        return verdict

    def _fits_by_bytes(self) -> bool:
        """Tell whether the answer fits even if each byte since the last count is a token; it holds as much then."""
        most = self._counted + self._bytes - self._counted_bytes
        filled = self._manager.prompt + most
        if self._ticket is None or filled >= self._manager.budget.stop_at:
            return False
        if not self._ticket.grow(min(filled + self._grows_by, self._manager.budget.window), insists=False):
            return False
        self.lacks_room = False
        self._harmless = self._bytes + self._least_left(most)
        return True

    def _needed(self) -> int:
        """Return how many tokens of the window the request needs for what has come and what comes next."""
        return self._manager.prompt + self.generated + self._grows_by

    def _beside_others(self, filled: int) -> StreamVerdict:
        """Hold more of the window where the answer needs it soon; without room for that it has to stop."""
        wanted = min(filled + self._grows_by, self._manager.budget.window)
        self.lacks_room = self._ticket is not None and not self._ticket.grow(wanted)
        if self._ticket is None or not self.lacks_room:
            return "go on"
        left = self._ticket.tokens - filled
        if left > self._grows_by // URGENT:
            return "go on"  # work in the background leaves as soon as it is asked to
        return "stop at a good place" if left > 0 else "stop now"

    def _least_left(self, generated: int) -> int:
        """Return how many tokens can come before there is something to decide; each has at least a byte.

        Who has just been refused more of the window asks again when that has become urgent, not at each token.
        """
        edge = self._manager.budget.stop_at
        if self._ticket is not None:
            spare = self._grows_by // (URGENT if self.lacks_room else EARLY)
            edge = min(edge, self._ticket.tokens - spare)
        return edge - self._manager.prompt - generated


def size_in_bytes(text: str) -> int:
    """Return how many bytes a text has, lone halves of characters in it or not."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
