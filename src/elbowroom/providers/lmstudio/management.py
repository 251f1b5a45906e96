"""LM Studio's routes to list, load and download models: bodies go there, and answers come back, unchanged."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from elbowroom.errors import UpstreamError
from elbowroom.providers.failures import Source, error_text, failure_of, failure_of_response, not_json
from elbowroom.providers.upstream import ANSWER_SECONDS, Upstream, error_in, parse_upstream_json

UNKNOWN_PATH: Final = "Unexpected endpoint"


class LMStudioManagement:
    """Hands requests on to the routes at one URL, with LM Studio's own key.

    `changed` is called before and after each request that may change which models are loaded. Raises UpstreamErrors
    in words for the person, with LM Studio's own status where it refuses.
    """

    def __init__(self, upstream: Upstream, url: str, changed: Callable[[], None]) -> None:
        self._upstream = upstream
        self._url = url
        self._changed = changed

    async def catalog(self) -> dict[str, Any]:
        """Return all downloaded models with their loaded instances: `{"models": [...]}`."""
        return await self._ask("GET", self._url, seconds=ANSWER_SECONDS)

    async def load(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Load `model`; another instance of it where it is loaded already. Returns when it is ready."""
        return await self._change("load", body)

    async def unload(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Unload the instance `instance_id`."""
        return await self._change("unload", body)

    async def download(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to download `model`; the answer has the `job_id` for `download_status`."""
        return await self._change("download", body)

    async def download_status(self, job_id: str) -> dict[str, Any]:
        """Return how far a download is."""
        told = await self._ask("GET", f"{self._url}/download/status/{quote(job_id, safe='')}", seconds=ANSWER_SECONDS)
        if told.get("status") == "completed":
            self._changed()
        return told

    async def _change(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._changed()
        try:
            return await self._ask("POST", f"{self._url}/{route}", body)
        finally:
            self._changed()

    async def _ask(
        self, method: str, url: str, body: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> dict[str, Any]:
        reply = await self._upstream.exchange(method, url, body, seconds=seconds)
        if not 200 <= reply.status < 300:
            raise failure_of_response(reply.status, reply.body, reply.headers, self._upstream.source)
        return _answer_in(reply.body, self._upstream.source)


def _answer_in(text: bytes, source: Source) -> dict[str, Any]:
    """Return the object of a 200; raises the error that it carries."""
    try:
        answer = parse_upstream_json(text)
    except ValueError:
        raise not_json(text, source) from None
    if not isinstance(answer, dict):
        raise not_json(text, source)
    problem = None if "status" in answer else error_in(answer)  # a download that has failed tells its error too
    if problem is not None and error_text(problem).startswith(UNKNOWN_PATH):
        raise UpstreamError(
            f"{source.name} at {source.url} cannot list, load or download models for others: it is "
            "older than 0.4.0. Update it, or do this in its own window."
        )
    if problem is not None:
        raise failure_of(problem, source)
    return answer
