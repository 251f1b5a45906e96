"""Traces a request through a running elbowroom: which files it enters, and how deep the upstream is opened.

As a script it prints both for a streamed chat of a raw model and for an agent that calls one tool; with `--json` so
that a program can read them.
"""

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final
from unittest import mock

from chatting import AGENT, RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, stream_bytes
from own_tools import own_tool
from serving import Served, text_of

import elbowroom
from elbowroom.agents.catalog import Target
from elbowroom.demo import Script, SimulatedLMStudio, ToolCall
from elbowroom.store import write_behind

PACKAGE: Final = Path(elbowroom.__file__).parent
OPENS_UPSTREAM: Final = ("providers/", "post")
"""The folder and the name of the function that sends a request to the upstream."""
SETTLING_SECONDS: Final = 0.6
"""How long the store may take to write what was said; its writing belongs to the request."""


@dataclass(slots=True)
class Trace:
    """What one request runs: files and functions of elbowroom, and the frames at each opening of the upstream."""

    files: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    openings: list[list[str]] = field(default_factory=list)

    @property
    def deepest(self) -> list[str]:
        """Return the frames, outermost first, of the opening with the most of them."""
        return max(self.openings, key=len)

    def as_json(self) -> dict[str, Any]:
        """Return what a test compares with its ceilings."""
        return {"files": sorted(self.files), "functions": len(self.functions), "frames": self.deepest}


def own_file(code: CodeType) -> str | None:
    """Return the path of a function's file below `elbowroom`, None for other packages and for the simulator."""
    name = code.co_filename
    if not name.startswith(f"{PACKAGE}/") or name.startswith(f"{PACKAGE}/demo/"):
        return None
    return name.removeprefix(f"{PACKAGE}/")


class Tracer:
    """Records what runs in all threads while it is `recording`; profiles those that begin after its making."""

    def __init__(self) -> None:
        self._trace: Trace | None = None
        self._openings: list[FrameType] = []
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    @contextmanager
    def recording(self) -> Iterator[Trace]:
        """Record what runs in the block."""
        self._trace = trace = Trace()
        try:
            yield trace
        finally:
            self._trace = None

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        trace, code = self._trace, frame.f_code
        if trace is None or event != "call" or (file := own_file(code)) is None:
            return
        trace.files.add(file)
        trace.functions.add(f"{file}:{code.co_qualname}")
        folder, name = OPENS_UPSTREAM
        if code.co_name == name and file.startswith(folder) and frame not in self._openings:
            self._openings.append(frame)  # which is called again each time that it goes on
            trace.openings.append([*waiting_frames(), *running_frames(frame)])


def running_frames(frame: FrameType | None) -> list[str]:
    """Return the frames of elbowroom on the stack, outermost first."""
    frames: list[str] = []
    while frame is not None:
        if (file := own_file(frame.f_code)) is not None and not frame.f_code.co_name.startswith("<"):
            frames.append(f"{file}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return frames[::-1]


def waiting_frames() -> list[str]:
    """Return the frames of the request's handler where another task does its work, and it waits for that."""
    current = asyncio.current_task()
    handlers = (task for task in asyncio.all_tasks() if task is not current)
    chains = [awaiting_frames(task.get_coro()) for task in handlers]
    return next((chain for chain in chains if any("chat_completions" in frame for frame in chain)), [])


def awaiting_frames(waiting: Any) -> list[str]:
    """Return the frames of elbowroom in a chain of coroutines, each of which awaits the next."""
    frames: list[str] = []
    while waiting is not None:
        frame = first_of(waiting, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None and (file := own_file(frame.f_code)) is not None:
            frames.append(f"{file}:{frame.f_code.co_qualname}")
        waiting = first_of(waiting, "cr_await", "gi_yieldfrom", "ag_await")
    return frames


def first_of(value: Any, *names: str) -> Any:
    """Return the first of these attributes that a value has and that is not None."""
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)


@own_tool
async def read_note(path: str) -> str:
    """Read a note."""
    return f"The note {path} says: water the plants."


def toolbox(target: Target) -> Sequence[Any]:
    """Give the agent its one tool."""
    return [read_note] if target.agent else []


async def trace_requests(folder: Path) -> dict[str, Trace]:
    """Trace each request once all that is loaded, opened or counted only once is there."""
    import_module("elbowroom.agents.run")  # which takes three times as long with a tracer
    tracer = Tracer()
    mock.patch.object(write_behind, "LOOK_SECONDS", 3600.0).start()  # at its own file, whether requests come or not
    store = import_module("elbowroom.store.sql.store")  # what it does in the background is of no request either
    mock.patch.multiple(store, CALM_SECONDS=3600.0, AGAIN_SECONDS=3600.0).start()
    async with elbowroom_with_studio(folder, toolbox=toolbox, agents=AGENT) as (served, studio):
        return {
            "raw": await traced_when_warm(tracer, partial(raw_chat, served, studio)),
            "agent": await traced_when_warm(tracer, partial(agent_with_tool, served, studio)),
        }


async def traced_when_warm(tracer: Tracer, ask: Callable[[str], Awaitable[None]]) -> Trace:
    """Ask with three different texts, and return the trace of the third."""
    for text in ("Hello", "How are you?"):
        await ask(text)
        await asyncio.sleep(SETTLING_SECONDS)
    with tracer.recording() as trace:
        await ask("What is there to do today?")
        await asyncio.sleep(SETTLING_SECONDS)
    return trace


async def raw_chat(served: Served, studio: SimulatedLMStudio, text: str) -> None:
    """Ask a raw model for a streamed answer that needs no compaction."""
    studio.enqueue("One two three.")
    stream = await stream_bytes(served, chat_body(text, model=RAW_MODEL))
    assert text_of(chunks_of(stream)) == "One two three."


async def agent_with_tool(served: Served, studio: SimulatedLMStudio, text: str) -> None:
    """Ask an agent that calls one tool and answers then."""
    studio.enqueue(Script(ToolCall("read_note", {"path": "a.md"})), "Water them.")
    stream = await stream_bytes(served, chat_body(text))
    assert text_of(chunks_of(stream)) == "Water them."


def main() -> None:
    """Trace both requests and write what was found."""
    with tempfile.TemporaryDirectory() as folder:
        traces = asyncio.run(trace_requests(Path(folder)))
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({name: trace.as_json() for name, trace in traces.items()}))
        return
    for name, trace in traces.items():
        counts = f"{len(trace.files)} files, {len(trace.functions)} functions, {len(trace.deepest)} frames"
        frames = (f"{place:>2} {frame}" for place, frame in enumerate(trace.deepest, 1))
        sys.stdout.write("\n  ".join([f"{name}: {counts}", *sorted(trace.files), *frames]) + "\n")


if __name__ == "__main__":
    main()
