"""Keeps outputs, all different, until it is killed; run as a program with a store's file and a name."""

import asyncio
import random
import sys
from pathlib import Path

from kept_outputs import ME
from ledger_files import file_store


def numbered(name: str, number: int) -> str:
    """Return one of many texts; most are short, some take dozens of chunks."""
    generator = random.Random(f"{name} {number}")
    return f"{name} {number}\n" + generator.randbytes(generator.choice([10, 10_000, 600_000])).hex()


async def keep_for_ever(path: Path, name: str) -> None:
    """Keep one text after another, and print its number and id once it is acknowledged."""
    async with file_store(path) as store:
        for number in range(1_000_000):
            ref = await store.tool_outputs.keep(ME, "read", numbered(name, number))
            sys.stdout.write(f"{number} {ref.id} kept\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(keep_for_ever(Path(sys.argv[1]), sys.argv[2]))
