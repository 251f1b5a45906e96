"""The rules that keep the rooms apart."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import agents
import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "elbowroom"
ROOMS = (
    "errors",
    "caches",
    "elsewhere",
    "settings",
    "logs",
    "vault",
    "tokens",
    "providers",
    "context",
    "store",
    "agents",
    "doctor",
    "connect",
    "quality",
    "server",
    "autostart",
    "status",
    "cli",
)
INSIDE = {
    "tokens": ("errors images anchoring | files templates | count worker | renderer | families | file_counter counter"),
    "providers": (
        "base failures | upstream | stream renaming | pass_through slot_files | lmstudio | windows | openai_compatible "
        "| machine_management | machines | seen registry"
    ),
    "context": (
        "transcript budget costs remote_images | fixed_cost divisible effects canonical seam templates outputs "
        "conversation observations | ledger memories branch compaction | passages | unasked | prompt "
        "| manager put_back masking repeats | fitting | planner | reuse | slots | answers"
    ),
    "store": (
        "base questions said tokens | lock identity place | changes packed message_parts inspection | index "
        "| unwritten | backlog sql sql.dialect sql.search sql.sharing sql.moving | write_behind "
        "| rows outputs stand_by sharing people | conversations | store"
    ),
    "agents": (
        "sdk catalog request broken_json | answer | running | admission | conversations | tools tools.outputs "
        "tools.mcp | tools.recall | prompt | refusals ask | turn | offered task_history rehearsal | task | run "
        "| answering dry_run by_hand"
    ),
    "server": (
        "state encode | guard | metrics | request middleware page model_rows models | event_stream | dialect | chat "
        "conversations | responses messages passing people | settings quality pairing doctor vault obsidian mcp "
        "| app | listen"
    ),
}
"""The order inside a room: what stands left of a bar may be imported by what stands right of it, not the reverse."""
LATE = frozenset(
    {
        "elbowroom.tokens.files.engines",
        "elbowroom.tokens.files.folder",
        "elbowroom.tokens.files.gguf",
        "elbowroom.tokens.files.gguf_tokenizer",
        "elbowroom.agents.tools.mcp.convert",
        "elbowroom.agents.tools.mcp.lines",
        "elbowroom.agents.tools.mcp.link",
        "elbowroom.agents.tools.vault",
        "elbowroom.server.mcp.protocol",
    }
)
"""Modules that load heavy libraries: no face imports them, and others do so inside a function or for a type only."""
SQL = ("sqlalchemy", "sqlite3", "alembic", "filelock")
HEART = (
    "elbowroom.context.prompt",
    "elbowroom.context.planner",
    "elbowroom.context.manager",
    "elbowroom.context.fitting",
    "elbowroom.context.repeats",
)
"""Where it is decided, without I/O, what happens to a prompt."""
MOST_TYPES = 35


class Import(NamedTuple):
    """One imported name: who imports it, its dotted name, and whether it is imported at start-up."""

    importer: str
    name: str
    is_late: bool


def module_of(path: Path) -> str:
    """Return the dotted name of a source file."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


SOURCES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
FACES = frozenset(module for module, path in SOURCES.items() if path.name == "__init__.py" and module.count(".") >= 2)


@cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a source file."""
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


@cache
def imports() -> tuple[Import, ...]:
    """Return everything that any source file imports, wherever in the file it does."""
    return tuple(found for module in SOURCES for found in imports_below(module, tree_of(module), is_late=False))


def imports_below(module: str, node: ast.AST, *, is_late: bool) -> Iterator[Import]:
    """Yield the imports below a node; those in functions and for types only are late."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # which nobody imports in
            continue
        if isinstance(child, ast.Import):
            yield from (Import(module, alias.name, is_late) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield from (Import(module, f"{child.module}.{alias.name}", is_late) for alias in child.names)
        postpones = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
        )
        yield from imports_below(module, child, is_late=is_late or postpones)


@cache
def offered(face: str) -> frozenset[str]:
    """Return the dotted names that the `__init__` of a sub-package offers."""
    names = {name.rpartition(".")[2] for importer, name, _ in imports() if importer == face}
    return frozenset(f"{face}.{name}" for name in names)


@cache
def imported_module(name: str) -> str:
    """Return the module of ours that an imported name stands in, or that it is."""
    package = name.rpartition(".")[0]
    return name if name in SOURCES and not (package in FACES and name in offered(package)) else package


@cache
def room_of(module: str) -> str:
    """Return the room of a dotted name below `elbowroom`, or the package's own name for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "elbowroom"


@cache
def face_of(module: str) -> str | None:
    """Return the innermost sub-package that a module stands in, or None for one that stands directly in its room."""
    if module in FACES:
        return module
    package = module.rpartition(".")[0]
    return package if package in FACES else None


@pytest.mark.slow
def test_imports_point_one_way() -> None:
    """A room imports only itself and rooms to its left; the demo only the errors."""
    for importer, name, _ in imports():
        own = room_of(importer)
        if own in ("elbowroom", "__main__") or not name.startswith("elbowroom.") or name == "elbowroom.__version__":
            continue
        allowed = {"errors", "demo"} if own == "demo" else set(ROOMS[: ROOMS.index(own) + 1])
        if own == "cli":
            allowed |= {"demo"}
        assert room_of(name) in allowed, f"{importer} imports {name}"


@pytest.mark.slow
def test_imports_inside_a_room_point_one_way() -> None:
    """A sub-package or module of a room imports only what stands left of it, or beside it between the same bars."""
    for room, order in INSIDE.items():
        floors = [floor.split() for floor in order.split("|")]
        floor_of = {f"elbowroom.{room}.{name}": at for at, floor in enumerate(floors) for name in floor}
        for module in SOURCES:
            if module.startswith(f"elbowroom.{room}.") and ".migrations." not in module:
                assert face_of(module) in floor_of or module in floor_of, f"{module} has no place in the order"
        for importer, name, _ in imports():
            own, other = (floor_of.get(face_of(module) or module) for module in (importer, imported_module(name)))
            if own is not None and other is not None:
                assert other <= own, f"{importer} imports {name}"


def test_no_circles_of_imports() -> None:
    """No two modules import each other at start-up, directly or round about.

    What is imported for a type only, or inside a function, is left out.
    """
    leads = {module: set[str]() for module in SOURCES}
    for importer, name, is_late in imports():
        if name.startswith("elbowroom.") and importer not in FACES and not is_late:
            leads[importer].add(imported_module(name))
    left = dict(leads)
    while left:
        free = {module for module, others in left.items() if not others & left.keys()}
        assert free, f"a circle among {sorted(left)}"
        for module in free:
            del left[module]


def test_others_import_from_faces_only() -> None:
    """What stands outside a sub-package imports from its `__init__`; late imports of heavy modules name the module."""
    for importer, name, is_late in imports():
        module = imported_module(name)
        face = face_of(module)
        if face is None or module == face or importer == face or importer.startswith(f"{face}."):
            continue
        assert module in LATE, f"{importer} imports {name}, not from {face}"
        assert is_late, f"{importer} imports {name} at start-up"


def test_faces_offer_what_others_take() -> None:
    """Each name that a face offers is imported by somebody outside its sub-package."""
    taken = {name for importer, name, _ in imports() if imported_module(name) in FACES}
    for face in FACES - {"elbowroom.agents.run"}:  # loaded by its name, since it loads the SDK
        assert not offered(face) - taken, f"nobody outside takes {sorted(offered(face) - taken)}"


def test_foreign_libraries_stay_in_their_rooms() -> None:
    """`aiohttp.web` is for server and demo, the SDK for agents (not the catalog), SQL for store; no I/O in context."""
    for importer, name, _ in imports():
        own, library = room_of(importer), name.split(".")[0]
        told = f"{importer} imports {name}"
        assert own in ("server", "demo") or not name.startswith("aiohttp.web"), told
        assert own == "agents" or library != "agents", told
        assert importer != "elbowroom.agents.catalog" or library != "agents", told
        assert own == "store" or library not in SQL, told
        assert own != "context" or library not in ("aiohttp", "agents", "asyncio", "sqlite3", "socket"), told


def test_types_of_the_heart() -> None:
    """Who changes what happens to a prompt has to know few of our classes: those that these files name."""
    ours = {
        node.name
        for module in SOURCES
        for node in tree_of(module).body
        if isinstance(node, ast.ClassDef) and room_of(module) != "demo"
    }
    named = {node.id for module in HEART for node in ast.walk(tree_of(module)) if isinstance(node, ast.Name)}
    named |= {node.name for module in HEART for node in ast.walk(tree_of(module)) if isinstance(node, ast.ClassDef)}
    assert len(named & ours) <= MOST_TYPES, sorted(named & ours)


@pytest.mark.slow
def test_functions_stay_short() -> None:
    """Half of all functions have at most 8 lines, nine tenths at most 20."""
    sizes = sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in SOURCES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert sizes[len(sizes) // 2] <= 8
    assert sizes[len(sizes) * 9 // 10] <= 20


def test_import_agents_is_the_sdk() -> None:
    """`import agents` is the OpenAI Agents SDK: nothing of ours shadows it."""
    assert agents.__file__ is not None
    assert not Path(agents.__file__).is_relative_to(PACKAGE.parent)
    assert hasattr(agents, "Runner")


@pytest.mark.slow
def test_building_the_app_does_not_load_heavy_libraries() -> None:
    """The server listens without what only some requests need, whose imports take seconds and 150 MiB."""
    heavy = (
        "{'agents', 'openai', 'mcp', 'sqlalchemy', 'alembic', 'tokenizers', 'tiktoken', 'jinja2', 're2', 'tomlkit', "
        "'elbowroom.vault', 'numpy', 'sqlite3', 'transformers'}"
    )
    loaded = "import sys, elbowroom.server.listen, elbowroom.store.inspection"
    script = f"{loaded}; sys.exit(' '.join({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert not done.stderr.strip()


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import elbowroom` loads neither tokenizers nor tiktoken nor the SDK nor aiohttp.

    The command line, as which each command begins, loads none of the rooms that only some commands need.
    """
    heavy = "{'tokenizers', 'tiktoken', 'agents', 'openai', 'aiohttp', 'pydantic'}"
    rooms = "{'aiohttp', 'elbowroom.tokens', 'elbowroom.context', 'elbowroom.store', 'elbowroom.agents'}"
    script = f"import sys, elbowroom; found = {heavy} & set(sys.modules); "
    script += f"import elbowroom.cli; sys.exit(bool(found | {rooms} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_no_folder_of_tests_hides_the_sdk() -> None:
    """No `__init__.py` below tests, and no folder on the path of tests holds one named `agents`."""
    tests = REPOSITORY / "tests"
    assert not list(tests.rglob("__init__.py"))
    on_the_path = [Path(folder) for folder in sys.path if Path(folder).is_relative_to(tests)]
    assert on_the_path
    assert not [folder for folder in on_the_path if (folder / "agents").exists()]
