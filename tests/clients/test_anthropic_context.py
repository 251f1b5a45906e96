"""Edits and compactions in Anthropic's dialect, with the `anthropic` client, which checks each answer by its types."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anthropic
import pytest
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from anthropic.types.beta import BetaMessage
from cases import case
from chatting import RAW_MODEL
from request_checks import assert_fits
from serving import Served
from small_window import QUESTION, history, orders_of, small_window, turns_of
from spread_variants import spread

from elbowroom.demo import Reasoning, Script, SimulatedLMStudio, ToolCall

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
    http = DefaultAsyncHttpxClient(trust_env=False, verify=False)  # no certificates are read
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
        answer: BetaMessage = await client.beta.messages.create(**asked)
        return answer
    async with client.beta.messages.stream(**asked) as stream:
        return await stream.get_final_message()


def results(studio: SimulatedLMStudio, number: int = -1) -> list[str]:
    """Return the results of tools in a prompt that the model has got."""
    return [message["content"] for message in studio.chats[number].body["messages"] if message["role"] == "tool"]


@pytest.mark.parametrize(("model", "streams"), spread(["writer", RAW_MODEL], [False, True]))
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


async def test_no_request_fills_the_log(trio: Trio, caplog: pytest.LogCaptureFixture) -> None:
    """However many edits and tools are not known, and whatever they are called, each is a short line for all."""
    client, _, _ = trio
    edits = [{"type": f"clear\n{number}"} for number in range(500)]
    tools = [{"type": f"web_search_{number}", "name": f"search\n{number}"} for number in range(500)]
    with caplog.at_level("INFO"):
        await ask(client, uses(1), *edits, streams=False, tools=tools)
    told = [line for line in caplog.messages if "clear" in line or "search" in line]
    assert len(told) == 2
    assert max(map(len, told)) < 300
    assert "\n" not in "".join(told)


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


async def test_refusals(trio: Trio) -> None:
    """What cannot be read is a 400 in Anthropic's form that names the field, for an answer and for a count."""
    client, _, served = trio
    for fields, told in WRONG:
        with case(told):
            body = {"model": "writer", "max_tokens": 9, "messages": uses(1), **fields}
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                async with served.http.post(f"{served.url}{path}", json=body) as response:
                    answer = await response.json()
                assert (response.status, answer["error"]["type"]) == (400, "invalid_request_error")
                assert told in answer["error"]["message"]
            with pytest.raises(anthropic.BadRequestError):
                await client.beta.messages.create(model="writer", max_tokens=9, messages=uses(1), extra_body=fields)


COMPACT: Final[dict[str, Any]] = {"type": "compact_20260112"}
SYSTEM: Final = history(0)[0]["content"]


def at(tokens: int, **fields: Any) -> dict[str, Any]:
    """Return the edit that compacts prompts of so many tokens."""
    return {**COMPACT, "trigger": {"type": "input_tokens", "value": tokens}, **fields}


def talk(exchanges: int) -> list[Any]:
    """Return so many exchanges of about 120 tokens, and the question at the end."""
    return history(exchanges)[1:]


async def say(client: AsyncAnthropic, messages: list[Any], *edits: Any, streams: bool, **fields: Any) -> BetaMessage:
    """Ask as `ask` does, with a system prompt and without tools."""
    usual: dict[str, Any] = {"system": SYSTEM, "tools": [], "max_tokens": 50}
    return await ask(client, messages, *edits, streams=streams, **(usual | fields))


def param(answer: BetaMessage) -> Any:
    """Return an answer as the message that the client sends back."""
    return {"role": "assistant", "content": [block.model_dump(mode="json") for block in answer.content]}


def kinds(answer: BetaMessage) -> list[str]:
    """Return the types of an answer's blocks."""
    return [block.type for block in answer.content]


@pytest.mark.parametrize(("model", "streams"), spread(["writer", RAW_MODEL], [False, True]))
async def test_own_compactions_are_told(tmp_path: Path, model: str, streams: bool) -> None:
    """A compaction that the window demands comes as the first block; sent back, it makes the same prompt again."""
    alone = "background = false"
    async with small_window(tmp_path, compaction=alone) as (served, studio), client_of(served) as client:
        messages = talk(12)
        answer = await say(client, messages, COMPACT, streams=streams, model=model)
        assert kinds(answer) == ["compaction", "text"]
        assert answer.stop_reason == "end_turn"
        block = answer.content[0]
        assert block.type == "compaction"
        assert block.content
        assert "elbowroom-summary" not in block.content
        orders, [turn] = orders_of(studio), turns_of(studio)
        assert_fits(turn)
        iterations = answer.usage.iterations or []
        assert [each.type for each in iterations] == ["compaction", "message"]
        ordered = sum(order.prompt_tokens or 0 for order in orders)
        assert iterations[0].input_tokens + iterations[0].cache_read_input_tokens == ordered
        assert iterations[1].input_tokens == answer.usage.input_tokens == turn.prompt_tokens
        assert iterations[1].output_tokens == answer.usage.output_tokens
        follow = {"role": "user", "content": "And the first?"}
        for before in (messages, []):
            await say(client, [*before, param(answer), follow], COMPACT, streams=streams, model=model)
            again = turns_of(studio)[-1].body["messages"]
            assert again[: len(turn.body["messages"])] == turn.body["messages"]
            assert [message["content"] for message in again[len(turn.body["messages"]) :]] == [
                answer.content[1].text,  # type: ignore[union-attr]
                "And the first?",
            ]
        assert orders_of(studio) == orders


async def test_events_of_a_compaction(tmp_path: Path) -> None:
    """Streamed, a compaction begins, has all of its content in one delta, and ends, before the first word."""
    async with small_window(tmp_path) as (served, _), client_of(served) as client:
        asked: Any = {"model": RAW_MODEL, "max_tokens": 50, "messages": talk(12), "stream": True}
        asked["context_management"] = {"edits": [COMPACT]}
        stream: Any = await client.beta.messages.create(**asked)
        events = [event async for event in stream]
    assert [event.type for event in events[:5]] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
    ]
    assert events[1].content_block.type == "compaction"
    delta = events[2].delta
    assert delta.type == "compaction_delta"
    assert delta.content
    assert delta.encrypted_content
    last = events[-2]
    assert last.type == "message_delta"
    assert last.context_management is not None
    assert [each.type for each in last.usage.iterations or []] == ["compaction", "message"]


@pytest.mark.parametrize(("model", "streams"), spread(["writer", RAW_MODEL], [False, True]))
async def test_trigger_and_pause(tmp_path: Path, model: str, streams: bool) -> None:
    """A trigger from 1,000 tokens compacts what would fit; with a pause the answer comes with the next request."""
    async with small_window(tmp_path, window=8192) as (served, studio), client_of(served) as client:
        messages = talk(12)
        plain = await say(client, messages, at(8000), streams=streams, model=model)
        assert kinds(plain) == ["text"]
        edit = at(1000, pause_after_compaction=True, instructions="Note every boat.")
        paused = await say(client, messages, edit, streams=streams, model=model)
        assert (kinds(paused), paused.stop_reason) == (["compaction"], "compaction")
        assert (paused.usage.input_tokens, paused.usage.output_tokens) == (0, 0)
        assert [each.type for each in paused.usage.iterations or []] == ["compaction"]
        [order], [_] = orders_of(studio), turns_of(studio)
        assert "Note every boat." in str(order.body["messages"])
        resumed = await say(client, [*messages, param(paused)], edit, streams=streams, model=model)
        assert (kinds(resumed), resumed.stop_reason) == (["text"], "end_turn")
        sent = turns_of(studio)[-1]
        assert sent.prompt_tokens is not None
        assert plain.usage.input_tokens > sent.prompt_tokens
        assert sent.body["messages"][-1]["content"] == QUESTION
        assert len(orders_of(studio)) == 1


@pytest.mark.parametrize(("model", "streams"), spread(["writer", RAW_MODEL], [False, True]))
async def test_request_that_only_compacts(tmp_path: Path, model: str, streams: bool) -> None:
    """With `compaction` the one block is all that is answered; a later request sends it first, and goes on."""
    async with small_window(tmp_path, window=8192) as (served, studio), client_of(served) as client:
        wish = {"type": "summarize", "instructions": "Note every boat."}
        done = await say(client, talk(12), streams=streams, model=model, compaction=wish)
        assert (kinds(done), done.stop_reason) == (["compaction"], "compaction")
        assert [each.type for each in done.usage.iterations or []] == ["compaction"]
        assert turns_of(studio) == []
        assert "Note every boat." in str(orders_of(studio)[0].body["messages"])
        follow: Any = {"role": "user", "content": "And the first?"}
        answer = await say(client, [param(done), follow], streams=streams, model=model)
        assert kinds(answer) == ["text"]
        [sent] = turns_of(studio)
        assert "<elbowroom-summary>" in str(sent.body["messages"])
        counted = await client.beta.messages.count_tokens(
            model=model, system=SYSTEM, messages=[param(done), follow], compaction={"type": "summarize"}
        )
        assert counted.input_tokens == sent.prompt_tokens


async def test_nothing_to_summarize(tmp_path: Path) -> None:
    """What cannot be made shorter comes back as a block without content, which changes nothing when it is sent back."""
    async with small_window(tmp_path) as (served, studio), client_of(served) as client:
        question = talk(0)
        done = await say(client, question, streams=False, compaction={"type": "summarize"})
        block = done.content[0]
        assert block.type == "compaction"
        assert (block.content, block.encrypted_content, done.stop_reason) == (None, None, "compaction")
        await say(client, [*question, param(done), {"role": "user", "content": "Well?"}], streams=False)
        assert [message["content"] for message in turns_of(studio)[0].body["messages"] if message["role"] == "user"]


async def test_items_of_others_are_refused(tmp_path: Path) -> None:
    """A compaction that was changed, or was made elsewhere, is a 400 that says what to do."""
    async with small_window(tmp_path) as (served, _), client_of(served) as client:
        answer = await say(client, talk(12), COMPACT, streams=False)
        sent = param(answer)
        item = sent["content"][0]["encrypted_content"]
        for wrong in (item[:-4] + "AAAA", "EqcBCkYIARABGAIqQ", "", 3):
            sent["content"][0]["encrypted_content"] = wrong
            with pytest.raises(anthropic.BadRequestError, match="send the messages of the conversation") as refused:
                await say(client, [sent, *talk(0)], streams=False)
            assert "messages[0].content[0].encrypted_content" in str(refused.value)


async def test_summaries_without_their_item(tmp_path: Path) -> None:
    """A client that keeps only the words of a compaction goes on with them, or with all that it still sends."""
    async with small_window(tmp_path, window=8192) as (served, studio), client_of(served) as client:
        words: Any = {"role": "assistant", "content": [{"type": "compaction", "content": "Boats were late."}]}
        await say(client, [words, *talk(0)], streams=False)
        assert "Boats were late." in str(turns_of(studio)[-1].body["messages"])
        await say(client, [*talk(3), words, *talk(0)], streams=False)
        sent = str(turns_of(studio)[-1].body["messages"])
        assert "Boats were late." not in sent
        assert "crossing 0" in sent


async def test_instructions_before_a_compaction_stay(tmp_path: Path) -> None:
    """A system message in the middle, as Claude Code sends it, still holds after a compaction of what is around it."""
    async with small_window(tmp_path) as (served, studio), client_of(served) as client:
        opening, *rest = talk(12)
        messages = [opening, {"role": "system", "content": "The harbour is Aalborg."}, *rest]
        answer = await say(client, messages, COMPACT, streams=False)
        assert kinds(answer) == ["compaction", "text"]
        await say(client, [*messages, param(answer), *talk(0)], COMPACT, streams=False)
        assert "The harbour is Aalborg." in str(turns_of(studio)[-1].body["messages"])


@pytest.mark.parametrize("streams", [False, True])
async def test_earlier_compactions_are_told(tmp_path: Path, streams: bool) -> None:
    """What elbowroom has compacted by itself between two turns comes as a block with the next answer."""
    alone = "background = false"
    async with small_window(tmp_path, compaction=alone) as (served, studio), client_of(served) as client:
        messages = talk(12)
        plain = await say(client, messages, streams=streams)
        assert kinds(plain) == ["text"]
        orders = orders_of(studio)
        follow = [*messages, param(plain), {"role": "user", "content": "And the first?"}]
        told = await say(client, follow, COMPACT, streams=streams)
        assert kinds(told) == ["compaction", "text"]
        assert orders_of(studio) == orders
        sent = turns_of(studio)[-1].body["messages"]
        await say(client, [param(told), {"role": "user", "content": "Thanks."}], COMPACT, streams=streams)
        assert turns_of(studio)[-1].body["messages"][: len(sent)] == sent


@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_that_fills_the_window(tmp_path: Path, streams: bool) -> None:
    """An answer that ends for want of room has a stop reason of its own, which is not the client's limit."""
    endless = "The sea was calm and the boat was half full. " * 200
    async with (
        small_window(tmp_path, lambda _: endless, compaction="max_restarts = 0") as (served, _),
        client_of(served) as client,
    ):
        full = await say(client, talk(0), streams=streams, max_tokens=16_000)
        assert full.stop_reason == "model_context_window_exceeded"
        short = await say(client, talk(0), streams=streams, max_tokens=20)
        assert short.stop_reason == "max_tokens"


async def test_threads_are_refused(trio: Trio) -> None:
    """A client that would send only what is new is told in the form by which it sends the whole conversation again."""
    client, studio, _ = trio
    thread: Any = {"type": "create"}
    with pytest.raises(anthropic.BadRequestError) as refused:
        await ask(client, uses(1), streams=False, thread=thread)
    body: Any = refused.value.body
    assert body["error"]["details"]["error_code"] == "thread_unsupported_request"
    asked: Any = {"model": RAW_MODEL, "max_tokens": 50, "unsupported_request_behavior": "continue_unthreaded"}
    held: Any = client.beta.messages.thread(**asked)
    await held.send({"role": "user", "content": "My boat is called Ida."})
    await held.send({"role": "user", "content": "What is it called?"})
    assert "Ida" in str(studio.chats[-1].body["messages"])


async def test_tool_runner(tmp_path: Path) -> None:
    """The client's own loop over tools goes through pauses, and compacts before a turn where it is told to."""

    @anthropic.beta_async_tool
    async def read_note(path: str) -> str:
        """Read a note.

        Args:
            path: The note's path.
        """
        return f"{path}: {LONG}"

    def model(_: dict[str, Any]) -> Script | str:
        asked_for = len(turns_of(studio)) % 4
        return Script(ToolCall("read_note", {"path": f"{asked_for}.md"})) if asked_for else "All are dry."

    async with small_window(tmp_path, model, window=4096) as (served, studio), client_of(served) as client:
        asked: Any = {"model": RAW_MODEL, "max_tokens": 200, "tools": [read_note], "messages": talk(8)}
        edits: Any = {"edits": [at(1200, pause_after_compaction=True)]}
        runner = client.beta.messages.tool_runner(**asked, context_management=edits)
        said = [message async for message in runner]
        assert "compaction" in [message.stop_reason for message in said]
        assert [block.text for block in said[-1].content if block.type == "text"] == ["All are dry."]
        runner = client.beta.messages.tool_runner(**asked)
        reasons = []
        async for message in runner:
            reasons.append(message.stop_reason)
            if len(reasons) == 2:
                runner.compact_before_next_turn()
        assert (reasons.count("compaction"), reasons[-1]) == (1, "end_turn")
        for turn in turns_of(studio):
            assert_fits(turn)


@pytest.mark.slow
@MODELS
async def test_a_task_that_outgrows_the_window(tmp_path: Path, model: str) -> None:
    """Twenty calls through a window of 4K with all three edits: every prompt fits, and the client sees no error."""

    def says(_: dict[str, Any]) -> Script | str:
        number = len(turns_of(studio))
        return (
            Script(Reasoning("I look."), ToolCall("read_note", {"path": f"{number}.md"})) if number <= 20 else "Done."
        )

    edits = [
        {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
        {**CLEAR, "trigger": {"type": "input_tokens", "value": 1500}},
        at(2000),
    ]
    async with small_window(tmp_path, says, window=4096) as (served, studio), client_of(served) as client:
        messages: list[Any] = [{"role": "user", "content": "Read all notes."}]
        seen: set[str | None] = set()
        for _ in range(21):
            thinks = {"type": "adaptive"}
            answer = await ask(client, messages, *edits, streams=True, model=model, thinking=thinks)
            seen |= {answer.stop_reason, *(block.type for block in answer.content)}
            seen |= {applied.type for applied in answer.context_management.applied_edits}  # type: ignore[union-attr]
            calls = [block for block in answer.content if block.type == "tool_use"]
            messages.append(param(answer))
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": LONG * 2} for call in calls]
            messages += [{"role": "user", "content": results}] if results else []
        assert seen >= {"end_turn", "compaction", "clear_tool_uses_20250919", "thinking", "tool_use", "text"}
        for turn in turns_of(studio):
            assert_fits(turn)
