"""The third check: how full the window is while an answer streams, and where the answer may be stopped."""

from elbowroom.context.manager import AgentContextManager, StreamVerdict
from elbowroom.context.seam import StopFinder
from elbowroom.tokens.stream_count import StreamCounter


class StreamWatch:
    """Follows one answer as it comes. `said` is what of it the client has had from earlier requests.

    Everything that the model generates is counted: visible text, thoughts and calls. Far from the edge a bound in
    bytes is enough; the tokenizer is asked only where that could be at 90 % of the window.
    """

    def __init__(self, manager: AgentContextManager, counter: StreamCounter, said: str) -> None:
        self.is_stopped = False
        self._has_ended = False
        self._manager = manager
        self._counter = counter
        self._bytes = 0
        self._harmless = manager.budget.stop_at - manager.prompt  # a token has at least a byte
        self._uncounted: list[str] = []
        self._text = [said]
        self._finder: StopFinder | None = None

    @property
    def generated(self) -> int:
        """Return how many tokens have come. Nothing is counted before somebody wants to know."""
        for text in self._uncounted:
            self._counter.feed(text)
        self._uncounted.clear()
        return self._counter.value

    def end(self) -> None:
        """Take note that the model has ended by itself: there is nothing left to be stopped."""
        self._has_ended = True

    def count(self, text: str) -> None:
        """Take note of what the model has generated, whatever becomes of it."""
        self._uncounted.append(text)
        self._bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def keep_text(self, text: str) -> str:
        """Return how much of the next visible piece belongs to the answer: all of it, or less where it stops."""
        if self._bytes < self._harmless:
            self._text.append(text)
            return text
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
        if self._has_ended or self._bytes < self._harmless:
            return "go on"
        return self._manager.while_streaming(self.generated)
