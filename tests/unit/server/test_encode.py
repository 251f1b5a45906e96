"""Answers as OpenAI clients read them."""

import json
from typing import Any

import pytest
from chatting import chunks_of, split_frames
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.agents.answer import Answer, AnswerEvent, ToolCall
from elbowroom.errors import ContextOverflow, StreamCut
from elbowroom.providers.base import ReasoningDelta, TextDelta
from elbowroom.server.encode import FrameEncoder, to_json
from elbowroom.settings.model import Notices

ANY_TEXT = st.text(st.characters(exclude_categories=[]))
EVENTS = st.lists(
    st.builds(TextDelta, ANY_TEXT)
    | st.builds(ReasoningDelta, ANY_TEXT)
    | st.builds(ToolCall, st.text("abc123", min_size=9, max_size=9), ANY_TEXT, ANY_TEXT)
)


def stream_of(
    *batches: list[AnswerEvent], model: str = "writer", usage: Any = None, wants: bool = False, at_finish: bool = False
) -> bytes:
    """Return a whole stream with these events."""
    encoder = FrameEncoder(model, wants_usage=wants, is_open_webui=at_finish)
    sent = [encoder.events(batch) for batch in batches]
    answer = Answer(usages=[usage] if usage else [], steps=1)
    return b"".join([*sent, encoder.end(answer)])


@given(st.lists(EVENTS, max_size=3), ANY_TEXT)
def test_any_events_make_a_clean_stream(batches: list[list[AnswerEvent]], model: str) -> None:
    """Whatever is said, frames are ASCII lines of JSON that hold it, with one role, one finish and one [DONE]."""
    stream = stream_of(*batches, model=model)
    assert stream.isascii()
    chunks = chunks_of(stream)
    choices = [chunk["choices"][0] for chunk in chunks]
    deltas = [choice["delta"] for choice in choices]
    assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert {(chunk["id"], chunk["model"]) for chunk in chunks} == {(chunks[0]["id"], model)}
    said = [event for batch in batches for event in batch]
    texts = [event.text for event in said if isinstance(event, TextDelta)]
    assert "".join(delta["content"] for delta in deltas) == "".join(texts)
    thoughts = [event.text for event in said if isinstance(event, ReasoningDelta)]
    for name in ("reasoning_content", "reasoning"):
        assert "".join(delta.get(name, "") for delta in deltas) == "".join(thoughts)


@given(st.lists(ANY_TEXT | st.sampled_from(["data: ", "a data: [DONE]\n\n", "\ndata: {}"]), max_size=8))
def test_any_text_reaches_readers_that_cut_at_the_mark(texts: list[str]) -> None:
    """For a client that shows text only, `data: ` stands once in each frame, and the text stays what it was."""
    encoder = FrameEncoder("m", shows_text_only=True)
    sent = [encoder.keep_alive(), *(encoder.events([TextDelta(text)]) for text in texts)]
    stream = b"".join([*sent, encoder.end(Answer())])
    assert all(frame.count(b"data: ") == 1 for frame in stream.split(b"\n\n")[:-1])
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks_of(stream)) == "".join(texts)


@given(EVENTS)
def test_any_events_make_a_completion(events: list[AnswerEvent]) -> None:
    """The whole answer holds the same, and the text of it is JSON."""
    answer = Answer()
    answer.begin_step()
    for event in events:
        answer.take(event)
    completion = json.loads(to_json(FrameEncoder("writer").whole(answer)))
    message = completion["choices"][0]["message"]
    assert message["content"] == json.loads(json.dumps("".join(answer.text))) or (
        message["content"] is None and not "".join(answer.text) and answer.tool_calls
    )
    assert len(message.get("tool_calls", [])) == len(answer.tool_calls)
    assert completion["choices"][0]["finish_reason"] == ("tool_calls" if answer.tool_calls else "stop")


def test_nothing_said() -> None:
    """An answer without a word still has its role, its finish and its end."""
    first, last = chunks_of(stream_of())
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("wants", "at_finish", "places"),
    [(True, False, [2]), (True, True, [2]), (False, True, [1]), (False, False, [])],
)
def test_place_of_usage(wants: bool, at_finish: bool, places: list[int]) -> None:
    """Usage is in one chunk at most: one of its own, or the finish."""
    usage = {"prompt_tokens": 3}
    chunks = chunks_of(stream_of(usage=usage, wants=wants, at_finish=at_finish))
    assert [number for number, chunk in enumerate(chunks) if "usage" in chunk] == places
    assert all(chunk["usage"] == usage for chunk in chunks if "usage" in chunk)


def test_unknown_usage_is_left_out() -> None:
    """Where nothing was counted nothing is claimed."""
    assert b"usage" not in stream_of(wants=True, at_finish=True)


def test_indices_of_calls_go_over_batches() -> None:
    """Calls are numbered through, whatever batch they come in."""
    calls = [ToolCall(f"id{number}", "get", "{}") for number in range(3)]
    chunks = chunks_of(stream_of([calls[0]], [TextDelta("a"), calls[1], calls[2]]))
    indices = [delta["index"] for chunk in chunks for delta in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert indices == [0, 0, 1, 1, 2, 2]


def test_failure_frame() -> None:
    """An error frame is the same object that a status would bring, and nothing beside it."""
    [frame] = split_frames(FrameEncoder("writer").failure(ContextOverflow("Too long\n\ndata: x")))
    assert json.loads(frame) == {
        "error": {
            "message": "Too long\n\ndata: x",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


def test_failure_after_words() -> None:
    """A stream that fails keeps its frames; neither a finish nor an end is added."""
    encoder = FrameEncoder("writer")
    stream = encoder.events([TextDelta("Half")]) + encoder.failure(StreamCut("Cut."))
    assert b"[DONE]" not in stream
    assert json.loads(split_frames(stream)[-1])["error"]["code"] == "upstream_cut"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "null"),
        ([float("-inf"), 1.5, {"a": float("inf"), "b": True}], '[null,1.5,{"a":null,"b":true}]'),
        ({"ü": "\ud800\u2028"}, '{"\\u00fc":"\\ud800\\u2028"}'),
        (None, "null"),
    ],
)
def test_json(value: Any, text: str) -> None:
    """JSON is compact ASCII, and what JSON has no number for is null."""
    assert to_json(value) == text


def test_logprobs_of_all_kinds_are_joined() -> None:
    """Lists of tokens are joined under their keys; a null list counts as none."""
    answer = Answer(
        logprobs=[{"content": [1], "refusal": None}, {"content": [2, 3], "refusal": None}, "odd", {"content": None}]
    )
    logprobs = FrameEncoder("writer").whole(answer)["choices"][0]["logprobs"]
    assert logprobs == {"content": [1, 2, 3], "refusal": None}


@pytest.mark.parametrize(
    ("notices", "is_told"), [("auto", True), ("content", True), ("comment", False), ("off", False)]
)
def test_failure_for_a_client_that_shows_text_only(notices: Notices, is_told: bool) -> None:
    """It gets the error as every client does, in the text too unless it wants no notices there, and an end."""
    encoder = FrameEncoder("m", notices, shows_text_only=True)
    stream = encoder.events([TextDelta("Half")]) + encoder.failure(StreamCut("The line\nis *dead*."))
    assert stream.endswith(b"\n\ndata: [DONE]\n\n")
    *chunks, error = chunks_of(stream)
    assert error["error"]["message"] == "The line\nis *dead*."
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert text.strip() == ("Half\n\n> *elbowroom: The line is dead.*" if is_told else "Half")


def test_silence_is_filled_before_the_first_word() -> None:
    """The role comes with what fills the silence, and only once; other clients get a comment and no role."""
    encoder = FrameEncoder("m", shows_text_only=True)
    silent, spoken = split_frames(encoder.keep_alive()), split_frames(encoder.events([TextDelta("Yes.")]))
    deltas = [json.loads(frame)["choices"][0]["delta"] for frame in (*silent, *spoken)]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": ""}, {"content": "Yes."}]
    assert FrameEncoder("m").keep_alive() == b": elbowroom\n\n"
