"""`install.sh`, `install.ps1` and the image: what installing brings, what taking it back leaves, what linters say."""

import importlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tree_sitter
import tree_sitter_powershell
from packaged import REPOSITORY, bare, build, fetch, run

from elbowroom import __version__
from elbowroom.settings.load import load_settings

NEEDED = ("cat", "date", "dirname", "env", "grep", "ln", "ls", "mkdir", "mv", "readlink", "rm", "rmdir", "sed", "sh")
BIN = Path(sys.executable).parent
DEPLOY = REPOSITORY / "deploy"
SETTINGS = '[server]\nport = 0\n[[agents]]\nid = "mine"\nmodel = "some-model"\n'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from the source archive."""
    return build(tmp_path_factory.mktemp("built"))


class Machine:
    """A person's home, with a PATH that has what any system has and the one program that brings a Python."""

    def __init__(self, home: Path, program: str) -> None:
        self.home = home
        (home / "nowhere").mkdir()
        for name in NEEDED:
            (home / "nowhere" / name).symlink_to(str(shutil.which(name)))
        own = Path(sys.base_prefix) / "bin" / "python3"
        self.environ = bare(home)
        if program == "uv":  # it would fetch a Python; here it takes the one that it is told of
            (home / "nowhere" / "uv").symlink_to(BIN / "uv")
            (home / "nowhere" / own.resolve().name).symlink_to(own)
            self.environ = bare(home, UV_PYTHON_DOWNLOADS="never", ELBOWROOM_USE_UV="1")
        else:
            (home / "nowhere" / "python3").symlink_to(own)

    def sh(self, *arguments: "str | Path") -> str:
        """Run the script and return what it says."""
        return fetch(["/bin/sh", REPOSITORY / "install.sh", *arguments], self.environ)

    def files(self) -> set[str]:
        """Return the files, links and empty folders of the home, but for the PATH."""
        found = (path.relative_to(self.home) for path in self.home.rglob("*"))
        kept = {path for path in found if path.parts[0] != "nowhere"}
        return {str(path) for path in kept if not any(path in other.parents for other in kept)}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", ["python3", "uv"])
def test_installing_and_taking_it_back(program: str, wheel: Path, tmp_path: Path) -> None:
    """The program works by its link, twice is as good as once, and what is left in the end is the data folder alone."""
    machine = Machine(tmp_path, program)
    link, config = tmp_path / ".local/bin/elbowroom", tmp_path / ".config/elbowroom/settings.toml"
    said = machine.sh("--no-autostart", wheel)
    assert f"elbowroom {__version__} is installed: {link}" in said
    assert "Your PATH does not have" in said
    data = tmp_path / ".local/share/elbowroom"
    data.mkdir(parents=True)
    (data / "elbowroom.db").write_bytes(b"")
    config.parent.mkdir(parents=True)
    config.write_text(SETTINGS, encoding="utf-8")
    assert run([link, "config", "check"], machine.environ)
    kept = {".local/share/elbowroom/elbowroom.db", ".local/share/elbowroom/settings/settings.toml"}
    said = machine.sh("--uninstall")
    assert f"Left: {data}, with your conversations and, in settings/, your settings." in said
    assert machine.files() - {".config"} == kept
    if program == "python3":  # pip takes its time; what follows is the same with both
        return
    machine.sh("--no-autostart", wheel)
    assert config.read_text(encoding="utf-8") == SETTINGS
    machine.sh("--no-autostart", wheel)
    machine.sh("--uninstall")
    assert machine.files() - {".config"} == kept


def test_foreign_files_are_left(tmp_path: Path) -> None:
    """A folder or a link that the script has not made is neither used nor removed."""
    machine = Machine(tmp_path, "python3")
    own = tmp_path / ".local" / "lib" / "elbowroom" / "mine.txt"
    own.parent.mkdir(parents=True)
    own.write_text("mine", encoding="utf-8")
    before = machine.files()
    for arguments in (["--no-autostart", "nothing.whl"], ["--uninstall"], ["--no-such-option"]):
        command = ["/bin/sh", str(REPOSITORY / "install.sh"), *arguments]
        done = subprocess.run(command, env=machine.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("install.sh: ")
    assert machine.files() == before


def test_the_help_tells_every_option() -> None:
    """`--help` shows what stands at the top of the script."""
    done = subprocess.run(["/bin/sh", REPOSITORY / "install.sh", "--help"], capture_output=True, text=True, check=True)
    assert all(option in done.stdout for option in ("--uninstall", "--autostart", "--no-autostart", "FILE.whl"))
    assert "set -eu" not in done.stdout


@pytest.mark.parametrize("script", [REPOSITORY / "install.sh", REPOSITORY / ".ci" / "run"], ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script: Path) -> None:
    """The linter of shell scripts finds nothing."""
    done = subprocess.run([BIN / "shellcheck", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def nodes(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """Yield a node of a syntax tree and all below it."""
    yield node
    for child in node.children:
        yield from nodes(child)


def parsed(text: bytes) -> list[tree_sitter.Node]:
    """Return all nodes of a PowerShell script."""
    language = tree_sitter.Language(tree_sitter_powershell.language())
    return list(nodes(tree_sitter.Parser(language).parse(text).root_node))


def test_the_script_for_windows_is_powershell() -> None:
    """Nothing here can run it: it parses without an error, calls what it defines, and has no short names."""
    text = (REPOSITORY / "install.ps1").read_bytes()
    found = parsed(text)
    assert not [node for node in found if node.is_error or node.is_missing]
    assert [node for node in parsed(text.replace(b"function Remove-Own {", b"function {")) if node.is_error]
    names = [node.text.decode() for node in found if node.type == "command_name" and node.text]
    defined = [node.text.decode() for node in found if node.type == "function_name" and node.text]
    assert set(defined) <= set(names)
    verbs = {"Add", "Build", "Find", "Get", "Install", "Invoke", "New", "Out", "Read", "Remove", "Select", "Set"}
    verbs |= {"Sort", "Test", "Uninstall", "Where", "Join", "Write"}
    assert {name.partition("-")[0] for name in [*names, *defined]} <= verbs
    assert text.isascii()


def test_hadolint_has_nothing_to_say() -> None:
    """The linter of Dockerfiles finds nothing: no root, no unpinned image, no shell where none is needed."""
    done = subprocess.run([BIN / "hadolint", DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_container_for_one_person_keeps_its_data_to_itself(tmp_path: Path) -> None:
    """Its port is this machine's alone, its data in a volume, its user nobody's root, its settings accepted."""
    yaml: Any = importlib.import_module("yaml")
    said = yaml.safe_load((DEPLOY / "one-person.yaml").read_text(encoding="utf-8"))
    [service] = said["services"].values()
    assert service["ports"] == ["127.0.0.1:2345:2345"]
    folder = "/var/lib/elbowroom"
    assert service["volumes"] == [f"kept:{folder}"]
    assert "kept" in said["volumes"]
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for line in (f"ENV ELBOWROOM_DATA_DIR={folder} \\", f"    ELBOWROOM_CONFIG={folder}/settings.toml", "USER 10001"):
        assert f"\n{line}\n" in image
    assert "\nHEALTHCHECK " in image
    text = (DEPLOY / "one-person.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["server"]["token"] == f"file:/run/secrets/{service['secrets'][0]}"
    (tmp_path / "token").write_text("secret", encoding="utf-8")
    file = tmp_path / "settings.toml"
    file.write_text(text.replace("/run/secrets/token", str(tmp_path / "token")), encoding="utf-8")
    assert load_settings(file, {"ELBOWROOM_DATA_DIR": str(tmp_path)}, {}, must_exist=True).warnings == ()
