"""Many cases of one property in one test."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*names: object) -> Iterator[None]:
    """Name the case in whatever fails inside."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(repr, names))}")
        raise
