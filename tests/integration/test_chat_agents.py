"""Agents: their instructions, sampling and names."""

from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
from chatting import (
    AGENT,
    MODEL,
    RAW_MODEL,
    chat_body,
    chunks_of,
    elbowroom_with_studio,
    stream_bytes,
)
from pair_fixtures import Pair
from serving import text_of

from elbowroom.demo import SimulatedModel
from elbowroom.server.state import PROVIDERS, SETTINGS

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
SAMPLED = AGENT + 'sampling = { temperature = 0.7, max_tokens = 50, stop = ["END"], min_p = 0.05 }\n'
INSTRUCTIONS = "You help with notes."


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        ([], [{"role": "system", "content": INSTRUCTIONS}]),
        (
            [{"role": "system", "content": "Be kind."}],
            [{"role": "system", "content": f"{INSTRUCTIONS}\n\nBe kind."}],
        ),
        (
            [{"role": "developer", "content": "Be kind.", "name": "me"}],
            [{"role": "system", "content": f"{INSTRUCTIONS}\n\nBe kind.", "name": "me"}],
        ),
        (
            [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}],
            [
                {
                    "role": "system",
                    "content": [{"type": "text", "text": INSTRUCTIONS}, {"type": "text", "text": "Be kind."}],
                }
            ],
        ),
        ([{"role": "system", "content": ""}], [{"role": "system", "content": INSTRUCTIONS}]),
    ],
    ids=["none", "text", "developer", "parts", "empty"],
)
async def test_instructions_and_the_clients_system_message(pair: Pair, sent: list[Any], arrives: list[Any]) -> None:
    """The agent's instructions and the client's system message are one message: two break chat templates."""
    question = {"role": "user", "content": "Hello"}
    served, studio = pair
    await stream_bytes(served, {"model": "writer", "messages": [*sent, question]})
    assert studio.chats[0].body["messages"] == [*arrives, question]


async def test_raw_model_gets_the_messages_as_sent(pair: Pair) -> None:
    """A raw model has no instructions: its messages are the client's, odd ones too."""
    messages = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "a", "name": "Ada", "x": [1]},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "reasoning_details": [{"data": "x"}]},
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": "to be continued"},
    ]
    served, studio = pair
    await stream_bytes(served, {"model": RAW_MODEL, "messages": messages})
    assert studio.chats[0].body["messages"] == messages


async def test_image_reaches_the_model_as_sent(tmp_path: Path) -> None:
    """Image parts pass through byte by byte."""
    url = "data:image/png;base64," + "iVBORw0KGgo=" * 1000
    content = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]
    seeing = SimulatedModel(MODEL, type="vlm", loaded_context_length=32_768)
    async with elbowroom_with_studio(tmp_path, model=seeing) as (served, studio):
        answer = text_of(chunks_of(await stream_bytes(served, chat_body(content))))
        assert "image" in answer
        assert studio.chats[0].body["messages"][-1] == {"role": "user", "content": content}


async def test_sampling_of_the_client_passes_through(pair: Pair) -> None:
    """Known and unknown parameters reach the model as sent; only the limit's newer name becomes LM Studio's."""
    fields: dict[str, Any] = {
        "temperature": 0.1,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "logit_bias": {"42": -100},
        "seed": 7,
        "stop": ["\n\n", "END"],
        "ttl": 300,
        "user": "ada",
        "metadata": {"a": "b"},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "vendor_field": {"deep": [1, None]},
    }
    served, studio = pair
    await stream_bytes(served, chat_body(**fields, max_completion_tokens=77))
    body = studio.chats[0].body
    assert {name: body[name] for name in fields} == fields
    assert body["max_tokens"] == 77
    assert "max_completion_tokens" not in body


async def test_stop_strings_end_the_answer(pair: Pair) -> None:
    """A stop string of the client ends the answer before it, streamed or not."""
    served, studio = pair
    studio.enqueue("one two STOP three", repeat=True)
    chunks = chunks_of(await stream_bytes(served, chat_body(stop="STOP")))
    assert text_of(chunks) == "one two "
    assert (await served.chat("writer", stop=["STOP"]))["choices"][0]["message"]["content"] == "one two "


async def test_agents_sampling_is_a_default(tmp_path: Path) -> None:
    """What the agent's settings say is used where the client says nothing, and null is nothing."""
    async with elbowroom_with_studio(tmp_path, agents=SAMPLED) as (served, studio):
        nothing = dict.fromkeys(["temperature", "stop", "max_tokens", "max_completion_tokens"])
        for body in (chat_body(), {**chat_body(), **nothing}):
            await stream_bytes(served, body)
            body = studio.chats[-1].body
            assert body["temperature"] == 0.7
            assert body["max_tokens"] == 50
            assert body["stop"] == ["END"]
            assert body["min_p"] == 0.05


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
        ({"max_tokens": None, "max_completion_tokens": 6}, 6),
    ],
)
async def test_limit_of_the_client_goes_over_the_agents(tmp_path: Path, fields: dict[str, Any], limit: int) -> None:
    """Either name of the token limit overrides the agent's own."""
    async with elbowroom_with_studio(tmp_path, agents=SAMPLED) as (served, studio):
        await stream_bytes(served, chat_body(temperature=0.0, **fields))
        assert studio.chats[0].body["max_tokens"] == limit
        assert studio.chats[0].body["temperature"] == 0.0


@pytest.mark.parametrize("name", ["writer", "The Writer", "the writer"])
async def test_agent_by_id_or_name(pair: Pair, name: str) -> None:
    """An agent answers to its id and its name, and its answer says the model that the client named."""
    served, studio = pair
    answer = await served.chat(name)
    assert answer["model"] == name
    assert studio.chats[0].body["model"] == MODEL


async def test_settings_changed_between_requests(tmp_path: Path) -> None:
    """An agent whose settings changed answers the next request with the new ones."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        await served.chat("writer")
        providers = served.app[PROVIDERS].of(served.app[SETTINGS].current())
        text = served.settings.read_text().replace(INSTRUCTIONS, "You write poems about notes.")
        served.settings.write_text(text)
        await served.chat("writer")
        assert studio.chats[-1].body["messages"][0]["content"] == "You write poems about notes."
        assert served.app[PROVIDERS].of(served.app[SETTINGS].current()) == providers
