"""How a chat ended for the client: its status, its text, and its error, streamed or whole."""

import importlib
import json
from dataclasses import dataclass
from typing import Any

from serving import Served, parse_frames, text_of

from elbowroom.agents.sdk import load_sdk

# Loaded here, so that no test's first request waits for it: on a busy machine that takes long enough for a comment
# to be sent, after which a failure can no longer have a status.
load_sdk()
importlib.import_module("elbowroom.agents.run.run")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`error` is the error object, from the body or from the stream's last frame; None where the answer is whole."""

    status: int
    text: str
    error: dict[str, Any] | None
    headers: dict[str, str]

    @property
    def message(self) -> str:
        """The error's words."""
        assert self.error is not None, f"no error, but the text {self.text!r}"
        message = self.error["message"]
        assert isinstance(message, str)
        return message


async def chat(served: Served, model: str, *, stream: bool, text: str = "Hello", **fields: Any) -> Outcome:
    """Ask, and check what holds for every answer: whole with a finish, or failed with a well-formed error."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream, **fields}
    async with served.http.post(served.chat_url, json=body) as response:
        raw = await response.read()
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.content_type == "text/event-stream":
            assert response.status == 200
            return _streamed(parse_frames(raw), headers)
        answer = json.loads(raw)
        if response.status == 200:
            choice = answer["choices"][0]
            assert choice["finish_reason"]
            return Outcome(200, choice["message"]["content"] or "", None, headers)
        return Outcome(response.status, "", _checked(answer), headers)


def _streamed(frames: list[Any], headers: dict[str, str]) -> Outcome:
    finishes = [
        frame["choices"][0]["finish_reason"] for frame in frames if isinstance(frame, dict) and frame.get("choices")
    ]
    ended_well = frames[-1] == "[DONE]"
    assert sum(reason is not None for reason in finishes) == int(ended_well)
    error = None if ended_well else _checked(frames[-1])
    assert all("error" not in frame for frame in frames[:-1])
    return Outcome(200, text_of(frames), error, headers)


def _checked(answer: Any) -> dict[str, Any]:
    error: dict[str, Any] = answer["error"]
    assert set(answer) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return error
