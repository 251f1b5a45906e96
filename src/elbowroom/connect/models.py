"""What a person has chosen for a program: a model of a running elbowroom, which is asked for the window."""

import json
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from elbowroom.connect.asking import asked
from elbowroom.connect.clients import ANSWER_SHARE, HELD_BACK, MOST_OUTPUT
from elbowroom.errors import ElbowroomError

MODELS: Final = "/v1/models"
OTHERWISE: Final = ", and only it knows the window. Start it, or say both with --model and --window."
Ask = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person has chosen: elbowroom's address without a path, its token, a model and its window in tokens.

    `is_remembered` tells that the model is not loaded, and had this window when it was loaded last.
    """

    address: str
    token: str
    model: str
    window: int
    is_remembered: bool = False

    @property
    def output(self) -> int:
        """Return the tokens that an answer may take."""
        return min(self.window // ANSWER_SHARE, MOST_OUTPUT)

    def filled(self, text: str) -> str:
        """Return a text of the table with the choice in it, escaped for a string in double quotes."""
        names = {"address": self.address, "token": self.token, "model": self.model}
        quoted = {name: json.dumps(value, ensure_ascii=False)[1:-1] for name, value in names.items()}
        sizes = {"window": self.window, "output": self.output, "widened": self.window + self.output + HELD_BACK}
        return string.Template(text).safe_substitute(quoted, **sizes)


@dataclass(frozen=True, slots=True)
class Offered:
    """A model as clients name it, with its window in tokens, None where nobody knows it.

    A window that `is_remembered` is the one that a model had when it was loaded last.
    """

    id: str
    window: int | None
    is_loaded: bool
    is_remembered: bool


def chosen_model(address: str, token: str, wanted: str, ask: Ask | None) -> Offered:
    """Return the model that a person wants, by any name that a request may give it; without a name the loaded one.

    `ask` is given several that are loaded, and returns one; without it a person has to name one. Raises ElbowroomError.
    """
    if wanted:
        return _offered(asked(address, token, f"{MODELS}/{quote(wanted, safe='/')}", OTHERWISE))
    rows = asked(address, token, MODELS, OTHERWISE).get("data")
    loaded = [model for model in map(_offered, rows if isinstance(rows, list) else []) if model.is_loaded]
    if not loaded:
        raise ElbowroomError(
            f"No model is loaded at {address}. Load one, or name one with --model; `elbowroom status` lists them."
        )
    if len(loaded) == 1:
        return loaded[0]
    names = [model.id for model in loaded]
    if ask is None:
        raise ElbowroomError(f"Name one of the models that are loaded with --model: {', '.join(names)}.")
    return loaded[names.index(ask(names))]


def _offered(row: dict[str, Any]) -> Offered:
    kind = row.get("window_is")
    is_loaded = kind == "loaded" or (kind == "advertised" and bool(row.get("loaded_context_length")))
    return Offered(str(row.get("id")), row.get("context_length"), is_loaded, is_remembered=kind == "if_loaded")
