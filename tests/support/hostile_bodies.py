"""Sends each hostile body to a server of its own, and prints how long it holds the loop and how much memory it takes.

The hold is that of one callback in CPU time of the loop's thread, measured inside; memory is the highest resident size
above that before, as Linux notes it until some seconds after the answer, so that what the body itself takes is in it.
"""

import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

REPOSITORY: Final = Path(__file__).parents[2]
sys.path += [str(REPOSITORY / "tests" / "support"), str(REPOSITORY / "scripts" / "benchmarks")]

from large_requests import BODIES, PATHS, request_of  # noqa: E402
from processes import free_port  # noqa: E402
from serving import settings_for  # noqa: E402

from elbowroom.demo import SimulatedLMStudio, SimulatedModel  # noqa: E402

WINDOW: Final = 100_000_000
LONGEST_HOLD: Final = 0.05
MOST_TIMES: Final = 6.0
SMALLEST: Final = 16_000_000
"""Bytes that a smaller body counts as: Python takes more than six times the text of each of many short values."""
SETTLED_SECONDS: Final = 2.5
"""The server writes a line about its holds each second."""
HIGHEST_IS_NOW: Final = "5"
SMALL: Final = b'{"model": "lmstudio/big", "messages": [{"role": "user", "content": "hi"}]}'
MEGABYTE: Final = 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """What a body did: its size and memory in bytes, the longest hold in seconds, its coroutine, and the status."""

    name: str
    size: int
    taken: int
    held: float
    held_by: str
    status: int

    @property
    def times(self) -> float:
        """Return how many times its own size it took."""
        return self.taken / self.size

    @property
    def is_missed(self) -> bool:
        """Tell whether it held the loop too long, took too much memory, or was answered by a defect of ours."""
        most = MOST_TIMES * max(self.size, SMALLEST)
        return self.held > LONGEST_HOLD or self.taken > most or self.status == 500


async def measured(folder: Path, name: str, studio: str) -> Measured:
    """Send a body to a server that has answered nothing but a small one before."""
    settings, told = folder / "settings.toml", folder / "held.jsonl"
    port = free_port()
    settings.write_text(settings_for(studio, server=f"port = {port}").replace("port = 0\n", "", 1), encoding="utf-8")
    program = str(REPOSITORY / "scripts" / "benchmarks" / "soak_inside.py")
    environ = {"ELBOWROOM_DATA_DIR": str(folder / "data"), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, program, str(told), "serve", "--config", str(settings)]
    process = await asyncio.create_subprocess_exec(
        *command, env=environ, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}{PATHS['chat']}"
        async with aiohttp.ClientSession() as http:
            await _first_answer(http, url)
            await asyncio.sleep(SETTLED_SECONDS)
            body, lines = request_of("chat", name), len(_lines(told))
            before = _from_now(process.pid)
            async with http.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                await response.read()
            await asyncio.sleep(SETTLED_SECONDS)
            held, by = max(((line["hold"], line["by"]) for line in _lines(told)[lines:]), default=(0.0, "nobody"))
            return Measured(name, len(body), _highest(process.pid) - before, held, by, response.status)
    finally:
        process.terminate()
        await process.wait()


async def _first_answer(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with http.post(url, data=SMALL, headers={"Content-Type": "application/json"}) as response:
                    await response.read()
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)


def _from_now(pid: int) -> int:
    """Make Linux forget what it has noted of a process, and return the resident size now, in bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text(HIGHEST_IS_NOW, encoding="ascii")
    return _highest(pid)


def _highest(pid: int) -> int:
    """Return the highest resident size that a process has had, in bytes."""
    told = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return int(told.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1024


def _lines(told: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()] if told.exists() else []


async def main(given: list[str]) -> int:
    """Write the table; return 1 where it is to be checked and a body is above what is allowed."""
    loaded = SimulatedModel("big", loaded_context_length=WINDOW, max_context_length=WINDOW)
    _say("| body | size (MB) | status | longest hold (ms) | by | memory (MB) | times its size | |")
    _say("| --- | --: | --: | --: | --- | --: | --: | --- |")
    missed = 0
    chosen = [name for name in BODIES if name in given] or list(BODIES)
    for name in chosen:
        async with SimulatedLMStudio([loaded], count_tokens=lambda messages, tools: 100) as studio:
            with tempfile.TemporaryDirectory(prefix="elbowroom-hostile-") as folder:
                one = await measured(Path(folder), name, studio.base_url)
        missed += one.is_missed
        _say(
            f"| {name} | {one.size / MEGABYTE:.1f} | {one.status} | {one.held * 1000:.0f} | `{one.held_by}` | "
            f"{one.taken / MEGABYTE:.0f} | {one.times:.1f} | {'MISSED' if one.is_missed else 'pass'} |"
        )
    least = f"{SMALLEST / MEGABYTE:g} MB"
    kept = f"at most {LONGEST_HOLD * 1000:.0f} ms and {MOST_TIMES:g} times the body, or what is allowed of {least}"
    _say(f"\n{len(chosen) - missed} of {len(chosen)} {kept}.")
    return int("--check" in given and missed > 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
