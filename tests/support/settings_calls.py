"""Requests to the settings API, and what the settings file says afterwards."""

import tomllib
from collections.abc import Mapping
from typing import Any, Final

from serving import Served

NOBODY: Final = "http://127.0.0.1:9"
WRITER: Final = '# The first one\n[[agents]]\nid = "writer"\nmodel = "tiny"  # small\n'


async def ask(served: Served, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Send a request and return the status and the parsed answer, None where it has none."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {} if body is None else {"json": body}
    async with served.http.request(method, served.url + path, headers=named, **given) as response:
        return response.status, await response.json() if response.status != 204 else None


async def change(served: Served, patch: Mapping[str, Any]) -> tuple[int, Any]:
    """Send a merge patch of the settings."""
    return await ask(served, "PATCH", "/api/settings", patch)


async def values(served: Served) -> dict[str, Any]:
    """Return the values in force."""
    status, answer = await ask(served, "GET", "/api/settings")
    assert status == 200, answer
    found: dict[str, Any] = answer["values"]
    return found


def in_file(served: Served) -> dict[str, Any]:
    """Return what the settings file says."""
    return tomllib.loads(served.settings.read_text(encoding="utf-8"))
