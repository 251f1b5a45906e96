"""Where the store is, and that it costs nothing before it is used."""

import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest
from settings_file import load, refusal

from elbowroom.errors import SettingsError
from elbowroom.settings.fields import data_dir
from elbowroom.settings.model import StoreSettings
from elbowroom.store import database_path, open_store

TAKES = (
    "it takes an empty text, or sqlite:/// with the full path of a file after it, such as "
    "sqlite:////home/me/elbowroom.db or sqlite:///C:/elbowroom/elbowroom.db, or sqlite:///:memory:, or the "
    "address of a PostgreSQL database such as postgresql://me@localhost/elbowroom."
)


def names_in(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return [file.name for file in folder.iterdir()]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////srv/chats.db", Path("/srv/chats.db")),
        ("sqlite:///C:/data/chats.db", Path("C:/data/chats.db")),
        ("sqlite:///:memory:", None),
        ("sqlite://", None),
        ("sqlite+aiosqlite:////srv/chats.db", Path("/srv/chats.db")),
        ("sqlite+aiosqlite:////srv/with space/100%/#1.db", Path("/srv/with space/100%/#1.db")),
        ("sqlite+aiosqlite:///C:/data/chats.db", Path("C:/data/chats.db")),
        ("sqlite+aiosqlite:///C:\\data\\chats.db", Path("C:\\data\\chats.db")),
        ("sqlite+aiosqlite:///:memory:", None),
        ("sqlite+aiosqlite://", None),
    ],
)
def test_the_url_names_a_file_or_memory(tmp_path: Path, url: str, path: Path | None) -> None:
    """What stands after the third slash is the file, letter for letter; the scheme of earlier versions works on."""
    settings = load(tmp_path, f"[store]\nurl = '{url}'\n").settings.store
    assert settings.url == url
    assert database_path(settings, {}) == path


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://me@localhost/chats",
        "sqlite+pysqlite:////srv/chats.db",
        "sqlite:///chats.db",
        "sqlite://host/chats.db",
        "sqlite+aiosqlite:///chats.db",
        "sqlite+aiosqlite:///~/chats.db",
        "sqlite+aiosqlite:////srv/",
        "sqlite+aiosqlite:////srv/chats.db?mode=ro",
        "sqlite+aiosqlite://host/chats.db",
        "/srv/chats.db",
    ],
)
def test_any_other_url_is_refused(tmp_path: Path, url: str) -> None:
    """Another database, a relative path or a path alone: the answer names what is accepted."""
    said = refusal(tmp_path, f"[store]\nurl = '{url}'\n")
    assert said.startswith("FILE: store.url = ")
    assert said.endswith(f" is not accepted; {TAKES}")


@pytest.mark.parametrize(
    ("days", "takes"),
    [
        ("-1", "0 or more"),
        ("36501", "36500 or less"),
        ("true", "a number, not true or false"),
        ("'x'", "a whole number"),
    ],
)
def test_wrong_days_are_refused(tmp_path: Path, days: str, takes: str) -> None:
    """Days are a whole number from 0 to a hundred years."""
    said = refusal(tmp_path, f"[store]\nretention_days = {days}\n")
    assert said.endswith(f"is not accepted; it takes {takes}.")


def test_the_environment_sets_it(tmp_path: Path) -> None:
    """ELBOWROOM_STORE__URL and ELBOWROOM_STORE__RETENTION_DAYS work as for every table."""
    environ = {"ELBOWROOM_STORE__URL": "sqlite+aiosqlite:///:memory:", "ELBOWROOM_STORE__RETENTION_DAYS": "7"}
    store = load(tmp_path, "", environ).settings.store
    assert (store.url, store.retention_days) == ("sqlite+aiosqlite:///:memory:", 7)


def test_without_a_url_it_is_in_the_data_folder(tmp_path: Path) -> None:
    """The folder is ELBOWROOM_DATA_DIR, else the platform's; `~` is the home folder."""
    named = {"ELBOWROOM_DATA_DIR": str(tmp_path)}
    assert database_path(StoreSettings(), named) == tmp_path / "elbowroom.db"
    assert data_dir({}) == platformdirs.user_data_path("elbowroom", appauthor=False)
    assert data_dir({"ELBOWROOM_DATA_DIR": "~/data"}) == Path.home() / "data"
    with pytest.raises(SettingsError, match="ELBOWROOM_DATA_DIR = 'data' is not accepted; it takes the full path"):
        data_dir({"ELBOWROOM_DATA_DIR": "data"})


async def test_opening_touches_nothing_until_it_is_used(tmp_path: Path) -> None:
    """The file is made with the first use, and one that was never used is closed without a trace."""
    store = open_store(StoreSettings(), {"ELBOWROOM_DATA_DIR": str(tmp_path / "data")})
    await store.aclose()
    assert names_in(tmp_path) == []
    store = open_store(StoreSettings(), {"ELBOWROOM_DATA_DIR": str(tmp_path / "data")})
    await store.ledger.keys()
    await store.aclose()
    assert names_in(tmp_path / "data") == ["elbowroom.db"]


async def test_it_can_be_opened_before_it_is_used(tmp_path: Path) -> None:
    """A server that listens begins to open the file and goes on at once; closing waits until it is whole."""
    store = open_store(StoreSettings(), {"ELBOWROOM_DATA_DIR": str(tmp_path)})
    store.open_soon()
    assert names_in(tmp_path) == []
    await store.aclose()
    assert names_in(tmp_path) == ["elbowroom.db"]
    assert store.news() == []


async def test_memory_leaves_no_file(tmp_path: Path) -> None:
    """With `:memory:` the data folder is not even made."""
    environ = {"ELBOWROOM_DATA_DIR": str(tmp_path / "data")}
    store = open_store(StoreSettings(url="sqlite+aiosqlite:///:memory:"), environ)
    assert list(await store.ledger.keys()) == []
    ref = await store.tool_outputs.keep("me", "read", "text")
    assert await store.tool_outputs.find("me", ref.id) == ref
    memory = await store.memories.save("me", "agent", "text", 0.0)
    assert await store.memories.all("me", "agent") == [memory]
    assert not await store.conversations.settled()  # nothing of it is durable
    await store.aclose()
    assert names_in(tmp_path) == []


@pytest.mark.slow
def test_sqlalchemy_is_not_loaded_before_the_store_is_used() -> None:
    """The server can be put together without SQLAlchemy, whose import takes a good part of a second."""
    script = (
        "import sys, elbowroom.store as o, elbowroom.settings.model as m; "
        "o.open_store(m.StoreSettings(), {}); "
        "sys.exit(bool({'sqlalchemy', 'sqlite3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
