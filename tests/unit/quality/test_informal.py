"""The informal conversations: each says all that it is graded by, in a way that the grades can see."""

from collections import Counter
from itertools import islice

import pytest
from informal import APART, Informal, all_informal
from spread_variants import sample

from elbowroom.context.transcript import Message
from elbowroom.quality.conversations import Known
from elbowroom.quality.grading import grade

WINDOW = 8192


def played(conversation: Informal) -> tuple[list[Message], Known]:
    """Return all messages up to the last telling turn, and what is true then."""
    turns = list(islice(conversation.turns(WINDOW), APART * len(conversation.told)))
    return [message for messages, _ in turns for message in messages], turns[-1][1]


def test_the_languages() -> None:
    """Twelve are in English, two each in six more languages."""
    languages = Counter(each.language for each in all_informal())
    assert languages.pop("English") == 12
    assert languages == dict.fromkeys(("Arabic", "Chinese", "French", "Hindi", "Russian", "Spanish"), 2)


@pytest.mark.parametrize(
    "conversation",
    sample(all_informal(), *{each.language: each for each in all_informal()}.values()),
    ids=lambda each: each.name,
)
def test_the_whole_conversation_has_everything(conversation: Informal) -> None:
    """A prompt of all that was said is graded with all of it: every value stands beside its name, old ones too."""
    history, known = played(conversation)
    found = grade(history, history, known, (), ())
    assert found.tallies.pop("own").inside == 0
    assert {name: tally.share for name, tally in found.tallies.items() if tally.share < 100} == {}
    assert (found.stale, found.made_up, found.by_code, found.unpaired) == (0, 0, 0, 0)
    assert (found.tallies["newest"].total >= 4, found.tallies["told by tools"].total >= 2) == (True, True)
    assert (len(known.constraints) >= 5, len(known.open_todos)) == (True, 2)
    said = [value for fact in known.facts.values() for value in fact.values]
    assert len(said) == len(set(said))


def test_it_is_the_same_each_time() -> None:
    """Everything follows from the file and the window."""
    first = all_informal()[0]
    assert played(first) == played(first)
