"""Where the store is: in a file, on a PostgreSQL server, or, without a place, in memory."""

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from elbowroom.errors import SettingsError
from elbowroom.settings.fields import SecretRef, data_dir

FILE_NAME: Final = "elbowroom.db"
SCHEMES: Final = ("sqlite://", "sqlite+aiosqlite://")
"""The second is what earlier versions took."""
IN_MEMORY: Final = frozenset({"", "/:memory:"})
SERVER: Final = re.compile(r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^:@/?]*)(?::(?P<secret>.*))?@)?(?P<rest>[^@]*)")
DRIVER: Final = "psycopg"
MISSING: Final = (
    "store.url names a PostgreSQL database, for which elbowroom needs the package psycopg, which is not installed. "
    "Install it with: pip install 'elbowroom[postgres]'"
)


OTHER_ENCODING: Final = (
    "its database has the encoding {encoding}, which cannot hold every text; make it anew: "
    "createdb --encoding UTF8 --locale C.UTF-8 --template template0 NAME"
)


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """A database on a PostgreSQL server; the address has no password, which is read for each connection."""

    address: str
    secret: SecretRef | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def password(self) -> str | None:
        """Return the password, None where libpq finds its own. Raises SettingsError where it cannot be read."""
        return self.secret.reveal(Path(), self.environ) if self.secret else None

    def __str__(self) -> str:
        """Return the address without the password."""
        return self.address


Place = Path | ServerPlace | None
"""None is memory."""


def place_of(url: str, environ: Mapping[str, str]) -> Place:
    """Return the place that `store.url` names. Raises SettingsError where what it needs is not there."""
    if found := SERVER.fullmatch(url):
        if importlib.util.find_spec(DRIVER) is None:
            raise SettingsError(MISSING)
        secret = SecretRef(found["secret"]) if found["secret"] else None
        user = f"{found['user']}@" if found["user"] else ""
        return ServerPlace(f"postgresql://{user}{found['rest']}", secret, environ)
    if not url:
        return data_dir(environ) / FILE_NAME
    place = url
    for scheme in SCHEMES:
        place = place.removeprefix(scheme)
    return None if place in IN_MEMORY else Path(place.removeprefix("/"))
