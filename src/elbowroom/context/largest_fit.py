"""Finds how much of something fits, where only trying tells."""

from collections.abc import Callable
from typing import Final

NEAR_ENOUGH: Final = 16  # one part in so many may stay unused


def largest_fit(most: int, share_at: Callable[[int], float], least_step: int = 1) -> int:
    """Return about the largest number up to `most` whose share is at most 1; 0, which is never tried, where none is.

    A share is how far what is tried uses up its limit. It has to grow with the number, and need not do so evenly.
    """
    fits, too_much, guess = 0, most + 1, most
    while too_much - fits > 1:
        share = share_at(guess)
        if share <= 1:
            fits = guess
        else:
            too_much = guess
        if fits and too_much - fits <= max(least_step, too_much // NEAR_ENOUGH):
            break
        guess = _between(fits, too_much, int(guess / max(share, 0.01) * 0.97))
    return fits


def _between(fits: int, too_much: int, guess: int) -> int:
    """Return the next number to try: the guess where it narrows the range, else its middle."""
    margin = (too_much - fits) // 8
    return guess if fits + margin < guess < too_much - margin else (fits + too_much) // 2
