"""Asks a running elbowroom for something that another program is set up with."""

import http.client
import json
from typing import Any, Final
from urllib.parse import urlsplit

from elbowroom.errors import ElbowroomError, what_failed

PATIENCE_SECONDS: Final = 10.0


def asked(address: str, token: str, path: str, otherwise: str, *, method: str = "GET") -> dict[str, Any]:
    """Return the object that a server answers with.

    `otherwise` ends the sentence for a server that does not answer. Raises ElbowroomError.
    """
    place = urlsplit(address)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise ElbowroomError(f"--address has to be where elbowroom is, such as http://127.0.0.1:2345: {address}")
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.hostname, place.port, timeout=PATIENCE_SECONDS)
    headers = {"Authorization": f"Bearer {token}".encode(), "Content-Type": b"application/json"}
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return _read(address, answer.status, answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise ElbowroomError(f"No elbowroom answers at {address} ({what_failed(error)}){otherwise}") from error
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
