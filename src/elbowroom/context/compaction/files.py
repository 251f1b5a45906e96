"""The files that calls have read, written and deleted, with their last state, as a summary lists them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
PLACE: Final = re.compile(r"[^\"'`\n]*[\w)]\.[A-Za-z]\w{0,7}|[^\"'`\n]*[/\\][^\"'`\n]*")
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
    """Return one line for each state, as many of the newest files as there is room for; `files` are oldest first.

    Where not all have room so, several in one folder have a line of their own, which names the folder once.
    """
    lines, is_whole = _lines(files, size, room, dict.fromkeys(files, ""))
    if not is_whole:
        placed = {path: found[0] if (found := FOLDER.match(path)) else "" for path in files}
        shared = Counter((state, placed[path]) for path, state in files.items())
        several = {path: placed[path] if shared[state, placed[path]] > 1 else "" for path, state in files.items()}
        lines, _ = _lines(files, size, room, several)
    return "\n".join(lines)


def _lines(
    files: Mapping[str, State], size: Callable[[str], int], room: int, folders: Mapping[str, str]
) -> tuple[list[str], bool]:
    """Return the lines, in which files stand below the folders that are named once, and whether all have room."""
    lines: list[str] = []
    for state in STATES:
        told: dict[str, list[str]] = {}
        for path in reversed([path for path, each in files.items() if each == state]):
            folder = folders[path]
            name = f"`{path.removeprefix(folder)}`"
            room -= size(f", {name}") + (0 if folder in told else size(f"{_beginning(state, folder)}\n"))
            if room < 0:
                break
            told.setdefault(folder, []).insert(0, name)
        lines += [f"{_beginning(state, folder)}{', '.join(names)}" for folder, names in reversed(told.items())]
    return lines, room >= 0


def _beginning(state: State, folder: str) -> str:
    return f"- {state} in `{folder}`: " if folder else f"- {state}: "
