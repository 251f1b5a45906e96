"""Asks an address once and says what came back, whatever that is."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import aiohttp

SECONDS: Final = 3.0
MOST_BYTES: Final = 1024 * 1024
Trouble = Literal["", "refused", "silent", "unknown host", "no http", "bad address"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an address has answered: a status and a body, parsed where it is JSON; or why there is none.

    `date` is its Date header, empty where there is none.
    """

    trouble: Trouble = ""
    status: int = 0
    text: str = ""
    date: str = ""

    @property
    def json(self) -> Any:
        """Return the body as parsed JSON, None where it is none."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @property
    def table(self) -> dict[str, Any]:
        """Return the body where it is a JSON object, else an empty one."""
        found = self.json
        return found if isinstance(found, dict) else {}


async def fetch(
    http: aiohttp.ClientSession, url: str, headers: Mapping[str, str] | None = None, seconds: float = SECONDS
) -> Answer:
    """Return what a GET of this address brings; it raises nothing."""
    try:
        async with asyncio.timeout(seconds):
            async with http.get(url, headers=headers, allow_redirects=False) as response:
                body = await response.content.read(MOST_BYTES)
                while len(body) < MOST_BYTES and (part := await response.content.read(MOST_BYTES - len(body))):
                    body += part
                date = response.headers.get("Date", "")
                return Answer("", response.status, body.decode("utf-8", "replace"), date)
    except (aiohttp.InvalidURL, ValueError):
        return Answer("bad address")
    except TimeoutError:  # also those of connecting
        return Answer("silent")
    except aiohttp.ClientConnectorDNSError:
        return Answer("unknown host")
    except aiohttp.ClientConnectorError:
        return Answer("refused")
    except aiohttp.ClientError:
        return Answer("no http")
