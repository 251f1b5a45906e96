"""Two guards: people set nothing that the program does not read, and it holds no code that nobody calls."""

import ast
import importlib
import re
import typing
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from pydantic import BaseModel

from elbowroom.settings.model import Settings

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "elbowroom"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
WORD: Final = re.compile(r"\w+")
WHOLE: Final = frozenset({"model_dump", "model_fields"})
"""What a section's own method uses to read all fields at once."""
CALLED_BY_ALEMBIC: Final = PACKAGE / "store" / "sql" / "migrations"


@cache
def trees(folder: Path) -> Mapping[Path, ast.Module]:
    """Return the syntax trees of all Python files below a folder."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}


# Settings that nothing reads


def sections(model: type[BaseModel] = Settings) -> Iterator[type[BaseModel]]:
    """Yield a class of settings and all that its fields hold."""
    yield model
    for field in model.model_fields.values():
        for inner in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from sections(inner)


def read_fields(sources: Iterable[ast.Module], models: Mapping[str, type[BaseModel]]) -> set[tuple[str, str]]:
    """Return the (class, attribute) pairs that the sources read.

    What a name holds is told by annotations, by loops over a list of tables and by assignments from a table; a name
    means the same everywhere.
    """
    nodes = [node for source in sources for node in ast.walk(source)]
    held = held_sections(nodes, models)
    loads = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    return {(section, node.attr) for node in loads for section in held.get(last_name(node.value), ())}


def held_sections(nodes: Iterable[ast.AST], models: Mapping[str, type[BaseModel]]) -> Mapping[str, set[str]]:
    """Return for each name the classes of settings that it may hold."""
    held: dict[str, set[str]] = defaultdict(set)
    for model in models.values():
        for name, field in model.model_fields.items():
            held[name] |= {inner for inner in models if inner in str(field.annotation)}
    for node in nodes:
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            name = node.arg if isinstance(node, ast.arg) else last_name(node.target)
            held[name] |= annotated(node.annotation, models)
        elif isinstance(node, Function) and node.returns is not None:
            held[node.name] |= annotated(node.returns, models)
    moves = [node for node in nodes if isinstance(node, ast.For | ast.comprehension | ast.Assign)]
    for node in moves * 2:  # twice: a loop over what an assignment has named
        if isinstance(node, ast.For | ast.comprehension):
            held[last_name(node.target)] |= held[last_name(node.iter)]
        else:
            held[last_name(node.targets[0])] |= held[last_name(node.value)]
    held.pop("", None)
    held.pop("self", None)
    return held


def annotated(annotation: ast.expr, models: Mapping[str, type[BaseModel]]) -> set[str]:
    """Return the classes of settings that an annotation names, be it in quotes."""
    names = {last_name(node) for node in ast.walk(annotation)}
    quoted = {str(node.value) for node in ast.walk(annotation) if isinstance(node, ast.Constant)}
    return {model for model in models if model in names | quoted}


def last_name(node: ast.AST) -> str:
    """Return the name that an expression ends with: `agents` for `loaded.settings.agents[0]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Await(value=inner) | ast.Call(func=inner):
            return last_name(inner)
        case _:
            return ""


def unread_settings(sources: Iterable[ast.Module]) -> set[str]:
    """Return the settings that these sources do not read, neither themselves nor by a method of their section."""
    models = {model.__name__: model for model in sections()}
    read = read_fields(sources, models)
    declared = ast.walk(trees(PACKAGE)[PACKAGE / "settings" / "model.py"])
    for section in (node for node in declared if isinstance(node, ast.ClassDef) and node.name in models):
        for method in (node for node in section.body if isinstance(node, Function)):
            if (section.name, method.name) in read:
                used = {node.attr for node in ast.walk(method) if isinstance(node, ast.Attribute)}
                used |= set(models[section.name].model_fields) if used & WHOLE else set()
                read |= {(section.name, name) for name in used}
    return {
        f"{name}.{field}" for name, model in models.items() for field in model.model_fields if (name, field) not in read
    }


@pytest.mark.slow
def test_every_setting_is_read() -> None:
    """Each key that a person may set is read outside the room of settings, or by what keeps them up to date."""
    readers = {path: tree for path, tree in trees(PACKAGE).items() if path.parent.name != "settings"}
    readers[PACKAGE / "settings" / "live.py"] = trees(PACKAGE)[PACKAGE / "settings" / "live.py"]
    unread = unread_settings(readers.values())
    assert not unread


@pytest.mark.slow
def test_a_setting_that_nothing_reads_is_found() -> None:
    """A name that is read of something else does not count: `tool.timeout` is not `mcp_servers.timeout`."""
    source = "def f(tool: Tool, agent: AgentSettings) -> None:\n    tool.timeout, agent.model\n"
    unread = unread_settings([ast.parse(source)])
    assert "McpServerSettings.timeout" in unread
    assert "AgentSettings.max_turns" in unread
    assert "AgentSettings.model" not in unread


# Code that nothing calls


class Named(NamedTuple):
    """A public class, function or method, where it stands."""

    name: str
    path: Path
    line: int
    owner: str | None = None

    def __str__(self) -> str:
        """Write it as a place to jump to."""
        return f"{self.path.relative_to(REPOSITORY)}:{self.line} {f'{self.owner}.' if self.owner else ''}{self.name}"


def public_names(path: Path, tree: ast.Module) -> Iterator[Named]:
    """Yield what a module defines for others."""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield Named(node.name, path, node.lineno)
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, Function) and not inner.name.startswith("_"):
                        yield Named(inner.name, path, inner.lineno, node.name)


def mentions(tree: ast.Module) -> set[str]:
    """Return the names that code mentions; inside a definition of the same name they do not count."""
    found: set[str] = set()
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        node, inside = waiting.pop()
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found |= {name} - inside
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                inside |= {name}
            case _:
                pass
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def overrides_a_library(found: Named) -> bool:
    """Tell whether a method has its name from a class of a library, which calls it."""
    if found.owner is None:
        return False
    module = ".".join(found.path.relative_to(PACKAGE.parent).with_suffix("").parts)
    own = getattr(importlib.import_module(module), found.owner)
    return any(hasattr(base, found.name) for base in own.__mro__ if not base.__module__.startswith("elbowroom"))


def uncalled(sources: Mapping[Path, ast.Module], mentioned: set[str]) -> list[Named]:
    """Return the public names of the sources that are not among those that are mentioned."""
    return [
        found for path, tree in sources.items() for found in public_names(path, tree) if found.name not in mentioned
    ]


@pytest.mark.slow
def test_everything_public_has_a_caller() -> None:
    """Each public class, function, method and property is used by the program; those of the demo and of the measurement
    of compactions may be by the tests and by its script.

    `cli.main` is the entry point of the package, and Alembic calls its migrations.
    """
    sources = {path: tree for path, tree in trees(PACKAGE).items() if CALLED_BY_ALEMBIC not in path.parents}
    demo = {path: tree for path, tree in sources.items() if path.parent.name in ("demo", "quality")}
    used = set[str]().union(*map(mentions, sources.values()))
    users = [path for folder in ("tests", "scripts/quality_study") for path in (REPOSITORY / folder).rglob("*.py")]
    outside = {word for path in users for word in WORD.findall(path.read_text("utf-8"))}
    rest = {path: tree for path, tree in sources.items() if path not in demo}
    dead = uncalled(rest, used) + uncalled(demo, used | outside)
    names = [str(found) for found in dead if not overrides_a_library(found)]
    assert not names, "\n".join(names)


def test_a_function_that_nothing_calls_is_found() -> None:
    """Neither an import nor a call of its own, nor one in a method of the same name, makes code alive."""
    source = (
        "from x import lost\n"
        "def lost(): return lost()\n"
        "def used(): pass\n"
        "class Kept:\n"
        "    def passed_on(self): return self.inner.passed_on()\n"
        "    def called(self): used()\n"
        "Kept().called()\n"
    )
    tree = ast.parse(source)
    assert [found.name for found in uncalled({Path("x.py"): tree}, mentions(tree))] == ["lost", "passed_on"]
