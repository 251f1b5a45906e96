"""Asks a running elbowroom for the code that a person types into the plugin."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from elbowroom.errors import ElbowroomError

PATIENCE_SECONDS: Final = 10.0
ROUTE: Final = "/api/pairing"
START_IT: Final = (
    "elbowroom does not run at {address}. Start it (elbowroom serve); then elbowroom obsidian pair shows the code "
    "that the plugin asks for."
)


@dataclass(frozen=True, slots=True)
class Running:
    """Where elbowroom runs, without a path, and the token that it asks for, empty where it asks for none."""

    address: str
    token: str


def pairing_lines(running: Running) -> Iterator[str]:
    """Yield the code and what to do with it; where nothing runs, what to do about that. Raises ElbowroomError."""
    code = _code(running)
    if code is None:
        yield START_IT.format(address=running.address)
        return
    yield f"Pairing code: {code}"
    yield "In Obsidian: Settings, Elbowroom, Pair, and type it. It is good for one device, and for a few minutes."


def _code(running: Running) -> str | None:
    """Return a new code; None where nothing listens. Raises ElbowroomError."""
    place = urlsplit(running.address)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise ElbowroomError(
            f"--address has to be where elbowroom is, such as http://127.0.0.1:2345: {running.address}"
        )
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.hostname, place.port, timeout=PATIENCE_SECONDS)
    headers = {"Content-Type": b"application/json"}
    if running.token:
        headers["Authorization"] = f"Bearer {running.token}".encode()
    try:
        connection.request("POST", ROUTE, "{}", headers)
        answer = connection.getresponse()
        return _read(running, answer.status, answer.read())
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException) as error:
        raise ElbowroomError(f"The server at {running.address} cannot be asked: {error}.") from error
    finally:
        connection.close()


def _read(running: Running, status: int, content: bytes) -> str:
    try:
        value: Any = json.loads(content)
    except ValueError:
        value = None
    code = value.get("code") if isinstance(value, dict) else None
    if status == http.HTTPStatus.CREATED and isinstance(code, str):
        return code
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise ElbowroomError(
            f"elbowroom at {running.address} asks for its token, which your settings do not tell. Say it in "
            "ELBOWROOM_TOKEN, or name its settings with --config."
        )
    error = value.get("error") if isinstance(value, dict) else None
    said = error.get("message") if isinstance(error, dict) else None
    raise ElbowroomError(
        f"elbowroom at {running.address} gives no code: {said}"
        if status != http.HTTPStatus.NOT_FOUND and isinstance(said, str)
        else f"What answers at {running.address} is no elbowroom, or one without pairing. Choose its port with --port."
    )
