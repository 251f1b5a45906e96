"""Edits that clients want of their histories, as pure functions over messages."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from elbowroom.context.outputs import ClearThoughts, ClearToolUses, Edit, EditedHistory, Editor, is_stub, ref_to
from elbowroom.context.outputs.edits import AT_ONCE
from elbowroom.context.transcript import Message, text_of, written

OWNER = "ann"
LONG = "The tide was low and the pier was dry. " * 30


async def size_of(messages: Sequence[Message]) -> int:
    """Count four letters as a token, thoughts too."""
    thoughts = sum(len(message.get("reasoning_content", "")) for message in messages)
    return (sum(len(written(message)) for message in messages) + thoughts) // 4


def call(number: int, name: str = "read_note", text: str = LONG) -> list[dict[str, Any]]:
    """Return one call of a tool with its result."""
    function = {"name": name, "arguments": f'{{"path": "note {number}.md"}}'}
    return [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": f"call{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"call{number}", "content": f"{number}: {text}"},
    ]


def chat(calls: int, **options: Any) -> list[dict[str, Any]]:
    """Return a question, so many calls, and the answer."""
    said = [message for number in range(calls) for message in call(number, **options)]
    return [{"role": "user", "content": "What do the notes say?"}, *said, {"role": "assistant", "content": "A lot."}]


async def edited(messages: Sequence[Message], *edits: Edit, last: str = "", **options: Any) -> EditedHistory:
    """Return the history after these edits."""
    pause = options.pop("pause", lambda: asyncio.sleep(0))
    return await Editor(OWNER, size_of, {}, pause, **options).edited(messages, edits, last)


def stubs_in(messages: Sequence[Message]) -> list[int]:
    """Return which results are stubs, by their number."""
    results = [message for message in messages if message["role"] == "tool"]
    return [place for place, message in enumerate(results) if is_stub(text_of(message))]


async def test_old_calls_are_cleared() -> None:
    """Past the trigger all results but the newest become stubs with the reference of the whole, counted exactly."""
    messages = chat(6)
    done = await edited(messages, ClearToolUses(trigger=500, keep=2))
    assert stubs_in(done.messages) == [0, 1, 2, 3]
    [applied] = done.applied
    assert (applied.cleared, applied.tokens) == (4, await size_of(messages) - await size_of(done.messages))
    assert ref_to(OWNER, f"0: {LONG}").id in text_of(done.messages[2])
    assert "note 0.md" in text_of(done.messages[2])
    assert done.outputs == tuple(("read_note", f"{number}: {LONG}") for number in range(4))


@pytest.mark.parametrize(
    ("edit", "cleared"),
    [
        (ClearToolUses("input_tokens", 100_000), []),
        (ClearToolUses("tool_uses", 6, keep=1), []),
        (ClearToolUses("tool_uses", 5, keep=1), [0, 1, 2, 3, 4]),
        (ClearToolUses("tool_uses", 0, keep=9), []),
        (ClearToolUses("tool_uses", 0, keep=1, excluded=frozenset({"read_note"})), []),
        (ClearToolUses("tool_uses", 0, keep=5, at_least=100_000), []),
        (ClearToolUses("tool_uses", 0, keep=5, at_least=100), [0]),
    ],
)
async def test_when_and_what(edit: ClearToolUses, cleared: list[int]) -> None:
    """The trigger has to be passed, and what is kept, excluded or not worth it stays as it is."""
    messages = chat(6)
    done = await edited(messages, edit)
    assert stubs_in(done.messages) == cleared
    assert bool(done.applied) == bool(cleared)
    if not cleared:
        assert done.messages == messages


async def test_the_trigger_is_exact() -> None:
    """A prompt of just the trigger's size stays, one of a token more does not."""
    messages = chat(4)
    size = await size_of(messages)
    assert not (await edited(messages, ClearToolUses(trigger=size, keep=0))).applied
    assert (await edited(messages, ClearToolUses(trigger=size - 1, keep=0))).applied


async def test_unread_results_stay() -> None:
    """Results that the model has not read yet are never cleared, whatever `keep` says."""
    *messages, _ = chat(3)
    done = await edited(messages, ClearToolUses("tool_uses", 0, keep=0))
    assert stubs_in(done.messages) == [0, 1]


async def test_short_results_stay() -> None:
    """A result that its stub would not make shorter stays, and does not count as cleared."""
    done = await edited(chat(5, text="dry"), ClearToolUses("tool_uses", 0, keep=0))
    assert not done.applied


async def test_the_same_bytes_until_the_trigger_is_passed_again() -> None:
    """As a conversation grows, its beginning stays the same until what is left passes the trigger once more."""
    edit = ClearToolUses("tool_uses", 4, keep=2)
    last, before, changes = "", list[Message](), list[int]()
    for calls in range(1, 13):
        *messages, _ = chat(calls)
        done = await edited(messages, edit, last=last)
        last = done.last
        if done.messages[: len(before)] != before:
            changes.append(calls)
        before = done.messages
    assert changes == [5, 8, 11]
    assert stubs_in(before) == list(range(9))


async def test_arguments_go_where_that_is_wanted() -> None:
    """`inputs` clears arguments as well, of all tools or of some; they are kept like results and stay JSON."""
    notes = "x" * 600
    messages = chat(3)
    messages[1]["tool_calls"][0]["function"]["arguments"] = f'{{"path": "a.md", "text": "{notes}"}}'
    for inputs in (True, frozenset({"read_note"})):
        done = await edited(messages, ClearToolUses("tool_uses", 0, keep=1, inputs=inputs))
        arguments = done.messages[1]["tool_calls"][0]["function"]["arguments"]
        assert arguments.startswith('{"cleared": "ref=')
        assert messages[1]["tool_calls"][0]["function"]["arguments"] in [text for _, text in done.outputs]
    untouched = await edited(messages, ClearToolUses("tool_uses", 0, keep=1, inputs=frozenset({"other"})))
    assert untouched.messages[1] is messages[1]


@pytest.mark.parametrize("names_refs", [True, False])
async def test_what_was_cleared_is_not_cleared_again(names_refs: bool) -> None:
    """A history that comes back with cleared calls, as after a compaction, has the same bytes and keeps no stub."""
    messages, edit = chat(3), ClearToolUses("tool_uses", 0, keep=1, inputs=True)
    for message in messages[1::2][:2]:
        message["tool_calls"][0]["function"]["arguments"] = f'{{"text": "{LONG * 2}"}}'
    once = await edited(messages, edit, names_refs=names_refs)
    again = await edited(once.messages, edit, last=once.last, names_refs=names_refs)
    assert len(once.outputs) == 4
    assert (again.messages, again.outputs) == (once.messages, ())


async def test_many_calls_are_cleared_some_at_a_time() -> None:
    """Others have their turn after every few calls, however many there are."""
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    await edited(chat(201, text="The tide was low. " * 20), ClearToolUses("tool_uses", 0, keep=1), pause=pause)
    assert pauses == 200 // AT_ONCE


async def test_failures_keep_their_words() -> None:
    """Of a failed call the error stays readable, unless the settings say otherwise."""
    text = "Error: the pier is closed. " + LONG
    messages = chat(4)
    messages[2] = {**messages[2], "content": text}
    kept = await edited(messages, ClearToolUses("tool_uses", 0, keep=1))
    assert "the pier is closed" in text_of(kept.messages[2])
    bare = await edited(messages, ClearToolUses("tool_uses", 0, keep=1), keeps_errors=False, names_refs=False)
    assert text_of(bare.messages[2]).startswith("[tool output cleared; read note 0.md (read_note)")


def thinking(turns: int) -> list[dict[str, Any]]:
    """Return a chat of so many turns, each with a thought before its call and one before its answer."""
    messages: list[dict[str, Any]] = []
    for number in range(turns):
        calling, result = call(number)
        messages += [
            {"role": "user", "content": f"And note {number}?"},
            {**calling, "reasoning_content": "I look."},
            result,
            {"role": "assistant", "content": "Dry.", "reasoning_content": "It is dry."},
        ]
    return messages


@pytest.mark.parametrize(("keep", "gone"), [(1, 3), (3, 1), (4, 0), (9, 0), (None, 0)])
async def test_thoughts_of_old_turns_go(keep: int | None, gone: int) -> None:
    """Thoughts stay for the newest turns that have some; a turn's calls and answer are one turn."""
    messages = thinking(4)
    done = await edited(messages, ClearThoughts(keep))
    kept = [number for number, message in enumerate(done.messages) if "reasoning_content" in message]
    assert len(kept) == 2 * (4 - gone)
    assert all(number >= 4 * gone for number in kept)
    assert [applied.cleared for applied in done.applied] == [gone] * bool(gone)
    assert sum(applied.tokens for applied in done.applied) == await size_of(messages) - await size_of(done.messages)


async def test_words_beside_a_result_begin_no_turn() -> None:
    """A reminder that a client sends with a result does not end the turn whose thoughts have to stay."""
    asked, calling, result, answer = thinking(1)
    reminder = {"role": "user", "content": "Remember the tide."}
    done = await edited([asked, calling, result, reminder, answer], ClearThoughts(1))
    assert not done.applied


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 40))])
async def test_random_histories(seed: int) -> None:
    """Whatever grows turn by turn: calls and results stay in their places, nothing gets longer, and what was cleared
    stays so; a beginning changes only where the trigger was passed."""
    chance = Random(seed)
    choices: list[bool | frozenset[str]] = [True, False, frozenset({"list_notes"})]
    edit = ClearToolUses(
        chance.choice(["input_tokens", "tool_uses"]),
        chance.randint(0, 6) if chance.random() < 0.5 else chance.randint(100, 3000),
        keep=chance.randint(0, 4),
        at_least=chance.choice([0, 0, 300]),
        excluded=frozenset(chance.sample(["read_note", "list_notes"], chance.randint(0, 1))),
        inputs=chance.choice(choices),
    )
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look through the notes."}]
    last, before = "", list[Message]()
    for number in range(14):
        name = chance.choice(["read_note", "list_notes"])
        messages += call(number, name=name, text=LONG * chance.randint(0, 3))
        done = await edited(messages, edit, last=last)
        assert [message["role"] for message in done.messages] == [message["role"] for message in messages]
        assert await size_of(done.messages) <= await size_of(messages)
        assert done.messages[-2:] == messages[-2:]
        for old, new in zip(before, done.messages, strict=False):
            assert not is_stub(text_of(old)) or new == old
        if done.last == last:
            assert done.messages[: len(before)] == before
        assert done == await edited(messages, edit, last=done.last) or not done.last
        last, before = done.last, done.messages


async def test_both_in_their_order() -> None:
    """Thoughts go first; the calls' trigger looks at what is left then, and each edit's tokens are its own."""
    messages = thinking(5)
    both = await edited(messages, ClearThoughts(1), ClearToolUses("tool_uses", 2, keep=1))
    thoughts, calls = both.applied
    assert (thoughts.cleared, calls.cleared) == (4, 4)
    assert thoughts.tokens + calls.tokens == await size_of(messages) - await size_of(both.messages)
    without = await size_of((await edited(messages, ClearThoughts(1))).messages)
    assert not any(
        isinstance(applied.edit, ClearToolUses)
        for applied in (await edited(messages, ClearThoughts(1), ClearToolUses(trigger=without, keep=1))).applied
    )
