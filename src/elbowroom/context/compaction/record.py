"""What calls have left behind, which code carries through every compaction: files, and the list of what is to do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from elbowroom.context.compaction.division import (
    Division,
    carried_by,
    divide,
    first_request,
    is_summary,
    summary_message,
    tail_starts,
)
from elbowroom.context.compaction.files import State, files_in, files_listed, last_state, listed_files
from elbowroom.context.compaction.to_do import (
    LISTED,
    Thing,
    client_list,
    told_list,
    tool_told,
    with_client_list,
    with_news,
)
from elbowroom.context.transcript import Group, Transcript
from elbowroom.settings.model import ToolKind

FILES_SHARE: Final = 32
TO_DO_SHARE: Final = 16
"""One part in so many of the window is the most that files take, and what is to do."""


class Record:
    """Tells what the calls of a divided conversation have left; `size` counts a text, `kinds` are those of tools.

    Calls that a summary stands for are read again, as far as they are known: what it had no room for is not lost. Where
    they are not, its own lines tell.
    """

    def __init__(
        self, division: Division, size: Callable[[str], int], window: int, kinds: Mapping[str, ToolKind]
    ) -> None:
        self._size = size
        self._most_files, self._most_to_do = window // FILES_SHARE, window // TO_DO_SHARE
        self._kinds = kinds
        self._touched: dict[int, list[tuple[str, State]]] = {}
        self._always = staying_in(division)
        self._oldest = [each.group for each in division.oldest]
        self._removed = division.removed
        carried = carried_by(division.summaries)
        self.results, self._told = carried.results, carried.to_do
        calls = [call for group in (*self._oldest, *groups_of(division)) for call in _told_by(group)]
        self._listed = client_list(calls, self._told)

    def changes(self, news: Sequence[Thing] = ()) -> tuple[str, str]:
        """Return the lines about the files that were changed, and of what is to do after a plan with this news."""
        files = self.files(self._removed, self._most_files, that_changed=True)
        return files, self.to_do(news, self._always, self._most_to_do)

    @property
    def carried(self) -> str:
        """Return the summary that tells only which files were changed and what is to do; empty without any."""
        files, to_do = self.changes()
        if not (files or to_do):
            return ""
        return summary_message("", "", ("-",), "in progress", self.results, files, "", to_do)

    def to_do(self, news: Sequence[Thing], staying: Sequence[Group], room: int) -> str:
        """Return the lines of what is to do after a plan with this news, without a list whose call stays."""
        things: list[Thing] = LISTED.findall(self._told)
        tool = tool_told(self._told)
        if (listed := self._listed) is not None:
            things, tool = with_client_list(things, listed.things), listed.tool
            if any(each is listed.lister for each in staying):
                things = things[: len(things) - len(listed.things)]
        return told_list(with_news(things, news), self._size, min(self._most_to_do, room), tool)

    def files(self, removed: Sequence[Group], room: int, *, that_changed: bool = False) -> str:
        """Return the lines about the files of removed groups, in so much room; what stays tells their last state.

        Those `that_changed` alone are what cannot be found out by reading again.
        """
        files: dict[str, State] = {}
        summaries = [group for group in removed if is_summary(group)]
        for group in (*summaries, *self._oldest, *(group for group in removed if not is_summary(group))):
            for path, state in self._touched_by(group):
                files[path] = last_state(files.pop(path, None), state)
        for path, state in (each for group in self._always for each in self._touched_by(group)):
            if path in files:
                files[path] = last_state(files[path], state)
        told = {path: state for path, state in files.items() if state != "read"} if that_changed else files
        return listed_files(told, self._size, min(self._most_files, room))

    def _touched_by(self, group: Group) -> list[tuple[str, State]]:
        """Return the files that the calls of a group have touched, or those that a summary stands for, found once."""
        if id(group) not in self._touched:
            listed = files_listed(carried_by([group]).files) if is_summary(group) else ()
            self._touched[id(group)] = [*listed, *files_in(_told_by(group), self._kinds)]
        return self._touched[id(group)]


def carried_in(transcript: Transcript, size: Callable[[str], int], window: int, kinds: Mapping[str, ToolKind]) -> str:
    """Return the summary that has what code carries alone, beside the last messages; empty where that is nothing."""
    *_, shortest = tail_starts(transcript.groups, 0)
    division = divide(transcript, tails_from=shortest, keeping=first_request(transcript.groups))
    return Record(division, size, window, kinds).carried


def groups_of(division: Division) -> list[Group]:
    """Return all groups of a conversation: earlier summaries, then the others in their order."""
    numbered = sorted([*division.pinned, *division.old], key=lambda each: each.id)
    return [*division.system, *division.summaries, *(each.group for each in numbered), *division.tail]


def staying_in(division: Division) -> list[Group]:
    """Return the groups that stay whatever happens."""
    return [*division.system, *(each.group for each in division.pinned), *division.tail]


def _told_by(group: Group) -> Sequence[Group]:
    """Return the calls of a group, with their results, or of a summary those that it stands for."""
    groups = Transcript.of(group.unshortened).groups if is_summary(group) else (group,)
    return [each for each in groups if each.kind == "tools"]
