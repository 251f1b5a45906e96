"""LM Studio's own routes for its models, below `/api/v1/models`: listed, loaded, unloaded, downloaded."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

from elbowroom.errors import UpstreamError
from elbowroom.providers.chat_endpoint import CONNECT_SECONDS, FIRST_BYTE_SECONDS
from elbowroom.providers.failures import Source, error_in, error_text, failure_of, failure_of_response, not_json
from elbowroom.providers.http_api import ANSWER_SECONDS
from elbowroom.providers.posting import connection_failure
from elbowroom.providers.upstream_json import parse_upstream_json

UNKNOWN_PATH = "Unexpected endpoint"


class ModelManagement:
    """Hands requests on as they are, with LM Studio's own key, and returns its answers as they are.

    `changed` is called before and after whatever may change which models are loaded. Raises UpstreamErrors in words
    for the person, with LM Studio's own status where it refuses.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        root: str,
        headers: Mapping[str, str],
        source: Source,
        start_hint: str,
        changed: Callable[[], None],
    ) -> None:
        self._http = http
        self._url = f"{root}/api/v1/models"
        self._headers = headers
        self._source = source
        self._start_hint = start_hint
        self._changed = changed

    async def catalog(self) -> dict[str, Any]:
        """Return all downloaded models with their loaded instances: `{"models": [...]}`."""
        return await self._get(self._url)

    async def load(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Load `model`; where it is loaded already that makes another instance. Returns when it is ready."""
        return await self._change("load", body)

    async def unload(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Unload the instance `instance_id`."""
        return await self._change("unload", body)

    async def download(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to download `model`; the answer has the `job_id` by which to ask how far that is."""
        return await self._change("download", body)

    async def download_status(self, job_id: str) -> dict[str, Any]:
        """Return how far a download is."""
        told = await self._get(f"{self._url}/download/status/{quote(job_id, safe='')}")
        if told.get("status") == "completed":
            self._changed()
        return told

    async def _get(self, url: str) -> dict[str, Any]:
        return await self._ask("GET", url, aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS))

    async def _change(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        # A large model takes minutes to load, and LM Studio says nothing meanwhile.
        patience = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=FIRST_BYTE_SECONDS)
        self._changed()
        try:
            return await self._ask("POST", f"{self._url}/{route}", patience, body)
        finally:
            self._changed()

    async def _ask(
        self, method: str, url: str, patience: aiohttp.ClientTimeout, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            async with self._http.request(
                method, url, json=body, headers=self._headers, timeout=patience, allow_redirects=False
            ) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise connection_failure(error, self._source, self._start_hint) from error
        if not 200 <= response.status < 300:
            raise failure_of_response(response.status, text, response.headers, self._source)
        return self._answer_in(text)

    def _answer_in(self, text: bytes) -> dict[str, Any]:
        try:
            answer = parse_upstream_json(text)
        except ValueError:
            raise not_json(text, self._source) from None
        if not isinstance(answer, dict):
            raise not_json(text, self._source)
        problem = None if "status" in answer else error_in(answer)  # a download that has failed tells its error too
        if problem is not None and error_text(problem).startswith(UNKNOWN_PATH):
            raise UpstreamError(
                f"{self._source.name} at {self._source.url} cannot list, load or download models for others: it is "
                "older than 0.4.0. Update it, or do this in its own window."
            )
        if problem is not None:
            raise failure_of(problem, self._source)
        return answer
