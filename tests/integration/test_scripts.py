"""`scripts/run` and `scripts/test`: what they say to an old Python, and what they set up."""

import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from spread_variants import spread

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 600.0
INJECTED = (
    "import runpy, sys; sys.version_info = (3, 8, 18, 'final', 0); sys.argv = sys.argv[1:]; "
    "sys.path.insert(0, __import__('os').path.dirname(sys.argv[0])); runpy.run_path(sys.argv[0], run_name='__main__')"
)
PROBE = """\
import os
import sys

from environment import need_python

os.chdir(os.path.dirname(os.path.abspath(__file__)))
need_python()
print("{0} {1} {2}".format(sys.version_info[:2], os.getpid(), sys.argv[1:]))
"""


def old_pythons() -> list[list[str]]:
    """Return commands of interpreters that are too old: this one that is told so, and what the machine has."""
    named = [shutil.which(f"python{version}") for version in ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10")]
    # Pyenv's own programs of these names only start what the pattern below finds, and are slow where they cannot.
    found = [path for path in named if path and Path(path).parent.name != "shims"]
    pattern = os.path.join(os.path.expanduser(os.environ.get("PYENV_ROOT", "~/.pyenv")), "versions", "*", "bin/python")
    found += [path for path in glob.glob(pattern) if re.search(r"[\\/](2\.7|3\.[6-9]|3\.10)\.\d+[\\/]", path)]
    working = sorted({path for path in found if subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0})
    return [[sys.executable, "-c", INJECTED], *([path, "-B"] for path in working)]


OLD_PYTHONS = old_pythons()
TOLD_TO_BE_OLD = OLD_PYTHONS[0]


def name_of(command: Sequence[str]) -> str:
    """Return what a test with this interpreter is called."""
    return "told to be old" if command[0] == sys.executable else command[0]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the scripts and lock files in a folder of its own, with a script that prints what runs it."""
    folder = tmp_path / "elbowroom"
    shutil.copytree(REPOSITORY / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, folder)
    (folder / "scripts" / "probe").write_text(PROBE, encoding="utf-8")
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return an empty folder, to be the whole PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


def call(command: Sequence[str], cwd: Path, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with one folder as its PATH."""
    environ = {**{name: value for name, value in os.environ.items() if name == "SYSTEMROOT"}, **variables}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**environ, "PATH": str(path), "HOME": str(cwd)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )


def put_on_path(folder: Path, name: str, lines: str) -> None:
    """Put a program of a few shell lines into a folder."""
    (folder / name).write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("script", "python"), spread(["run", "test"], OLD_PYTHONS))
def test_an_old_python_is_told_what_is_missing(copy: Path, programs: Path, python: list[str], script: str) -> None:
    """Without a newer one on the PATH: what is needed, what this is, what to do; exit code 1, and nothing is made."""
    before = sorted(path.name for path in copy.iterdir())
    answer = call([*python, str(copy / "scripts" / script), "config", "path"], copy, programs)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert re.match(r"elbowroom needs Python 3\.11 or newer; this is Python (2\.7|3\.\d+) \(.+\)\.\n", answer.stderr)
    assert f"for example: python3.12 {copy / 'scripts' / script} config path" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert sorted(path.name for path in copy.iterdir()) == before


@pytest.mark.parametrize("python", [command for command in OLD_PYTHONS if "/2.7" not in command[0]], ids=name_of)
def test_a_newer_python_on_the_path_takes_over(copy: Path, programs: Path, python: list[str]) -> None:
    """It runs the same script with the same arguments, in the same process, so that signals reach it."""
    put_on_path(programs, "python3.13", f'exec "{sys.executable}" "$@"')
    process = subprocess.Popen(
        [*python, str(copy / "scripts" / "probe"), "one", "two words"],
        env={"PATH": str(programs), "HOME": str(copy)},
        stdout=subprocess.PIPE,
        text=True,
    )
    said, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (0, f"{sys.version_info[:2]} {process.pid} ['one', 'two words']\n")


def test_it_is_found_from_any_folder(copy: Path, programs: Path) -> None:
    """A script that was started by a relative path is found again, though it has changed the folder since."""
    put_on_path(programs, "python3.13", f'exec "{sys.executable}" "$@"')
    answer = call([*TOLD_TO_BE_OLD, "elbowroom/scripts/probe"], copy.parent, programs)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_name_without_an_interpreter_behind_it_is_passed_over(copy: Path, programs: Path) -> None:
    """Version managers put names on the PATH that only complain: the next one is tried, and nobody hears of it."""
    put_on_path(programs, "python3.14", "echo 'version 3.14 is switched off' >&2; exit 127")
    put_on_path(programs, "python3.12", f'exec "{sys.executable}" "$@"')
    answer = call([*TOLD_TO_BE_OLD, str(copy / "scripts" / "probe")], copy, programs)
    assert (answer.returncode, answer.stderr) == (0, "")


def load_environment(copy: Path) -> ModuleType:
    """Return the copy's module `environment`, which takes the copy for the repository."""
    spec = importlib.util.spec_from_file_location("environment_of_a_copy", copy / "scripts" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pretend_it_is_set_up(environment: ModuleType, kind: str) -> Path:
    """Make what a finished set-up of this kind leaves behind, and return its interpreter."""
    python = Path(environment.python_of_environment())
    python.parent.mkdir(parents=True, exist_ok=True)
    python.touch()
    Path(environment.stamp_of(kind)).write_text(environment.state_of(kind), encoding="utf-8")
    return python


@pytest.mark.parametrize(("made", "wanted"), [("run", "run"), ("dev", "dev"), ("dev", "run")])
def test_what_is_set_up_is_used_as_it_is(
    copy: Path, capsys: pytest.CaptureFixture[str], made: str, wanted: str
) -> None:
    """A second start does nothing but look: the stand-in for the interpreter could not set up anything."""
    environment = load_environment(copy)
    python = pretend_it_is_set_up(environment, made)
    assert environment.set_up(wanted) == str(python)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("change", ["lock", "interpreter", "nothing made", "only run made"])
def test_what_is_out_of_date_is_not_taken_for_ready(copy: Path, change: str) -> None:
    """Another lock file, a vanished interpreter, or less than what is wanted: it has to be set up."""
    environment = load_environment(copy)
    if change == "nothing made":
        assert not environment.is_ready("dev")
        return
    python = pretend_it_is_set_up(environment, "run" if change == "only run made" else "dev")
    if change == "lock":
        with (copy / "requirements-dev.lock").open("a", encoding="utf-8") as lock:
            lock.write("# another version\n")
    if change == "interpreter":
        python.unlink()
    assert not environment.is_ready("dev")


def test_a_copy_that_was_moved_is_set_up_again(copy: Path) -> None:
    """An environment knows its folder: after a move it would start what lies at the old place."""
    pretend_it_is_set_up(load_environment(copy), "run")
    moved = copy.rename(copy.with_name("moved"))
    assert not load_environment(moved).is_ready("run")


def test_a_set_up_that_fails_says_so_and_is_tried_again(copy: Path, programs: Path) -> None:
    """Where pip fails: exit code 1, what to do, and the next start does not believe that it is done."""
    environment = load_environment(copy)
    python = pretend_it_is_set_up(environment, "run")
    put_on_path(python.parent, python.name, "echo 'no way to the packages' >&2; exit 1")
    answer = call([sys.executable, "-B", str(copy / "scripts" / "test")], copy, programs)
    assert answer.returncode == 1
    first, *_, last = answer.stderr.splitlines()
    assert first == f"Setting up elbowroom in {copy / '.venv'} (once, about a minute) ..."
    assert "no way to the packages" in answer.stderr
    assert last == "Setting up failed: pip's message is above. Nothing else was changed; run this again to retry."
    assert not environment.is_ready("dev")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_fresh_clone_runs_with_one_command(tmp_path: Path) -> None:
    """Clone, `scripts/run`: it sets itself up and answers; the second time it only answers."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)

    def run(variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(clone / "scripts" / "run"), "--version"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    first, second = run({}), run({"PIP_NO_INDEX": "1"})
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert first.stdout == second.stdout
    assert first.stdout.startswith("elbowroom ")
    assert "Setting up elbowroom" in first.stderr
    assert second.stderr == ""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert status.stdout == ""
