"""What a conversation must not lose survives compaction after compaction, whoever writes the summary."""

import random
from typing import Any

import pytest
from compacting import FORGETFUL, ScriptedPruner, ladder, said, size, used

from elbowroom.context.budget import Budget
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.transcript import Message, Transcript
from elbowroom.quality.conversations import all_written

WINDOW = 8192
CONDITIONS = (
    "Never write to the folder archive.",
    "All dates must be written as year-month-day.",
    "Answer in at most five sentences.",
    "Always keep the old names of the functions.",
    "Only use the standard library.",
)


def planted() -> list[str]:
    """Return fifty identifiers of five kinds."""
    chance = random.Random(7)
    identifiers = []
    for number in range(10):
        identifiers += [
            f"src/part{number}/module_{chance.randrange(1000)}.py",
            f"https://example.org/docs/{chance.randrange(10_000)}/page{number}",
            f"{chance.randrange(10_000, 99_999)}",
            f"{chance.randrange(16**12):012x}a1",
            f"ticket-{number}{chance.randrange(100, 999)}-x",
        ]
    return identifiers


def sentence(identifier: str, number: int) -> str:
    """Say something about an identifier."""
    return f"Take a look at {identifier} as well, please, it belongs to step {number} of the work."


def conversation() -> list[Message]:
    """Return a conversation that holds everything planted, most of it said by the user."""
    messages: list[Message] = [said("system", "You help with a small program.")]
    for number, identifier in enumerate(planted()):
        messages.append(said("user", sentence(identifier, number)))
        if number % 10 == 3:
            messages[-1] = said("user", f"{CONDITIONS[number // 10]} {sentence(identifier, number)}")
        messages.append(said("assistant", "I have looked at it. " + "It does what it should do, it seems to me. " * 9))
    return [*messages, said("user", "What is next?")]


def growth(round_: int) -> list[Message]:
    """Return new messages of over half a window without any identifier."""
    new: list[Message] = [said("assistant", "We go on with the next step.")]
    for turn in range(12):
        words = "The weather changes and the boats come home slowly. " * 9
        new.append(
            said("user", f"Tell me about the sea in the {('north', 'south', 'east', 'west')[turn % 4]}. {words}")
        )
        new += used("look", {"where": "sea"}, "waves and waves " * 60, f"call{round_}x{turn}")
        new.append(said("assistant", "It is blue. " + "The wind comes from the shore and the birds sing. " * 9))
    return [*new, said("user", "And what now, in your opinion?")]


def text_in(messages: list[Message]) -> str:
    """Return what the model reads."""
    return "\n".join(str(message["content"]) for message in messages)


async def compacted(messages: list[Message], **more: Any) -> Compaction:
    """Compact a conversation in the window of the test."""
    done = await ladder(WINDOW, ScriptedPruner(FORGETFUL, window=WINDOW), messages, **more).climb(
        Transcript.of(messages)
    )
    assert isinstance(done, Compaction)
    return done


@pytest.mark.parametrize("asks_pruner", [True, False], ids=["plan", "digest"])
async def test_identifiers_and_conditions_survive_ten_compactions(
    asks_pruner: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """C16, C30, M5: of 50 identifiers 95 % and of 5 conditions all are there after 1, 3 and 10 compactions."""
    messages = conversation()
    report = []
    for round_ in range(1, 11):
        done = await compacted(messages, asks_pruner=asks_pruner)
        assert done.rung == ("plan" if asks_pruner else "digest")
        text = text_in(list(done.messages))
        kept = [identifier for identifier in planted() if identifier in text]
        conditions = [condition for condition in CONDITIONS if condition.rstrip(".") in text]
        report.append(f"{round_}: {len(kept)} of 50, {len(conditions)} of 5, {done.before} -> {done.after}")
        assert conditions == list(CONDITIONS)
        assert len(kept) >= 48, set(planted()) - set(kept)
        messages = [*done.messages, *growth(round_)]
    with capsys.disabled():
        print(f"\nfacts kept ({'plan' if asks_pruner else 'digest'}): {report[0]}; {report[2]}; {report[9]}")  # noqa: T201


@pytest.mark.parametrize("times", [12, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("asks_pruner", [True, False], ids=["plan", "digest"])
async def test_many_compactions_do_not_grow_the_summary(asks_pruner: bool, times: int) -> None:
    """C17: the block that is carried along has a cap, however often it is carried."""
    messages = conversation()
    for round_ in range(times):
        done = await compacted(messages, asks_pruner=asks_pruner)
        assert size([said("user", done.summary)]) <= WINDOW // 8 + WINDOW // 10 + 300
        messages = [*done.messages, *growth(round_)]


async def test_facts_of_what_the_pruner_could_not_read_are_listed_by_code() -> None:
    """C15: of a message larger than the pruning agent's window the agent reads both ends, the code the rest."""
    long = "The work goes on and on. " * 400 + "The password file is secret/keys_77.toml. " + "And so it went. " * 500
    messages = [
        said("system", "You help."),
        said("user", long),
        *(said("assistant" if turn % 2 == 0 else "user", f"Well then, {turn}.") for turn in range(9)),
        said("user", "Go and look at the boats."),
    ]
    pruner = ScriptedPruner(FORGETFUL, window=2048, shares_prefix=False)
    done = await ladder(8192, pruner, messages).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert done.rung == "plan"
    assert pruner.overflows == 0
    assert "characters left out" in text_in(pruner.asked[0])
    assert "secret/keys_77.toml" not in text_in(pruner.asked[0])
    assert "secret/keys_77.toml" in done.summary


@pytest.mark.parametrize("answer", ["no plan", FORGETFUL])
@pytest.mark.parametrize("seed", range(4))
async def test_a_second_compaction_leaves_most_of_the_summary_where_it_stood(seed: int, answer: str) -> None:
    """What is new stands below it, so that an engine need not read it again from its beginning on."""
    written = all_written()[seed]
    history: list[Message] = []
    summaries: list[str] = []
    for messages, _ in written.turns(WINDOW):
        history += messages
        if Budget(WINDOW).occupied(size(history)) >= Budget(WINDOW).trigger:
            done = await ladder(WINDOW, ScriptedPruner(answer), history).climb(Transcript.of(history))
            assert isinstance(done, Compaction)
            history = [*done.messages]
            summaries.append(done.summary)
            if len(summaries) > 1:
                break
    first, second = summaries
    differs = (at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    assert next(differs, len(first)) > len(first) / 2, second
