"""The tool that searches what was compacted away: what it finds, in which order, what it reads, and what bounds it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from elbowroom.agents.tools.recall import Past, Recaller, ResultRoom
from elbowroom.errors import ElbowroomError, RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.context.transcript import Message

NOON = datetime(2026, 5, 31, 12, 0, tzinfo=UTC).timestamp()
HOUR = 3600.0


def user(text: str) -> Message:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """Return an answer."""
    return {"role": "assistant", "content": text}


def recaller(
    said: Sequence[Message], there: Sequence[Message] = (), *, tokens: int = 2000, is_timed: bool = True
) -> Recaller:
    """Return the tool over a conversation, a message an hour from noon on; a token is four characters."""
    tool = Recaller()

    async def past(name: str) -> Past:
        at = [NOON + HOUR * number if is_timed else None for number in range(len(said))]
        return Past.of(zip(said, at, strict=True), there, name)

    async def room() -> ResultRoom:
        return ResultRoom(tokens, lambda text: (len(text) + 3) // 4)

    tool.reads(past, room)
    return tool


async def asked(tool: Recaller, **arguments: Any) -> str:
    """Call the tool and return what the model reads."""
    result = await tool.tool.call(arguments)
    assert isinstance(result, str)
    return result


async def test_words_are_found_with_who_said_them_and_when() -> None:
    """The messages with the rarest words come first, each with number, role, time, and the message after it."""
    talk = [user("The budget is 400 euros."), assistant("Noted."), user("The budget is 500 euros now."), user("Rain.")]
    assert await asked(recaller(talk), query="the budget") == (
        "[message 1, user, 2026-05-31 12:00 UTC] The budget is 400 euros.\n"
        "[message 2, assistant, 2026-05-31 13:00 UTC] Noted.\n"
        "[message 3, user, 2026-05-31 14:00 UTC] The budget is 500 euros now.\n"
        "[message 4, user, 2026-05-31 15:00 UTC] Rain.\n"
        "[2 of 2 messages, the best first. To read one whole: recall_conversation(message=1)]"
    )
    rare = await asked(recaller(talk), query="budget 400")
    assert rare.startswith("[message 1, ")


async def test_what_the_model_still_has_is_not_found() -> None:
    """Only what is gone is searched; where nothing is, that is said."""
    talk = [user("The first budget."), user("The second budget.")]
    found = await asked(recaller(talk, talk[1:]), query="budget")
    assert "first" in found
    assert "second" not in found
    assert "all of it is before you" in await asked(recaller(talk, talk), query="budget")


async def test_own_calls_and_results_are_not_found_again() -> None:
    """An earlier call of the tool repeats what was said, and is no source of it."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "recall_conversation", "arguments": '{"query": "pear"}'},
    }
    talk: list[Message] = [
        user("I like pears."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "[message 1] I like pears."},
    ]
    assert "[1 of 1 messages" in await asked(recaller(talk), query="pear")


async def test_calls_of_other_tools_are_found_by_their_arguments() -> None:
    """What a tool was asked for can be found, and what it returned."""
    call = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": '{"path": "src/boats.py"}'}}
    talk: list[Message] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42 lines written"},
    ]
    assert '(calls write with {"path": "src/boats.py"})' in await asked(recaller(talk), query="src/boats.py")
    assert "42 lines" in await asked(recaller(talk), query="written", role="tool")
    assert "Nothing was found" in await asked(recaller(talk), query="written", role="user")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Die Straße heißt Große Bleiche.", "STRASSE große"),
        ("Le café est fermé.", "cafe"),
        ("İstanbul'a gidiyoruz.", "istanbul"),
        ("東京での会議は金曜日です。", "会議"),
        ("東京での会議は金曜日です。", "東京の会議"),
        ("ﾊｰﾊﾞｰの鍵", "ハーバー"),
        ("예산은 400유로입니다", "예산"),
    ],
)
async def test_words_are_found_in_any_script_and_case(text: str, query: str) -> None:
    """Case, accents and width do not matter; Japanese is found without spaces, and the excerpt has the place."""
    long = "It rained all day. " * 40 + text + " It rained again." * 40
    found = await asked(recaller([user(long), user("Something else.")]), query=query)
    assert text[:8] in found
    assert "[1 of 1 messages" in found


async def test_patterns_are_matched_in_any_case() -> None:
    """A regular expression is found in whatever case, the newest message first."""
    talk = [user("Ticket AB-12 is open."), user("Nothing."), user("Ticket cd-34 is closed.")]
    found = await asked(recaller(talk), pattern=r"\b[A-Z]{2}-\d+")
    assert found.index("cd-34") < found.index("AB-12")
    assert "2 of 2 messages, the newest first" in found


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(a|a?)+c"])
async def test_patterns_that_hang_other_engines_take_a_moment(pattern: str) -> None:
    """The time for a search grows with the text alone."""
    began = time.process_time()
    await asked(recaller([user("a" * 200_000 + "!")]), pattern=pattern)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"pattern": "(unclosed"}, "cannot be searched for"),
        ({"pattern": "(?=x)"}, "look-ahead"),
        ({"pattern": "x" * 2000}, "more than the 1000"),
        ({"pattern": "(((a{100}){100}){100})"}, "pattern"),
        ({"query": "x" * 2000}, "Give a few words"),
        ({"query": "x", "pattern": "y"}, "not both"),
        ({"query": "x", "after": "yesterday"}, "no date or time"),
        ({"query": "x", "role": "system"}, "role"),
        ({"query": "x", "limit": 0}, "limit"),
        ({"message": 3}, "there is no message 3; the conversation has 1"),
        ({"message": 1, "offset": 99}, "only 5 characters"),
        ({"words": "x"}, "words"),
    ],
)
async def test_what_cannot_be_done_is_a_sentence(arguments: dict[str, Any], told: str) -> None:
    """Every wrong argument is refused in words that say what to do instead."""
    with pytest.raises(ElbowroomError, match=told) as refused:
        await asked(recaller([user("Boats")]), **arguments)
    assert refused.value.message.endswith(".")


async def test_messages_are_found_by_time() -> None:
    """A time alone lists what was said then, the newest first; `before` is not included, a zone counts."""
    tool = recaller([user(f"Number {number}.") for number in range(5)])
    found = await asked(tool, after="2026-05-31T13:00", before="2026-05-31T15:00+00:00")
    assert found.index("Number 2.") < found.index("Number 1.")
    assert "2 of 2 messages" in found
    assert "5 of 5 messages" in await asked(tool, after="2026-05-31", before="2026-06-01")
    assert "Number 1." in await asked(tool, before="2026-05-31T15:30+02:00", limit=1)
    with pytest.raises(RequestError, match="not known"):
        await asked(recaller([user("x")], is_timed=False), query="x", after="2026-05-31")


async def test_a_message_is_read_word_for_word_in_parts() -> None:
    """What does not fit the room is read on from the character that the note names, without a gap or a change."""
    text = "".join(f"line {number}:\twörd\r\n" for number in range(400))
    tool = recaller([user(text)], tokens=300)
    read, offset = "", 1
    for _ in range(100):
        page = await asked(tool, message=1, offset=offset)
        assert len(page) <= 1200
        head, _, rest = page.partition("\n")
        assert head.startswith("[message 1, user, ")
        body, _, on = rest.rpartition("\n[To read on: recall_conversation(message=1, offset=")
        if not on.endswith(")]"):
            read += rest
            break
        read, offset = read + body, int(on.removesuffix(")]"))
    assert read == text


async def test_results_fit_the_room() -> None:
    """Fewer messages are shown where there is no room for more; without any room that is said."""
    talk = [user(f"The budget of year {number} was {number * 1000} euros. " * 8) for number in range(20)]
    found = await asked(recaller(talk, tokens=300), query="budget", limit=20)
    assert len(found) <= 1200
    assert " of 20 messages" in found
    assert "no room" in await asked(recaller(talk, tokens=3), query="budget")
    assert "no room" in await asked(recaller(talk, tokens=3), message=1)


@pytest.mark.slow
async def test_many_messages_are_searched_quickly() -> None:
    """Two thousand messages in another script take seconds at most."""
    talk = [user(f"{number}番の船は港に着きました。" * 40) for number in range(2000)]
    began = time.process_time()
    found = await asked(recaller(talk), query="1234番の船")
    assert time.process_time() - began < 5
    assert found.startswith("[message 1235, ")
