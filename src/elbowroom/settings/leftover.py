"""Leaves what is wrong out of the settings of a file, so that what is left lets in no more than was written."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from elbowroom.settings.doubts import HOST_KEY, TOKEN_KEY
from elbowroom.settings.keys import TABLE_LISTS, Key

IN_PLACE: Final[Mapping[str, Mapping[str, Any]]] = {"vault": {}, "store": {"conversations": False}}
"""What stands in place of a table with a wrong value, whose default would show or keep more."""
WHOLE_ROWS: Final = frozenset({"providers", "mcp_servers"})
"""Lists whose rows name where something is sent and what is run: they count whole or not at all."""
NEEDED: Final = frozenset({"id", "model", "enabled", "provider", "vault"})
"""What an agent is not itself without, or would do more without."""


def opens_the_server(wrong: Collection[Key]) -> bool:
    """Tell whether a server without these values would let in whom they were to keep out."""
    return any(key[:2] in (TOKEN_KEY, HOST_KEY) or key == ("server",) for key in wrong)


def leave_out(data: Mapping[str, Any], wrong: Collection[Key]) -> dict[str, Any]:
    """Return the content of a file without its wrong values, and without the rows and tables that go with them."""
    rest = {name: value for name, value in data.items() if (name,) not in wrong}
    for table, stands_in in IN_PLACE.items():
        if any(key[0] == table for key in wrong) and table in data:
            rest[table] = dict(stands_in)
    for table in TABLE_LISTS:
        rows = rest.get(table)
        if isinstance(rows, list):
            wrong_of = [[key for key in wrong if key[:2] == (table, place)] for place in range(len(rows))]
            rest[table] = [
                _without(row, [key[2:] for key in own])
                for row, own in zip(rows, wrong_of, strict=True)
                if not any(map(_goes_with_its_row, own))
            ]
    for key in wrong:
        part = rest.get(str(key[0]))
        if isinstance(part, dict) and len(key) > 1 and key[0] not in IN_PLACE:
            rest[str(key[0])] = _without(part, [key[1:]])
    return rest


def _goes_with_its_row(key: Key) -> bool:
    return key[0] in WHOLE_ROWS or len(key) < 3 or key[2] in NEEDED


def _without(part: Any, keys: Collection[Key]) -> Any:
    """Return a table without the values at these places in it, the innermost that can be taken out."""
    if not isinstance(part, dict):
        return part
    rest = dict(part)
    for key in keys:
        if len(key) > 1 and isinstance(rest.get(str(key[0])), dict):
            rest[str(key[0])] = _without(rest[str(key[0])], [key[1:]])
        else:
            rest.pop(str(key[0]), None)
    return rest
