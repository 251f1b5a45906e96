"""Two tasks for coding agents in a small repository, and a simulated model that works one off call by call.

The short one has forty calls over ten files that grow with the window, the long one sixty over forty files of a fixed
size.

The model keeps its place in the task itself, by results of tools and by the files on the disk, so that nothing that a
compaction takes away can lead it astray.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from offered_tools import call_of, list_call
from scripted_pruner import is_prune_order, valid_plan

from elbowroom.demo import Script, SimulatedTokenizer, Text, ToolCall

if TYPE_CHECKING:
    from pathlib import Path

Body = dict[str, Any]
Kind = Literal["search", "read", "edit", "run", "list"]
PROMPT: Final = "Raise the limit of every part tenfold, as README.md says, and check each part."
LONG_PROMPT: Final = "Read every part, and raise the limit of every other part tenfold, as README.md says."
DONE: Final = "Every limit is raised and every part is checked."
SUMMARY: Final = "The limit of every part is to be raised tenfold and each part to be checked. Some parts are done."
MOST_ATTEMPTS: Final = 5
PLAN_TOKENS: Final = 272
PARTS, LONG_PARTS = 10, 40
THINGS: Final = 8
"""About how many things a list of what is to do has."""
SHARE: Final = 0.25
"""How much of the window each part takes."""
TOKENS: Final = 1800
"""How many tokens each part of the long task takes."""
WORDS: Final = ("quay", "rope", "ferry", "anchor", "signal", "harbour", "lantern", "current", "ballast", "compass")
CHECK: Final = '''"""Checks one part: `python3 check.py 07` writes what it found into checked/07.txt."""

import pathlib
import re
import sys

number = sys.argv[1]
text = pathlib.Path("parts", f"part_{number}.py").read_text()
[limit] = re.findall(rf"^LIMIT_{number} = (\\d+)$", text, re.MULTILINE)
pathlib.Path("checked").mkdir(exist_ok=True)
pathlib.Path("checked", f"{number}.txt").write_text(f"limit {limit}\\n")
print(f"part {number}: limit {limit}, {text.count('def ')} functions, all fine")
'''


@dataclass(frozen=True, slots=True)
class Part:
    """A module of the repository: its number, of two digits, its text before the task, and what is done to it."""

    number: str
    text: str
    kinds: tuple[Kind, ...] = ("search", "read", "edit", "run")

    @property
    def path(self) -> str:
        """Return where it stands in the repository."""
        return f"parts/part_{self.number}.py"

    @property
    def before(self) -> str:
        """Return the line of the limit as it was."""
        return f"LIMIT_{self.number} = {int(self.number)}"

    @property
    def after(self) -> str:
        """Return the line of the limit as the task wants it."""
        return f"{self.before}0"


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the task: what is done, and to which part."""

    kind: Kind
    part: Part

    @property
    def command(self) -> str:
        """Return it as a command of a shell."""
        number, path = self.part.number, self.part.path
        match self.kind:
            case "search":
                return f"grep -rn '^LIMIT_{number} =' parts"
            case "read":
                return f"cat {path}"
            case "edit":
                return f"sed -i 's/^{self.part.before}$/{self.part.after}/' {path}"
            case "run":
                return f"python3 check.py {number}"
            case "list":
                return ""


@dataclass(frozen=True, slots=True)
class Task:
    """The repository in its folder, and its parts; with `keeps_list` the model writes down what is to do as it goes."""

    folder: Path
    parts: tuple[Part, ...]
    prompt: str = PROMPT
    keeps_list: bool = False

    @property
    def steps(self) -> list[Step]:
        """Return every call in its order."""
        listed: tuple[Kind, ...] = ("list",) if self.keeps_list else ()
        return [Step(kind, part) for part in self.parts for kind in (*listed, *part.kinds)]

    def things(self, now: Part) -> list[tuple[str, str]]:
        """Return what is to do when the work is at this part: each thing with its status."""
        at, each = self.parts.index(now), len(self.parts) // THINGS
        things = []
        for first in range(0, len(self.parts), each):
            parts = self.parts[first : first + each]
            told = f"Raise the limits from {parts[0].path} to {parts[-1].path}"
            if now in parts:
                things.append((f"{told}, now at {now.number}", "in_progress"))
            else:
                things.append((told, "completed" if first < at else "pending"))
        return things

    def wanted_files(self) -> dict[str, str]:
        """Return the files that the task changes or makes, as it wants them."""
        edited = [part for part in self.parts if "edit" in part.kinds]
        checked = [part for part in self.parts if "run" in part.kinds]
        files = {part.path: part.text.replace(f"{part.before}\n", f"{part.after}\n") for part in edited}
        return files | {f"checked/{part.number}.txt": f"limit {int(part.number)}0\n" for part in checked}

    def wrong_files(self) -> list[str]:
        """Return those of these files that are not so."""
        return [path for path, text in self.wanted_files().items() if self.read(path) != text]

    def read(self, path: str) -> str:
        """Return the text of a file, empty where there is none."""
        file = self.folder / path
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def is_on_disk(self, step: Step) -> bool:
        """Tell whether the files already are as a step makes them."""
        match step.kind:
            case "edit":
                return f"{step.part.after}\n" in self.read(step.part.path)
            case "run":
                return bool(self.read(f"checked/{step.part.number}.txt"))
            case _:
                return False


def write_task(folder: Path, window: int) -> Task:
    """Write the repository of a task whose files are two and a half times as large as the window of so many tokens."""
    parts = tuple(Part(f"{number:02}", source(number, int(window * SHARE))) for number in range(1, PARTS + 1))
    return written(Task(folder, parts))


def write_long_task(folder: Path) -> Task:
    """Write the repository of the task of sixty calls: every part is read, every other one is edited."""
    numbers = range(1, LONG_PARTS + 1)
    kinds: tuple[tuple[Kind, ...], ...] = (("read", "edit"), ("read",))
    parts = tuple(Part(f"{number:02}", source(number, TOKENS), kinds[number % 2]) for number in numbers)
    return written(Task(folder, parts, LONG_PROMPT))


def written(task: Task) -> Task:
    """Write the repository of a task, and return it."""
    files = {part.path: part.text for part in task.parts}
    files |= {"check.py": CHECK, "README.md": f"# Harbour\n\n{task.prompt}\n`python3 check.py 07` checks part 07.\n"}
    for path, text in files.items():
        (task.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (task.folder / path).write_text(text, encoding="utf-8")
    return task


def source(number: int, tokens: int) -> str:
    """Return the source of a part that has about so many tokens."""
    chance, split = random.Random(number), SimulatedTokenizer().split
    lines = [f'"""Part {number:02} of the harbour."""\n', f"LIMIT_{number:02} = {number}\n"]
    left = tokens - len(split("".join(lines)))
    while left > 0:
        one, other = chance.choices(WORDS, k=2)
        lines.append(
            f"\ndef {one}_{other}_{len(lines)}(load):\n    return load * {chance.randrange(1000)} + LIMIT_{number:02}\n"
        )
        left -= len(split(lines[-1]))
    return "".join(lines)


class CodingModel:
    """An `on_request` for the simulated LM Studio: makes the next call of the task, with the tools that are offered.

    `attempts` counts how often each step was asked for; `orders` the requests of compactions, `side` those without
    tools, such as the client's for a title.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._left = task.steps
        self._arguments: Body = {}
        self.attempts = 0
        self.orders = 0
        self.side = 0

    def __call__(self, body: Body) -> Script:
        """Return the plan for an order, a summary for a request without tools, else the next call."""
        if is_prune_order(body):
            self.orders += 1
            return said(usual_plan(body))
        self._take_in(body)
        if not body.get("tools"):
            self.side += 1
            return said(SUMMARY)
        if not self._left or self.attempts >= MOST_ATTEMPTS:
            return said(DONE if not self._left else "I cannot go on.")
        while (called := self._call(self._left[0], body["tools"])) is None:
            self._left = self._left[1:]
        self.attempts += 1
        name, self._arguments = called
        return Script(ToolCall(name, self._arguments))

    def _call(self, step: Step, tools: list[Body]) -> tuple[str, Body] | None:
        if step.kind == "list":
            return list_call(self._task.things(step.part), tools)
        return call_of(step, self._task.folder, tools)

    def _take_in(self, body: Body) -> None:
        is_answered = answered_call(body["messages"]) == self._arguments
        while self._left and (is_answered or self._task.is_on_disk(self._left[0])):
            if self._left[0].kind in ("edit", "run") and not self._task.is_on_disk(self._left[0]):
                return
            is_answered, self.attempts = False, 0
            self._left = self._left[1:]


def answered_call(messages: list[Body]) -> Body | None:
    """Return the arguments of the last call that has a result; None where none has."""
    results = [message for message in messages if message["role"] == "tool"]
    number = results[-1]["tool_call_id"] if results else None
    calls = [call for message in messages for call in message.get("tool_calls") or () if call["id"] == number]
    return json.loads(calls[-1]["function"]["arguments"]) if calls else None


def usual_plan(body: Body) -> str:
    """Return a valid plan for an order, as long as those of real models are, as far as the order lets it be."""
    plan, most = json.loads(valid_plan(body)), min(PLAN_TOKENS, body["max_tokens"] // 2)
    told = itertools.cycle(WORDS)
    while len(SimulatedTokenizer().split(json.dumps(plan))) < most:
        plan["summary"] += f" The {next(told)} was looked at and the {next(told)} was left as it is."
    return json.dumps(plan)


def said(text: str) -> Script:
    """Return the script that says a text in one piece."""
    return Script(Text(text, whole=True))
