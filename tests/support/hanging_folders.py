"""A folder that hangs, as one on a network share that is gone: whoever looks at it or into it waits."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

CALLS: Final = ("stat", "lstat", "open", "scandir", "listdir")
LONGEST: Final = 30.0


@contextmanager
def hanging(folder: Path) -> Iterator[set[str]]:
    """Let each look at a folder hang until the end of the block; give the names of the threads that have looked.

    A thread on which a whole program would stand still is refused instead, so that the test goes on.
    """
    end, looked = threading.Event(), set[str]()

    def held(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(path: Any = ".", *given: Any, **named: Any) -> Any:
            if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder):
                looked.add(name := threading.current_thread().name)
                if name not in ("elsewhere", "doctor"):
                    raise AssertionError(f"{path} is looked at in the thread {name}")
                end.wait(LONGEST)
            return call(path, *given, **named)

        return instead

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, held(getattr(os, name)))
        try:
            yield looked
        finally:
            end.set()
