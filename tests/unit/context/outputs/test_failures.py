"""The failing parts of a command's output, which stay word for word when the rest of it goes."""

import json
from pathlib import Path

import pytest
from cases import cases

from elbowroom.context.compaction import summary_of_calls
from elbowroom.context.outputs import error_below, stub
from elbowroom.context.outputs.failures import MOST_AROUND, MOST_KEPT, failure_in
from elbowroom.context.outputs.stubs import failure_of
from elbowroom.context.transcript import Message, Transcript

FOLDER = Path(__file__).parents[3] / "support" / "failing_outputs"
NOISE = "\n".join(f"[{number}/400] compiling module_{number}.py ... ok" for number in range(400))
KEPT: dict[str, tuple[str, ...]] = {
    "bash_denied": ("nox.sh: Permission denied",),
    "bash_not_found": ("gti: command not found",),
    "cargo_build": ("error[E0382]: borrow of moved value", "src/lib.rs:2", "error[E0308]: mismatched types"),
    "cargo_test": ("panicked at src/lib.rs:6:25", "left: -1", "right: 5", "test result: FAILED. 1 passed; 2 failed"),
    "docker": ('unable to prepare context: path "/nowhere" not found',),
    "eslint": ("1:18  error  'b' is not defined", "4 problems (4 errors, 0 warnings)"),
    "gcc": ("main.c:3:44: error: ‘struct point’ has no member named ‘y’", "main.c:7:13: error: expected ‘;’"),
    "git": ("fatal: unable to access",),
    "git_merge": ("CONFLICT (content): Merge conflict in a", "Automatic merge failed"),
    "go_build": ("cart/cart.go:18:9: undefined: taxRate",),
    "go_test": ("cart_test.go:12: total = 25, want 30", "--- FAIL: TestTotal"),
    "gpp": ("a.cpp:4:116: error: ‘missing’ was not declared in this scope",),
    "gradle": ("expected: <10> but was: <2>", "CartTest.java:14", "Execution failed for task ':test'."),
    "java": ("java.lang.IllegalStateException: till 4 has no drawer", "Caused by: java.lang.NullPointerException"),
    "javac": ("Shop.java:4: error: cannot find symbol", "Shop.java:5: error: incompatible types"),
    "jest": ("● cart › counts the amount", "Expected: 10", "no carrier for 97080", "Tests:       2 failed, 1 passed"),
    "ls_missing": ("ls: cannot access '/nowhere/at/all': No such file or directory",),
    "make": ("error: ‘undeclared’ undeclared", "make: *** [Makefile:6: main.o] Error 1"),
    "make_none": ("No rule to make target 'deploy'",),
    "maven": ("BUILD FAILURE", "[ERROR] Failed to execute goal on project shop"),
    "mocha": ("2 failing", "1) cart", "sum: 2.5", "Error: no carrier for 97080"),
    "mypy": ('Incompatible return value type (got "int", expected "str")', "bad.py:5: error:"),
    "node": ("TypeError: Cannot read properties of undefined (reading 'push')",),
    "node_test": ("not ok 2 - rounds to cents", "1 !== 1.01", "error: 'no carrier for 97080'"),
    "npm_json": ("npm error code EJSONPARSE", "Failed to parse JSON data"),
    "npm_missing": ('npm error Missing script: "deploy"',),
    "npm_script": ("sh: 1: tsc: not found",),
    "perl": ('Global symbol "$y" requires explicit package name',),
    "pip": ("ERROR: No matching distribution found for nothing-such-package==9.9",),
    "pnpm": ("ERR_PNPM_NO_SCRIPT", "Missing script: deploy"),
    "psql": ('connection to server at "127.0.0.1", port 9 failed: Connection refused',),
    "pytest": ("E   ", "assert 5.7 == 35.7", "IndexError: list index out of range", "2 failed, 11 passed"),
    "pytest_import": ("ModuleNotFoundError: No module named 'nothing_such'", "1 error"),
    "pytest_v": ("test_total_has_the_tax", "assert 5.7 == 35.7", "2 failed, 11 passed"),
    "python_trace": ("json.decoder.JSONDecodeError: Expecting property name",),
    "ruff": ("F401", "Found"),
    "sqlite": ("sqlite3.IntegrityError: UNIQUE constraint failed: t.a",),
    "tar": ("tar (child): /nowhere.tgz: Cannot open: No such file or directory",),
    "terraform": ("Error: Invalid expression", "on main.tf line 3"),
    "tsc": ("a.ts(3,51): error TS2551", "Did you mean 'price'?"),
    "unittest": ("RuntimeError: no connection to 10.0.0.7:5432", "FAILED (failures=1, errors=1)"),
    "vitest": ("FAIL  cart.test.ts > rounds", "expected { cents: 100 } to deeply equal { cents: 101 }"),
}
"""What has to stay of each output: those of `go` and `gradle` are written in their form, all others are recorded."""
READING = json.dumps({"command": "cd src && cat errors.py | head -50"})


def output_of(name: str) -> str:
    """Return a recorded output."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_every_recorded_output_is_in_the_table() -> None:
    """No recorded output is left out, and there are at least 24."""
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(KEPT)
    assert len(KEPT) >= 24


@pytest.mark.slow
@cases("name", [*KEPT])
def test_what_failed_is_kept(name: str) -> None:
    """Alone, and between thousands of lines that succeeded, the lines that say what failed stay word for word."""
    for text in (output_of(name), f"{NOISE}\n{output_of(name)}\n{NOISE}"):
        written = stub("execute", "bash", json.dumps({"command": f"run {name}"}), text, "k3v9k3v9k3v9")
        assert written.partition("\n")[0].endswith(" failed]")
        kept = error_below(written)
        assert kept is not None
        assert [part for part in KEPT[name] if part not in kept] == []
        assert len(kept) <= MOST_KEPT + 200


@cases("name", ["pytest", "gcc", "npm_missing", "bash_not_found"])
def test_a_summary_says_that_it_failed_and_how(name: str) -> None:
    """The line that sums up removed calls says which command failed, and the words stand below it."""
    call = {"id": "1", "function": {"name": "bash", "arguments": json.dumps({"command": f"run {name}"})}}
    messages: list[Message] = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": output_of(name)},
    ]
    told = summary_of_calls(Transcript.of(messages).groups, len, 10_000)
    first, _, below = told.partition("\n")
    assert "failed" in first
    assert [part for part in KEPT[name] if part not in below] == []
    without = summary_of_calls(Transcript.of(messages).groups, len, 10_000, keeps_errors=False)
    assert without == first


@pytest.mark.parametrize(
    "text",
    [
        "12 passed in 0.30s",
        "0 errors, 0 warnings",
        "Found 0 errors.",
        "test result: ok. 8 passed; 0 failed; 0 ignored",
        "error: expected while testing the parser\n14 passing (2s)",
        "gcc -Werror -c main.c\nBUILD SUCCESSFUL in 2s",
        f"{NOISE}\nDone in 2.1s",
        "ERROR: retrying\nConnected.\nexit code: 0",
        "",
    ],
)
def test_success_is_no_failure(text: str) -> None:
    """What counts no failure, or names the exit code 0, has not failed, whatever words stand in it."""
    assert failure_in(text) is None


def test_an_exit_code_decides() -> None:
    """Where the code is not 0, the words around what sounds worst are kept, in whatever form."""
    text = f"{NOISE}\nthe flux is not aligned: request refused by the array\n{NOISE}\nexit code: 3"
    kept = failure_in(text)
    assert kept is not None
    assert "the flux is not aligned: request refused by the array" in kept
    assert failure_in(f"{NOISE}\nall is quiet\nexited with code 4") is not None


@pytest.mark.parametrize(
    "end",
    [
        "Process exited with code 1\n\nDuration: 3 s",
        '{"stdout": "", "exitCode": 2}',
        "Command failed\nexit status 3\n(took 1.2 s)\n\n",
        "[exit code: 1]",
    ],
)
def test_an_exit_code_counts_wherever_it_stands(end: str) -> None:
    """It is found in the last lines of an output, and in JSON, whatever follows."""
    kept = failure_in(f"{NOISE}\nthe flux is not aligned\n{end}")
    assert kept is not None
    assert "the flux is not aligned" in kept
    assert (
        failure_in(f"{NOISE}\nthe flux is not aligned\n{end}".replace("1", "0").replace("2", "0").replace("3", "0"))
        is None
    )


def test_what_failed_stands_out_among_lines_that_repeat() -> None:
    """Where more lines sound like failures than can stay, those stay whose form is rare."""
    usual = "\n".join(f"retry {number}: upload error, trying again" for number in range(2000))
    kept = failure_in(f"{usual}\nthe disk of node 7 has an error at block 4711\n{usual}\nexit code: 1")
    assert kept is not None
    assert "the disk of node 7 has an error at block 4711" in kept


def test_reading_about_errors_is_no_failure() -> None:
    """A command that only shows a file has not failed because the file speaks of errors; its own complaint has."""
    source = "class ParseError(Exception):\n    error: str = 'not found'\n" * 40
    assert failure_of("execute", READING, source) is None
    assert failure_of("execute", json.dumps({"command": "make all"}), source + "error: x\n") is not None
    complaint = "cat: src/errors.py: No such file or directory"
    assert failure_of("execute", READING, complaint) == complaint
    assert failure_of("read", "{}", source) is None


def test_parts_are_bounded() -> None:
    """Of ten thousand failures the first and the last are kept, each part and the whole within their bounds."""
    text = "\n".join(f"src/a.py:{line}: error: name 'x{line}' is not defined" for line in range(10_000))
    kept = failure_in(f"{text}\nFound 10000 errors in 1 file")
    assert kept is not None
    assert len(kept) <= MOST_KEPT + MOST_AROUND
    assert "name 'x0' is not defined" in kept
    assert kept.endswith("Found 10000 errors in 1 file")


@pytest.mark.slow
def test_hostile_lines_take_linear_time() -> None:
    """Half a megabyte of the beginnings of shell messages is searched at once."""
    line = "a: " * 200
    assert failure_in("\n".join([line] * 900)) is None
