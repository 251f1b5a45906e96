"""The files that calls have read, written and deleted, with their last state, as a summary lists them."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from elbowroom.context.compaction.shell import files_of
from elbowroom.context.outputs import command_in, error_in, kind_of, path_in, words_in
from elbowroom.context.transcript import Group, uses_in
from elbowroom.settings.model import ToolKind

State = Literal["read", "written", "deleted"]
STATES: Final[tuple[State, ...]] = ("written", "deleted", "read")
"""The states in the order in which they get room: what was changed comes before what can be read again."""
DELETING: Final = frozenset({"delete", "remove", "unlink", "trash", "rm"})
PATCHED: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: ([^\"'`\n\\]+)")
"""How patches name a file that several coding agents write."""
DONE_BY_PATCH: Final[Mapping[str, State]] = {"Add": "written", "Update": "written", "Delete": "deleted"}
PLACE: Final = re.compile(r"[^\"'`\n]*[\w)]\.[A-Za-z]\w{0,7}|[^\"'`\n/\\]*[/\\][^\"'`\n]*")
"""How a file's name looks: with an ending, or with folders."""
LISTED: Final = re.compile(r"^- (written|deleted|read)(?: in `([^`\n]+)`)?: (.+)$", re.MULTILINE)
FOLDER: Final = re.compile(r".*[/\\]")
QUOTED: Final = re.compile(r"`([^`\n]+)`")


def files_in(groups: Sequence[Group], kinds: Mapping[str, ToolKind]) -> Iterator[tuple[str, State]]:
    """Yield each file that a call has read, written or deleted, in the order of the calls; failed calls did nothing."""
    for group in groups:
        for use in uses_in(group.messages):
            kind = kind_of(use.name, kinds)
            if kind not in ("read", "write", "execute") or error_in(use.text) is not None:
                continue
            path = path_in(use.arguments) if kind != "execute" else ""
            if PLACE.fullmatch(path):
                yield path, _state(kind, use.name)
            elif kind != "read":
                yield from ((patched, DONE_BY_PATCH[deed]) for deed, patched in PATCHED.findall(use.arguments))
                yield from files_of(command_in(use.arguments)) if kind == "execute" else ()


def _state(kind: ToolKind, tool: str) -> State:
    if kind == "read":
        return "read"
    return "deleted" if DELETING.intersection(words_in(tool)) else "written"


def last_state(before: State | None, now: State) -> State:
    """Return the state of a file after one more call: what was written stays so while it is read."""
    return "written" if (before, now) == ("written", "read") else now


def files_listed(text: str) -> Iterator[tuple[str, State]]:
    """Yield the files that an earlier summary has listed."""
    for state, folder, names in LISTED.findall(text):
        yield from ((f"{folder}{name}", state) for name in QUOTED.findall(names))


def listed_files(files: Mapping[str, State], size: Callable[[str], int], room: int) -> str:
    """Return as many of the newest files as there is room for, in lines for each state; `files` are oldest first."""
    ranked = [path for state in STATES for path in reversed([*files]) if files[path] == state]
    most = bisect_right(range(1, len(ranked) + 1), room, key=lambda number: size(_lines(files, ranked[:number])))
    return _lines(files, ranked[:most])


def _lines(files: Mapping[str, State], listed: Collection[str]) -> str:
    """Return the lines of these files; several in one folder have a line of their own, which names the folder once."""
    placed = {path: found[0] if (found := FOLDER.match(path)) else "" for path in listed}
    shared = Counter((files[path], placed[path]) for path in listed)
    lines: dict[tuple[int, str], list[str]] = {}
    for path in filter(placed.__contains__, files):
        folder = placed[path] if shared[files[path], placed[path]] > 1 else ""
        lines.setdefault((STATES.index(files[path]), folder), []).append(f"`{path.removeprefix(folder)}`")
    told = sorted(lines.items(), key=lambda line: line[0][0])
    return "\n".join(
        f"- {STATES[state]}{f' in `{folder}`' if folder else ''}: {', '.join(names)}" for (state, folder), names in told
    )
