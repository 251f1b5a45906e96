"""How fast a model reads a prompt, learned from how long its first tokens took; tokens a second.

A prompt of which the engine has the beginning in its cache seems to be read faster than it is, and a short one slower.
Too high a rate lets a request in beside a prompt that is still being read, which can end every request in flight;
too low a rate only lets it wait. So short prompts are left out, of the rest a low quantile counts, and no model is
taken to be faster than FASTEST: most conversations go on from what is cached, and there may be no other prompt to learn
from.
"""

from collections import deque
from typing import Final

DEFAULT_RATE: Final = 200.0
"""Assumed while nothing is known: what a small model does on the graphics of a slow laptop. Better ones are several
times faster: there a request waits some seconds too long, once, as the first answer corrects it. A processor alone may
be slower, and is found out by a prompt that takes longer than this says."""
FASTEST: Final = 2000.0  # a window of 8192 tokens is held for four seconds at least
LEAST_PROMPT: Final = 256  # a shorter prompt tells how long a request takes to begin
SAMPLES: Final = 32
QUANTILE: Final = 10  # one prompt in ten may be slower; of ten or fewer the slowest counts
LONGEST: Final = 300.0  # seconds
STILL_TO_COME: Final = 1.25  # of the time that has passed


class PrefillRate:
    """What is known about one model on one machine."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=SAMPLES)

    @property
    def tokens_per_second(self) -> float:
        """Return the rate that may be relied on."""
        rates = sorted(self._rates)
        return rates[(len(rates) - 1) // QUANTILE] if rates else DEFAULT_RATE

    def learn(self, prompt: int, seconds: float) -> None:
        """Take note that a prompt of so many tokens was read in so many seconds."""
        if prompt >= LEAST_PROMPT and seconds > 0:
            self._rates.append(min(prompt / seconds, FASTEST))

    def give_up(self, prompt: int, seconds: float) -> float:
        """Return how long the model goes on reading a prompt on which nobody waits any more after so many seconds.

        One that should be at its end and is not shows that the model is slower than it was taken for: it is expected
        to take a quarter longer still. Nothing is expected to be read for more than five minutes.
        """
        expected = prompt / self.tokens_per_second
        if seconds > expected:
            self.learn(prompt, seconds)
        return max(0.0, min(LONGEST, max(expected, seconds * STILL_TO_COME)) - seconds)
