"""A process that is killed while it keeps outputs of tools."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numbered_outputs
import pytest
from kept_outputs import ME, text_of
from ledger_files import query
from numbered_outputs import numbered


def kept_until_killed(path: Path, name: str, keeps: int) -> list[tuple[int, str]]:
    """Let a process keep so many outputs, kill it in the middle of the next; returns what it had acknowledged."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(numbered_outputs.__file__), str(path), name]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(keeps)]
        writer.kill()
        lines += writer.stdout.read().splitlines()
    return [(int(line.split()[0]), line.split()[1]) for line in lines if line.rstrip().endswith(" kept")]


async def check_outputs(path: Path, name: str, kept: list[tuple[int, str]]) -> None:
    """Hold that the file is sound, all that was acknowledged is whole, and no part of anything else is there."""
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    chunks = query(path, "SELECT DISTINCT id FROM tool_output_chunks ORDER BY id")
    assert chunks == query(path, "SELECT id FROM tool_outputs ORDER BY id")
    async with file_store(path) as store:
        for number, ref_id in kept:
            assert await text_of(store.tool_outputs, ref_id) == numbered(name, number)
            assert await store.tool_outputs.find(ME, ref_id) == await store.tool_outputs.keep(
                ME, "read", numbered(name, number)
            )


async def kill_again_and_again(path: Path, rounds: int, seed: int) -> None:
    """Kill one process after another, each at another place, all on the same file."""
    generator, total = random.Random(seed), 0
    for number in range(rounds):
        kept = kept_until_killed(path, f"round {number}", generator.randint(1, 8))
        await check_outputs(path, f"round {number}", kept)
        total += len(kept)
    assert total >= rounds
    assert not list(path.parent.glob("*.damaged-*"))


async def test_a_killed_process_loses_no_output_it_acknowledged(tmp_path: Path) -> None:
    """Killed in the middle of keeping, a process leaves every output whole whose keeping had returned."""
    await kill_again_and_again(tmp_path / "elbowroom.db", 2, seed=1)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_a_hundred_killed_processes_lose_no_output_they_acknowledged(tmp_path: Path) -> None:
    """The same, a hundred times on one file."""
    await kill_again_and_again(tmp_path / "elbowroom.db", 100, seed=2)
