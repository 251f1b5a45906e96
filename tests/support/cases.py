"""Many cases of one property in one test, which costs less than a test for each."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Test = Callable[..., Any]


@contextmanager
def case(*names: object) -> Iterator[None]:
    """Name the case in whatever fails inside."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(repr, names))}")
        raise


def cases(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call the decorated test for each case, as `pytest.mark.parametrize` would; a failure tells the case.

    `tmp_path` is a new folder for each case; other fixtures are shared.
    """
    keys = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    tables = [dict(zip(keys, value if len(keys) > 1 else (value,), strict=True)) for value in values]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for number, given in enumerate(tables):
                if folder := fixtures.get("tmp_path"):
                    (folder / str(number)).mkdir()
                    given = {**given, "tmp_path": folder / str(number)}
                with case(given):
                    test(**{**fixtures, **given})

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # pytest asks for it
        return run

    return decorate
