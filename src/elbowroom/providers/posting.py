"""Sends a request to an upstream and returns its answer once that begins well."""

import asyncio
import io
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp

from elbowroom.errors import StreamCut, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.failures import Source, failure_of_response

RETRY_AFTER_SECONDS = 0.2
LARGE_BODY_BYTES = 64 * 1024
MAX_ERROR_BYTES = 256 * 1024
ERROR_BODY_SECONDS = 3.0


class Poster:
    """Posts JSON to one upstream. Raises only ElbowroomErrors."""

    def __init__(
        self, http: aiohttp.ClientSession, headers: Mapping[str, str], source: Source, start_hint: str
    ) -> None:
        self._http = http
        self._headers = {"Content-Type": "application/json", **headers}
        self._source = source
        self._start_hint = start_hint

    async def post(self, url: str, body: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """Return a response with the status 200, which the caller closes; any other status is raised."""
        request_facts().told(body)
        data = json.dumps(body, separators=(",", ":")).encode()
        try:
            response = await self._connect(url, data)
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(RETRY_AFTER_SECONDS)
            response = await self._connect_or_explain(url, data)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._explained(error) from error
        if response.status != 200:
            try:
                text = await _read_error(response)
            finally:
                response.close()
            raise failure_of_response(response.status, text, response.headers, self._source)
        return response

    async def _connect(self, url: str, data: bytes) -> aiohttp.ClientResponse:
        # As a file it is sent piece by piece; megabytes of images in one piece would hold up the event loop.
        body = data if len(data) < LARGE_BODY_BYTES else io.BytesIO(data)
        return await self._http.post(url, data=body, headers=self._headers, allow_redirects=False)

    async def _connect_or_explain(self, url: str, data: bytes) -> aiohttp.ClientResponse:
        try:
            return await self._connect(url, data)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> UpstreamError:
        return connection_failure(error, self._source, self._start_hint)


async def _read_error(response: aiohttp.ClientResponse) -> bytes:
    """Return what has come of an error's body by the time it is complete, too long or too slow."""
    body = bytearray()
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(ERROR_BODY_SECONDS):
            while len(body) < MAX_ERROR_BYTES and (part := await response.content.readany()):
                body += part
    return bytes(body)


def connection_failure(error: Exception, source: Source, start_hint: str) -> UpstreamError:
    """Say that an upstream cannot be reached, or that it did not answer in time."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return UpstreamUnreachable(f"{source.name} does not answer at {source.url}. {start_hint}")
    if isinstance(error, TimeoutError):
        return UpstreamTimeout(f"{source.name} at {source.url} took the request and did not answer in time.")
    if isinstance(error, aiohttp.InvalidURL):
        return UpstreamUnreachable(f"{source.url} is not an address that can be reached: {error}.")
    if isinstance(error, aiohttp.ClientResponseError):
        return UpstreamError(f"What answers at {source.url} does not speak HTTP. Put the right address into base_url.")
    return StreamCut(f"{source.name} at {source.url} closed the connection before it answered ({error}).")
