"""The answer just read is never gone: of one that does not fit, the end stays word for word."""

import pytest
from compacting import FORGETFUL, ScriptedPruner, ladder, qwen, said, size

from elbowroom.context.budget import Budget
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.transcript import Message, Transcript, text_of

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
    if last is not None:
        assert done.messages[-1] == messages[-1]
