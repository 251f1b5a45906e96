"""The rules that keep the rooms apart."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import agents
import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "elbowroom"
ROOMS = [
    "errors",
    "settings",
    "logs",
    "vault",
    "tokens",
    "providers",
    "context",
    "store",
    "agents",
    "doctor",
    "server",
    "autostart",
    "status",
    "cli",
]
SOURCES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    """Return the room of a dotted name below `elbowroom`, or the package's own name for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "elbowroom"


def imports_of(path: Path) -> Iterator[str]:
    """Yield the absolute names of everything a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(path: Path) -> str:
    """Return the dotted name of a source file."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_point_one_way(path: Path) -> None:
    """A room imports only itself and rooms to its left; the demo only the errors."""
    own = room_of(module_of(path))
    if own in ("elbowroom", "__main__"):
        return
    allowed = {"errors", "demo"} if own == "demo" else set(ROOMS[: ROOMS.index(own) + 1])
    if own == "cli":
        allowed |= {"demo"}
    for name in imports_of(path):
        if name.startswith("elbowroom.") and name != "elbowroom.__version__":
            assert room_of(name) in allowed, f"{module_of(path)} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_foreign_libraries_stay_in_their_rooms(path: Path) -> None:
    """`aiohttp.web` is for server and demo, the SDK for agents (not the catalog), SQL for store; no I/O in context."""
    module, own = module_of(path), room_of(module_of(path))
    names = list(imports_of(path))
    if own not in ("server", "demo"):
        assert not [name for name in names if name.startswith("aiohttp.web")]
    if own != "agents" or module == "elbowroom.agents.catalog":
        runtime = [name for name in names if name.split(".")[0] == "agents"]
        assert not runtime or module == "elbowroom.server.runtime", "only as a type"
    if own != "store":
        assert not [
            name
            for name in names
            if name.split(".")[0] in ("sqlalchemy", "sqlite3", "alembic", "filelock")
        ]
    if own == "context":
        assert not [
            name for name in names if name.split(".")[0] in ("aiohttp", "agents", "asyncio", "sqlite3", "socket")
        ]


def test_import_agents_is_the_sdk() -> None:
    """`import agents` is the OpenAI Agents SDK: nothing of ours shadows it."""
    assert agents.__file__ is not None
    assert not Path(agents.__file__).is_relative_to(PACKAGE.parent)
    assert hasattr(agents, "Runner")


def test_building_the_app_does_not_load_the_sdk() -> None:
    """The server can be put together without the SDK, whose import takes over a second."""
    script = "import sys, elbowroom.server.listen; sys.exit('agents' in sys.modules or 'openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import elbowroom` loads neither tokenizers nor tiktoken nor the SDK nor aiohttp."""
    heavy = "{'tokenizers', 'tiktoken', 'agents', 'openai', 'aiohttp', 'pydantic'}"
    script = f"import sys, elbowroom; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_no_package_marker_below_tests() -> None:
    """No `__init__.py` and no folder named `agents` below tests, either of which would hide the SDK from tests."""
    tests = REPOSITORY / "tests"
    assert not list(tests.rglob("__init__.py"))
    assert not [path for path in tests.rglob("agents") if path.is_dir()]
