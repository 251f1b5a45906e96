"""Sets a connection up in Open WebUI, over the API of its admin panel, and takes it back."""

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self
from urllib.parse import urlsplit

from elbowroom.errors import ElbowroomError, what_failed

PATIENCE_SECONDS: Final = 20.0
CONFIG, UPDATE, MODELS = "/openai/config", "/openai/config/update", "/api/v1/configs/models"
USUAL: Final = {"usage": True, "status_updates": True, "vision": True, "file_upload": True, "citations": True}
"""Capabilities that models have by default; once one is set, those that are not named are off."""
WHERE_KEYS_ARE: Final = (
    "It takes a key of an admin: in Open WebUI, Settings, Account, API Keys; they are switched on in the Admin Panel, "
    "Settings, General. The token of a signed-in admin does as well: in the browser's console, localStorage.token."
)


@dataclass(frozen=True, slots=True)
class Connection:
    """One OpenAI connection of Open WebUI: an address, its key, and all else that is set about it."""

    url: str
    key: str = ""
    config: Mapping[str, Any] | None = None

    def is_at(self, url: str) -> bool:
        """Tell whether it leads to this address."""
        return self.url.rstrip("/") == url.rstrip("/")

    def as_json(self) -> dict[str, Any]:
        """Return it as it is kept for `--undo`."""
        return {"url": self.url, "key": self.key, "config": dict(self.config or {})}

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        """Return a connection as it was kept."""
        return cls(kept["url"], kept["key"], kept["config"])


def leading_back(url: str) -> dict[str, str]:
    """Return the header by which the Open WebUI at an address tells where a chat is."""
    return {"X-Elbowroom-Chat-Url": f"{url.rstrip('/')}/c/{{{{CHAT_ID}}}}"}


def wanted(before: Connection | None, url: str, key: str, headers: Mapping[str, str]) -> Connection:
    """Return the connection as elbowroom needs it; what a person has set besides stays."""
    config = dict((before.config if before else None) or {"connection_type": "external"})
    known = config.get("headers")
    config |= {"enable": True, "headers": {**(known if isinstance(known, dict) else {}), **headers}}
    return Connection(url, key, config)


@dataclass(frozen=True, slots=True)
class OpenWebUI:
    """The Open WebUI at an address, asked with the key of an admin. Its methods raise ElbowroomError."""

    url: str
    key: str

    def connections(self) -> tuple[list[Connection], bool]:
        """Return all OpenAI connections in their order, and whether they are switched on."""
        config = self._ask("GET", CONFIG)
        urls, keys = config.get("OPENAI_API_BASE_URLS"), config.get("OPENAI_API_KEYS")
        configs = config.get("OPENAI_API_CONFIGS") or {}
        if not isinstance(urls, list) or not isinstance(keys, list) or not isinstance(configs, dict):
            raise self._other()
        keys += [""] * (len(urls) - len(keys))
        found = [
            Connection(url, keys[number], configs.get(str(number), configs.get(url))) for number, url in enumerate(urls)
        ]
        return found, bool(config.get("ENABLE_OPENAI_API"))

    def set_connections(self, connections: Sequence[Connection], *, are_on: bool) -> None:
        """Replace all OpenAI connections."""
        body = {
            "ENABLE_OPENAI_API": are_on,
            "OPENAI_API_BASE_URLS": [one.url for one in connections],
            "OPENAI_API_KEYS": [one.key for one in connections],
            "OPENAI_API_CONFIGS": {str(number): dict(one.config or {}) for number, one in enumerate(connections)},
        }
        self._ask("POST", UPDATE, body)

    def has_builtin_tools(self) -> bool:
        """Tell whether models get Open WebUI's own tools, where nothing else is set for one of them."""
        return _capabilities(self._ask("GET", MODELS)).get("builtin_tools", True) is not False

    def give_builtin_tools(self, *, are_on: bool) -> None:
        """Give models its own tools by default, or take them away; all else that is set for models stays."""
        config = self._ask("GET", MODELS)
        metadata = config.get("DEFAULT_MODEL_METADATA")
        capabilities = {**USUAL, **_capabilities(config), "builtin_tools": are_on}
        kept = metadata if isinstance(metadata, dict) else {}
        self._ask("POST", MODELS, {**config, "DEFAULT_MODEL_METADATA": {**kept, "capabilities": capabilities}})

    def models_of(self, number: int) -> list[str]:
        """Return the ids of the models that Open WebUI gets by the connection with this number."""
        data = self._ask("GET", f"/openai/models/{number}").get("data")
        return [str(row.get("id")) for row in data if isinstance(row, dict)] if isinstance(data, list) else []

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        place = urlsplit(self.url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ElbowroomError(
                f"--url has to be the address of Open WebUI, such as http://127.0.0.1:8080: {self.url}"
            )
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        connection = kind(place.hostname, place.port, timeout=PATIENCE_SECONDS)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        try:
            connection.request(method, place.path.rstrip("/") + path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            return self._read(answer.status, answer.read(), path)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ElbowroomError(
                f"Open WebUI does not answer at {self.url} ({what_failed(error)}). Start it, or say "
                "where it is with --url."
            ) from error
        finally:
            connection.close()

    def _read(self, status: int, content: bytes, path: str) -> dict[str, Any]:
        if status in (401, 403):
            raise ElbowroomError(f"Open WebUI refuses the key. {WHERE_KEYS_ARE}")
        try:
            value = json.loads(content)
        except ValueError:
            raise self._other() from None
        if not isinstance(value, dict):
            raise self._other()
        if status >= 400:
            if "detail" not in value:  # which every error of Open WebUI has
                raise self._other()
            raise ElbowroomError(f"Open WebUI answers {path} with {status}: {value['detail']}")
        return value

    def _other(self) -> ElbowroomError:
        return ElbowroomError(
            f"What answers at {self.url} is no Open WebUI, or one older than 0.6. Name another address with --url."
        )


def _capabilities(config: Mapping[str, Any]) -> dict[str, Any]:
    metadata = config.get("DEFAULT_MODEL_METADATA")
    found = metadata.get("capabilities") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def with_connection(connections: Sequence[Connection], new: Connection) -> list[Connection]:
    """Return the connections with this one in the place of the one at its address, else at their end."""
    found = [new if one.is_at(new.url) else one for one in connections]
    return found if any(one.is_at(new.url) for one in connections) else [*found, new]


def taken_back(connections: Sequence[Connection], url: str, before: Connection | None) -> list[Connection]:
    """Return the connections with the one at this address as it was before; without it where there was none."""
    old = [replace(before, url=one.url) if before and one.is_at(url) else one for one in connections]
    return old if before else [one for one in old if not one.is_at(url)]
