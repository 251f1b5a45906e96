"""The simulated model as a pruning agent: it sums up what the order of a compaction shows it."""

import json

import pytest
from compacting import said

from elbowroom.context.compaction.division import NumberedGroup
from elbowroom.context.compaction.order import Wishes, listing_order, shown, suffix_order
from elbowroom.context.transcript import Transcript, written_out
from elbowroom.demo import Text
from elbowroom.demo.pruner import summary_of_order

CHAT = [
    said("user", "Where is the ferry?"),
    said("assistant", "At two."),
    said("user", "And when?"),
    said("assistant", "At noon."),
]
GROUPS = [NumberedGroup(place, group) for place, group in enumerate(Transcript.of(CHAT).groups, 1)]


@pytest.mark.parametrize("has_read", [True, False])
def test_it_tells_what_the_user_wrote(has_read: bool) -> None:
    """Whether it has read the conversation and gets a list of what goes, or gets the material itself."""
    if has_read:
        messages = [{"role": "user", "content": suffix_order(GROUPS, dict.fromkeys(range(1, 5), 9), Wishes(), 300)}]
    else:
        messages = listing_order([shown(each.id, written_out(each.group)) for each in GROUPS], "", Wishes(), 300)
    script = summary_of_order({"messages": messages})
    assert script is not None
    [answer] = script.steps
    assert isinstance(answer, Text)
    assert json.loads(answer.text)["summary"] == "The user wrote: Where is the ferry?. The user wrote: And when?."
