"""Which of several machines a prompt goes to: a pure function of what is known of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import Final

from elbowroom.agents.admission.pool import DEFAULT_RATE

LARGEST_SHARE: Final = 0.8
"""The share of a window up to which a prompt is taken to need no compaction; its size is only estimated."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A machine that can be asked, as far as the choice needs to know it; sizes in tokens.

    `window` and `slots`, how many requests it works on at once, are None where nobody tells them. `claimed` tokens of
    the window are held or waited for by so many `requests`.
    `cached` are those of the conversation's last prompt that its engine should still have; `was_last` says that this
    prompt went to it, whatever the engine has forgotten since. It reads `rate` tokens a second, None where that is not
    known, and has read so many `prompts` before.
    """

    id: str
    window: int | None
    slots: int | None = None
    is_loaded: bool = True
    claimed: int = 0
    requests: int = 0
    cached: int = 0
    was_last: bool = False
    rate: float | None = None
    prompts: int = 0

    def fits(self, tokens: int) -> bool:
        """Tell whether a prompt needs no compaction in its window."""
        return self.window is None or tokens <= LARGEST_SHARE * self.window

    def has_room(self, tokens: int) -> bool:
        """Tell whether a prompt can be sent now; alone it always can."""
        if self.window is None or not self.requests:
            return True
        return self.claimed + tokens <= self.window and (self.slots is None or self.requests < self.slots)

    def to_read(self, tokens: int) -> int:
        """Return how many tokens of a prompt it would have to read."""
        return max(0, tokens - self.cached)


def chosen(candidates: Sequence[Candidate], tokens: int, waited: float = 0.0) -> Candidate:
    """Return where a prompt of about so many tokens goes, which has waited so many seconds for its own machine.

    Its own machine is the one whose engine has most of it in its cache. It goes elsewhere when that has been full for
    longer than another one with room would take to read it; or where the window is too small for it, and another one
    is not. A machine that would have to load the model first is taken only where none has loaded it.
    """
    able = _large_enough([one for one in candidates if one.is_loaded] or candidates, tokens)
    free = [one for one in able if one.has_room(tokens)]
    own = max(able, key=lambda one: one.cached)
    usual = max((one.rate for one in able if one.rate is not None), default=DEFAULT_RATE)
    if own.cached and (own in free or waited < min((_seconds(one, tokens, usual) for one in free), default=inf)):
        return own
    if free:
        return min(free, key=lambda one: _rank(one, tokens, usual))
    return own if own.cached else min(able, key=lambda one: one.claimed / max(1, one.window or 1))


def _large_enough(candidates: Sequence[Candidate], tokens: int) -> Sequence[Candidate]:
    """Return those in which the prompt fits, else those with the largest window."""
    largest = max((one.window or 0 for one in candidates), default=0)
    return [one for one in candidates if one.fits(tokens)] or [one for one in candidates if one.window == largest]


def _seconds(candidate: Candidate, tokens: int, usual: float) -> float:
    return candidate.to_read(tokens) / (candidate.rate or usual)


def _rank(candidate: Candidate, tokens: int, usual: float) -> tuple[int, bool, int]:
    """Return by what a machine with room comes first: soon, where it was before, and then seldom asked.

    Requests side by side share an engine. Times are compared by their powers of two: rates are measured roughly.
    """
    seconds = max(1, candidate.to_read(tokens)) * (1 + candidate.requests) / (candidate.rate or usual)
    return round(log2(seconds)), not candidate.was_last, candidate.prompts
