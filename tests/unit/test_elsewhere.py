"""Folders of people and other programs: whatever hangs there takes nothing from anybody else."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elbowroom.elsewhere import Elsewhere, NotAnswering, read_plain

SHARE = "/mnt/share"


@contextmanager
def hanging() -> Iterator[Callable[[], str]]:
    """Give work that hangs until the end of the block."""
    end = threading.Event()

    def hang() -> str:
        end.wait(30)
        return "late"

    try:
        yield hang
    finally:
        end.set()


async def test_a_place_that_hangs_takes_nothing_from_others() -> None:
    """However often it is looked at, it holds a few threads; other places and the default pool are as ever."""
    elsewhere, before = Elsewhere(most_at_a_place=2, most=8), threading.active_count()
    with hanging() as hang:
        looks = [elsewhere.look(SHARE, hang, 0.1) for _ in range(20)]
        told = await asyncio.gather(*looks, return_exceptions=True)
        assert [type(each) for each in told] == [NotAnswering] * 20
        assert threading.active_count() <= before + 2
        assert await elsewhere.look("/home/me/Notes", lambda: "there", 5) == "there"
        assert await asyncio.to_thread(lambda: "there") == "there"
    assert await elsewhere.look(SHARE, lambda: "back", 5) == "back"


async def test_many_places_that_hang_hold_few_threads() -> None:
    """All places together have a bound too; once one answers again, others have their turn."""
    elsewhere, before = Elsewhere(most_at_a_place=2, most=3), threading.active_count()
    with hanging() as hang:
        looks = [elsewhere.look(f"{SHARE}/{number}", hang, 0.1) for number in range(10)]
        assert all(isinstance(each, NotAnswering) for each in await asyncio.gather(*looks, return_exceptions=True))
        assert threading.active_count() <= before + 3
    assert await elsewhere.look(SHARE, lambda: "back", 5) == "back"


async def test_what_the_work_raises_is_raised() -> None:
    """Errors are the work's own, a timeout of its own as well; who asks is told what does not answer."""
    elsewhere = Elsewhere()

    def fails() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await elsewhere.look(SHARE, fails, 5)
    with hanging() as hang, pytest.raises(NotAnswering, match=f"^{SHARE} does not answer"):
        await elsewhere.look(SHARE, hang, 0.05)


async def test_what_was_begun_is_finished() -> None:
    """Work whose caller is cancelled goes on in its thread, so that no change stays half done."""
    done = threading.Event()

    def work() -> None:
        done.wait(0.05)
        done.set()

    looking = asyncio.create_task(Elsewhere().look(SHARE, work, 5))
    await asyncio.sleep(0)
    looking.cancel()
    await asyncio.wait([looking])
    assert await asyncio.to_thread(done.wait, 5)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_nothing_waits_for_a_pipe(tmp_path: Path) -> None:
    """What is no plain file is an error at once, and what is too large is not read."""
    pipe, folder, file = tmp_path / "pipe", tmp_path / "folder", tmp_path / "file"
    os.mkfifo(pipe)
    folder.mkdir()
    file.write_bytes(b"12345")
    for path in (pipe, folder, Path("/dev/null")):
        with pytest.raises(OSError, match=r"no plain file|directory"):
            read_plain(path)
    assert read_plain(file, 5) == b"12345"
    with pytest.raises(ValueError, match="too large"):
        read_plain(file, 4)
