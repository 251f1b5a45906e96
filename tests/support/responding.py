"""Requests to the Responses API over plain HTTP."""

from typing import Any

from serving import Served, parse_frames

Item = dict[str, Any]


async def send(served: Served, path: str = "", method: str = "POST", *, owner: str = "", **body: Any) -> Any:
    """Return the parsed body of an answer below /v1/responses, whatever its status, which stands in `status_code`."""
    headers = {"X-Elbowroom-User": owner} if owner else {}
    url = f"{served.url}/v1/responses{path}"
    async with served.http.request(method, url, json=body if method == "POST" else None, headers=headers) as response:
        return {**await response.json(), "status_code": response.status}


async def respond(served: Served, asked: Any = "Hello", *, owner: str = "", **fields: Any) -> Item:
    """Ask without streaming and return the response."""
    response: Item = await send(served, owner=owner, **{"model": "writer", "input": asked, **fields})
    assert response["status_code"] == 200, response
    return response


async def stream_events(served: Served, asked: Any = "Hello", **fields: Any) -> list[Item]:
    """Ask with streaming and return the events."""
    body = {"model": "writer", "input": asked, "stream": True, **fields}
    async with served.http.post(f"{served.url}/v1/responses", json=body) as response:
        assert response.status == 200, await response.text()
        return parse_frames(await response.read())


def text_in(response: Item) -> str:
    """Return all that a response says."""
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for message in messages for part in message["content"])


def said_to(chat: Item) -> list[tuple[str, Any]]:
    """Return the role and the content of each message of a request but the system's."""
    return [(one["role"], one["content"]) for one in chat["messages"] if one["role"] != "system"]
