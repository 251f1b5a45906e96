"""The answer just read is never gone: of one that does not fit, the end stays word for word."""

import json
from collections.abc import Sequence

import pytest
from compacting import FORGETFUL, FamilyPrompts, ScriptedPruner, ladder, qwen, said, size

from elbowroom.context.budget import Budget
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.transcript import Message, Summary, Transcript, text_of

NOUNS = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain", "sun", "bell")
ABOUT_THE_END = "What does the last paragraph say about the boat, and why?"


def answer_of(words: int) -> str:
    """Return an answer of so many words, in numbered sentences."""
    sentences = [f"On day {at} the {NOUNS[at % 10]} lay {at * 3 % 17} miles off." for at in range(words // 9 + 1)]
    return " ".join(" ".join(sentences).split()[:words])


def asked(words: int, last: str | None) -> list[Message]:
    """Return a conversation whose last answer has so many words, and the next message."""
    messages = [said("system", "You help."), said("user", "Write the log."), said("assistant", answer_of(words))]
    return [*messages, *([said("user", last)] if last is not None else [])]


async def compacted(messages: list[Message], window: int, **more: object) -> Compaction:
    """Return the conversation as it is sent."""
    done = await ladder(window, ScriptedPruner(FORGETFUL), messages[:2], **more).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert Budget(window).occupied(done.after) < Budget(window).trigger
    return done


@pytest.mark.parametrize("turns", [None, 2, 5])
@pytest.mark.parametrize("last", ["go on", "continue", "weiter", ABOUT_THE_END, None])
@pytest.mark.parametrize(("window", "words"), [(4096, 2100), (4096, 6000), (8192, 4000), (8192, 6000)])
async def test_end_of_the_last_answer_takes_most_of_the_window(
    window: int, words: int, last: str | None, turns: int | None
) -> None:
    """It stands below the summary and its question, up to its very last character."""
    messages = asked(words, last)
    assert Budget(window).occupied(size(messages)) > Budget(window).trigger
    done = await compacted(messages, window, turns=turns)
    [end] = [text_of(message) for message in done.messages if message["role"] == "assistant"]
    assert answer_of(words).endswith(end)
    assert qwen().count_text(end) >= 0.6 * window
    assert done.messages[1] == messages[1]
    said_by = [type(message) if isinstance(message, Summary) else message["role"] for message in done.messages]
    assert said_by.index(Summary) < said_by.index("assistant")
    if last is not None:
        assert done.messages[-1] == messages[-1]


async def test_short_answer_raises_no_target() -> None:
    """After a long request, an answer that has room stays whole, and the prompt is not filled to the trigger for it."""
    request = said("user", f"Mind this: {answer_of(4500)}")
    messages: list[Message] = [request, said("assistant", "I do."), said("user", "And tomorrow?")]
    done = await ladder(8192, ScriptedPruner(FORGETFUL), messages[1:]).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert messages[1] in done.messages
    assert Budget(8192).occupied(done.after) <= 5500


class CountsMore(FamilyPrompts):
    """Counts so many tokens more of each prompt with a message of which a part is shown."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    async def prompt(self, messages: Sequence[Message]) -> int:
        """Return the size of a prompt."""
        return await super().prompt(messages) + self.more * ("from its middle on" in str(messages))


@pytest.mark.parametrize(("more", "is_shown"), [(0, True), (100, False)])
async def test_part_that_is_too_large_goes_and_the_summary_stays(more: int, *, is_shown: bool) -> None:
    """Where the tokens were estimated too low, nobody is asked a second time, and no summary is thrown away."""
    plan = json.dumps({"retain": "The log is kept in full.", "summary": "They spoke of boats.", "keep": []})
    answer = said("assistant", " ".join(["the boat and the sea"] * 300))
    messages = [*asked(0, None)[:2], answer, said("user", "go on"), said("assistant", "Yes."), said("user", "And now?")]
    climber = ladder(2048, ScriptedPruner(plan), messages[:1], counter=CountsMore(more))
    done = await climber.climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert (done.rung, len(climber.pruner.asked), climber.told) == ("plan", 1, [])
    assert ("from its middle on" in done.summary) is is_shown
    assert "They spoke of boats." in done.summary
