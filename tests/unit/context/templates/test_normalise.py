"""Normalised, every history is taken by the template, whole; where nothing is demanded, nothing changes."""

from __future__ import annotations

import copy
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from demanding_templates import NO_USER_YET, TEMPLATES, refusing, render_with
from demands_by_rendering import demands_of
from hypothesis import given
from hypothesis import strategies as st
from random_histories import TOOLS, Json, always_the_same, histories, words_in

from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.templates.normalise import ACKNOWLEDGED, CONTINUE, NO_ANSWER, normalise
from elbowroom.context.templates.repair import repair

if TYPE_CHECKING:
    from elbowroom.context.transcript import Message

NOTHING: Final = TemplateDemands()
ANY_DEMANDS: Final = st.builds(TemplateDemands, **{field.name: st.booleans() for field in fields(TemplateDemands)})
SYSTEM: Final[Json] = {"role": "system", "content": "You help with notes."}
ASK: Final[Json] = {"role": "user", "content": "What grows?"}
MORE: Final[Json] = {"role": "user", "content": "And where?"}
ANSWER: Final[Json] = {"role": "assistant", "content": "Beans."}
ADD: Final[Json] = {"role": "assistant", "content": "And peas."}


def call(call_id: str, path: str) -> Json:
    """Return a tool call."""
    return {"id": call_id, "type": "function", "function": {"name": "read_note", "arguments": f'{{"path": "{path}"}}'}}


def result(call_id: str, content: object) -> Json:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


LOOK: Final[Json] = {"role": "assistant", "content": "I look.", "tool_calls": [call("call_1", "a.md")]}
FOUND: Final = result("call_1", "Beans and peas.")
LOOK_TWICE: Final[Json] = {**LOOK, "tool_calls": [call("call_1", "a.md"), call("call_2", "b.md")]}
FOUND_MORE: Final = result("call_2", "Rye.")


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_takes_any_history(name: str) -> None:
    """Random histories never make a template refuse, and each text that the client sent is in the prompt."""
    render = render_with(TEMPLATES[name][0])
    demands = {bool(tools): demands_of(render, tools=bool(tools)) for tools in ([], TOOLS)}

    @always_the_same
    @given(histories())
    def is_taken_whole(history: list[Json]) -> None:
        for tools in ([], TOOLS):
            prompt = render(normalise(history, demands[bool(tools)]), tools)
            assert words_in(history) <= words_in(prompt)
            assert "None" not in prompt

    is_taken_whole()


@always_the_same
@given(histories(), ANY_DEMANDS)
def test_no_word_is_lost(history: list[Json], demands: TemplateDemands) -> None:
    """Whatever is demanded, all that a history says is still said."""
    messages = normalise(history, demands)
    assert words_in(messages) == words_in(history)
    assert repair(messages) == messages


@always_the_same
@given(histories(), ANY_DEMANDS)
def test_normalising_is_settled(history: list[Json], demands: TemplateDemands) -> None:
    """A second pass changes nothing, the same history gives the same messages, and the caller's are left alone."""
    before = copy.deepcopy(history)
    messages = normalise(history, demands)
    assert history == before
    assert normalise(before, demands) == messages
    assert normalise(messages, demands) == messages


@always_the_same
@given(histories(sound=True))
def test_nothing_changes_where_nothing_is_demanded(history: list[Json]) -> None:
    """A sound history comes back message by message: the same objects."""
    messages = normalise(history, NOTHING)
    assert len(messages) == len(history)
    assert all(kept is given for kept, given in zip(messages, history, strict=True))


@always_the_same
@given(histories(sound=True), ANY_DEMANDS)
def test_messages_stay_when_the_history_goes_on(history: list[Json], demands: TemplateDemands) -> None:
    """What was sent on one turn is the beginning of what is sent on the next: the engine reads no token twice."""
    history = [SYSTEM, ASK, *history, MORE]
    longer = normalise([*history, ANSWER, ASK, LOOK, FOUND], demands)
    shorter = normalise(history, demands)
    assert longer[: len(shorter)] == shorter


@always_the_same
@given(histories())
def test_roles_alternate(history: list[Json]) -> None:
    """Without calls, user and assistant take turns, the user first; with them in between too.

    An answer alone, which is to be continued, is no turn.
    """
    messages = normalise(history, TemplateDemands(roles_alternate=True, system_as_user=True))
    turns = [message["role"] for message in messages if message["role"] != "tool" and not message.get("tool_calls")]
    assert turns[:1] in ([], ["user"]) or turns == ["assistant"]
    assert all(before != after for before, after in pairwise(turns))


def test_equal_roles_are_joined_with_a_blank_line() -> None:
    """Messages of one role become one, and what stands beside their text is kept."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    pictured = {"role": "user", "content": [image, {"type": "text", "text": "This?"}]}
    thought = {**ADD, "reasoning_content": "Hm."}
    messages = normalise([ASK, MORE, pictured, ANSWER, thought], TemplateDemands(roles_alternate=True))
    asked = [{"type": "text", "text": "What grows?\n\nAnd where?"}, image, {"type": "text", "text": "This?"}]
    assert messages == [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": "Beans.\n\nAnd peas.", "reasoning_content": "Hm."},
    ]


def test_interrupted_tool_turn_is_acknowledged() -> None:
    """Where a user speaks right behind a result and the template forbids it, a neutral answer stands between."""
    history = [ASK, LOOK, FOUND, MORE]
    expected = [ASK, LOOK, FOUND, ACKNOWLEDGED, MORE]
    assert normalise(history, TemplateDemands(roles_alternate=True)) == expected
    assert normalise(history, TemplateDemands(roles_alternate=True, calls_take_turns=True)) == expected
    assert normalise(history, TemplateDemands(no_user_after_result=True)) == expected


def test_a_user_stands_before_an_answer_that_was_put_in() -> None:
    """Where the template wants a user first, one stands before the neutral answer to a history of calls."""
    demands = TemplateDemands(user_first=True, no_user_after_result=True)
    assert normalise([LOOK, FOUND, MORE], demands) == [CONTINUE, LOOK, FOUND, ACKNOWLEDGED, MORE]


def test_answers_on_both_sides_of_a_call_are_kept_apart() -> None:
    """Two answers around a call cannot be one; the user says something neutral between them."""
    history = [ASK, ANSWER, LOOK, FOUND, ADD]
    assert normalise(history, TemplateDemands(roles_alternate=True)) == [ASK, ANSWER, LOOK, FOUND, CONTINUE, ADD]


def test_text_is_not_joined_to_calls_where_it_would_be_lost() -> None:
    """An answer before a call becomes part of the call's message, unless the template drops text there."""
    demands = TemplateDemands(roles_alternate=True, calls_take_turns=True)
    (_, joined, _) = normalise([ASK, ANSWER, LOOK, FOUND], demands)
    assert (joined["content"], joined["tool_calls"]) == ("Beans.\n\nI look.", LOOK["tool_calls"])
    demands = TemplateDemands(roles_alternate=True, calls_take_turns=True, drops_text_beside_calls=True)
    said, called = {"role": "assistant", "content": "Beans.\n\nI look."}, {**LOOK, "content": ""}
    assert normalise([ASK, ANSWER, LOOK, FOUND], demands) == [ASK, said, CONTINUE, called, FOUND]


def test_user_message_is_added_where_one_is_missing() -> None:
    """It stands behind the system message, and only if there is no other, or not where it has to be."""
    needed, first = TemplateDemands(user_needed=True), TemplateDemands(user_first=True)
    assert normalise([SYSTEM, LOOK, FOUND], needed) == [SYSTEM, CONTINUE, LOOK, FOUND]
    assert normalise([SYSTEM], needed) == [SYSTEM, CONTINUE]
    assert normalise([], needed) == [CONTINUE]
    assert normalise([LOOK, FOUND, ASK], needed) == [LOOK, FOUND, ASK]
    assert normalise([SYSTEM, ANSWER, ASK], first) == [SYSTEM, CONTINUE, ANSWER, ASK]
    assert normalise([SYSTEM, ASK, ANSWER], first) == [SYSTEM, ASK, ANSWER]
    before_calls = TemplateDemands(user_before_calls=True)
    assert normalise([SYSTEM, LOOK, FOUND, ASK], before_calls) == [SYSTEM, CONTINUE, LOOK, FOUND, ASK]
    assert normalise([ANSWER, LOOK, FOUND, ASK], before_calls) == [CONTINUE, ANSWER, LOOK, FOUND, ASK]


def test_answer_that_is_continued_is_no_turn() -> None:
    """At the end of a history it stands alone where the template takes that."""
    alone = TemplateDemands(no_answer_alone=True)
    assert normalise([ANSWER], alone) == [CONTINUE, ANSWER]
    assert normalise([SYSTEM, ANSWER], alone) == [SYSTEM, ANSWER]
    turns = TemplateDemands(roles_alternate=True, user_first=True)
    for history in ([ANSWER], [SYSTEM, ANSWER], [LOOK, FOUND, ANSWER]):
        assert normalise(history, turns) == history
    assert normalise([ANSWER, ASK], turns) == [CONTINUE, ANSWER, ASK]


def test_text_beside_calls_stands_before_them_where_it_would_be_lost() -> None:
    """The remark is a message of its own; thoughts stay with the call."""
    thought = {**LOOK, "reasoning_content": "Hm."}
    assert normalise([ASK, thought, FOUND], TemplateDemands(drops_text_beside_calls=True)) == [
        ASK, {"role": "assistant", "content": "I look."}, {**thought, "content": ""}, FOUND,
    ]  # fmt: skip
    assert normalise([ASK, {**LOOK, "content": None}, FOUND], TemplateDemands(drops_text_beside_calls=True)) == [
        ASK, {**LOOK, "content": None}, FOUND,
    ]  # fmt: skip


@pytest.mark.fault("history that the template takes", "first", "sent as it came")
def test_history_is_changed_only_where_the_template_demands_it() -> None:
    """A template that speaks for the user beside tools alone, as Llama 3.1's does, takes the same without them."""
    source = refusing(f"tools and message.role == 'assistant' and {NO_USER_YET}")
    render = render_with(source)
    history = [SYSTEM, ANSWER, ASK]
    assert normalise(history, demands_of(render, tools=False)) == history
    assert normalise(history, demands_of(render)) == [SYSTEM, CONTINUE, ANSWER, ASK]


def test_system_text_goes_where_the_template_takes_it() -> None:
    """Into the user's first message where there is no system role; later ones become the user's, in their place."""
    late = {"role": "system", "content": "Be brief."}
    folded = {"role": "user", "content": "You help with notes.\n\nWhat grows?"}
    said = {"role": "user", "content": "Be brief."}
    assert normalise([SYSTEM, ASK, ANSWER, late], TemplateDemands(system_as_user=True)) == [folded, ANSWER, said]
    assert normalise([SYSTEM, late, ASK, late, ANSWER], TemplateDemands(system_first_only=True)) == [
        {"role": "system", "content": "You help with notes.\n\nBe brief."}, ASK, said, ANSWER,
    ]  # fmt: skip
    assert normalise([{**SYSTEM, "role": "developer"}, ASK], TemplateDemands(no_developer_role=True)) == [SYSTEM, ASK]


def test_several_calls_become_several_pairs() -> None:
    """Each call is followed by its own result; the text stays with the first."""
    assert normalise([ASK, LOOK_TWICE, FOUND, FOUND_MORE], TemplateDemands(one_call_a_message=True)) == [
        ASK,
        LOOK,
        FOUND,
        {"role": "assistant", "content": "", "tool_calls": [call("call_2", "b.md")]},
        FOUND_MORE,
    ]


def test_client_ids_become_nine_letters_and_digits() -> None:
    """A call and its result get the same id, on every turn the same; one that fits already stays."""
    fitting: list[Message] = [{**LOOK, "tool_calls": [call("abcDEF123", "a.md")]}, result("abcDEF123", "Oats.")]
    _, one, _, *unchanged = messages = normalise([ASK, LOOK, FOUND, *fitting], TemplateDemands(portable_ids=True))
    (portable,) = (each["id"] for each in one["tool_calls"])
    assert (len(portable), portable.isalnum(), portable.isascii()) == (9, True, True)
    assert messages[2] == {**FOUND, "tool_call_id": portable}
    assert unchanged == fitting
    assert normalise([LOOK, FOUND], TemplateDemands(portable_ids=True)) == messages[1:3]


def test_results_are_told_where_a_template_knows_no_tools() -> None:
    """The user tells them, fenced, call and result together; nothing of a call is put into the assistant's mouth."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    fenced = result("call_1", "````\nBeans\n````")
    history = [ASK, LOOK_TWICE, fenced, result("call_2", [{"type": "text", "text": "Rye."}, image])]
    asked, said, told = normalise(history, TemplateDemands(results_as_text=True))
    assert (asked, said) == (ASK, {"role": "assistant", "content": "I look."})
    text = """\
Result of read_note, called with {"path": "a.md"}:

`````
````
Beans
````
`````

Result of read_note, called with {"path": "b.md"}:

```
Rye.
```"""
    assert told == {"role": "user", "content": [{"type": "text", "text": text}, image]}


def test_content_takes_the_form_the_template_reads() -> None:
    """Null becomes an empty text, text parts one text; parts with a picture stay."""
    parts = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    called = {**LOOK, "content": None}
    assert normalise([called, FOUND], TemplateDemands(no_null_content=True)) == [{**LOOK, "content": ""}, FOUND]
    assert normalise([parts, picture], TemplateDemands(text_content_only=True)) == [
        {"role": "user", "content": "one\ntwo"}, picture,
    ]  # fmt: skip


def test_empty_answer_is_filled_or_left_to_come() -> None:
    """An answer without a word gets one in the middle, and goes at the end, where the real one is to come."""
    empty = {"role": "assistant", "content": None}
    demands = TemplateDemands(no_empty_answer=True)
    assert normalise([ASK, empty, MORE, empty], demands) == [ASK, {"role": "assistant", "content": NO_ANSWER}, MORE]


def test_answers_at_the_end_become_one() -> None:
    """The engine continues one message; what stands before it, and calls, stay."""
    demands = TemplateDemands(one_answer_at_end=True)
    joined = {"role": "assistant", "content": "Beans.\n\nAnd peas."}
    assert normalise([ASK, ANSWER, ADD], demands) == [ASK, joined]
    assert normalise([ASK, ANSWER, ADD, MORE], demands) == [ASK, ANSWER, ADD, MORE]
    assert normalise([ASK, LOOK, FOUND, ANSWER], demands) == [ASK, LOOK, FOUND, ANSWER]
