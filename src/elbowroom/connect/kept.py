"""Keeps in a file of the data folder what `elbowroom connect` changed, for `--undo`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elbowroom.connect.open_webui import Connection
from elbowroom.errors import ElbowroomError

FILE: Final = "connected.json"


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of JSON by their names, in one file that its owner alone can read."""

    file: Path

    def rows(self) -> dict[str, Any]:
        """Return all of them. Raises ElbowroomError."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ElbowroomError(f"What was set up before cannot be read from {self.file}: {error}.") from error
        return found if isinstance(found, dict) else {}

    def put(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a row or replace it."""
        self._write({**self.rows(), name: dict(row)})

    def forget(self, name: str) -> None:
        """Take a row out."""
        self._write({known: row for known, row in self.rows().items() if known != name})

    def _write(self, rows: Mapping[str, Any]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.touch(mode=0o600)  # it may hold the key of a connection
        self.file.write_text(json.dumps(rows, indent=1), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class KeptConnection:
    """How a connection was before the first change of it."""

    records: Records
    url: str
    address: str

    @property
    def before(self) -> Connection | None:
        """Return the connection as it was; None where there was none. Raises ElbowroomError where it is not kept."""
        before = self._row()["before"]
        return Connection.of(before) if before else None

    @property
    def were_on(self) -> bool:
        """Tell whether connections were switched on."""
        return bool(self._row()["were_on"])

    def keep(self, before: Connection | None, *, were_on: bool) -> None:
        """Keep how it was; a second change leaves that as it is."""
        if self._name not in self.records.rows():
            self.records.put(self._name, {"before": before.as_json() if before else None, "were_on": were_on})

    def forget(self) -> None:
        """Forget it: it is as it was."""
        self.records.forget(self._name)

    @property
    def _name(self) -> str:
        return f"{self.url.rstrip('/')} {self.address}"

    def _row(self) -> dict[str, Any]:
        row: dict[str, Any] | None = self.records.rows().get(self._name)
        if row is None:
            raise ElbowroomError(
                f"Nothing was set up for {self.address} in {self.url} from here, so there is nothing to undo."
            )
        return row
