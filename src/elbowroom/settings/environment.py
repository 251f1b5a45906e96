"""Single keys from the environment: `ELBOWROOM_SERVER__PORT` is `server.port`."""

from collections.abc import Mapping
from typing import Final

from elbowroom.settings.keys import TABLES
from elbowroom.settings.spelling import did_you_mean

PREFIX: Final = "ELBOWROOM_"
VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    f"{PREFIX}{table}__{field}".upper(): (table, field)
    for table, model in TABLES.items()
    for field in model.model_fields
}


def variables_of(environ: Mapping[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the value and the variable's name for each key that the environment sets."""
    return {VARIABLES[name.upper()]: (value, name) for name, value in environ.items() if name.upper() in VARIABLES}


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that looks like a key's and is none.

    Other variables that begin with ELBOWROOM_ are left alone: secrets may be named so.
    """
    misspelt = {name.replace("__", "_") for name in VARIABLES}
    return [
        f"The environment variable {name} is not known{did_you_mean(name, {known: known for known in VARIABLES})}; "
        "it is ignored."
        for name in environ
        if name.startswith(PREFIX) and name.upper() not in VARIABLES and ("__" in name or name.upper() in misspelt)
    ]
