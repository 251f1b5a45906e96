"""What the model says in one step, put together from its deltas."""

import re
from collections.abc import Iterator

import pytest

from elbowroom.agents.answer import Reply, ToolCall, new_tool_call_id
from elbowroom.errors import UpstreamError
from elbowroom.providers.base import ToolCallDelta


def numbered() -> Iterator[str]:
    """Yield ids that a test can tell."""
    number = 0
    while True:
        yield f"id-{number}"
        number += 1


def calls_from(*deltas: tuple[int, str | None, str], offered: str = "get set", was_cut: bool = False) -> list[ToolCall]:
    """Return the calls that these deltas (index, name, arguments) make; their ids are id-0, id-1."""
    ids = numbered()
    reply = Reply(offered.split(), lambda: next(ids))
    for index, name, arguments in deltas:
        reply.add_call(ToolCallDelta(index, name, arguments))
    calls = reply.close_calls(was_cut=was_cut)
    assert reply.tool_calls == calls
    return calls


def test_ids_are_nine_letters_and_digits() -> None:
    """Every id fits Mistral's chat templates, and no two are alike."""
    ids = [new_tool_call_id() for _ in range(1000)]
    assert all(re.fullmatch("[A-Za-z0-9]{9}", one) for one in ids)
    assert len(set(ids)) == 1000


def test_pieces_are_joined() -> None:
    """A call's arguments are its pieces in their order."""
    assert calls_from((0, "get", ""), (0, None, '{"a"'), (0, None, ":1}")) == [ToolCall("id-0", "get", '{"a":1}')]


def test_no_calls() -> None:
    """A reply without deltas has no calls."""
    assert calls_from() == []


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    """Clients parse arguments as JSON: nothing becomes `{}`."""
    assert calls_from((0, "get", "")) == [ToolCall("id-0", "get", "{}")]


def test_calls_one_after_the_other() -> None:
    """Several calls keep their order, whatever gaps their indices have."""
    calls = calls_from((0, "get", ""), (0, None, '{"a":1}'), (3, "set", ""), (3, None, '{"b":2}'))
    assert calls == [ToolCall("id-0", "get", '{"a":1}'), ToolCall("id-1", "set", '{"b":2}')]


def test_interleaved_calls() -> None:
    """Pieces of two calls that come mixed end in the call of their index."""
    calls = calls_from(
        (0, "get", ""), (1, "set", ""), (0, None, '{"a"'), (1, None, '{"b"'), (0, None, ":1}"), (1, None, ":2}")
    )
    assert calls == [ToolCall("id-0", "get", '{"a":1}'), ToolCall("id-1", "set", '{"b":2}')]


def test_same_index_for_different_calls() -> None:
    """A server that numbers every call 0 still makes two calls of two names."""
    calls = calls_from((0, "get", '{"a":1}'), (0, "set", '{"b":2}'))
    assert calls == [ToolCall("id-0", "get", '{"a":1}'), ToolCall("id-1", "set", '{"b":2}')]


def test_same_index_and_name_for_two_whole_calls() -> None:
    """Two whole calls of one tool under one index stay two calls."""
    calls = calls_from((0, "get", '{"a":1}'), (0, "get", '{"a":2}'))
    assert calls == [ToolCall("id-0", "get", '{"a":1}'), ToolCall("id-1", "get", '{"a":2}')]


def test_same_index_and_name_begun_twice_without_arguments() -> None:
    """A name that comes again without arguments begins another call."""
    calls = calls_from((0, "get", ""), (0, None, "{}"), (0, "get", ""), (0, None, '{"a":2}'))
    assert [call.arguments for call in calls] == ["{}", '{"a":2}']


def test_name_repeated_in_every_piece() -> None:
    """A server that repeats the name with every piece makes one call."""
    assert calls_from((0, "get", '{"a'), (0, "get", '":{}'), (0, "get", "}")) == [ToolCall("id-0", "get", '{"a":{}}')]


def test_name_split_over_pieces() -> None:
    """A name that comes in pieces is the name of one offered tool."""
    calls = calls_from((0, "get_", ""), (0, "weather", ""), (0, None, "{}"), offered="get_weather weather_map")
    assert calls == [ToolCall("id-0", "get_weather", "{}")]


def test_name_that_is_itself_the_beginning_of_a_name() -> None:
    """A piece that is no name of a tool completes one, where that makes a name."""
    calls = calls_from((0, "get", ""), (0, "_weather", ""), (0, None, "{}"), offered="get get_weather")
    assert calls == [ToolCall("id-0", "get_weather", "{}")]
    assert [call.name for call in calls_from((0, "get", ""), (0, "set", ""), offered="get set getset")] == [
        "get",
        "set",
    ]


@pytest.mark.parametrize(
    "deltas",
    [
        [(0, None, '{"a"'), (0, "get", ""), (0, None, ":1}")],
        [(0, None, '{"a":1}'), (0, "get", "")],
        [(0, None, ""), (0, None, '{"a"'), (0, "get", ":1}")],
    ],
)
def test_arguments_before_the_name(deltas: list[tuple[int, str | None, str]]) -> None:
    """Pieces of arguments are kept, whatever comes of the name and when."""
    assert calls_from(*deltas) == [ToolCall("id-0", "get", '{"a":1}')]


def test_interleaved_calls_whose_names_come_last() -> None:
    """Each name goes to the pieces of its index."""
    calls = calls_from((0, None, '{"a"'), (1, None, '{"b"'), (1, "set", ":2}"), (0, None, ":1}"), (0, "get", ""))
    assert calls == [ToolCall("id-0", "get", '{"a":1}'), ToolCall("id-1", "set", '{"b":2}')]


def test_a_call_that_stays_without_a_name_is_a_failure() -> None:
    """It is said in words; a reply that was cut just lacks the call, as any that is not whole."""
    for deltas in ([(0, None, '{"a":1}')], [(0, None, "")], [(0, "get", "{}"), (1, None, '{"a":1}')]):
        with pytest.raises(UpstreamError, match="without saying which"):
            calls_from(*deltas)
    assert calls_from((0, "get", "{}"), (1, None, '{"a":1}'), was_cut=True) == [ToolCall("id-0", "get", "{}")]


@pytest.mark.parametrize(
    ("said", "offered", "meant"),
    [
        ("read_note", "read.note", "read.note"),
        ("Read_Note", "read note", "read note"),
        ("read_note", "read_note read.note", "read_note"),
        ("read-note", "read_note read.note", "read-note"),
        ("invented", "read_note", "invented"),
        ("read_note", "readnote read.note", "read.note"),
        ("READNOTE", "readnote read.note", "READNOTE"),
    ],
)
def test_names_are_mapped_back(said: str, offered: str, meant: str) -> None:
    """A name that the engine normalised is the offered one again; an ambiguous or foreign one stays as it is."""
    ids = numbered()
    names = ["read note"] if " note" in offered else offered.split()
    reply = Reply(names, lambda: next(ids))
    reply.add_call(ToolCallDelta(0, said, "{}"))
    assert reply.close_calls(was_cut=False)[0].name == meant


def test_a_cut_reply_has_only_its_whole_calls() -> None:
    """Where the token limit ended the reply, the call that it broke off is no call."""
    deltas = [(0, "get", '{"a":1}'), (1, "set", '{"text":"half a }')]
    assert calls_from(*deltas, was_cut=True) == [ToolCall("id-0", "get", '{"a":1}')]
    assert calls_from((0, "get", ""), was_cut=True) == []


REPAIRED = [
    ("{'path': 'a.md'}", '{"path": "a.md"}'),
    ('{"path": "a.md"', '{"path": "a.md"}'),
    ('{"path": "a.md",}', '{"path": "a.md"}'),
    ('```json\n{"all": True}\n```', '{"all": true}'),
    ('{"text": "a\nb"}', '{"text": "a\\nb"}'),
    ('{"a":1}', '{"a":1}'),
    ("[1, 2", "[1, 2"),
    ("notes/a.md", "notes/a.md"),
    ('{"path": "a.md"}}\x00', '{"path": "a.md"}'),
    *((same, same) for same in ('{"path": ', '{"path": "a', '{"path": "a", "n": 1', "{'path': 'a", '{"path"')),
    *((same, same) for same in ("{" * 200, "[" * 5000, '{"path": [' * 400, "{" * 20_000, "{" * 100 + "a" * 15_000)),
    *((same, same) for same in ('{"path": ' + "9" * 5000 + "}", "{'path': '" + "a" * 16_000 + "'}")),
]


@pytest.mark.parametrize(("written", "meant"), REPAIRED, ids=[str(number) for number in range(len(REPAIRED))])
def test_broken_arguments_are_repaired(written: str, meant: str) -> None:
    """What means an object becomes its JSON; what is sound, or means none, or has no end, is left as it is."""
    assert calls_from((0, "get", ""), (0, None, written)) == [ToolCall("id-0", "get", meant)]


def test_half_a_call_is_not_repaired() -> None:
    """Where the reply was cut, a call whose arguments have no end is none."""
    assert calls_from((0, "get", '{"path": "a.m'), was_cut=True) == []
