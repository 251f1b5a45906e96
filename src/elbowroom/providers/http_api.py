"""Small JSON requests to an upstream: lists of models, probes, counts."""

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from elbowroom.errors import UpstreamError
from elbowroom.providers.chat_endpoint import CONNECT_SECONDS
from elbowroom.providers.failures import Source, failure_of_response
from elbowroom.providers.posting import connection_failure
from elbowroom.providers.upstream_json import parse_upstream_json

ANSWER_SECONDS = 10.0


class JsonApi:
    """Requests to one upstream. Raises UpstreamErrors in words for the person."""

    def __init__(
        self, http: aiohttp.ClientSession, headers: Mapping[str, str], source: Source, start_hint: str
    ) -> None:
        self._http = http
        self._headers = {"Content-Type": "application/json", **headers}
        self._source = source
        self._start_hint = start_hint
        self._timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)

    async def get(self, url: str) -> Any:
        """Return the parsed JSON of a 200 answer, or None where the answer is a 404 or not JSON."""
        return await self._ask("GET", url)

    async def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """Send JSON and return the parsed JSON of a 200 answer, or None where the answer is a 404 or not JSON."""
        return await self._ask("POST", url, data=json.dumps(body).encode())

    async def _ask(self, method: str, url: str, data: bytes | None = None) -> Any:
        try:
            async with self._http.request(
                method, url, data=data, headers=self._headers, timeout=self._timeout, allow_redirects=False
            ) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._failure(error) from error
        if response.status == 404:
            return None
        if response.status != 200:
            raise failure_of_response(response.status, text, response.headers, self._source)
        try:
            return parse_upstream_json(text)
        except ValueError:
            return None

    def _failure(self, error: Exception) -> UpstreamError:
        return connection_failure(error, self._source, self._start_hint)
