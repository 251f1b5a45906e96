"""A process that is killed while it writes, and two processes on one file."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from ledger_files import keys_in, lasting_rows, sql_rows
from ledger_samples import compaction, conversation, spoken

WRITER = """
import asyncio, sys
from pathlib import Path
from ledger_files import lasting_rows
from ledger_samples import compaction, conversation

async def main(path, name, count):
    rows = lasting_rows(path)
    for number in range(count):
        entry, archive = compaction(conversation(20, f"{name}, {number}"))
        await rows.save(entry, archive)
        print(number, entry.key, flush=True)
    await rows.aclose()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
"""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    """Start a process that saves so many entries and prints each key once it is acknowledged."""
    support = str(Path(__file__).parents[2] / "support")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)])}
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def keys_until_killed(writer: subprocess.Popen[str], saves: int) -> list[str]:
    """Let a writer save so many entries, kill it in the middle of the next; returns what it had acknowledged."""
    assert writer.stdout is not None
    lines = [writer.stdout.readline() for _ in range(saves)]
    writer.kill()
    lines += writer.stdout.read().splitlines()
    writer.wait()
    writer.stdout.close()
    return [line.split()[1] for line in lines if line.count(" ") == 1 and len(line.split()[1]) == 32]


async def check_everything_is_there(path: Path, keys: Sequence[str]) -> None:
    """Hold that the file is sound and has these entries, each entry with all its messages."""
    assert keys_in(path).issuperset(keys)
    async with sql_rows(path) as rows:
        assert set(keys) <= set(await rows.keys())
        for entry in await rows.find(list(await rows.keys())):
            assert len(await rows.archived(entry.key)) == 40


async def kill_again_and_again(path: Path, rounds: int, seed: int) -> None:
    """Kill one writer after another, each at another place, all on the same file."""
    generator = random.Random(seed)
    acknowledged: list[str] = []
    for number in range(rounds):
        writer = start_writer(path, f"round {number}", 10_000)
        acknowledged += keys_until_killed(writer, generator.randint(1, 30))
        await check_everything_is_there(path, acknowledged)
    assert len(acknowledged) >= rounds
    assert not list(path.parent.glob("*.damaged-*"))


async def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """Killed in the middle of saving, a process leaves a sound file with every save that had returned."""
    await kill_again_and_again(tmp_path / "elbowroom.db", 3, seed=1)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_hundred_killed_processes_lose_nothing_they_acknowledged(tmp_path: Path) -> None:
    """The same, a hundred times on one file."""
    await kill_again_and_again(tmp_path / "elbowroom.db", 100, seed=2)


async def test_two_processes_on_one_file(tmp_path: Path) -> None:
    """Two that write at the same time wait for each other; what both acknowledged is there, and the file is sound."""
    path = tmp_path / "elbowroom.db"
    writers = [start_writer(path, name, 50) for name in ("left", "right")]
    outputs = await asyncio.gather(*(asyncio.to_thread(writer.communicate) for writer in writers))
    assert [writer.returncode for writer in writers] == [0, 0]
    keys = [line.split()[1] for output, _ in outputs for line in output.splitlines()]
    assert len(set(keys)) == 100
    await check_everything_is_there(path, keys)


async def test_a_process_sees_what_another_saved_before_it_started(tmp_path: Path) -> None:
    """A second process on the same file begins with what the first has saved so far."""
    path = tmp_path / "elbowroom.db"
    first = lasting_rows(path)
    entry, archive = compaction(conversation(3))
    await first.save(entry, archive)
    second = lasting_rows(path)
    assert await second.find([entry.key]) == [entry]
    assert await second.archived(entry.key) == spoken(conversation(3))
    await second.aclose()
    await first.aclose()
