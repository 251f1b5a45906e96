"""How many turns a compaction keeps word for word, and that the first request of a conversation is among them."""

from collections.abc import Sequence
from typing import Any

import pytest
from compacting import FORGETFUL, ScriptedPruner, chat, ladder, said, size

from elbowroom.context.compaction.division import SUMMARY_TAG
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.transcript import Message, Transcript

WINDOW = 8192
FIRST = said("user", "Keep a log of the ferry, in full sentences.")
BEGINNING = [said("system", "You help."), FIRST, said("assistant", "I keep it.")]


def conversation(turns: int, words: int = 60) -> list[dict[str, Any]]:
    """Return a conversation with this first request and so many later turns, and a last question."""
    return [*BEGINNING, *chat(turns, words)[1:]]


async def compacted(messages: Sequence[Message], window: int = WINDOW, answer: str = FORGETFUL, **more: Any) -> Any:
    """Return the messages of the compacted conversation."""
    done = await ladder(window, ScriptedPruner(answer), messages, **more).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    return list(done.messages)


def asked(messages: Sequence[Message]) -> list[str]:
    """Return what the user has said word for word, the first request apart."""
    texts = [str(message["content"]) for message in messages if message["role"] == "user" and message != FIRST]
    return [text for text in texts if not text.startswith(f"<{SUMMARY_TAG}>")]


@pytest.mark.parametrize("answer", [FORGETFUL, ""], ids=["plan", "digest"])
@pytest.mark.parametrize("turns", [0, 1, 3, 20])
async def test_exactly_as_many_turns_stay_as_are_set_where_they_fit(turns: int, answer: str) -> None:
    """A turn is a message of the user and all that came of it; 0 keeps the current request only."""
    messages = conversation(60, words=20)
    kept = await compacted(messages, target=WINDOW * 3 // 5, answer=answer, turns=turns)
    assert asked(kept) == asked(messages)[-max(1, turns) :]
    last = [message for message in kept if message["role"] == "assistant"]
    assert len(last) == max(1, turns) - 1


async def test_as_many_of_the_turns_as_fit_stay_where_not_all_do() -> None:
    """Of twenty long turns the newest stay, more than the last few messages."""
    messages = conversation(40, words=120)
    kept = asked(await compacted(messages, turns=20))
    assert kept == asked(messages)[-len(kept) :]
    assert 5 < len(kept) < 20


async def test_without_a_number_as_many_turns_stay_as_there_is_room_for() -> None:
    """Nothing set, the room below the target is used."""
    messages = conversation(60, words=20)
    kept = asked(await compacted(messages, target=WINDOW * 3 // 5))
    assert len(kept) > 20
    assert kept == asked(messages)[-len(kept) :]


@pytest.mark.parametrize("answer", [FORGETFUL, ""], ids=["plan", "digest"])
async def test_first_request_stays_word_for_word_through_several_compactions(answer: str) -> None:
    """It stands before the summary, once, however often the conversation is compacted; no summary repeats it."""
    messages = conversation(60)
    for _ in range(4):
        messages = await compacted(messages, answer=answer, turns=1)
        assert messages[1] == FIRST
        assert str(messages[2]["content"]).startswith(f"<{SUMMARY_TAG}>")
        assert messages.count(FIRST) == 1
        assert "log of the ferry" not in str(messages[2]["content"])
        messages += chat(60)[1:]


@pytest.mark.parametrize("share", [12, 5, 3, 2])
async def test_first_request_stays_up_to_a_quarter_of_the_window(share: int) -> None:
    """A larger one, such as a pasted page, must not fill the window for ever: its beginning and its end stay."""
    words = " ".join(f"field_{number}" for number in range(WINDOW // share // 4))
    first = said("user", f"Mind this: {words}. That is all.")
    messages = [BEGINNING[0], first, *conversation(60)[2:]]
    kept = await compacted(messages)
    assert (first in kept) == (size([first]) <= WINDOW // 4)
    assert str(kept[1]["content"]).startswith("Mind this: field_0 field_1")
    assert str(kept[1]["content"]).endswith("That is all.")


PATHS = " ".join(f"Never touch /srv/app/module_{number}/settings_{number * 7}.toml." for number in range(12))


@pytest.mark.parametrize("turns", [0, 2, 8, 20])
async def test_turns_stay_where_messages_are_full_of_paths_and_rules(turns: int) -> None:
    """What is quoted of the messages before never takes the room of the turns that were asked for."""
    messages = [BEGINNING[0]]
    for turn in range(40):
        messages += [said("user", f"{turn}: {PATHS}"), said("assistant", f"Part {turn} is done, as you want it.")]
    messages.append(said("user", "And the last part?"))
    whole = asked(messages)
    fit = max(n for n in range(1, 20) if size([*messages[:1], *messages[-2 * n + 1 :]]) < 2700)
    kept = asked(await compacted(messages, turns=turns))
    assert kept[-1:] == whole[-1:]
    assert len(kept) >= min(turns, fit), len(kept)
    if turns <= fit:
        assert len([text for text in kept if text != messages[1]["content"]]) == max(1, turns)


@pytest.mark.slow
async def test_first_request_stays_where_only_the_last_messages_do() -> None:
    """A large system message leaves no room for a summary; the request goes only where it does not fit either."""
    messages = [said("system", "Rules. " * 2200), *conversation(40)[1:]]
    done = await ladder(WINDOW, ScriptedPruner(""), messages, target=4096).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert (done.rung, FIRST in done.messages) == ("last messages", True)
    messages = [*messages[:-1], said("user", "word " * (WINDOW - size(messages[:1]) - 12))]
    done = await ladder(WINDOW, ScriptedPruner(""), messages, target=4096).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert (FIRST in done.messages, done.messages[-1]) == (False, messages[-1])


async def test_summary_stands_before_the_request_that_is_being_answered() -> None:
    """The user's last request is the last one for the model, also while a long answer to it is stopped repeatedly."""
    messages = conversation(40)
    for restart in range(3):
        pieces = [said("assistant", f"Piece {restart} {n} of it. " + "More of it. " * 250) for n in range(4)]
        messages = await compacted([*messages, *pieces], turns=1)
        texts = [str(message["content"]) for message in messages]
        [summary] = [place for place, text in enumerate(texts) if text.startswith(f"<{SUMMARY_TAG}>")]
        assert texts.index(FIRST["content"]) < summary < texts.index("And the last part?")
        assert texts[-1] == pieces[-1]["content"]
