"""The `anthropic` Python client on `/v1/messages`; the client checks each answer against its own types."""

import json
from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path
from typing import Any

import anthropic
import pair_fixtures
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from anthropic.types import Message, MessageParam, ToolParam
from anthropic.types.beta import BetaMessage
from anthropic.types.beta.beta_cache_miss_messages_changed import BetaCacheMissMessagesChanged
from anthropic.types.beta.beta_cache_miss_model_changed import BetaCacheMissModelChanged
from anthropic.types.beta.beta_cache_miss_previous_message_not_found import BetaCacheMissPreviousMessageNotFound
from anthropic.types.beta.beta_cache_miss_system_changed import BetaCacheMissSystemChanged
from anthropic.types.beta.beta_cache_miss_tools_changed import BetaCacheMissToolsChanged
from chatting import MODEL, RAW_MODEL, elbowroom_with_studio
from pair_fixtures import Pair
from serving import Served, parse_frames
from small_window import history, orders_of, small_window, turns_of
from spread_variants import spread

from elbowroom.demo import Error, Pause, Reasoning, Script, SimulatedLMStudio, SimulatedModel, ToolCall
from elbowroom.server.state import Timing

pytestmark = pytest.mark.asyncio(loop_scope="module")
pair = pair_fixtures.pair
Trio = tuple[AsyncAnthropic, SimulatedLMStudio, Served]
CHANGED = (
    BetaCacheMissModelChanged,
    BetaCacheMissSystemChanged,
    BetaCacheMissToolsChanged,
    BetaCacheMissMessagesChanged,
)
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
HELLO: list[MessageParam] = [{"role": "user", "content": "Hello"}]
READ_NOTE: ToolParam = {
    "name": "read_note",
    "description": "Reads a note.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def client_of(served: Served) -> AsyncAnthropic:
    """Return a client that asks once, and raises where an answer does not have the form that it expects."""
    http = DefaultAsyncHttpxClient(trust_env=False, verify=False)  # no proxy of this machine, and no certificates
    return AsyncAnthropic(
        base_url=served.url, api_key="none", max_retries=0, http_client=http, _strict_response_validation=True
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Run elbowroom in front of a simulated LM Studio with a model that sees."""
    vision = SimulatedModel(MODEL, type="vlm", loaded_context_length=32_768)
    async with elbowroom_with_studio(tmp_path_factory.mktemp("pair"), model=vision) as both:
        yield both


@pytest_asyncio.fixture(loop_scope="module")
async def trio(pair: Pair) -> AsyncIterator[Trio]:
    """Take both, and a client."""
    served, studio = pair
    async with client_of(served) as client:
        yield client, studio, served


@MODELS
async def test_whole(trio: Trio, model: str) -> None:
    """Without streaming, the message comes whole, with its thoughts and the usage of what was sent."""
    client, studio, _ = trio
    studio.enqueue(Script(Reasoning("Hm."), "One two three."))
    answer = await client.messages.create(
        model=model, max_tokens=16_000, messages=HELLO, system="Be short.", thinking={"type": "adaptive"}
    )
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert (answer.content[1].text, answer.stop_reason, answer.model) == ("One two three.", "end_turn", model)  # type: ignore[union-attr]
    assert answer.usage.input_tokens == studio.chats[0].prompt_tokens
    assert answer.usage.output_tokens > 0
    sent = studio.chats[0].body["messages"]
    assert "Be short." in sent[0]["content"]
    assert sent[-1] == {"role": "user", "content": "Hello"}


@MODELS
async def test_stream(trio: Trio, model: str) -> None:
    """A stream gives each block from its beginning to its end; what it adds up to is the message."""
    client, studio, _ = trio
    studio.enqueue(Script(Reasoning("Hm hm."), "One two.", ToolCall("read_note", {"path": "ä"})))
    async with client.messages.stream(
        model=model,
        max_tokens=2000,
        messages=HELLO,
        tools=[READ_NOTE],
        thinking={"type": "enabled", "budget_tokens": 1024},
    ) as stream:
        kinds = [event.type async for event in stream]
        answer = await stream.get_final_message()
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
    assert answer.content[0].thinking == "Hm hm."  # type: ignore[union-attr]
    assert answer.content[2].input == {"path": "ä"}  # type: ignore[union-attr]
    assert answer.stop_reason == "tool_use"
    assert answer.usage.input_tokens == studio.chats[0].prompt_tokens


@MODELS
@pytest.mark.parametrize("keep_alive", [10.0, 0.02], ids=["at once", "after a silence"])
async def test_the_prompt_is_told_first(tmp_path: Path, model: str, keep_alive: float) -> None:
    """The first event tells how many tokens the prompt has; while nobody knows it, only pings are sent."""
    async with elbowroom_with_studio(tmp_path, timing=Timing(keep_alive=keep_alive)) as (served, studio):
        studio.enqueue(Script(Pause(0.3), "Hi."))
        body = {"model": model, "max_tokens": 90, "stream": True, "messages": HELLO}
        async with served.http.post(f"{served.url}/v1/messages", json=body) as response:
            events = [event for event in parse_frames(await response.read()) if event["type"] != "ping"]
        assert events[0]["type"] == "message_start"
        assert events[0]["message"]["usage"]["input_tokens"] == studio.chats[0].prompt_tokens
        assert events[-2]["usage"]["input_tokens"] == studio.chats[0].prompt_tokens


async def test_sequence_on_the_wire(trio: Trio) -> None:
    """The events come in Anthropic's order, each with its name, with a ping after the first block has begun."""
    _, studio, served = trio
    studio.enqueue(Script("Hi.", ToolCall("read_note", {"path": "a"})))
    body = {"model": "writer", "max_tokens": 90, "stream": True, "messages": HELLO, "tools": [READ_NOTE]}
    async with served.http.post(f"{served.url}/v1/messages?beta=true", json=body) as response:
        frames = [frame for frame in (await response.text()).split("\n\n") if frame and not frame.startswith(":")]
        assert response.headers["request-id"] == response.headers["X-Request-ID"]
    names = [frame.split("\n")[0].removeprefix("event: ") for frame in frames]
    assert names == [json.loads(frame.split("\ndata: ")[1])["type"] for frame in frames]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    text = ["content_block_start", "ping", "content_block_delta", "content_block_stop"]
    assert [name for name, _ in groupby(names)] == ["message_start", *text, *block, "message_delta", "message_stop"]


@MODELS
async def test_tools_loop(trio: Trio, model: str) -> None:
    """A call goes on with its result; a failed one's says so, and the thoughts before it come back to the model."""
    client, studio, _ = trio
    studio.enqueue(Script(Reasoning("Look."), "Looking.", ToolCall("read_note", {"path": "a"})), "It is gone.")
    asked = {"model": model, "max_tokens": 100, "tools": [READ_NOTE]}
    hidden: Any = {"type": "adaptive", "display": "omitted"}
    first: Message = await client.messages.create(messages=HELLO, thinking=hidden, **asked)  # type: ignore[call-overload]
    assert first.content[0].thinking == ""  # type: ignore[union-attr]
    [call] = [block for block in first.content if block.type == "tool_use"]
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "is_error": True, "content": "no such note"}
    said: Any = [block.model_dump(exclude_none=True) for block in first.content]
    again: list[Any] = [*HELLO, {"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
    second = await client.messages.create(messages=again, thinking=hidden, **asked)  # type: ignore[call-overload]
    assert second.content[0].text == "It is gone."
    *_, calling, answered = studio.chats[1].body["messages"]
    assert calling["tool_calls"][0]["function"] == {"name": "read_note", "arguments": '{"path": "a"}'}
    assert calling["reasoning_content"] == "Look."
    assert (answered["role"], answered["content"]) == ("tool", "Error: no such note")


async def test_what_is_read(trio: Trio) -> None:
    """Images, documents and a system message in the middle reach the model; a line for an invoice does not."""
    client, studio, _ = trio
    studio.enqueue("Seen.")
    content: Any = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "document", "title": "a.txt", "source": {"type": "text", "media_type": "text/plain", "data": "Oats."}},
        {
            "type": "document",
            "title": "b.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": ""},
        },
    ]
    system: Any = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abc;"},
        {"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}},
    ]
    messages: Any = [{"role": "user", "content": content}, {"role": "system", "content": "Stay calm."}]
    await client.messages.create(model=RAW_MODEL, max_tokens=9, system=system, messages=messages)
    sent = json.dumps(studio.chats[0].body["messages"])
    for text in ("Be short.", "Stay calm.", "Oats.", "b.pdf", f"data:image/png;base64,{PIXEL}"):
        assert text in sent
    assert "billing" not in sent


async def test_choices_and_limits(trio: Trio) -> None:
    """Choices of tools, limits and formats reach the model in the form that its server knows."""
    client, studio, _ = trio
    studio.enqueue("Yes.", "No.")
    await client.messages.create(
        model=RAW_MODEL,
        max_tokens=9,
        messages=HELLO,
        tools=[
            READ_NOTE,
            {"type": "bash_20250124", "name": "bash"},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        extra_body={"top_k": 5, "temperature": 0.5},
    )
    sent = studio.chats[0].body
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read_note", "bash"]
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("required", False)
    assert (sent["max_tokens"], sent["top_k"], sent["temperature"]) == (9, 5, 0.5)
    named: Any = {"type": "tool", "name": "read_note"}
    both: Any = [READ_NOTE, {**READ_NOTE, "name": "list_notes"}]
    await client.messages.create(model=RAW_MODEL, max_tokens=9, messages=HELLO, tools=both, tool_choice=named)
    sent = studio.chats[1].body
    assert sent["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read_note"]


@MODELS
async def test_count(trio: Trio, model: str) -> None:
    """The count is what the engine reads afterwards, to the token."""
    client, studio, _ = trio
    fields: dict[str, Any] = {"model": model, "messages": HELLO, "system": "Be short.", "tools": [READ_NOTE]}
    counted = await client.messages.count_tokens(**fields)
    await client.messages.create(max_tokens=9, **fields)
    assert counted.input_tokens == studio.chats[0].prompt_tokens


async def test_models(trio: Trio) -> None:
    """Anthropic's clients get the list in their form, page by page, with the window that is loaded."""
    client, _, _ = trio
    first = await client.models.list(limit=1)
    assert [model.id for model in first.data] == ["writer"]
    rest = await first.get_next_page()
    assert [(model.id, model.max_input_tokens) for model in rest.data] == [(RAW_MODEL, 32_768)]
    assert not rest.has_more
    one = await client.models.retrieve(RAW_MODEL)
    assert (one.id, one.type) == (RAW_MODEL, "model")


TEXT_BLOCK = {"type": "text", "text": "Hello"}
EMPTY_BLOCK = {"type": "text", "text": ""}
CALLED = [{"type": "tool_use", "id": f"toolu_{number}", "name": "read_note", "input": {}} for number in (1, 2)]
CALLING = {"role": "assistant", "content": CALLED}
ANSWERED = {"type": "tool_result", "tool_use_id": "toolu_1", "content": ""}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages has to be a list"),
    ({"messages": ["a"]}, "messages[0] has to be an object"),
    ({"messages": [{"role": {}, "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": {}}]}, "messages[0].content has to be a text or a list of blocks"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0] has to be an object"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].source"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "messages[0].content[0].name"),
    ({"system": 3}, "system has to be a text or a list of blocks"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"stop_sequences": [3]}, "stop_sequences"),
    ({"tools": {"a": 1}}, "tools has to be a list"),
    ({"tools": [{}]}, "tools[0] needs a name"),
    ({"tools": [{"name": "a", "input_schema": []}]}, "tools[0].input_schema"),
    ({"tools": [READ_NOTE], "tool_choice": "auto"}, "tool_choice.type"),
    ({"model": 3}, "model is missing"),
    ({"stream": "yes"}, "stream has to be true or false"),
    ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "thinking.budget_tokens has to be"),
    ({"thinking": {"type": "enabled", "budget_tokens": "all"}}, "thinking.budget_tokens has to be"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content is empty"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content is empty"),
    ({"messages": [*HELLO, {"role": "user", "content": []}]}, "messages[1].content is empty"),
    ({"messages": [{"role": "user", "content": [TEXT_BLOCK, EMPTY_BLOCK]}]}, "messages[0].content[1].text is empty"),
    ({"messages": [*HELLO, {"role": "assistant", "content": [EMPTY_BLOCK]}]}, "messages[1].content[0].text is empty"),
    ({"messages": [*HELLO, CALLING]}, "messages[1] has tool_use blocks without a tool_result"),
    ({"messages": [*HELLO, CALLING, *HELLO]}, "in the next message: toolu_1, toolu_2."),
    ({"messages": [*HELLO, CALLING, {"role": "user", "content": [ANSWERED]}]}, "in the next message: toolu_2."),
]


@pytest.mark.parametrize(("fields", "told"), WRONG, ids=[str(index) for index in range(len(WRONG))])
async def test_refusals(trio: Trio, fields: dict[str, Any], told: str) -> None:
    """What cannot be read is a 400 in Anthropic's form that names the field, for an answer and for a count."""
    _, _, served = trio
    body = {"model": "writer", "max_tokens": 9, "messages": HELLO, **fields}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        async with served.http.post(f"{served.url}{path}", json=body) as response:
            answer = await response.json()
        assert (response.status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
        assert told in answer["error"]["message"]


async def test_max_tokens_are_needed(trio: Trio) -> None:
    """An answer without `max_tokens` is refused as at Anthropic; a count has none."""
    _, _, served = trio
    body = {"model": "writer", "messages": HELLO}
    async with served.http.post(f"{served.url}/v1/messages", json=body) as response:
        assert (response.status, "max_tokens is missing" in await response.text()) == (400, True)
    async with served.http.post(f"{served.url}/v1/messages/count_tokens", json=body) as response:
        assert response.status == 200


TAKEN: list[tuple[str, dict[str, Any]]] = [
    ("", {"messages": [*HELLO, {"role": "assistant", "content": []}, *HELLO]}),
    ("", {"messages": [*HELLO, {"role": "assistant", "content": ""}, *HELLO]}),
    (
        "",
        {
            "messages": [
                *HELLO,
                CALLING,
                {"role": "user", "content": [ANSWERED, {**ANSWERED, "tool_use_id": "toolu_2"}]},
            ]
        },
    ),
    ("interleaved-thinking-2025-05-14", {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
]


@pytest.mark.parametrize(("beta", "fields"), TAKEN)
async def test_taken(trio: Trio, beta: str, fields: dict[str, Any]) -> None:
    """Answers without words, answered calls and budgets for several answers are taken."""
    _, _, served = trio
    body = {"model": "writer", "max_tokens": 9, "messages": HELLO, **fields}
    async with served.http.post(f"{served.url}/v1/messages", json=body, headers={"anthropic-beta": beta}) as response:
        assert response.status == 200, await response.text()


@MODELS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_stop_sequence(trio: Trio, model: str, stream: bool) -> None:
    """The answer ends before a stop sequence and says which; one that no sequence has ended says so too."""
    client, studio, _ = trio
    studio.enqueue("One. EN two. END three.", "One. EN")
    asked: dict[str, Any] = {"model": model, "max_tokens": 90, "messages": HELLO, "stop_sequences": ["STOP", "END"]}

    async def answer() -> Message:
        if not stream:
            whole: Message = await client.messages.create(**asked)
            return whole
        async with client.messages.stream(**asked) as events:
            return await events.get_final_message()

    ended = await answer()
    assert (ended.content[0].text, ended.stop_reason, ended.stop_sequence) == ("One. EN two. ", "stop_sequence", "END")  # type: ignore[union-attr]
    assert ended.usage.output_tokens > 0
    whole = await answer()
    assert (whole.content[0].text, whole.stop_reason, whole.stop_sequence) == ("One. EN", "end_turn", None)  # type: ignore[union-attr]
    assert "stop" not in studio.chats[0].body


@MODELS
async def test_thoughts_in_the_text(trio: Trio, model: str) -> None:
    """Thoughts that an engine writes into the text are a block of thoughts, and are not shown where none are wanted."""
    client, studio, _ = trio
    studio.enqueue(*["<think>\nLook first.\n</think>\n\nIt is there."] * 2)
    asked: dict[str, Any] = {"model": model, "max_tokens": 90, "messages": HELLO}
    answer = await client.messages.create(thinking={"type": "adaptive"}, **asked)
    thoughts, words = answer.content
    assert (thoughts.thinking, words.text) == ("Look first.", "It is there.")
    assert [block.text for block in (await client.messages.create(**asked)).content] == ["It is there."]


async def test_calls_in_text(trio: Trio) -> None:
    """A call in fenced JSON, and one with broken arguments, are calls."""
    client, studio, _ = trio
    studio.enqueue(
        'I look.\n```json\n{"name": "read_note", "arguments": {"path": "a.md"}}\n```',
        Script(ToolCall("read_note", "{'path': 'a.md',}")),
    )
    for _ in range(2):
        answer = await client.messages.create(model="writer", max_tokens=90, messages=HELLO, tools=[READ_NOTE])
        assert answer.stop_reason == "tool_use"
        assert answer.content[-1].input == {"path": "a.md"}  # type: ignore[union-attr]


async def test_call_ids(trio: Trio) -> None:
    """Calls have Anthropic's ids for the client; the model gets its own ids back, and foreign ones as they are."""
    client, studio, _ = trio
    studio.enqueue(Script(ToolCall("read_note", {"path": "a"})), "It is gone.")
    asked: dict[str, Any] = {"model": RAW_MODEL, "max_tokens": 100, "tools": [READ_NOTE]}
    first = await client.messages.create(messages=HELLO, **asked)
    [call] = first.content
    assert call.type == "tool_use"
    assert call.id.startswith("toolu_")
    foreign = "toolu_01A09q90qw90lq917835lq9"
    calls: Any = [call.model_dump(), {"type": "tool_use", "id": foreign, "name": "read_note", "input": {}}]
    results: Any = [{"type": "tool_result", "tool_use_id": each["id"], "content": "x"} for each in calls]
    again: Any = [*HELLO, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    await client.messages.create(messages=again, **asked)
    *_, calling, one, other = studio.chats[1].body["messages"]
    own = call.id.removeprefix("toolu_")
    assert [each["id"] for each in calling["tool_calls"]] == [own, foreign]
    assert [one["tool_call_id"], other["tool_call_id"]] == [own, foreign]


async def test_errors(trio: Trio) -> None:
    """Errors have Anthropic's form, before the first word and after it."""
    client, studio, served = trio
    with pytest.raises(anthropic.NotFoundError) as missing:
        await client.messages.create(model="nobody", max_tokens=9, messages=HELLO)
    assert missing.value.type == "not_found_error"
    wrong: Any = [{"role": "tool", "content": "x"}]
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.role"):
        await client.messages.create(model="writer", max_tokens=9, messages=wrong)
    studio.enqueue(Script("One.", Error("the model has crashed")))
    with pytest.raises(anthropic.APIStatusError, match="crashed"):
        async with client.messages.stream(model=RAW_MODEL, max_tokens=9, messages=HELLO) as stream:
            await stream.get_final_message()
    async with served.http.head(f"{served.url}/api/hello") as response:
        assert response.status == 200


async def ids_of(served: Served) -> dict[str, str]:
    """Return the ids of all conversations, with their names."""
    async with served.http.get(f"{served.url}/v1/conversations?limit=100") as response:
        return {row["id"]: row["name"] for row in (await response.json())["data"]}


async def test_session_is_a_conversation(trio: Trio) -> None:
    """Two requests of one session are one conversation, by its header or by `metadata.user_id`."""
    client, _, served = trio
    user = json.dumps({"device_id": "d", "session_id": "5f3c"})
    names = {"X-Claude-Code-Session-Id": "5f3c"}
    before = await ids_of(served)
    await client.messages.create(model="writer", max_tokens=9, messages=HELLO, extra_headers=names)
    await client.messages.create(
        model="writer",
        max_tokens=9,
        messages=[{"role": "user", "content": "Compact"}],
        metadata={"user_id": user},
    )
    after = await ids_of(served)
    [conversation] = after.keys() - before.keys()
    assert after[conversation] == "5f3c"


async def test_compaction(tmp_path: Path) -> None:
    """A long conversation is compacted as a chat's is; the client sees nothing but the answer."""
    system, *messages = history(12)
    async with small_window(tmp_path) as (served, studio), client_of(served) as client:
        answer = await client.messages.create(
            model="writer",
            max_tokens=50,
            system=system["content"],
            messages=messages,  # type: ignore[arg-type]
        )
        assert orders_of(studio)
        [turn] = turns_of(studio)
        assert turn.prompt_tokens is not None
        assert turn.prompt_tokens < 1000
        assert answer.usage.input_tokens == turn.prompt_tokens


@pytest.mark.parametrize(
    ("reason", "stream"),
    spread(["none", "model_changed", "system_changed", "tools_changed", "messages_changed"], [False, True]),
)
async def test_diagnostics(trio: Trio, reason: str, stream: bool) -> None:
    """A request that names the answer before it is told what has changed since, and about what that costs."""
    client, studio, _ = trio
    studio.on_request = lambda _: "Yes."
    asked: dict[str, Any] = {"model": RAW_MODEL, "max_tokens": 100, "system": "Be short.", "messages": list(HELLO)}
    asked["messages"] += [{"role": "assistant", "content": "Yes. " * 40}, {"role": "user", "content": "And now?"}]

    async def answer(previous: str | None) -> BetaMessage:
        given = {**asked, "diagnostics": {"previous_message_id": previous}}
        if not stream:
            whole: BetaMessage = await client.beta.messages.create(**given)
            return whole
        async with client.beta.messages.stream(**given) as events:
            return await events.get_final_message()

    first = await answer(None)
    assert first.diagnostics is None
    asked["messages"] += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}]
    changes: dict[str, dict[str, Any]] = {
        "none": {},
        "model_changed": {"model": "writer"},
        "system_changed": {"system": "Be long."},
        "tools_changed": {"tools": [READ_NOTE]},
        "messages_changed": {"messages": [*HELLO, {"role": "assistant", "content": "No."}, *asked["messages"][2:]]},
    }
    asked |= changes[reason]
    told = (await answer(first.id)).diagnostics
    if reason == "none":
        assert told is None
        return
    assert told is not None
    missed = told.cache_miss_reason
    assert isinstance(missed, CHANGED)
    assert missed.type == reason
    read = studio.chats[0].prompt_tokens or 0
    if reason == "messages_changed":
        assert read / 2 < missed.cache_missed_input_tokens < read
    else:
        assert missed.cache_missed_input_tokens == read


async def test_diagnostics_of_what_is_not_known(trio: Trio) -> None:
    """An id that was never given, or long ago, is said to be unknown; who does not ask is told nothing."""
    client, _, _ = trio
    asked: dict[str, Any] = {"model": RAW_MODEL, "max_tokens": 100, "messages": HELLO}
    answer = await client.beta.messages.create(**asked, diagnostics={"previous_message_id": "msg_0"})
    assert answer.diagnostics is not None
    assert isinstance(answer.diagnostics.cache_miss_reason, BetaCacheMissPreviousMessageNotFound)
    assert "diagnostics" not in (await client.beta.messages.create(**asked)).model_fields_set


async def test_diagnostics_of_somebody_else(trio: Trio) -> None:
    """Who names the answer to another user is told what is told of an id that was never given."""
    client, _, _ = trio
    asked: dict[str, Any] = {"model": RAW_MODEL, "max_tokens": 100, "messages": HELLO}
    anna, bob = (client.with_options(default_headers={"X-Elbowroom-User": name}) for name in ("anna", "bob"))
    first = await anna.beta.messages.create(**asked, diagnostics={"previous_message_id": None})
    wanted = {**asked, "diagnostics": {"previous_message_id": first.id}}
    told = (await bob.beta.messages.create(**wanted)).diagnostics
    assert told is not None
    assert isinstance(told.cache_miss_reason, BetaCacheMissPreviousMessageNotFound)
    assert (await anna.beta.messages.create(**wanted)).diagnostics is None
