"""Context management in Anthropic's dialect, with the `anthropic` client, which checks each answer by its types."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anthropic
import pytest
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from anthropic.types.beta import BetaMessage
from chatting import RAW_MODEL
from serving import Served
from small_window import small_window

from elbowroom.demo import SimulatedLMStudio

Trio = tuple[AsyncAnthropic, SimulatedLMStudio, Served]
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
WINDOW: Final = 16_384
LONG: Final = "The tide was low and the pier was dry. " * 12
READ_NOTE: Final[Any] = {
    "name": "read_note",
    "description": "Reads a note.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
CLEAR: Final = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "input_tokens", "value": 1000},
    "keep": {"type": "tool_uses", "value": 2},
}


def client_of(served: Served) -> AsyncAnthropic:
    """Return a client that asks once, and raises where an answer does not have the form that it expects."""
    http = DefaultAsyncHttpxClient(trust_env=False)
    return AsyncAnthropic(
        base_url=served.url, api_key="none", max_retries=0, http_client=http, _strict_response_validation=True
    )


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    """Run elbowroom in front of a simulated LM Studio with a window of 16K, and a client."""
    async with small_window(tmp_path, window=WINDOW) as (served, studio), client_of(served) as client:
        yield client, studio, served


def uses(count: int, thinks: str = "") -> list[Any]:
    """Return a question and so many calls with their results, each with a thought before it where one is given."""
    messages: list[Any] = [{"role": "user", "content": "What do the notes say?"}]
    for number in range(count):
        thought = [{"type": "thinking", "thinking": thinks, "signature": "s"}] if thinks else []
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "read_note", "input": {"path": f"{number}.md"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"{number}: {LONG}"}
        messages += [{"role": "assistant", "content": [*thought, call]}, {"role": "user", "content": [result]}]
    return messages


async def ask(client: AsyncAnthropic, messages: list[Any], *edits: Any, streams: bool, **fields: Any) -> BetaMessage:
    """Return the answer, whole or put together from its events."""
    asked: dict[str, Any] = {"model": RAW_MODEL, "max_tokens": 100, "messages": messages, "tools": [READ_NOTE]}
    asked |= {"context_management": {"edits": list(edits)}} if edits else {}
    asked |= fields
    if not streams:
        return await client.beta.messages.create(**asked)
    async with client.beta.messages.stream(**asked) as stream:
        return await stream.get_final_message()


def results(studio: SimulatedLMStudio, number: int = -1) -> list[str]:
    """Return the results of tools in a prompt that the model has got."""
    return [message["content"] for message in studio.chats[number].body["messages"] if message["role"] == "tool"]


@MODELS
@pytest.mark.parametrize("streams", [False, True])
async def test_clearing_tool_uses(trio: Trio, model: str, streams: bool) -> None:
    """Old results are stubs with references by which they can be read; the answer tells what was cleared, exactly."""
    client, studio, served = trio
    messages = uses(8)
    answer = await ask(client, messages, CLEAR, streams=streams, model=model)
    shown = results(studio)
    assert [text.startswith("[tool output trimmed; ref=") for text in shown] == [True] * 6 + [False] * 2
    assert answer.context_management is not None
    [applied] = answer.context_management.applied_edits
    assert applied.type == "clear_tool_uses_20250919"
    assert applied.cleared_tool_uses == 6
    plain = await client.beta.messages.count_tokens(model=model, messages=messages, tools=[READ_NOTE])
    prompt = studio.chats[-1].prompt_tokens
    assert prompt is not None
    assert applied.cleared_input_tokens == plain.input_tokens - prompt
    assert answer.usage.input_tokens == prompt
    kept = shown[0].removeprefix("[tool output trimmed; ref=").partition(";")[0]
    async with served.http.get(f"{served.url}/v1/tool_outputs/{kept}") as response:
        assert LONG in await response.text()


async def test_what_is_cleared_stays_the_same(trio: Trio) -> None:
    """With each further call the prompt begins with the same bytes, until the trigger is passed again."""
    client, studio, _ = trio
    edit = {**CLEAR, "trigger": {"type": "tool_uses", "value": 5}}
    cleared = []
    for count in range(4, 12):
        answer = await ask(client, uses(count), edit, streams=False)
        assert answer.context_management is not None
        edits = answer.context_management.applied_edits
        cleared.append(sum(getattr(applied, "cleared_tool_uses", 0) for applied in edits))
    assert cleared == [0, 0, 4, 4, 4, 4, 8, 8]
    prompts = [chat.body["messages"] for chat in studio.chats]
    changed = [
        place for place in range(1, len(prompts)) if prompts[place][: len(prompts[place - 1])] != prompts[place - 1]
    ]
    assert changed == [2, 6]


@pytest.mark.parametrize("streams", [False, True])
async def test_clearing_thinking(trio: Trio, streams: bool) -> None:
    """Thoughts of old turns do not reach the model; with `all` they do, as far as its template shows them."""
    client, studio, _ = trio
    turns = [message for _ in range(3) for message in [*uses(1, "I look."), {"role": "assistant", "content": "Dry."}]]
    messages = [*turns, {"role": "user", "content": "And now?"}]
    edit: dict[str, Any] = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}
    answer = await ask(client, messages, edit, streams=streams)
    assert answer.context_management is not None
    [applied] = answer.context_management.applied_edits
    assert (applied.type, getattr(applied, "cleared_thinking_turns", 0)) == ("clear_thinking_20251015", 2)
    kept = [message for message in studio.chats[-1].body["messages"] if "reasoning_content" in message]
    assert len(kept) == 1
    answer = await ask(client, messages, {**edit, "keep": "all"}, streams=streams)
    assert answer.context_management is not None
    assert answer.context_management.applied_edits == []
    kept = [message for message in studio.chats[-1].body["messages"] if "reasoning_content" in message]
    assert len(kept) == 3


@MODELS
async def test_counting(trio: Trio, model: str) -> None:
    """The count is that of the prompt after its edits, to the token, beside the size that it had before."""
    client, studio, _ = trio
    fields: Any = {"model": model, "messages": uses(8), "tools": [READ_NOTE]}
    edits: Any = {"edits": [CLEAR]}
    plain = await client.beta.messages.count_tokens(**fields)
    assert plain.context_management is None
    counted = await client.beta.messages.count_tokens(**fields, context_management=edits)
    assert counted.context_management is not None
    assert counted.context_management.original_input_tokens == plain.input_tokens
    await client.beta.messages.create(max_tokens=9, **fields, context_management=edits)
    assert counted.input_tokens == studio.chats[-1].prompt_tokens
    again = await client.beta.messages.count_tokens(**fields, context_management=edits)
    assert again == counted


async def test_what_is_not_known_is_left_out(trio: Trio, caplog: pytest.LogCaptureFixture) -> None:
    """An edit of an unknown type is left out with a line in the log; an answer without edits tells that none was."""
    client, _, _ = trio
    with caplog.at_level("INFO"):
        answer = await ask(client, uses(2), {"type": "clear_all_20990101"}, streams=False)
    assert answer.context_management is not None
    assert answer.context_management.applied_edits == []
    assert sum("clear_all_20990101" in line for line in caplog.messages) == 1
    answer = await ask(client, uses(2), streams=False)
    assert answer.context_management is None


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"context_management": []}, "context_management has to be an object"),
    ({"context_management": {"edits": {}}}, "context_management.edits has to be a list"),
    ({"context_management": {"edits": [3]}}, "context_management.edits[0] has to be an object"),
    ({"context_management": {"edits": [{}]}}, "context_management.edits[0].type"),
    ({"context_management": {"edits": [CLEAR, CLEAR]}}, "in the list twice"),
    ({"context_management": {"edits": [{**CLEAR, "keep": 3}]}}, "edits[0].keep has to be an object"),
    ({"context_management": {"edits": [{**CLEAR, "keep": {"type": "tool_uses", "value": -1}}]}}, "edits[0].keep.value"),
    ({"context_management": {"edits": [{**CLEAR, "trigger": {"type": "turns", "value": 1}}]}}, "edits[0].trigger"),
    ({"context_management": {"edits": [{**CLEAR, "clear_at_least": {"type": "tool_uses"}}]}}, "clear_at_least.type"),
    ({"context_management": {"edits": [{**CLEAR, "exclude_tools": "a"}]}}, "exclude_tools has to be a list"),
    ({"context_management": {"edits": [{**CLEAR, "clear_tool_inputs": 1}]}}, "clear_tool_inputs has to be a list"),
    ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": 2}]}}, "edits[0].keep has to be"),
    (
        {
            "context_management": {
                "edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 999}}]
            }
        },
        "edits[0].trigger.value has to be a whole number of 1,000 or more",
    ),
    ({"context_management": {"edits": [{"type": "compact_20260112", "instructions": 1}]}}, "edits[0].instructions"),
    (
        {"context_management": {"edits": [{"type": "compact_20260112", "pause_after_compaction": 1}]}},
        "edits[0].pause_after_compaction",
    ),
    ({"compaction": {"type": "trim"}}, "compaction.type has to be summarize"),
    ({"compaction": {"type": "summarize"}, "context_management": {}}, "cannot be combined"),
]


@pytest.mark.parametrize(("fields", "told"), WRONG, ids=[str(index) for index in range(len(WRONG))])
async def test_refusals(trio: Trio, fields: dict[str, Any], told: str) -> None:
    """What cannot be read is a 400 in Anthropic's form that names the field, for an answer and for a count."""
    client, _, served = trio
    body = {"model": "writer", "max_tokens": 9, "messages": uses(1), **fields}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        async with served.http.post(f"{served.url}{path}", json=body) as response:
            answer = await response.json()
        assert (response.status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert told in answer["error"]["message"]
    with pytest.raises(anthropic.BadRequestError):
        await client.beta.messages.create(model="writer", max_tokens=9, messages=uses(1), extra_body=fields)
