"""An address names a file, memory, or a database on a PostgreSQL server, whose password is shown nowhere."""

import importlib.util
from pathlib import Path

import pytest
from settings_file import load, refusal

from elbowroom.errors import SettingsError
from elbowroom.settings.model import StoreSettings
from elbowroom.store import ServerPlace, database_path, open_store, store_place
from elbowroom.store.place import MISSING, place_of

PASSWORD = "open:sesame/@ 1"


@pytest.mark.parametrize(
    ("url", "address", "secret"),
    [
        ("postgresql://me@localhost/chats", "postgresql://me@localhost/chats", None),
        ("postgres://me@localhost:5433/chats", "postgresql://me@localhost:5433/chats", None),
        ("postgresql:///chats", "postgresql:///chats", None),
        ("postgresql://one,two:5433/chats?target_session_attrs=read-write",) * 2 + (None,),
        ("postgresql://me:env:DB_PASSWORD@localhost/chats", "postgresql://me@localhost/chats", "env:DB_PASSWORD"),
        ("postgresql://me:file:/run/db/password@[::1]/chats", "postgresql://me@[::1]/chats", "file:/run/db/password"),
        ("postgresql://:env:DB_PASSWORD@/chats?host=/run", "postgresql:///chats?host=/run", "env:DB_PASSWORD"),
    ],
)
def test_an_address_of_a_server(tmp_path: Path, url: str, address: str, secret: str | None) -> None:
    """It is libpq's own, with several servers and options, and a password is named where one would stand."""
    settings = load(tmp_path, f"[store]\nurl = '{url}'\n").settings.store
    place = store_place(settings, {})
    assert isinstance(place, ServerPlace)
    assert str(place) == place.address == address
    assert (str(place.secret) if place.secret else None) == secret
    assert database_path(settings, {}) is None


def test_the_password_is_read_anew_for_each_connection(tmp_path: Path) -> None:
    """It comes from a variable, or from a file, which may change while elbowroom runs."""
    place = place_of("postgresql://me:env:DB_PASSWORD@localhost/chats", {"DB_PASSWORD": PASSWORD})
    assert isinstance(place, ServerPlace)
    assert place.password() == PASSWORD
    assert PASSWORD not in f"{place} {place!r}"
    place = place_of(f"postgresql://me:file:{tmp_path}/password@localhost/chats", {})
    assert isinstance(place, ServerPlace)
    for password in ("first", PASSWORD):
        (tmp_path / "password").write_text(f"{password}\n")
        assert place.password() == password


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{PASSWORD}@localhost/chats",
        "postgresql://me:sesame@localhost/chats",
        "postgres://me:sesame@localhost/chats",
        "postgresql://me@localhost/chats?password=sesame",
        "postgresql://me@localhost/chats?sslmode=require&password=sesame",
        "postgresql://me@localhost/chats?sslpassword=sesame",
        "postgresql:me:sesame@localhost",
        "postgresql://me:file:sesame@localhost/chats",
    ],
)
def test_a_password_in_the_address_is_refused(tmp_path: Path, url: str) -> None:
    """The answer says how it is written, and does not repeat it."""
    said = refusal(tmp_path, f"[store]\nurl = '{url}'\n")
    assert "sesame" not in said
    assert "postgresql://me:env:DATABASE_PASSWORD@localhost/elbowroom" in said


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL needs a package that is not installed by itself; without it no server starts."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SettingsError) as refused:
        open_store(StoreSettings(url="postgresql://me@localhost/chats"), {})
    assert str(refused.value) == MISSING
    assert "pip install 'elbowroom[postgres]'" in MISSING
