"""Asks a running server for its health, its providers, its running answers and its last conversations."""

import argparse
import http.client
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from elbowroom.errors import ElbowroomError, NotFound, what_failed
from elbowroom.settings.doubts import own_address, reached_host
from elbowroom.settings.fields import expanded
from elbowroom.settings.load import LoadedSettings

PATIENCE_SECONDS: Final = 10.0
CONVERSATIONS: Final = 5
USER: Final = "X-Elbowroom-User"
Health = Literal["healthy", "upstream down", "not running"]
Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server listens, the token that it asks for, and whose conversations are asked for."""

    host: str
    port: int
    token: str | None = None
    user: str = ""

    @property
    def address(self) -> str:
        """Return the address as people write it."""
        return own_address(self.host, self.port)

    @classmethod
    def here(cls, host: str, port: int, token: str | None, user: str = "") -> "Place":
        """Return the place of a server on this machine that listens on `host`."""
        return cls(reached_host(host), port, token, user)

    @classmethod
    def of(cls, loaded: LoadedSettings, environ: Mapping[str, str], user: str = "") -> "Place":
        """Return the place of the server on this machine that these settings are for."""
        server = loaded.settings.server
        return cls.here(server.host, server.port, server.token.reveal(loaded.folder, environ), user)


def environ_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment, with the folder that `--data-dir` names as that of the data."""
    named = {"ELBOWROOM_DATA_DIR": str(expanded(options.data_dir).absolute())} if options.data_dir else {}
    return {**os.environ, **named}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answers of a server; `version` is None if no server runs.

    `note` tells why conversations are missing, if they are.
    """

    address: str
    version: str | None = None
    providers: tuple[Fields, ...] = ()
    live: tuple[Fields, ...] = ()
    conversations: tuple[Fields, ...] = ()
    note: str = ""

    @property
    def health(self) -> Health:
        """Return the state of the server in two words."""
        if self.version is None:
            return "not running"
        return "healthy" if all(provider.get("reachable") for provider in self.providers) else "upstream down"

    @property
    def exit_code(self) -> int:
        """Return 0 for a healthy server, 1 where a provider does not answer, 2 where no server runs."""
        return {"healthy": 0, "upstream down": 1, "not running": 2}[self.health]

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot as JSON values."""
        return {
            "address": self.address,
            "health": self.health,
            "version": self.version,
            "providers": [*self.providers],
            "live": [*self.live],
            "conversations": [*self.conversations],
            "note": self.note or None,
        }


def ask(place: Place) -> Snapshot:
    """Ask the server at a place. Raises ElbowroomError if another program answers, or the server refuses the token."""
    check_name("--user", place.user)
    if not place.port:
        raise ElbowroomError(
            "server.port = 0: each start takes another free port. Name the one that it printed, with --port."
        )
    connection = http.client.HTTPConnection(place.host, place.port, timeout=PATIENCE_SECONDS)
    try:
        return _asked(connection, place)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, TimeoutError):
            raise ElbowroomError(f"What listens at {place.address} does not answer.") from error
        if isinstance(error, ConnectionRefusedError):
            return Snapshot(place.address)
        raise ElbowroomError(f"The server at {place.address} cannot be asked: {what_failed(error)}.") from error
    finally:
        connection.close()


def told(command: argparse.ArgumentParser) -> int:
    """Say what a command can do, for whoever gave it nothing to do."""
    command.print_help()
    return 0


def check_name(argument: str, name: str) -> None:
    """Raise ElbowroomError where the name that this argument gives cannot be sent."""
    if not name.isprintable():
        raise ElbowroomError(f"{argument} has to be a name in one line.")


def no_elbowroom(place: Place) -> ElbowroomError:
    """Return the error for an answer that no elbowroom gives."""
    return ElbowroomError(f"What listens at {place.address} is no elbowroom. Choose its port with --port.")


def other_token(place: Place) -> ElbowroomError:
    """Return the error for a server that refuses the token of the settings."""
    return ElbowroomError(
        f"The elbowroom at {place.address} asks for another token than these settings have. Name the settings "
        "that it was started with, by --config or ELBOWROOM_CONFIG, or set ELBOWROOM_TOKEN."
    )


def ask_once(place: Place, path: str, method: str = "GET", body: Fields | None = None) -> dict[str, Any] | None:
    """Return the JSON object that the server at a place answers; None where no server runs.

    Raises ElbowroomError if it cannot be asked, or with its own words where it refuses: NotFound for a 404.
    """
    connection = http.client.HTTPConnection(place.host, place.port, timeout=PATIENCE_SECONDS)
    try:
        status, answer = request_json(connection, place, path, method, body)
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException) as error:
        raise ElbowroomError(f"The server at {place.address} cannot be asked: {what_failed(error)}.") from error
    finally:
        connection.close()
    if status == 401:
        raise other_token(place)
    failure = answer.get("error")
    if isinstance(failure, dict) and failure.get("message"):
        raise (NotFound if status == 404 else ElbowroomError)(str(failure["message"]))
    if status not in (200, 201, 202, 204):
        raise no_elbowroom(place)
    return answer


def _asked(connection: http.client.HTTPConnection, place: Place) -> Snapshot:
    _, health = request_json(connection, place, "/health")
    if health.get("status") not in ("ok", "stopping") or not isinstance(health.get("version"), str):
        raise no_elbowroom(place)
    status, live = request_json(connection, place, "/api/live")
    if status == 401:
        raise other_token(place)
    note = "" if status == 200 else str((live.get("error") or {}).get("message", ""))
    _, conversations = request_json(connection, place, f"/v1/conversations?limit={CONVERSATIONS + len(_data(live))}")
    return Snapshot(
        place.address,
        health["version"],
        _providers(health, _data(request_json(connection, place, "/api/providers")[1])),
        _data(live),
        _data(conversations),
        note,
    )


def _providers(health: Fields, described: tuple[Fields, ...]) -> tuple[Fields, ...]:
    """Return the providers with their models; of one that did not answer, what `/health` tells."""
    told = {provider.get("id"): provider for provider in described}
    listed = health.get("providers")
    return tuple(
        {**told.get(provider.get("id"), {}), **provider}
        for provider in (listed if isinstance(listed, list) else [])
        if isinstance(provider, dict)
    )


def _data(answer: Fields) -> tuple[Fields, ...]:
    data = answer.get("data")
    return tuple(item for item in data if isinstance(item, dict)) if isinstance(data, list) else ()


def request_json(
    connection: http.client.HTTPConnection, place: Place, path: str, method: str = "GET", body: Fields | None = None
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of an answer; an empty object if it is none. `body` is sent as JSON."""
    told = {"Authorization": f"Bearer {place.token}" if place.token else "", USER: place.user}
    headers = {name: value.encode() for name, value in told.items() if value}
    if body is not None:
        headers["Content-Type"] = b"application/json"
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    response = connection.getresponse()
    content = response.read()
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    return response.status, value if isinstance(value, dict) else {}
