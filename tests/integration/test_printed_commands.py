"""Every command in the README and the pages for programs works as it is printed, or says why it is not run here."""

import functools
import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import run as run_elbowroom
from printed_commands import Block, Printed, blocks, commands, is_as_printed, named_in_text

REPOSITORY = Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{name}.md" for name in ("open-webui", "obsidian", "connect", "scale"))]
LANGUAGES = {"sh", "console", "toml", "json", "yaml", "text"}
SUPPORT = REPOSITORY / "tests" / "support" / "printed_commands.py"


@functools.cache
def has_networks() -> bool:
    """Tell whether a program can have a network of its own here."""
    return (
        bool(shutil.which("unshare")) and subprocess.call(["unshare", "--net", "true"], stderr=subprocess.DEVNULL) == 0
    )


def text_of(page: str) -> str:
    """Return the text of a page."""
    return (REPOSITORY / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: str) -> None:
    """A block has a language, and is valid in it; of a command for another machine the reason stands above it."""
    yaml: Any = importlib.import_module("yaml")
    readers = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}
    found = blocks(text_of(page))
    assert len(found) * 2 == len(re.findall(r"^ *```", text_of(page), re.MULTILINE))
    for block in found:
        assert block.language in LANGUAGES, block.text
        if reader := readers.get(block.language):
            reader(block.text)
        if block.elsewhere:
            assert len(block.elsewhere.split()) >= 3, "no reason"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(not has_networks(), reason="no network of its own can be made")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(page: str, tmp_path: Path) -> None:
    """Each ends well, and prints what the page says it prints."""
    command = ["unshare", "--net", sys.executable, str(SUPPORT), str(REPOSITORY / page), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    runs = [each for block in blocks(text_of(page)) if not block.elsewhere for each in commands(block)]
    assert [result["command"] for result in results] == [each.command for each in runs]
    for result in results:
        told = f"{result['command']}: {result['code']}\n{result['output']}"
        assert result["code"] == 0, told
        assert "error" not in (json.loads(result["output"]) if result["output"].startswith("{") else {}), told
        if result["printed"]:
            assert is_as_printed(result["output"], result["printed"], str(tmp_path)), told


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_in_the_text_exist(page: str, tmp_path: Path) -> None:
    """What a sentence tells to type is a command of elbowroom's, or a script, and has the options that it is given."""
    for program, *words in named_in_text(text_of(page)):
        if program != "elbowroom":
            assert (REPOSITORY / program).is_file(), program
            continue
        names = names_in(words)
        shown = run_elbowroom(tmp_path, *names, "--help")
        assert shown.returncode == 0, f"elbowroom {' '.join(names)}: {shown.stderr}"
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert all(option in shown.stdout for option in options), words


def names_in(words: list[str]) -> list[str]:
    """Return the words that name a command: the first one, and for a few the second."""
    with_actions = {"obsidian": 2, "store": 2, "memories": 2}
    return words[: with_actions.get(words[0], 1)] if words and not words[0].startswith("-") else []


def test_commands_are_found() -> None:
    """Lines that go on are one command, comments are none, and what stands below `$ ` is what is printed."""
    assert commands(Block("sh", "# first\ncurl a \\\n  -d b   # why\n\nls\n", "")) == [
        Printed("curl a -d b", ""),
        Printed("ls", ""),
    ]
    assert commands(Block("console", "$ a\nb\nc\n$ d\n", "")) == [Printed("a", "b\nc\n"), Printed("d", "")]


def test_what_is_printed_is_compared() -> None:
    """Left out lines and words, the home folder and codes may be others; anything else may not."""
    printed = "In /home/me/x\n...\nCode: ABCD-2345\nend ...\n"
    assert is_as_printed("In /srv/ann/x\none\ntwo\nCode: WXYZ-9Q8P\nend of it\n", printed, "/srv/ann")
    assert not is_as_printed("In /srv/ann/x\none\nCode: none\nend of it\n", printed, "/srv/ann")
    assert not is_as_printed("In /srv/ann/x\nCode: WXYZ-9Q8P\nend of it\nmore\n", printed, "/srv/ann")
