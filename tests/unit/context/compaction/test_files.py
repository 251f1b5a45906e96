"""The list of files that calls have touched, kept by code from one compaction to the next."""

import json
import time

import pytest

from elbowroom.context.compaction.files import State, files_in, files_listed, last_state, listed_files
from elbowroom.context.transcript import Group, Transcript


def call(tool: str, path: str, result: str = "ok") -> Group:
    """Return a call for a file, with its result."""
    function = {"name": tool, "arguments": json.dumps({"path": path, "start_line": 1, "end_line": 9})}
    return Transcript.of(
        [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": function}]},
            {"role": "tool", "tool_call_id": "a", "content": result},
        ]
    ).groups[0]


def test_calls_tell_what_was_done_to_files() -> None:
    """Reading, writing and deleting by the tool's name; failed calls, questions and other targets do not count."""
    groups = [
        *(call("read_file", "src/a.py"), call("write_file", "src/b c.py"), call("delete_note", "old.md")),
        *(call("read_file", "gone.py", "Error: no such file"), call("search", "src/a.py"), call("get_user", "dana")),
    ]
    assert list(files_in(groups, {})) == [("src/a.py", "read"), ("src/b c.py", "written"), ("old.md", "deleted")]
    assert list(files_in([call("look", "x.csv")], {"look": "read"})) == [("x.csv", "read")]


@pytest.mark.parametrize("unit", ["/", "a.", "\\", "a/b.py", "a"])
def test_a_path_is_looked_at_in_linear_time(unit: str) -> None:
    """One that is too long to be a path takes no time that anybody would notice."""
    start = time.process_time()
    assert list(files_in([call("read_file", f'{unit * 40_000}"')], {})) == []
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    "key",
    [
        "filePath",
        "file_path",
        "FilePath",
        "absolute_path",
        "absolutePath",
        "target_file",
        "targetFile",
        "notebook_path",
    ],
)
def test_names_of_paths(key: str) -> None:
    """Clients name the argument for a file in many ways; long paths are whole, and other arguments are none."""
    path = f"/home/dana/{'folder/' * 30}part_07.py"
    function = {"name": "Edit", "arguments": json.dumps({"title": "An edit", "limit": 3, key: path, "source": "x = 1"})}
    group = Group(({"role": "assistant", "tool_calls": [{"id": "a", "function": function}]},))
    assert list(files_in([group], {})) == [(path, "written")]


@pytest.mark.parametrize("tool", ["apply_patch", "shell"])
def test_files_in_a_patch(tool: str) -> None:
    """A patch names the files that it adds, updates and deletes."""
    patch = "*** Update File: src/a.py\n@@\n-1\n+2\n*** Add File: b.md\n+x\n*** Delete File: c d.txt\n*** End Patch"
    function = {"name": tool, "arguments": json.dumps({"command": f"*** Begin Patch\n{patch}"})}
    group = Group(({"role": "assistant", "tool_calls": [{"id": "a", "function": function}]},))
    assert list(files_in([group], {})) == [("src/a.py", "written"), ("b.md", "written"), ("c d.txt", "deleted")]


def test_lines_are_read_back() -> None:
    """The next compaction finds the same files in the same states."""
    files: dict[str, State] = {"src/a.py": "read", "src/b c.py": "written", "old.md": "deleted"}
    lines = listed_files(files, len, 1000)
    assert lines == "- written: `src/b c.py`\n- deleted: `old.md`\n- read: `src/a.py`"
    assert dict(files_listed(lines)) == files


def test_a_folder_is_named_once() -> None:
    """Several files of one folder have a line of their own, which is read back as well."""
    home = "/home/dana/harbour/parts"
    files: dict[str, State] = {"README.md": "written", f"{home}/a.py": "written", f"{home}/b.py": "written"}
    files |= {"C:\\notes\\old.md": "read", "C:\\notes\\new.md": "read", f"{home}/c.py": "read"}
    lines = listed_files(files, len, 1000)
    assert lines == (
        f"- written: `README.md`\n- written in `{home}/`: `a.py`, `b.py`\n"
        f"- read in `C:\\notes\\`: `old.md`, `new.md`\n- read: `{home}/c.py`"
    )
    assert dict(files_listed(lines)) == files
    short = listed_files(files, len, 70)
    assert short == f"- written in `{home}/`: `a.py`, `b.py`"
    assert len(short) <= 70


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        (None, "read", "read"),
        ("read", "written", "written"),
        ("written", "read", "written"),  # it is looked at again
        ("written", "deleted", "deleted"),
        ("deleted", "read", "read"),
    ],
)
def test_what_was_written_stays_so(before: State | None, now: State, state: State) -> None:
    """The last call tells how a file is, but for reading, which changes nothing."""
    assert last_state(before, now) == state


def test_changed_files_and_the_newest_ones_have_room_first() -> None:
    """The lines stay within the room; what was only read can be read again."""
    files: dict[str, State] = {f"{number}.py": "written" for number in range(5)}
    files["read.py"] = "read"
    lines = listed_files(files, len, 30)
    assert lines == "- written: `3.py`, `4.py`"
    assert len(lines) <= 30
    assert listed_files(files, len, 0) == listed_files({}, len, 1000) == ""
