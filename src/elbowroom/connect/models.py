"""What a person has chosen for a program: a model of a running elbowroom, which is asked for the window."""

import http.client
import json
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from elbowroom.connect.clients import ANSWER_SHARE, HELD_BACK, MOST_OUTPUT
from elbowroom.errors import ElbowroomError

PATIENCE_SECONDS: Final = 10.0
MODELS: Final = "/v1/models"
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

    The window of a model that is not loaded is the one that it had when it was loaded last.
    """

    id: str
    window: int | None
    is_loaded: bool


def chosen_model(address: str, token: str, wanted: str, ask: Ask | None) -> Offered:
    """Return the model that a person wants, by any name that a request may give it; without a name the loaded one.

    `ask` is given several that are loaded, and returns one; without it a person has to name one. Raises ElbowroomError.
    """
    if wanted:
        return _offered(_asked(address, token, f"{MODELS}/{quote(wanted, safe='/')}"))
    rows = _asked(address, token, MODELS).get("data")
    loaded = [model for model in map(_offered, rows if isinstance(rows, list) else []) if model.is_loaded]
    if not loaded:
        raise ElbowroomError(f"No model is loaded at {address}. Load one, or name one with --model.")
    if len(loaded) == 1:
        return loaded[0]
    names = [model.id for model in loaded]
    if ask is None:
        raise ElbowroomError(f"Name one of the models that are loaded with --model: {', '.join(names)}.")
    return loaded[names.index(ask(names))]


def _offered(row: dict[str, Any]) -> Offered:
    return Offered(str(row.get("id")), row.get("context_length"), row.get("window_is") == "loaded")


def _asked(address: str, token: str, path: str) -> dict[str, Any]:
    """Return the object that a server answers with. Raises ElbowroomError."""
    place = urlsplit(address)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise ElbowroomError(f"--address has to be where elbowroom is, such as http://127.0.0.1:2345: {address}")
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.hostname, place.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}".encode()})
        answer = connection.getresponse()
        return _read(address, answer.status, answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise ElbowroomError(
            f"No elbowroom answers at {address} ({error}), and only it knows the window. Start it, or say both with "
            "--model and --window."
        ) from error
    finally:
        connection.close()


def _read(address: str, status: int, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ElbowroomError(f"What answers at {address} is no elbowroom. Choose its port with --port.")
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise ElbowroomError(
            f"elbowroom at {address} asks for its token, which your settings do not tell. Say it in ELBOWROOM_TOKEN, "
            "or name its settings with --config."
        )
    if status >= 400:
        error = value.get("error")
        raise ElbowroomError(str(error.get("message")) if isinstance(error, dict) else f"{address} answers {status}.")
    return value
