"""The ledger's entries: found for the longest beginning known, put in place as they were sent, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume, given
from hypothesis import strategies as st
from ledger_chats import ANSWER, ASK, RETRY, THANKS, call, chain_of, longest, restored, spoken, system
from random_histories import Json, always_the_same, histories

from elbowroom.context.compaction.division import NumberedGroup, build, divide
from elbowroom.context.ledger import Archived, Entry, archive_of, is_system
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.context.transcript import Message


def entry_of(key: str, *messages: Message) -> Entry:
    """Return an entry with these messages."""
    return Entry(key, messages, window=4096, before=4000, after=900, rung="plan", created=0.0)


@given(histories(sound=True), histories(sound=True), st.data())
@always_the_same
def test_forks_find_what_they_have_in_common(one: list[Json], other: list[Json], data: st.DataObject) -> None:
    """C42: a conversation that was edited or went on in another way finds the longest beginning that both share."""
    shared = data.draw(st.integers(0, len(one)))
    fork = [*one[:shared], {"role": "user", "content": "Something else."}, *other]
    old, new = chain_of(one), chain_of(fork)
    found = longest(new, [entry_of(key) for key in old.keys])
    said = len(spoken(one[:shared]))
    assert (found[0] + 1 if found else 0) == said


def with_repeated_system(messages: Sequence[Message]) -> list[Message]:
    """Return a history as a client sends it that repeats its system message before each question."""
    repeated: list[Message] = []
    for message in messages:
        repeated += [system(), message] if message["role"] == "user" else [message]
    return repeated


@st.composite
def compactions(draw: st.DrawFn, *, system_anywhere: bool) -> tuple[list[Message], list[Message]]:
    """Draw a history that ends with a question, and what a compaction makes of it, which needs something old."""
    history: list[Message] = [*draw(histories(sound=True)), THANKS]
    if not system_anywhere:  # at the beginning, and perhaps again before each question
        history = [system(), *spoken(history)]
        if draw(st.booleans()):
            history = with_repeated_system(history)
    transcript = Transcript.of(history)
    division = divide(transcript, tails_from=draw(st.integers(1, len(transcript.groups) - 1)))
    assume(division.old)
    spared = [numbered for numbered in division.old if numbered.group.kind != "system"]
    kept: list[NumberedGroup] = []
    if spared:
        kept = draw(st.lists(st.sampled_from(spared), unique_by=lambda numbered: numbered.id))
    summary = draw(st.sampled_from(["A summary.", ""]))
    assume(summary or len(kept) < len(spared))  # it has made room
    return transcript.messages, build(division, summary, kept)


def entry_for(messages: Sequence[Message], compacted: Sequence[Message]) -> tuple[int, Entry]:
    """Return the entry for a compaction, which has left what is the same at the end as it was, with its place."""
    pairs = zip(reversed(messages), reversed(compacted), strict=False)
    tail = next((at for at, (one, other) in enumerate(pairs) if one is not other), min(len(messages), len(compacted)))
    chain = chain_of(messages)
    key, stands = Prompt.of(messages, chain).summarised(compacted, tail).entry()
    return chain.keys.index(key), entry_of(key, *stands)


@given(compactions(system_anywhere=False), histories())
@always_the_same
def test_compaction_comes_back_as_it_was_sent(made: tuple[list[Message], list[Message]], following: list[Json]) -> None:
    """C36: the next prompt begins with the very messages that the compaction sent, and ends with the new ones."""
    messages, compacted = made
    place, entry = entry_for(messages, compacted)
    longer = [*messages, *following]
    after = restored(longer, place, entry)
    assert after == [*compacted, *following]
    untouched = len(longer) - chain_of(longer).ends[place]
    assert all(new is old for new, old in zip(after[len(after) - untouched :], longer[-untouched:], strict=False))


@given(compactions(system_anywhere=True), histories())
@always_the_same
def test_compaction_loses_nothing_wherever_system_messages_stand(
    made: tuple[list[Message], list[Message]], following: list[Json]
) -> None:
    """Every message of the compaction is there in its order; a system message may stand further up, none is gone."""
    messages, compacted = made
    place, entry = entry_for(messages, compacted)
    longer = [*messages, *following]
    after = restored(longer, place, entry)
    assert not any(is_system(message) for message in entry.messages)
    assert spoken(after) == spoken([*compacted, *following])
    assert all(message in after for message in longer if is_system(message))
    even_longer = [*longer, THANKS]
    assert restored(even_longer, place, entry) == [*after, THANKS]


def test_replacement_leaves_what_the_person_may_edit() -> None:
    """An entry covers what was replaced: a question asked in other words behind it still finds it."""
    messages = [system(), ASK, ANSWER, THANKS, ANSWER, RETRY]
    summary = {"role": "user", "content": "A summary."}
    place, entry = entry_for(messages, [system(), summary, THANKS, ANSWER, RETRY])
    assert (place, entry.messages) == (1, (summary,))
    edited = [system("Today is Tuesday."), *messages[1:-1], ASK]
    chain = chain_of(edited)
    assert longest(chain, [entry]) == (1, entry)
    assert restored(edited, 1, entry) == [edited[0], summary, THANKS, ANSWER, ASK]


def test_replacement_of_what_the_client_never_saw_covers_all() -> None:
    """Where the end is not what the client has sent, the entry stands for the whole history."""
    messages = [system(), ASK, ANSWER, THANKS]
    compacted = [system(), {"role": "user", "content": "A summary."}, {"role": "assistant", "content": "Unseen."}]
    place, entry = entry_for(messages, compacted)
    assert place == 2
    assert restored([*messages, ASK], place, entry) == [*compacted, ASK]


def test_replacement_splits_no_group() -> None:
    """Results stay with their calls on one side of the entry, even where only the calls were written anew."""
    calls = {"role": "assistant", "content": "", "tool_calls": [call("x")]}
    result = {"role": "tool", "tool_call_id": "x", "content": "Boats."}
    compacted = [ASK, {**calls, "content": "Shortened."}, result, THANKS]
    place, entry = entry_for([ASK, calls, result, THANKS], compacted)
    assert place == 2
    assert entry.messages == tuple(compacted[:-1])


def test_replacement_by_less_than_the_system_messages() -> None:
    """A compaction that has dropped a system message is not taken for one whose end was left as it was."""
    messages = [system(), ASK, system("Short."), THANKS]
    place, entry = entry_for(messages, [system("Short."), THANKS])
    assert (place, entry.messages) == (1, (THANKS,))
    assert restored(messages, place, entry) == [system(), system("Short."), THANKS]


def test_system_messages_come_first_and_once() -> None:
    """System messages among what an entry covers lead, repeated ones once; the newest wording is the client's own."""
    messages = [system(), ASK, system(), ANSWER, system("Short."), THANKS, system()]
    summary = {"role": "user", "content": "A summary."}
    chain = chain_of(messages)
    after = restored(messages, 2, entry_of(chain.keys[2], summary))
    assert after == [system(), system("Short."), summary, system()]


def paths(nodes: Sequence[Archived], seed: str) -> dict[str, list[Message]]:
    """Return what was said up to each node, read from the tree alone."""
    by_key = {node.key: node for node in nodes}
    said: dict[str, list[Message]] = {}
    for node in nodes:
        key, path = node.key, []
        while key != seed:
            path.append(by_key[key].message)
            key = by_key[key].parent
        said[node.key] = path[::-1]
    return said


@given(histories())
@always_the_same
def test_archive_holds_everything_said(history: list[Json]) -> None:
    """Every message is a node; from the last key the whole conversation can be read, system messages beside it."""
    chain = chain_of(history)
    nodes = archive_of(chain, history)
    assert [node.message for node in nodes] == history
    said = paths(nodes, chain.seed)
    if chain.keys:
        assert said[chain.keys[-1]] == spoken(history)
    assert [node.key for node in nodes if not is_system(node.message)] == list(chain.keys)
    assert len({node.key for node in nodes}) == len(nodes)


def test_archives_of_forks_share_what_they_have_in_common() -> None:
    """Nodes of two histories with one beginning are the same nodes, and another system message is another node."""
    one, other = [system(), ASK, ANSWER, THANKS], [system("Short."), ASK, ANSWER, RETRY]
    first, second = (archive_of(chain_of(history), history) for history in (one, other))
    assert [a.key == b.key for a, b in zip(first, second, strict=True)] == [False, True, True, False]
    assert first[0].parent == second[0].parent == first[1].parent == chain_of([]).seed


def test_system_messages_in_a_row_keep_their_order() -> None:
    """Several system messages behind one message hang one on another, and equal ones are not one."""
    history = [ASK, system("a"), system("b"), system("a"), ANSWER]
    chain = chain_of(history)
    nodes = archive_of(chain, history)
    assert [node.parent for node in nodes[1:4]] == [chain.keys[0], nodes[1].key, nodes[2].key]
    assert nodes[4].parent == chain.keys[0]
    assert len({node.key for node in nodes}) == 5
