"""Notices on the wire: in ASCII whatever they say, and never left open."""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args, get_type_hints

import pytest
from chatting import chunks_of, split_frames
from watched_stream import statuses_of

from elbowroom.agents.answer import Answer, Notice, ToolCall
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.context.effects import Progress
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import TextDelta
from elbowroom.server.encode import FrameEncoder
from elbowroom.settings.model import Notices

OPENING = Notice("compacting", "Compacting conversation history...", is_done=False, before=900)
HALF = Notice(
    "compacting",
    "Compacting conversation history... (part 2 of 5)",
    is_done=False,
    before=900,
    progress=Progress(part=2, parts=5),
)
CLOSING = Notice("compacted", "Context compacted, continuing...", before=900, after=300)
ALL: list[Notices] = ["auto", "event", "content", "comment", "off"]


def test_comment_is_ascii() -> None:
    """A tool's name of any letters does not break the stream."""
    frames = FrameEncoder("m", "comment").events([Notice("tight", "taken by buscar_a\u00f1o")])
    assert b": taken by buscar_a\\xf1o\n\n" in frames


def test_every_kind_is_documented() -> None:
    """The list of kinds that clients may meet names all of them, and no other."""
    text = (Path(__file__).parents[3] / "docs" / "compaction.md").read_text(encoding="utf-8")
    listed = text.partition("`kind` is one of ")[2].partition(".")[0]
    assert {kind.strip() for kind in listed.replace("\n", " ").split(",")} == set(
        get_args(get_type_hints(Notice)["kind"])
    )


def test_progress_is_an_update_of_the_open_status() -> None:
    """Its chunk is read by any client as empty text, is not done, and has the numbers beside the words."""
    encoder = FrameEncoder("m")
    encoder.events([OPENING])
    [frame] = split_frames(encoder.events([HALF]))
    chunk = json.loads(frame)
    assert chunk["choices"] == [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]
    assert chunk["event"] == {"type": "status", "data": {"description": HALF.text, "done": False}}
    assert chunk["elbowroom"] == {"kind": "compacting", "before": 900, "attempt": 1, "part": 2, "parts": 5}


class Recorded:
    """A turn of a conversation that is on the page."""

    conversation = "conv_1"


@pytest.mark.parametrize(
    ("answer", "notice", "page", "is_led"),
    [
        (Answer(text=["Nine."]), CLOSING, "http://127.0.0.1:2345/", True),
        (Answer(text=["The list a[i] of (1)."]), CLOSING, "http://127.0.0.1:2345/", True),
        (Answer(text=["As [1", "] says."]), CLOSING, "http://127.0.0.1:2345/", False),
        (
            Answer(text=["Well"], tool_calls=[ToolCall("callabcde", "look", "{}")]),
            CLOSING,
            "http://127.0.0.1:2345/",
            False,
        ),
        (Answer(text=["Nine."]), replace(CLOSING, kind="not compacted"), "http://127.0.0.1:2345/", False),
        (Answer(text=["Nine."]), CLOSING, "", False),
    ],
)
def test_source_that_leads_to_a_compaction(answer: Answer, notice: Notice, page: str, *, is_led: bool) -> None:
    """It is told once, before the end, and only where Open WebUI shows all of the answer beside it as before."""
    encoder = FrameEncoder("m", is_open_webui=True, page=page)
    encoder.began(cast("TurnRecorder", Recorded()))
    encoder.events([OPENING, notice])
    *events, last = chunks_of(encoder.end(answer))
    assert last["choices"][0]["finish_reason"]
    assert [event["event"]["type"] for event in events if "event" in event] == (["source"] if is_led else [])
    if is_led:
        told, url = events[-1]["event"]["data"], f"{page}#/conversations/conv_1?freed=600"
        assert (told["source"]["url"], told["document"], told["metadata"][0]["source_url"]) == (url, [url], url)
        for name in (told["source"]["name"], told["metadata"][0]["name"], told["metadata"][0]["source"]):
            assert "http" not in name  # of which Open WebUI would show the site's icon


def test_no_status_is_left_open_where_it_would_stay_so() -> None:
    """Wherever an answer is stopped, the last status that the client has got is done; only the first one is not.

    It stands there for ever then, so it says what a stop has done.
    """
    encoder = FrameEncoder("m", is_open_webui=True)
    shown = [
        [(told["description"], told["done"]) for told in statuses_of(encoder.events([notice]))]
        for notice in (OPENING, HALF, CLOSING)
    ]
    assert shown == [
        [(OPENING.text, False), (f"{OPENING.text} (900 tokens) Stop ends it.", True)],
        [(f"{HALF.text} Stop ends it.", True)],
        [(CLOSING.text, True)],
    ]
    assert statuses_of(encoder.end(Answer())) == []


@pytest.mark.parametrize("notices", ALL)
@pytest.mark.parametrize("shows_text_only", [True, False])
def test_progress_is_never_a_line_of_text(notices: Notices, *, shows_text_only: bool) -> None:
    """However often it is told, the text has at most the opening and the closing."""
    encoder = FrameEncoder("m", notices, shows_text_only=shows_text_only)
    sent = encoder.events([OPENING, *[HALF] * 20, CLOSING, TextDelta("Yes.")])
    stream = sent + encoder.end(Answer())
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks_of(stream))
    has_lines = notices == "content" or (notices in ("auto", "event") and shows_text_only)
    assert text.count("> *elbowroom: ") == (2 if has_lines else 0)
    assert text.endswith("Yes.")
    assert stream.count(b": Compacting conversation history... (part 2 of 5)\n\n") == (
        20 if notices == "comment" else 0
    )


def test_what_is_for_nobody_begins_no_stream() -> None:
    """A notice that a client is not told is no reason to send the headers: an error may still have its status."""
    encoder = FrameEncoder("m", "off")
    assert encoder.events([OPENING, HALF, CLOSING]) == b""
    [first, *_] = chunks_of(encoder.events([TextDelta("Yes.")]) + encoder.end(Answer()))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("told", [[OPENING], [OPENING, HALF]])
def test_failure_closes_an_open_notice(told: list[Notice]) -> None:
    """What shimmers in a client ends with the stream; where nothing is open, nothing is closed."""
    encoder = FrameEncoder("m")
    encoder.events(told)
    assert b'"done":true' in encoder.failure(ElbowroomError("Stopped."))
    assert b'"done":true' not in FrameEncoder("m").failure(ElbowroomError("Stopped."))


@pytest.mark.parametrize("told", [[OPENING], [OPENING, HALF]])
def test_normal_end_closes_an_open_notice(told: list[Notice]) -> None:
    """The closing comes before the finish; one that was closed already is not closed again."""
    for closed, times in (([], 1), ([CLOSING], 1)):
        encoder = FrameEncoder("m")
        stream = encoder.events([*told, *closed]) + encoder.end(Answer())
        assert stream.count(b'"done":true') == times
        assert chunks_of(stream)[-1]["choices"][0]["finish_reason"] == "stop"


def test_line_of_a_failure_is_not_written_as_progress() -> None:
    """With lines of text the last word about a compaction that was stopped is a line too."""
    encoder = FrameEncoder("m", "content")
    encoder.events([OPENING, HALF])
    assert b"> *elbowroom: Stopped.*" in encoder.failure(ElbowroomError("Stopped."))
