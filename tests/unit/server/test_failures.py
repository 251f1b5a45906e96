"""Errors as HTTP responses."""

import json

from aiohttp.test_utils import make_mocked_request

from elbowroom.errors import TooManyRequests
from elbowroom.server.middleware import failure_response


def test_a_full_queue_names_when_to_ask_again() -> None:
    """It is a 429 with Retry-After in seconds, in OpenAI's form."""
    response = failure_response(
        TooManyRequests("qwen3-8b", waiting=32, retry_after=17), make_mocked_request("POST", "/v1/responses")
    )
    assert response.status == 429
    assert response.headers["Retry-After"] == "17"
    assert isinstance(response.body, bytes)
    error = json.loads(response.body)["error"]
    assert (error["type"], error["code"], error["param"]) == ("rate_limit_error", "queue_full", None)
    assert "17 s" in error["message"]
