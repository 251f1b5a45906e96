"""The statements that write what clients say: few for many messages, and none that writes a message twice."""

from collections.abc import Iterator, Sequence

import pytest
from sqlalchemy import Connection, select

from elbowroom.context.conversation import ConversationBegun, Heard, StepUsage, StepUsed, TurnBegun, TurnEnded
from elbowroom.store.changes import MOST_NUMBER, KeptChange
from elbowroom.store.sql.dialect import create_engines, execute_all
from elbowroom.store.sql.schema import conversations, make_tables, message_parts, messages
from elbowroom.store.sql.writing import Plan

BEGUN = ConversationBegun("one", "ada", "", "writer", 1.0)


def heard(key: str, *said: str, conversation: str = "one") -> Heard:
    """Return a message of a client with some parts."""
    content = said[0] if len(said) == 1 else [{"type": "text", "text": text} for text in said]
    return Heard(conversation, key, "", {"role": "user", "content": content}, 2.0)


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Provide an empty database in memory."""
    _, writer = create_engines(None, 1)
    with writer.begin() as connected:
        make_tables(connected)
        yield connected
    writer.dispose()


def write(connection: Connection, changes: Sequence[KeptChange]) -> None:
    """Write changes together."""
    execute_all(connection, Plan().add(changes).groups)


def kept(connection: Connection) -> list[tuple[str, str]]:
    """Return the keys of all messages with their parts, in order."""
    joined = select(messages.c.key, message_parts.c.content).join_from(
        messages, message_parts, message_parts.c.message == messages.c.id
    )
    rows = connection.execute(joined.order_by(messages.c.number, message_parts.c.position))
    return [(key, content) for key, content in rows]


def test_many_messages_take_few_statements() -> None:
    """A history of 400 messages is written with the same number of statements as one of two."""
    plans = [Plan().add([BEGUN, *(heard(f"{n:032x}", "x") for n in range(count))]).groups for count in (2, 400)]
    assert [statement for statement, _ in plans[0]] == [statement for statement, _ in plans[1]]
    assert len(plans[1]) <= 5


def test_messages_are_written_in_order_with_their_parts(connection: Connection) -> None:
    """Messages that are written together keep their order and parts, and the first question is the title."""
    write(connection, [BEGUN, heard("a", "first"), heard("b", "second"), heard("c", "third")])
    assert kept(connection) == [("a", "first"), ("b", "second"), ("c", "third")]
    assert connection.scalar(select(conversations.c.title)) == '"first"'


def test_a_message_is_written_once(connection: Connection) -> None:
    """A message that is there stays as it is, in the same batch and in a later one."""
    write(connection, [BEGUN, heard("a", "first"), heard("a", "other")])
    write(connection, [heard("a", "again"), heard("b", "second")])
    assert kept(connection) == [("a", "first"), ("b", "second")]


def test_an_answer_that_comes_back_is_no_message_of_the_client(connection: Connection) -> None:
    """What a turn has said is not written again as heard, nor anything in a conversation that is not there."""
    turn: list[KeptChange] = [TurnBegun("turn", "one", "", "writer", 1.0), TurnEnded("turn", "complete", "answer", 2.0)]
    write(connection, [BEGUN, *turn])
    write(connection, [heard("answer", "said before"), heard("a", "lost", conversation="gone")])
    assert kept(connection) == []


def test_what_is_used_adds_up_beyond_what_one_count_may_be(connection: Connection) -> None:
    """The sum of counts that can be kept is kept, however high they are."""
    used = StepUsage(MOST_NUMBER, MOST_NUMBER, 1, 2)
    write(connection, [BEGUN, TurnBegun("turn", "one", "", "writer", 1.0), StepUsed("turn", "model", used, None, 2.0)])
    own = conversations.c
    assert connection.execute(select(own.total_tokens, own.input_tokens, own.steps)).all() == [
        (used.total, MOST_NUMBER, 1)
    ]
