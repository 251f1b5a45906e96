"""A conversation of very many messages: few orders to the pruning agent, and a result that is good."""

from collections.abc import Sequence

import pytest
from compacting import FORGETFUL, ScriptedPruner, ladder, plan, said, size, used

from elbowroom.context.budget import Budget
from elbowroom.context.compaction.drafts import MOST_GROUPS
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.transcript import Message, Transcript

WINDOW = 8192
MOST_CALLS = 12
LAST = 3  # messages that stay, besides the system message and the first request
RULE = "Never write to /srv/ledger/2024.csv before 18:30."
TASK = "Count all the boats that were named above."


def many(count: int, text: str) -> list[Message]:
    """Return so many messages, the eleventh with a rule of the user's, ended by a task."""
    roles = ("user", "assistant")
    messages: list[Message] = [said("system", "You help.")]
    messages += [said(roles[number % 2], text.format(number)) for number in range(count)]
    messages[11] = said("user", RULE)
    return [*messages, said("user", TASK)]


async def climbed(messages: Sequence[Message], pruner: ScriptedPruner) -> Compaction:
    """Return the compaction of a conversation for a window of 8,192 tokens."""
    means = ladder(WINDOW, pruner, messages)
    done = await means.climb(Transcript.of(messages), before=size(messages))
    assert isinstance(done, Compaction)
    assert Budget(WINDOW).occupied(done.after) < Budget(WINDOW).trigger
    return done


@pytest.mark.slow
@pytest.mark.fault("endless pruning", "compaction", "twelve calls at most")
@pytest.mark.parametrize(
    ("count", "text"),
    [
        pytest.param(2000, "Message {} tells of a boat that was seen below the pier at noon.", id="2,000"),
        pytest.param(
            20_000,
            "Message {} tells of a boat that was seen below the pier at noon.",
            id="20,000",
            marks=pytest.mark.long,
        ),
        pytest.param(100_000, "x", id="100,000 of one letter", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("answer", [FORGETFUL, "no plan", plan("", "x" * 50_000)], ids=["plan", "none", "too long"])
async def test_pruning_agent_is_asked_at_most_twelve_times(count: int, text: str, answer: str) -> None:
    """Whatever it answers; rule and task are in the result, and it is said how much code alone has told of."""
    messages = many(count, text)
    for shares_prefix in (True, False):
        pruner = ScriptedPruner(answer, window=WINDOW, shares_prefix=shares_prefix)
        done = await climbed(messages, pruner)
        assert 1 <= len(pruner.asked) <= MOST_CALLS
        assert pruner.overflows == 0
        assert RULE in done.summary
        assert done.messages[-1] == messages[-1]
        assert done.messages[1] == messages[1]
        assert done.condensed_groups == count + 2 - 2 - LAST - MOST_GROUPS
        assert done.replaced_groups + done.groups_kept == count + 1


@pytest.mark.slow
async def test_large_groups_are_shortened_before_any_is_left_out() -> None:
    """Where there would be too many parts, each group is read by its beginning and its end."""
    note = "A line of the log that says nothing of importance. "
    messages = [said("system", "You help.")]
    for number in range(40):
        messages.append(said("user", f"Note {number} begins. {note * 400} Note {number} ends."))
        messages.append(said("assistant", "Noted."))
    messages.append(said("user", TASK))
    pruner = ScriptedPruner(FORGETFUL, window=WINDOW, shares_prefix=False)
    done = await climbed(messages, pruner)
    assert 2 <= len(pruner.asked) <= MOST_CALLS
    read = "".join(str(order[1]["content"]) for order in pruner.asked)
    read += str(done.messages[1]["content"])  # the first request stays by its beginning and end
    assert all(f"Note {number} begins." in read and f"Note {number} ends." in read for number in range(39))


async def test_own_model_that_has_read_it_all_is_asked_on_top_of_it() -> None:
    """Many short messages that fit the window are not read again: one order follows them as they are."""
    messages = many(1200, "Message {}")
    pruner = ScriptedPruner(FORGETFUL, window=65_536)
    done = await climbed(messages, pruner)
    assert (done.rung, len(pruner.asked)) == ("plan", 1)
    assert pruner.asked[0][:-1] == messages[:-1]
    assert "2 to 1078 | older groups, not listed one by one" in str(pruner.asked[0][-1]["content"])


@pytest.mark.parametrize("last", [TASK, "Go on."])
async def test_task_that_opened_long_ago_stays(last: str) -> None:
    """Six hundred steps of an agent after the request that they work on, and a nudge at their end."""
    messages: list[Message] = [said("user", "Hello."), said("assistant", "Hello."), said("user", TASK)]
    messages += [said("assistant", f"Step {number} is done.") for number in range(600)]
    messages += [said("user", "Go on."), said("assistant", "I do.")] if last == TASK else [said("user", last)]
    pruner = ScriptedPruner(FORGETFUL, window=WINDOW, shares_prefix=False)
    done = await ladder(4096, pruner, messages).climb(Transcript.of(messages))
    assert isinstance(done, Compaction)
    assert said("user", TASK) in done.messages


async def test_files_that_were_written_long_ago_are_told() -> None:
    """Calls that are too many to be looked at one by one have written their files all the same."""
    messages: list[Message] = [said("user", TASK), *used("write_file", {"path": "src/boats.py"}, "ok", "a1")]
    messages += [said("assistant", f"Step {number} is done.") for number in range(MOST_GROUPS + 100)]
    done = await climbed([*messages, said("user", "Which file was that?")], ScriptedPruner(FORGETFUL, window=WINDOW))
    assert done.condensed_groups > 0
    assert "- written: `src/boats.py`" in done.summary
