"""What a pruning agent's stream comes to: an answer to be read, or the reason why it is none."""

from collections.abc import Callable, Iterable
from typing import Any

from elbowroom.context.answer_text import spoken
from elbowroom.context.ladder import PrunerFailed
from elbowroom.context.loose_json import find_values
from elbowroom.context.prune_answer import CALLED, CUT_OFF, EMPTY, ONLY_THOUGHT, Unusable, read_prune_answer
from elbowroom.providers.events import Finished, ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta, UsageReport


class PruneReply:
    """Gathers one stream; `limit` is how many tokens of it are read, thinking included, whatever was promised."""

    def __init__(self, size_of: Callable[[str], int], limit: int) -> None:
        self.usage: dict[str, Any] | None = None
        self._size_of = size_of
        self._limit = limit
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._finish = ""
        self._has_called = False
        self._is_endless = False
        self._bytes = 0
        self._counted_at = limit

    def take(self, events: Iterable[StreamEvent]) -> bool:
        """Take what has arrived; False where no more of it is wanted."""
        for event in events:
            match event:
                case TextDelta():
                    self._text.append(event.text)
                    self._bytes += len(event.text.encode("utf-8", "replace"))
                case ReasoningDelta():
                    self._thoughts.append(event.text)
                    self._bytes += len(event.text.encode("utf-8", "replace"))
                case ToolCallDelta():
                    self._has_called = True
                case Finished():
                    self._finish = event.reason
                case UsageReport():
                    self.usage = event.usage
        if self._bytes > self._counted_at:
            self._is_endless = self._is_over_limit()
        return not (self._has_called or self._is_endless)

    @property
    def tokens(self) -> int:
        """Return how many tokens have come, thinking included."""
        return self._size_of("".join(self._thoughts)) + self._size_of("".join(self._text))

    def judged(self) -> str:
        """Return the answer. Raises PrunerFailed where there is none."""
        text, thoughts = "".join(self._text), "".join(self._thoughts)
        is_cut = self._is_endless or self._finish == "length"
        said = text if text.strip() or self._has_called else thoughts
        if is_usable(said) and not (is_cut and is_broken_off(said)):
            return said
        if self._has_called:
            raise PrunerFailed(CALLED.reason)
        if self._is_endless:
            raise PrunerFailed("The answer did not end where it had to. Write less.")
        if not text.strip():
            raise PrunerFailed((ONLY_THOUGHT if thoughts.strip() else EMPTY).reason)
        if is_cut:
            raise PrunerFailed(CUT_OFF.reason)
        return text  # it is for whoever reads it to say what is wrong with it

    def _is_over_limit(self) -> bool:
        """Count; a token has at least one byte, so that it need not be done again for some time."""
        tokens = self.tokens
        self._counted_at = self._bytes + max(1, self._limit - tokens)
        return tokens > self._limit


def is_usable(text: str) -> bool:
    """Tell whether a plan or a rewritten conversation can be read from a text."""
    return bool(text.strip()) and not isinstance(read_prune_answer(text), Unusable)


def is_broken_off(text: str) -> bool:
    """Tell whether the end of a text breaks off the JSON in it."""
    return any(found.is_cut for found in find_values(spoken(text)))
