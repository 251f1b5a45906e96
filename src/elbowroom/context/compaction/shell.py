"""Which files does a command of a shell write or delete? Redirections tell it, and what programs are given."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final, Literal

TOKEN: Final = re.compile(
    r"""[ \t]+|\#[^\n]*|\\\n"""
    r"""|(?P<turn>\d*(?:&>>?|>>|>[|&]?|<<<|<<-?|<[>&]?))"""
    r"""|(?P<end>&&|\|[|&]?|;+|[&()\n])"""
    r"""|(?P<word>(?:[^\s"'\\;|&()<>]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+)""",
    re.DOTALL,
)
"""A redirection, the end of a simple command, or a word with its quotes."""
WRITING: Final = re.compile(r"\d*(?:&>>?|>>|>[|&]?)")
HERE: Final = re.compile(r"\d*<<-?")
ASSIGNMENT: Final = re.compile(r"\w+=")
BEFORE_PROGRAMS: Final = frozenset({"sudo", "env", "command", "git", "then", "do", "else", "{", "!", "time"})
IN_PLACE: Final = re.compile(r"-[a-zA-Z]*i|--in-place")
SCRIPT: Final = re.compile(r"-[a-zA-Z]*[ef]|--(?:expression|file)")
UNKNOWN: Final = re.compile(r"[$`*?]|^/dev/|^\d+$|^-$")
"""What names no file that is known from the command alone."""
Deed = tuple[str, Literal["written", "deleted"]]


def files_of(command: str) -> Iterator[Deed]:
    """Yield each file that a command writes or deletes, relative ones below the folder that it has changed to."""
    folder = ""
    for words, targets in _commands(command):
        program, *given = words or [""]
        if program == "cd" and given:
            folder = posixpath.join(folder, given[0])
        for path, deed in (*((target, "written") for target in targets), *_touched(program, given)):
            if path and not UNKNOWN.search(path):
                yield posixpath.join(folder, path), deed


def _touched(program: str, given: Sequence[str]) -> Iterator[Deed]:
    """Yield what a program does to the files that it is given, of those whose arguments are files."""
    paths = [each for each in given if not each.startswith("-")]
    match posixpath.basename(program):
        case "rm" | "unlink":
            yield from ((path, "deleted") for path in paths)
        case "mv" if len(paths) > 1:
            yield from ((path, "deleted") for path in paths[:-1])
            yield paths[-1], "written"
        case "cp" if len(paths) > 1:
            yield paths[-1], "written"
        case "tee" | "touch" | "truncate":
            yield from ((path, "written") for path in paths)
        case "sed" | "perl" if any(map(IN_PLACE.match, given)):
            yield from ((path, "written") for path in _edited(given))
        case _:
            pass


def _edited(given: Sequence[str]) -> list[str]:
    """Return the files of an editor of streams: all but options and the script."""
    scripts = [at for at, each in enumerate(given) if SCRIPT.fullmatch(each)]
    values = {at + 1 for at in scripts}
    paths = [each for at, each in enumerate(given) if at not in values and not each.startswith("-")]
    return paths if scripts else paths[1:]


def _commands(command: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of each simple command, from its program on, and the files that its output goes to."""
    words: list[str] = []
    targets: list[str] = []
    awaited: list[str] = []
    turn, at = "", 0
    while at < len(command) and (found := TOKEN.match(command, at)):
        at = found.end()
        if found["word"]:
            word = _unquoted(found["word"])
            if HERE.fullmatch(turn):
                awaited.append(word)
            elif WRITING.fullmatch(turn):
                targets.append(word)
            elif not turn and (words or not (word in BEFORE_PROGRAMS or ASSIGNMENT.match(word))):
                words.append(word)
        turn = found["turn"] or ("" if found["word"] or found["end"] else turn)
        if found["end"]:
            yield words, targets
            words, targets = [], []
        if found["end"] == "\n" and awaited:
            at = _behind(command, at, awaited)
            awaited = []
    yield words, targets


def _behind(command: str, at: int, awaited: Sequence[str]) -> int:
    """Return the place behind texts that stand in a command up to a line of their own, one after the other."""
    for last in awaited:
        found = re.compile(rf"^\t*{re.escape(last)}$", re.MULTILINE).search(command, at)
        at = found.end() if found else len(command)
    return at


def _unquoted(word: str) -> str:
    try:
        return "".join(shlex.split(word))
    except ValueError:
        return word
