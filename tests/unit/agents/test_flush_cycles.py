"""Which conversations were flushed, and from where on they are flushed again."""

from typing import Any

from elbowroom.agents.tools import ByConversation
from elbowroom.agents.turn.flush import cycle_of
from elbowroom.context.compaction.division import summary_message
from elbowroom.context.ledger import Chain
from elbowroom.context.transcript import Summary

Message = dict[str, Any]
BEFORE = ""


def talk(*texts: str) -> list[Message]:
    """Return a conversation in which user and assistant say these in turn."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def chain(*texts: str, owner: str = "ana") -> Chain:
    """Return the chain of such a conversation."""
    return Chain.of(owner, "writer", talk(*texts))


def summary(text: str) -> Message:
    """Return what a compaction leaves for the part that is gone."""
    return Summary(role="user", content=summary_message("", text, (), "done"))


def test_a_cycle_is_known_by_what_stands_for_the_rest() -> None:
    """Whatever is said or shortened in between belongs to it; another summary begins another."""
    assert cycle_of(talk("a", "b")) == cycle_of(talk("c")) == BEFORE
    first = cycle_of([summary("one"), *talk("a", "b")])
    assert first != BEFORE
    assert cycle_of([summary("one"), *talk("a", "shortened", "c")]) == first
    assert cycle_of([summary("two"), *talk("a", "b")]) != first


def test_what_goes_on_from_there_is_done_and_nothing_else() -> None:
    """Longer conversations and other ends of it are; those that left before, and other people's, are not."""
    before: ByConversation[str | None] = ByConversation()
    before.keep(chain("a", "b", "c").keys[-1], BEFORE)
    assert before.find(chain("a", "b", "c")) == BEFORE
    assert before.find(chain("a", "b", "c", "d", "e")) == BEFORE
    assert before.find(chain("a", "b")) != BEFORE
    assert before.find(chain("a", "b", "other", "d")) != BEFORE
    assert before.find(chain("a", "b", "c", owner="bob")) != BEFORE


def test_a_compaction_begins_the_next_cycle() -> None:
    """Also where its summary has the very words of the one before, and where it has left no summary at all."""
    before: ByConversation[str | None] = ByConversation()
    before.keep(chain("a").keys[-1], BEFORE)
    before.keep(chain("a").keys[-1], None)
    assert before.find(chain("a", "b", "c")) != BEFORE
    before.keep(chain("a", "b", "c").keys[-1], "one")
    assert before.find(chain("a", "b", "c", "d")) == "one"
    assert before.find(chain("a", "b", "c", "d")) != "two"
    before.keep(chain("a", "b", "c", "d", "e").keys[-1], None)
    assert before.find(chain("a", "b", "c", "d", "e", "f")) != "one"
    assert before.find(chain("a", "b", "c", "edited")) == "one"


def test_an_edited_question_behind_a_compaction_is_in_its_cycle() -> None:
    """What was flushed before a compaction says nothing about a conversation that stands on its summary."""
    before: ByConversation[str | None] = ByConversation()
    before.keep(chain("a", "b", "c").keys[-1], BEFORE)
    before.keep(chain("a", "b", "c", "d", "e").keys[-1], None)
    assert before.find(chain("a", "b", "c", "d", "edited")) != "one"


def test_it_is_bounded() -> None:
    """The conversation that was noted longest ago goes first; noting it again renews it."""
    before: ByConversation[str | None] = ByConversation(most_keys=2)
    keys = {name: chain(name) for name in "abc"}
    before.keep(keys["a"].keys[-1], BEFORE)
    before.keep(keys["b"].keys[-1], BEFORE)
    before.keep(keys["a"].keys[-1], BEFORE)
    before.keep(keys["c"].keys[-1], BEFORE)
    assert [name for name in "abc" if before.find(keys[name]) == BEFORE] == ["a", "c"]
    assert before.find(chain()) != BEFORE
