"""The reader of server-sent events: the same events however the bytes arrive."""

import collections
import itertools

import pytest
from cases import case
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.errors import StreamCut
from elbowroom.providers.stream import EventReader, ServerSentEvent

END = st.sampled_from(["\n", "\r\n"])
TEXT = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=20)
LINE = st.one_of(
    st.just(""),
    TEXT.map(lambda text: f"data: {text}"),
    TEXT.map(lambda text: f"data:{text}"),
    TEXT.map(lambda text: f": {text}"),
    st.sampled_from(
        ["event: error", "event:error", "id: 7", "retry: 1000", "data", "event", "nonsense", "\ufeffdata: x"]
    ),
)
STREAM = st.builds(
    lambda mark, lines, tail: (mark + "".join(line + end for line, end in lines) + tail).encode(),
    st.sampled_from(["", "\ufeff"]),
    st.lists(st.tuples(LINE, END), max_size=12),
    LINE,
)


def read(*parts: bytes) -> list[ServerSentEvent]:
    """Return the events of a stream that arrives in these parts and then ends."""
    reader = EventReader()
    return [event for part in parts for event in reader.feed(part)] + reader.close()


@given(stream=STREAM, cuts=st.lists(st.integers(0, 400), max_size=8))
def test_any_split_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    """Where the network cuts, inside characters, line ends, marks or fields, makes no difference."""
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    parts = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert read(*parts) == read(stream)


@given(stream=STREAM)
def test_byte_by_byte_gives_the_same_events(stream: bytes) -> None:
    """A stream that drips gives the events that it gives in one piece."""
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == read(stream)


@given(stream=STREAM)
def test_events_do_not_wait_for_what_follows(stream: bytes) -> None:
    """An event is there as soon as its blank line is; the end of the stream adds at most the one without it."""
    reader = EventReader()
    events = reader.feed(stream)
    if stream.endswith(b"\n\n"):
        assert reader.close() == []
    assert len(read(stream)) - len(events) in (0, 1)


@given(texts=st.lists(TEXT, min_size=1, max_size=5), end=END)
def test_lines_of_data_are_joined(texts: list[str], end: str) -> None:
    """Several `data:` lines are one event, joined by line feeds, whatever ends the lines."""
    stream = "".join(f"data: {text}{end}" for text in texts) + end
    assert read(stream.encode()) == [ServerSentEvent("\n".join(texts).encode())]


def test_every_spelling_is_understood() -> None:
    """Comments, missing spaces, other fields, blank lines in a row, and an end without its blank line."""
    cases: list[tuple[bytes, list[bytes]]] = [
        (b"data: {}\n\n", [b"{}"]),
        (b"data:{}\n\n", [b"{}"]),
        (b"data:  {}\n\n", [b" {}"]),
        (b"data: {}\r\n\r\n", [b"{}"]),
        (b"\xef\xbb\xbfdata: {}\n\n", [b"{}"]),
        (b": ping\n\n: ping\n\ndata: {}\n\n", [b"{}"]),
        (b": ping\ndata: {}\n\n", [b"{}"]),
        (b"id: 1\nretry: 5\ndata: {}\n\n", [b"{}"]),
        (b"data: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\n: in between\ndata: b\n\n", [b"a\nb"]),
        (b"data:\n\n", [b""]),
        (b"data: {}", [b"{}"]),
        (b"data: {}\n", [b"{}"]),
        (b"datum: {}\n\n", []),
        (b"event: error\n\n", []),
        (b"", []),
    ]
    for stream, data in cases:
        with case(stream):
            assert [event.data for event in read(stream)] == data


def test_a_name_belongs_to_one_event() -> None:
    """`event:` names the event that it stands in, on either side of the data, and not the next."""
    stream = b"event: error\ndata: 1\n\ndata: 2\n\ndata: 3\nevent: other\n\nevent: lost\n\ndata: 4\n\n"
    assert [event.name for event in read(stream)] == ["error", None, "other", None]


def test_a_mark_inside_the_stream_is_no_mark() -> None:
    """Only the very first bytes can be a byte order mark."""
    assert read(b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\n") == [ServerSentEvent(b"a")]
    stream = b"\n\xef\xbb\xbfdata: x\n\n"
    assert read(stream) == read(*(stream[at : at + 1] for at in range(len(stream)))) == []


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: yy\n", b"data:\n", b"data: " + b"x" * 94 + b"\n", b"event: x"])
def test_an_endless_event_is_given_up(piece: bytes) -> None:
    """An event that never ends, in one line or in many, stops at the limit and names it."""
    reader = EventReader(max_event_bytes=2**20)
    endless = itertools.repeat(piece, 2**18)
    with pytest.raises(StreamCut, match="1 MiB"):
        collections.deque(map(reader.feed, endless), maxlen=0)


def test_lines_that_say_nothing_take_no_room() -> None:
    """Comments and unknown fields may go on for ever, as heartbeats do while a long prompt is read."""
    reader = EventReader(max_event_bytes=2**10)
    for _ in range(5000):
        assert reader.feed(b": still reading\nprogress: 1\n") == []
    assert reader.feed(b"data: x\n\n") == [ServerSentEvent(b"x")]


def test_events_before_an_endless_one_are_not_lost() -> None:
    """What was complete when the limit was passed has been handed out."""
    reader = EventReader(max_event_bytes=1000)
    assert [event.data for event in reader.feed(b"data: a\n\ndata: " + b"x" * 2000)] == [b"a"]
    with pytest.raises(StreamCut):
        reader.feed(b"x")
    with pytest.raises(StreamCut):
        reader.close()


def test_a_large_event_in_small_pieces_takes_no_quadratic_time() -> None:
    """Eight megabytes in pieces of a hundred bytes are put together without copying the whole for each."""
    reader = EventReader()
    for _ in range(80_000):
        reader.feed(b"x" * 100)
    assert reader.feed(b"\ndata: end\n\n") == [ServerSentEvent(b"end")]
