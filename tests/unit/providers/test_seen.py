"""Which models a provider had is known for a day, also to the next process."""

from dataclasses import replace
from pathlib import Path

from elbowroom.providers.base import ModelInfo
from elbowroom.providers.seen import KEPT_SECONDS, WRITTEN_AGAIN_SECONDS, SeenModel, SeenModels

INFO = ModelInfo(id="tiny", provider="lm", name="Tiny", loaded_context=4096)
SEEN = (SeenModel("tiny", "Tiny", "llm", 4096),)


class Clock:
    """A clock that a test sets."""

    now = 1e9

    def __call__(self) -> float:
        return self.now


async def test_a_list_is_known_for_a_day(tmp_path: Path) -> None:
    """It is kept in a file that is written anew only for another list, or after a while; then it is forgotten."""
    path, clock = tmp_path / "data" / "seen.json", Clock()
    seen = SeenModels(path, clock)
    assert await seen.of("lm") == ()
    await seen.note("lm", [INFO])
    written = path.stat().st_mtime_ns
    await seen.note("lm", [INFO])
    assert path.stat().st_mtime_ns == written
    clock.now += WRITTEN_AGAIN_SECONDS + 1
    await seen.note("lm", [INFO])
    assert path.stat().st_mtime_ns > written
    clock.now += KEPT_SECONDS - 1
    assert await SeenModels(path, clock).of("lm") == await seen.of("lm") == SEEN
    clock.now += 2
    assert await SeenModels(path, clock).of("lm") == await seen.of("lm") == ()


async def test_the_last_window_stays_known() -> None:
    """A model that is unloaded keeps the window that it had; loaded anew, it has the new one."""
    seen = SeenModels(None)
    for loaded, known in ((None, None), (4096, 4096), (None, 4096), (8192, 8192), (None, 8192)):
        await seen.note("lm", [replace(INFO, loaded_context=loaded)])
        assert [model.window for model in await seen.of("lm")] == [known]


async def test_a_new_list_takes_the_place_of_the_old(tmp_path: Path) -> None:
    """A model that was deleted is gone as soon as its provider has said so; other providers keep theirs."""
    path = tmp_path / "seen.json"
    await SeenModels(path).note("other", [INFO])
    seen = SeenModels(path)
    await seen.note("lm", [INFO])
    await seen.note("lm", [])
    assert (await SeenModels(path).of("lm"), await SeenModels(path).of("other")) == ((), SEEN)


async def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    """A damaged file, or a folder that cannot be written, costs nothing but the memory of it."""
    path = tmp_path / "seen.json"
    path.write_text("[1]", encoding="utf-8")
    seen = SeenModels(path)
    await seen.note("lm", [INFO])
    assert await seen.of("lm") == await SeenModels(path).of("lm") == SEEN
    blocked = SeenModels(path / "below" / "seen.json")
    await blocked.note("lm", [INFO])
    assert await blocked.of("lm") == SEEN
