"""Variants of a test of which the quick tests run a few, the long ones all."""

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest


def sample(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Return the values of one parameter, all marked as long but those that the quick tests have."""
    return [pytest.param(value, marks=() if value in quick else pytest.mark.long) for value in values]


def spread(*values: Collection[Any]) -> list[Any]:
    """Return all combinations of values of several parameters, those marked as long that the quick tests can spare.

    Each value of each parameter is in one of the quick ones, and each combination of all but the first parameter.
    """
    first, *others = (range(len(some)) for some in values)
    rest = list(product(*others))
    quick = {(place % len(first), *rest[place % len(rest)]) for place in range(max(len(first), len(rest)))}
    places = product(first, *others)
    found = zip(places, product(*values), strict=True)
    return [pytest.param(*one, marks=[] if place in quick else [pytest.mark.long]) for place, one in found]


def spread_few(few: Collection[Any], more: Iterable[Any], *values: Collection[Any]) -> list[Any]:
    """Return all combinations where the quick tests need a few values of the first parameter alone, spread as above."""
    rest = (pytest.param(*one, marks=pytest.mark.long) for one in product(more, *values))
    return [*spread(few, *values), *rest]
