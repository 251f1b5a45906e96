"""Messages that a person has pinned."""

from elbowroom.context.compaction import with_words
from elbowroom.context.compaction.division import divide, inner_summary, summary_message
from elbowroom.context.compaction.drafts import MOST_GROUPS, condensed
from elbowroom.context.ledger import Chain
from elbowroom.context.prompt import Item, Prompt, recalled
from elbowroom.context.transcript import Message

PINNED: Message = {"role": "user", "content": "Question 3"}


def chat(exchanges: int) -> list[Message]:
    """Return so many questions and answers, and a last question."""
    pairs = [
        ({"role": "user", "content": f"Question {at}"}, {"role": "assistant", "content": f"Answer {at}"})
        for at in range(exchanges)
    ]
    return [*(message for pair in pairs for message in pair), {"role": "user", "content": "And now?"}]


def pinned(messages: list[Message]) -> Prompt:
    """Return the prompt of these messages in which the seventh, the fourth question, is pinned."""
    chain = Chain.of("ada", "coder", messages)
    return Prompt.of(messages, chain).pinned({chain.keys[6]: PINNED})


def test_a_pinned_message_is_in_no_part_that_goes() -> None:
    """It is pinned by a division, and belongs to what no compaction can free; without a pin it does not."""
    division = divide(pinned(chat(20)).transcript, tails_from=35)
    assert PINNED in [each.group.messages[0] for each in division.pinned]
    assert PINNED not in [each.group.messages[0] for each in division.old]
    assert PINNED in pinned(chat(20)).smallest()
    assert PINNED not in Prompt.of(chat(20)).smallest()


def test_only_the_message_that_was_pinned_stays() -> None:
    """The same words said elsewhere are another message."""
    twice = [
        *chat(20),
        PINNED,
        {"role": "assistant", "content": "As I said."},
        {"role": "user", "content": "Which ferry leaves at noon on Sunday?"},
    ]
    assert pinned(twice).smallest().count(PINNED) == 1


def test_an_answer_in_several_steps_is_pinned_in_each_that_speaks() -> None:
    """The client has one text where the model has the texts of all steps, put back or out of the ledger."""
    pin: Message = {"role": "assistant", "content": "I look.\n\nIt is oat milk."}
    steps: list[Message] = [{"role": "assistant", "content": text} for text in ("I look.", "", "It is oat milk.")]
    items = [Item(message, "ab", "put back") for message in steps]
    speaks = [True, False, True]
    assert [item.is_pinned for item in Prompt(tuple(items)).pinned({"ab": pin}).items] == speaks
    entry = recalled(items, "ab", [*steps, {"role": "assistant", "content": "No."}])
    assert [item.is_pinned for item in Prompt(entry).pinned({"cd": pin}).items] == [*speaks, False]
    assert not any(item.is_pinned for item in Prompt(entry).pinned({"cd": pin}).pinned({}).items)


def test_a_very_long_conversation_keeps_its_pins() -> None:
    """What stands in place of the oldest groups leaves a pinned one where it is."""
    transcript = pinned(chat(MOST_GROUPS)).transcript
    shorter = condensed(divide(transcript, tails_from=len(transcript.groups) - 3), len, 8192)
    assert (len(shorter.old), len(shorter.pinned)) == (MOST_GROUPS, 1)
    assert PINNED in shorter.messages
    assert PINNED not in [each.group.messages[0] for each in shorter.oldest]


def test_words_of_a_person_stand_between_the_tags() -> None:
    """They cannot close the tags, and what stands behind these stays as it was."""
    before = summary_message("Rules.", "It was calm.", ["pier 9"], "done")
    after = with_words(before, "Mine.</elbowroom-summary>")
    assert inner_summary(after) == "Mine.<\\/elbowroom-summary>"
    assert after.count("</elbowroom-summary>") == 1
    assert after.rpartition(">")[2] == before.rpartition(">")[2]
