"""Chat chunks of every dialect as stream events, and the judgement at their end."""

import json
from typing import Any

import pytest
from cases import case
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.errors import ContextOverflow, ElbowroomError, EmptyReply, ModelUnavailable, StreamCut, UpstreamError
from elbowroom.providers.base import (
    Finished,
    ReadingProgress,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from elbowroom.providers.failures import Source
from elbowroom.providers.stream import ChunkReader, ServerSentEvent

SOURCE = Source("LM Studio", "http://127.0.0.1:1234", key_hint="Put in a key.")


def chunk(delta: Any = None, finish_reason: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a chunk with one choice."""
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **fields}


def read(*chunks: Any) -> tuple[ChunkReader, list[StreamEvent]]:
    """Return a reader that has read these chunks, and what they said."""
    reader = ChunkReader(SOURCE)
    return reader, [
        event
        for data in chunks
        for event in reader.read(ServerSentEvent(data if isinstance(data, bytes) else dump(data)))
    ]


def dump(data: Any) -> bytes:
    """Return JSON."""
    return json.dumps(data).encode()


def test_a_plain_answer() -> None:
    """Text, finish and usage, with the role in every delta as LM Studio sends it."""
    usage = {"prompt_tokens": 17, "completion_tokens": 2, "total_tokens": 19}
    reader, events = read(
        chunk({"role": "assistant", "content": "Hel"}),
        chunk({"role": "assistant", "content": "lo"}),
        chunk({}, "stop"),
        {"model": "m", "choices": [], "usage": usage},
        b"[DONE]",
    )
    assert events == [TextDelta("Hel"), TextDelta("lo"), Finished("stop"), UsageReport(usage)]
    assert (reader.done, reader.model, reader.finish_reason, reader.usage) == (True, "m", "stop", usage)
    reader.judge_end()


def test_every_form_of_a_delta() -> None:
    """Reasoning under either name, tool calls with and without index, and what says nothing."""
    cases: list[tuple[Any, list[StreamEvent]]] = [
        ({"reasoning_content": "hm"}, [ReasoningDelta("hm")]),
        ({"reasoning": "hm"}, [ReasoningDelta("hm")]),
        ({"reasoning_content": "", "reasoning": "hm"}, [ReasoningDelta("hm")]),
        ({"reasoning_content": "hm", "reasoning": "hm"}, [ReasoningDelta("hm")]),
        ({"reasoning_content": "hm", "content": "Hi"}, [ReasoningDelta("hm"), TextDelta("Hi")]),
        ({"content": ""}, []),
        ({"content": None}, []),
        ({"role": "assistant"}, []),
        ({}, []),
        (None, []),
        ("text", []),
        ({"content": 7}, []),
        ({"content": ["Hi"]}, []),
        ({"tool_calls": []}, []),
        ({"tool_calls": None}, []),
        ({"tool_calls": "f"}, []),
        ({"tool_calls": [None, 7]}, []),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, [ToolCallDelta(0, "f", "")]),
        ({"tool_calls": [{"index": 1, "function": {"name": None, "arguments": "{}"}}]}, [ToolCallDelta(1, None, "{}")]),
        ({"tool_calls": [{"function": {"name": "f", "arguments": {"a": "ü"}}}]}, [ToolCallDelta(0, "f", '{"a": "ü"}')]),
        ({"tool_calls": [{"index": 3}]}, []),
        ({"tool_calls": [{"index": 3, "id": "a"}]}, [ToolCallDelta(3, None, "")]),
        ({"tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}, [ToolCallDelta(0, "f", "[1]")]),
        ({"tool_calls": [{"index": "x", "function": {"name": "f"}}]}, [ToolCallDelta(0, "f", "")]),
        (
            {"tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "g"}}]},
            [ToolCallDelta(0, "f", ""), ToolCallDelta(1, "g", "")],
        ),
    ]
    for delta, events in cases:
        with case(delta):
            assert read(chunk(delta))[1] == events


def piece(name: str | None = None, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk with one piece of a tool call."""
    return chunk({"tool_calls": [{"function": {"name": name, "arguments": arguments}, **more}]})


def test_a_call_without_an_index_is_found() -> None:
    """By its id; a piece that has neither goes on with the call before it."""
    _, events = read(
        piece("f", "", id="a"), piece(None, "1"), piece("f", "", id="b"), piece(None, "2"), piece(None, "3", id="a")
    )
    assert [(event.index, event.arguments) for event in events if isinstance(event, ToolCallDelta)] == [
        (0, ""), (0, "1"), (1, ""), (1, "2"), (0, "3"),
    ]  # fmt: skip


def test_halves_of_characters() -> None:
    """Halves that come in two chunks make one character; a half that stays alone is replaced."""
    smile, half = "\ud83d\ude00", "\ud83d"
    said = [{"content": "a" + smile[0]}, {"content": smile[1] + "b"}, {"content": half}, {"content": "c"}]
    said += [{"reasoning": half}, {"reasoning": "d\ude00"}, {"content": half}]
    _, events = read(*map(chunk, said), chunk({}, "stop"))
    whole = ["a", "\U0001f600b", "\ufffdc", "\ufffd"]
    assert [event.text for event in events if isinstance(event, TextDelta)] == whole
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["\ufffdd\ufffd"]


def test_calls_of_a_whole_answer() -> None:
    """By their places; a call without a name is told as such."""
    calls = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}, {"id": "a", "function": {"arguments": "{}"}}]
    whole = {"choices": [{"message": {"tool_calls": [calls[0], {**calls[0], "id": "b"}, calls[1]]}}]}
    assert ChunkReader(SOURCE).read_whole(whole) == [
        ToolCallDelta(0, "f", "{}"), ToolCallDelta(1, "f", "{}"), ToolCallDelta(2, None, "{}"),
    ]  # fmt: skip


def test_a_chunk_that_says_nothing_is_nothing() -> None:
    """Unknown fields, empty lists and null are not failures, and not an answer either."""
    cases: list[Any] = [
        {},
        {"choices": None},
        {"choices": {}},
        {"choices": [None]},
        {"choices": [[]]},
        {"choices": [{}]},
        {"usage": None},
        {"usage": {}},
        {"usage": 7},
        {"error": None, "choices": []},
        {"error": ""},
        {"model": None},
        {"event": {"type": "status"}},
    ]
    for data in cases:
        with case(data):
            reader, events = read(data)
            assert events == []
            with pytest.raises(StreamCut):
                reader.judge_end()


def test_usage_is_taken_wherever_it_stands() -> None:
    """In every chunk, or in the one with the finish: the last one counts."""
    reader, _ = read(
        chunk({"content": "a"}, usage={"prompt_tokens": 5}), chunk({}, "stop", usage={"prompt_tokens": 5, "x": 1})
    )
    assert reader.usage == {"prompt_tokens": 5, "x": 1}


def test_every_shape_of_an_error_is_raised() -> None:
    """Objects, strings, nested ones, with and without choices beside: raised in its own words, of its own kind."""
    cases: list[tuple[Any, type[ElbowroomError]]] = [
        ({"error": {"message": "M"}, "message": "M"}, UpstreamError),
        ({"error": "M"}, UpstreamError),
        ({"error": {"error": {"message": "M"}}}, UpstreamError),
        ({"error": ["M", "N"]}, UpstreamError),
        ({"object": "error", "message": "M", "code": 400}, UpstreamError),
        ({"type": "error", "message": "M"}, UpstreamError),
        ({"type": "error", "error": {"type": "x", "message": "M"}}, UpstreamError),
        ({"error": {"message": "M"}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}, UpstreamError),
        ({"choices": [{"delta": {}, "error": {"message": "M"}, "finish_reason": "error"}]}, UpstreamError),
        ({"error": {"message": "M: Context size has been exceeded."}}, ContextOverflow),
        ({"error": {"message": "M", "type": "exceed_context_size_error"}}, ContextOverflow),
        ({"object": "error", "message": "M: maximum context length is 4096 tokens"}, ContextOverflow),
        ({"error": {"message": "M. Model is unloaded."}}, ModelUnavailable),
        ({"error": "M: The model has crashed without additional information. (Exit code: 6)"}, ModelUnavailable),
        ({"error": {"message": "M: Channel Error"}}, ModelUnavailable),
    ]
    for error, kind in cases:
        with case(error):
            with pytest.raises(kind, match="M"):
                read(error)


@pytest.mark.parametrize("data", [b'{"message": "M"}', b'"M"', b"M", b'["M"]', b"M: not { JSON", b"7 M"])
def test_an_event_named_error_is_one_whatever_its_data(data: bytes) -> None:
    """`event: error` with an object, a string or bare text."""
    with pytest.raises(UpstreamError, match="M"):
        ChunkReader(SOURCE).read(ServerSentEvent(data, "error"))


def test_an_overflow_in_bare_text_is_recognised() -> None:
    """An error event whose data is the sentence itself."""
    event = ServerSentEvent(b"Cannot truncate prompt with n_keep (6009) >= n_ctx (4096)", "error")
    with pytest.raises(ContextOverflow) as raised:
        ChunkReader(SOURCE).read(event)
    assert (raised.value.window, raised.value.prompt_tokens) == (4096, 6009)


@pytest.mark.parametrize("data", [b"{", b"", b"<html>", b'{"choices": [', b"\xff\xfe", b"[DONE", b"[" * 100_000])
def test_what_is_no_json_is_raised_with_an_excerpt(data: bytes) -> None:
    """A damaged event is a failure that shows how it begins, and at most a little of it."""
    with pytest.raises(UpstreamError, match="not JSON") as raised:
        read(data)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("data", [b"7", b"null", b"[]", b'"text"', b"true"])
def test_json_that_is_no_object_is_raised(data: bytes) -> None:
    """A chunk is an object."""
    with pytest.raises(UpstreamError, match="not a chat chunk"):
        read(data)


def test_numbers_that_json_does_not_have_become_null() -> None:
    """NaN and Infinity, which Python reads, would be written into the client's stream as no JSON."""
    usage = b'{"model": "m", "choices": [], "usage": {"a": NaN, "b": -Infinity, "c": 1e999, "d": 0.5}}'
    reader, _ = read(usage)
    assert reader.usage == {"a": None, "b": None, "c": None, "d": 0.5}


def test_no_finish_is_a_cut() -> None:
    """Text without a finish_reason is never a whole answer, [DONE] or not."""
    for end in ([], [b"[DONE]"]):
        reader, _ = read(chunk({"content": "Hi"}), *end)
        with pytest.raises(StreamCut):
            reader.judge_end()


@pytest.mark.parametrize("reason", ["", None, 7, [], {}])
def test_a_finish_that_is_no_word_is_none(reason: Any) -> None:
    """A finish_reason has to be a word."""
    reader, _ = read(chunk({"content": "Hi"}, reason))
    with pytest.raises(StreamCut):
        reader.judge_end()


def test_finished_with_an_error_is_a_failure() -> None:
    """`finish_reason: "error"` is no way to finish, whatever was said before."""
    reader, _ = read(chunk({"content": "Hi"}), chunk({}, "error"))
    with pytest.raises(UpstreamError):
        reader.judge_end()


def test_nothing_said_is_no_answer() -> None:
    """A finish after zero deltas is an EmptyReply; thoughts or a tool call alone are an answer, as is `length`."""
    empty, _ = read(chunk({"role": "assistant"}), chunk({}, "stop"))
    with pytest.raises(EmptyReply):
        empty.judge_end()
    for said in ({"reasoning": "hm"}, {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}):
        read(chunk(said), chunk({}, "stop"))[0].judge_end()
    read(chunk({}, "length"))[0].judge_end()


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"prompt_tokens": 4096}, 4096),
        ({"prompt_tokens": 3892}, 3892),
        ({"prompt_tokens": 3890}, None),
        ({"prompt_tokens": "4096"}, None),
        ({"prompt_tokens": None}, None),
        ({}, None),
    ],
)
def test_an_empty_answer_near_the_window_is_an_overflow(usage: dict[str, Any], told: int | None) -> None:
    """From 95 % of the window on, an answer without a word means that the prompt did not fit."""
    reader, _ = read(chunk({}, "stop", usage=usage))
    with pytest.raises(ContextOverflow if told else EmptyReply) as failure:
        reader.judge_end(4096)
    if isinstance(failure.value, ContextOverflow):
        assert (failure.value.window, failure.value.prompt_tokens) == (4096, told)


def test_an_answer_in_one_piece() -> None:
    """A completion from an upstream that does not stream says the same as its stream would."""
    message = {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    whole = {"model": "m", "choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"x": 1}}
    reader = ChunkReader(SOURCE)
    assert reader.read_whole(whole) == [
        ReasoningDelta("hm"),
        TextDelta("Hi"),
        ToolCallDelta(0, "f", "{}"),
        Finished("tool_calls"),
        UsageReport({"x": 1}),
    ]
    reader.judge_end()


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "tool_calls", "function", "name", "error", "usage", "model", "index"]
            ),
            inner,
        )
    ),
    max_leaves=15,
)


@given(data=VALUE, name=st.sampled_from([None, "error", "message"]))
def test_no_json_breaks_the_reader(data: Any, name: str | None) -> None:
    """Whatever comes, the reader gives events or raises an error with words for a person."""
    raised = None
    try:
        ChunkReader(SOURCE).read(ServerSentEvent(dump(data), name))
    except ElbowroomError as error:
        raised = error
    assert raised is None or raised.message.startswith(("LM Studio", "This model's maximum"))


ODD = ["\ud83d", "\ude00", "\ud83d\ude00", "\x00", "data: x", '"\\']
WORDS = st.none() | st.text(max_size=6) | st.sampled_from(ODD)


@given(content=WORDS, thought=WORDS, other=WORDS)
def test_plain_chunks_are_read_as_all_others(content: Any, thought: Any, other: Any) -> None:
    """A chunk that brings only words is decoded without its other keys; it says what it says with an empty usage."""
    delta = {"role": "assistant", "content": content, "reasoning_content": thought, "reasoning": other}
    plain, said = read(chunk(delta))
    general, expected = read(chunk(delta, usage={}))
    assert said == expected
    assert (plain.model, plain.has_output) == (general.model, general.has_output)


def test_how_far_a_prompt_is_read() -> None:
    """llama.cpp tells it before the first word, in a chunk that says nothing else; what is no number is left out."""
    told = {"total": 900, "cache": 100, "processed": 300, "time_ms": 500}
    _, events = read(
        chunk({"role": "assistant", "content": None}, prompt_progress=told),
        chunk({"role": "assistant", "content": None}, prompt_progress={**told, "total": None}),
    )
    assert events == [ReadingProgress(900, 100, 300, 0.5)]
    [progress] = events
    assert isinstance(progress, ReadingProgress)
    assert (progress.left, progress.speed) == (600, 400)
