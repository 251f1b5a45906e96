"""The rules of an answer that is not streamed, over its raw bytes."""

import json
import time
from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
from chatting import MODEL, RAW_MODEL, chat_body, delta_frame, elbowroom_with_studio
from pair_fixtures import Pair

from elbowroom.demo import Cut, Error, Raw, Reasoning, Reply, Script

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])


@MODELS
async def test_form(pair: Pair, model: str) -> None:
    """A whole answer is one `chat.completion` with the model that was asked for, a time in seconds, true usage."""
    served, studio = pair
    studio.enqueue("Yes.")
    began = int(time.time())
    async with served.http.post(served.chat_url, json=chat_body(model=model)) as response:
        assert response.status == 200
        assert response.content_type == "application/json"
        raw = await response.read()
    answer = json.loads(raw)
    assert answer.pop("id").startswith("chatcmpl-")
    assert began <= answer.pop("created") <= time.time()
    [sent] = studio.chats
    assert answer == {
        "object": "chat.completion",
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Yes.", "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "system_fingerprint": MODEL,  # as the simulator calls its engine
        "usage": {
            "prompt_tokens": sent.prompt_tokens,
            "completion_tokens": sent.completion_tokens,
            "total_tokens": (sent.prompt_tokens or 0) + sent.completion_tokens,
        },
    }


def both_names(thought: str) -> dict[str, str]:
    """Return a thought under the names that clients know one of."""
    return {"reasoning_content": thought, "reasoning": thought}


@MODELS
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_finish_reason_is_carried(pair: Pair, model: str, reason: str) -> None:
    """The client learns why the model stopped."""
    served, studio = pair
    studio.enqueue(Script("Yes.", finish_reason=reason))
    assert (await served.chat(model))["choices"][0]["finish_reason"] == reason


@pytest.mark.fault("thoughts under another name", "streaming", "whole answers too")
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_stands_apart(pair: Pair, field: str) -> None:
    """Thoughts are not part of the content; they come under both names, whichever the upstream uses."""
    served, studio = pair
    studio.enqueue(Script(Raw(delta_frame({field: "Let me see."})), "Yes."))
    message = (await served.chat("writer"))["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": "Yes.",
        "refusal": None,
        "annotations": [],
        **both_names("Let me see."),
    }


async def test_thoughts_alone(pair: Pair) -> None:
    """A model that only thought gives an answer with empty content, not null, and its thoughts."""
    served, studio = pair
    studio.enqueue(Script(Reasoning("Hm."), finish_reason="length"))
    [choice] = (await served.chat("writer"))["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": "",
        "refusal": None,
        "annotations": [],
        **both_names("Hm."),
    }
    assert choice["finish_reason"] == "length"


async def test_logprobs_are_joined(pair: Pair) -> None:
    """The log probabilities of all pieces stand in one list."""
    served, studio = pair
    tokens = [{"token": token, "logprob": -0.5} for token in ("Yes", ".")]
    frames = [
        {"index": 0, "delta": {"content": token["token"]}, "logprobs": {"content": [token]}, "finish_reason": None}
        for token in tokens
    ]
    studio.enqueue(Script(*(Raw(b"data: " + json.dumps({"choices": [frame]}).encode() + b"\n\n") for frame in frames)))
    [choice] = (await served.chat("writer", logprobs=True))["choices"]
    assert choice["logprobs"] == {"content": tokens}


async def test_usage_where_the_upstream_sends_none(pair: Pair) -> None:
    """Where the upstream reports nothing, the prompt and the answer are counted here, and the usage says so."""
    served, studio = pair
    studio.enqueue(Script("Yes.", usage=None))
    usage = (await served.chat("writer"))["usage"]
    assert usage.pop("elbowroom") == {"counted": True}
    assert usage["prompt_tokens"] > usage["completion_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_vendor_usage_survives(pair: Pair) -> None:
    """Details that an upstream adds to its usage reach the client."""
    served, studio = pair
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": {"x": 1}}
    studio.enqueue(Script("Yes.", usage=usage))
    assert (await served.chat("writer"))["usage"] == usage


@MODELS
@pytest.mark.parametrize("failure", [Error("Out of memory."), Cut(), Raw(b"data: {broken\n\n")])
async def test_failure_is_a_status_with_an_error_object(pair: Pair, model: str, failure: Any) -> None:
    """An answer that breaks off is an error with a status, never a complete answer with half its text."""
    served, studio = pair
    studio.enqueue(Script("Half an answer", failure))
    async with served.http.post(served.chat_url, json=chat_body(model=model)) as response:
        assert response.status == 502
        error = (await response.json())["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Half an answer" not in error["message"]


async def test_upstream_that_does_not_stream(pair: Pair) -> None:
    """An upstream that answers a streaming request with one JSON object is understood all the same."""
    served, studio = pair
    call = {"type": "function", "id": "0", "function": {"name": "a", "arguments": {"x": 1}}}
    message = {"role": "assistant", "content": "Yes.", "reasoning": "Hm.", "tool_calls": [call, call]}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    studio.enqueue(Script(Reply(200, {"choices": choices, "usage": {"prompt_tokens": 3}})))
    answer = await served.chat("writer")
    said = answer["choices"][0]["message"]
    assert (said["content"], said["reasoning_content"]) == ("Yes.", "Hm.")
    assert [call["function"]["arguments"] for call in said["tool_calls"]] == ['{"x": 1}', '{"x": 1}']
    assert answer["usage"] == {"prompt_tokens": 3}


async def test_relayed_answer_is_the_upstreams_own(tmp_path: Path) -> None:
    """Without context management the answer passes through, but for what pushes events into a browser."""
    answer = {
        "id": "theirs",
        "object": "chat.completion",
        "created": 1,
        "model": "their-name",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
        "timings": {"predicted_ms": 3},
    }
    async with elbowroom_with_studio(tmp_path, agents="", kind="openai") as (served, studio):
        studio.enqueue(Script(Reply(200, {**answer, "event": {"type": "x"}, "selected_model_id": "y"})))
        assert await served.chat("openai/their-name", odd=1) == {**answer, "model": "openai/their-name"}
        [sent] = studio.chats
        assert sent.body == {
            "model": "their-name",
            "messages": [{"role": "user", "content": "Hello"}],
            "odd": 1,
        }
