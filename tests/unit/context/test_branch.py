"""Which messages belong to which branch of a conversation."""

from collections.abc import Iterable

from kept_conversations import SEED, Told

from elbowroom.context.branch import ConversationTree, never_shown
from elbowroom.context.conversation import KeptMessage


def texts(messages: Iterable[KeptMessage]) -> list[str]:
    """Return what messages say."""
    return [str(kept.message["content"]) for kept in messages]


def latest(told: Told) -> list[str]:
    """Return what the messages of the latest branch say."""
    return texts(ConversationTree.of(told.messages).latest())


def ends(told: Told) -> list[str]:
    """Return what the last messages of all branches say."""
    return texts(ConversationTree.of(told.messages).ends())


def asked_and_answered() -> Told:
    """Return two questions with their answers, the first with a look into a note."""
    told = Told()
    told.sent("u1", SEED, "one?")
    told.looked_up("t1", "a1", "u1", "{}", "note")
    told.said("t1", "a1", "u1", "one.")
    told.sent("u2", "a1", "two?")
    told.said("t2", "a2", "u2", "two.")
    return told


def test_nothing() -> None:
    """Of no messages there are no branches."""
    tree = ConversationTree.of([])
    assert tree.latest() == tree.ends() == []


def test_one_line() -> None:
    """Without edits there is one branch, with all that turns did."""
    told = asked_and_answered()
    assert ConversationTree.of(told.messages).latest() == told.messages
    assert ends(told) == ["two."]


def test_the_order_of_messages_does_not_matter() -> None:
    """They stand where their places in the tree are."""
    told = asked_and_answered()
    assert ConversationTree.of(told.messages[::-1]).latest() == told.messages


def test_asked_again() -> None:
    """A second answer to the same question is another branch, and the latest."""
    told = asked_and_answered()
    told.said("t3", "a3", "u2", "deux.")
    assert latest(told) == ["one?", "None", "note", "one.", "two?", "deux."]
    assert ends(told) == ["two.", "deux."]


def test_edited_question() -> None:
    """An edited first question makes a branch of its own."""
    told = asked_and_answered()
    told.sent("v1", SEED, "uno?")
    told.said("t3", "b1", "v1", "uno.")
    assert latest(told) == ["uno?", "uno."]
    assert ends(told) == ["two.", "uno."]


def test_going_on_in_an_older_branch() -> None:
    """The latest branch is the one that was used last, whatever was said later in between."""
    told = asked_and_answered()
    told.sent("v1", SEED, "uno?")
    told.said("t3", "b1", "v1", "uno.")
    told.sent("u3", "a2", "three?")
    assert latest(told) == ["one?", "None", "note", "one.", "two?", "two.", "three?"]
    assert ends(told) == ["uno.", "three?"]


def test_the_same_answer_twice() -> None:
    """Where an answer that is asked for again is the same to the letter, its later turn stands for it."""
    told = Told()
    told.sent("u1", SEED, "one?")
    told.said("t1", "a1", "u1", "one.")
    told.said("t2", "a1", "u1", "one.")
    assert [kept.turn for kept in ConversationTree.of(told.messages).latest()] == ["", "t2"]
    told.sent("u2", "a1", "two?")
    assert latest(told) == ["one?", "one.", "two?"]


def test_an_answer_that_comes_back_stands_there_once() -> None:
    """A client's copy of an answer is the turn that gave it, with all that the client does not have."""
    told = Told()
    told.sent("u1", SEED, "one?")
    told.looked_up("t1", "a1", "u1", "{}", "note")
    told.said("t1", "a1", "u1", "one.")
    told.sent("a1", "u1", "one.", role="assistant")
    assert latest(told) == ["one?", "None", "note", "one."]
    assert ends(told) == ["one."]


def test_an_interrupted_turn_stays_where_it_was() -> None:
    """A partial answer that the client did not keep stands behind its question, also where it was asked otherwise."""
    told = Told()
    told.sent("u1", SEED, "one?")
    told.said("t1", "", "u1", "On", status="interrupted")
    assert latest(told) == ["one?", "On"]
    told.sent("u2", "u1", "Are you there?")
    told.said("t2", "a2", "u2", "Yes.")
    assert latest(told) == ["one?", "On", "Are you there?", "Yes."]


def test_system_messages() -> None:
    """Each stands behind the message that it follows; of those that took each other's place, only the last."""
    told = Told()
    told.sent("s1", SEED, "Monday", role="system")
    told.sent("u1", SEED, "one?")
    told.said("t1", "a1", "u1", "one.")
    told.sent("s2", SEED, "Tuesday", role="system")
    told.sent("s3", "s2", "Be kind.", role="developer")
    told.sent("s4", "a1", "Be brief.", role="system")
    told.sent("u2", "a1", "two?")
    assert latest(told) == ["Tuesday", "Be kind.", "one?", "one.", "Be brief.", "two?"]
    assert ends(told) == ["two?"]


def test_only_system_messages() -> None:
    """They are shown where there is nothing else."""
    told = Told()
    told.sent("s1", SEED, "Monday", role="system")
    assert latest(told) == ["Monday"]
    assert ends(told) == []


def test_an_unknown_beginning() -> None:
    """Where the beginning was never kept, a branch begins with what was."""
    told = Told()
    told.sent("u2", "gone", "two?")
    told.said("t2", "a2", "u2", "two.")
    assert latest(told) == ["two?", "two."]


def test_a_circle_ends() -> None:
    """Damaged rows, whose parents go round in a circle, are no endless branch."""
    told = Told()
    told.sent("u1", "u2", "one?")
    told.sent("u2", "u1", "two?")
    told.sent("s1", "s1", "Be kind.", role="system")
    told.sent("u3", "u2", "three?")
    assert latest(told) == ["one?", "two?", "three?"]


def test_never_shown() -> None:
    """Hidden are results of tools that ran here and replies that say nothing; not what a client runs or wrote."""
    told = Told()
    told.sent("u1", SEED, "one?")
    told.looked_up("t1", "a1", "u1", "{}", "note")
    told.looked_up("t1", "a1", "u1", "{}", "other", text="I look.")
    told.said("t1", "a1", "u1", None, tool_calls=[{"id": "theirs", "function": {"name": "open"}}])
    told.sent("r1", "a1", "opened", role="tool", tool_call_id="theirs")
    assert never_shown(told.messages) == {"msg2", "msg3", "msg5"}


def test_a_long_conversation_takes_no_stack() -> None:
    """A branch of thousands of messages is found."""
    told = Told()
    for number in range(5000):
        told.sent(f"u{number + 1}", f"u{number}", f"{number}")
    assert len(latest(told)) == 5000
