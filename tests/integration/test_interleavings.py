"""Whatever runs next at each step: no word is lost, nobody is answered twice, and nothing is left held, open or undone.

Each schedule has a number, by which a failure says how to play it again: `woven_chats.play(seed, folder)`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from woven_chats import play, played
from woven_loop import WovenLoop, run_woven

from elbowroom.agents.admission import Admission
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.server.encode import FrameEncoder
from elbowroom.store.backlog import WaitingChanges
from elbowroom.store.changes import Batch
from elbowroom.store.write_behind import WriteBehindStore

QUICK = (range(8), (403, 1291), (1, 1815))
"""Wrong once were 403 and 1291, where a stop came while the first word waited for the store, and 1815 after another
schedule, where the store was closed while an opening was about to fail."""
LONG = [range(8, 100), *(range(start, start + 100) for start in range(100, 2000, 100))]
ENOUGH = range(150)
"""Among so many schedules each mistake that is made on purpose is found."""


def wrong_with(seeds: Iterable[int], folder: Path) -> dict[int, list[str]]:
    """Return what is wrong with each of these schedules, without those that are right."""
    return {seed: wrong for seed in seeds if (wrong := play(seed, folder))}


def first_wrong(folder: Path, likely: int = 0) -> str:
    """Return what is wrong with a schedule that is not right, a likely one first; empty where all are."""
    return next(("; ".join(wrong) for seed in (likely, *ENOUGH) if (wrong := play(seed, folder))), "")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [*QUICK, *(pytest.param(seeds, marks=pytest.mark.long) for seeds in LONG)], ids=str)
def test_two_thousand_schedules(tmp_path: Path, seeds: Sequence[int]) -> None:
    """Two chats, two cancels, a leaver, compactions and a full disk leave everything in order; a few are quick."""
    assert not wrong_with(seeds, tmp_path)


@pytest.mark.slow
def test_a_number_gives_the_same_schedule_again(tmp_path: Path) -> None:
    """A schedule that was found wrong is played again in all its steps, also in which the disk refuses something."""
    scenes = [[played(seed, tmp_path / name)[1] for seed in range(3)] for name in ("one", "other")]
    once, again = ([(scene.loop.steps, scene.loop.time(), scene.disk) for scene in run] for run in scenes)
    assert once == again
    assert any(scene.disk.refused for scene in scenes[0])


def test_a_hang_is_told() -> None:
    """Where all wait for each other nothing else would ever come."""

    async def hangs(loop: WovenLoop) -> None:
        await loop.create_future()

    with pytest.raises(RuntimeError, match="nothing is left that could go on"):
        run_woven(0, hangs)


def test_callbacks_run_in_every_order() -> None:
    """Three tasks that are ready at once run in six orders."""

    async def order(_: WovenLoop) -> str:
        ran: list[str] = []

        async def run(name: str) -> None:
            ran.append(name)

        await asyncio.gather(*(run(name) for name in "abc"))
        return "".join(ran)

    assert len({run_woven(seed, order) for seed in range(50)}) == 6


def test_finds_a_recorder_that_drops_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said before a conversation was found is missed in the file."""
    belongs_to = TurnRecorder.belongs_to

    def forgetful(recorder: TurnRecorder, known: Any, _: Any, release: Any) -> None:
        belongs_to(recorder, known, (), release)

    monkeypatch.setattr(TurnRecorder, "belongs_to", forgetful)
    assert "kept is" in first_wrong(tmp_path)


@pytest.mark.slow
def test_finds_a_ticket_that_is_not_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was cancelled, and keeps its share of the model, is seen by what is held, or by who waits."""
    monkeypatch.setattr(Admission, "_leave", lambda *_: None)
    wrong = first_wrong(tmp_path)
    assert "tokens of the model are held" in wrong or "TimeoutError" in wrong


def test_finds_two_writers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the lock around them two write the same batch, and its words are kept twice."""
    write = WriteBehindStore.write

    def at_once(store: WriteBehindStore, backlog: Any, **more: Any) -> Any:
        store._backlogs[backlog] = asyncio.Lock()
        return write(store, backlog, **more)

    monkeypatch.setattr(WriteBehindStore, "write", at_once)
    monkeypatch.setattr(WaitingChanges, "written", written_by_any)
    assert "kept is" in first_wrong(tmp_path)


def written_by_any(waiting: WaitingChanges, batch: Batch) -> None:
    """Let a batch go, whoever was first to write it."""
    waiting._batches = [other for other in waiting._batches if other is not batch]


@pytest.mark.slow
def test_finds_a_notice_that_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction that a person stops would be shown for ever."""
    monkeypatch.setattr(FrameEncoder, "_closing", lambda _: "")
    assert "a notice is open" in first_wrong(tmp_path, likely=78)
