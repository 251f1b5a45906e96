"""The prompt of a turn: what the model gets of it when an answer is stopped, compacted around and goes on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.divisible import divided
from elbowroom.context.ledger import Chain
from elbowroom.context.prompt import Prompt, items_of, recalled
from elbowroom.context.seam import CONTINUE
from elbowroom.context.transcript import Message, Summary

ASKED: Message = {"role": "user", "content": "Write a long story."}
ORDER: Message = {"role": "user", "content": CONTINUE}
SUMMARY: Message = {"role": "user", "content": "[What has happened so far]"}
CALL: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function"}]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "1", "content": "The tide is high."}
SENTENCES = st.lists(
    st.sampled_from(("The boat left. ", "Who called?\n", "It rained, again and again, ", "灯。", "\n"))
)


@st.composite
def growing_answers(draw: st.DrawFn) -> list[str]:
    """Draw parts of one answer: each is what came between two stops, and no text stands in it twice."""
    parts = draw(st.lists(SENTENCES, min_size=1, max_size=4))
    numbered, number = [], 0
    for part in parts:
        written = []
        for sentence in part * 12:
            number += 1
            written.append(f"{number} {sentence}")
        numbered.append("".join(written) or f"{number} ")
    return numbered


def spoken(text: str) -> dict[str, Any]:
    """Return a message of the assistant."""
    return {"role": "assistant", "content": text}


def compacted(prompt: Prompt, length: int) -> tuple[Prompt, str]:
    """Compact all but the last characters of the answer into a summary; return what of the answer went into it."""
    *_, last = prompt.messages
    parts = divided(last, length)
    if parts is None:
        return prompt.summarised([SUMMARY, last], 1), ""
    return prompt.summarised([SUMMARY, parts.shown], 0, [(last, parts.shown)]), parts.rest["content"]


def test_each_step_adds_what_is_new() -> None:
    """Messages of the run follow those of the client, each once, however often the whole is handed over."""
    prompt = Prompt.of([ASKED])
    prompt = prompt.extended([])
    assert prompt.messages == [ASKED]
    prompt = prompt.extended([CALL, RESULT])
    prompt = prompt.extended([CALL, RESULT])
    prompt = prompt.extended([CALL, RESULT, spoken("It is high.")])
    assert prompt.messages == [ASKED, CALL, RESULT, spoken("It is high.")]


def test_what_is_compacted_stays_compacted() -> None:
    """Later steps go on behind a compaction; the client's own messages are not there again."""
    prompt = Prompt.of([ASKED])
    prompt = prompt.extended([CALL, RESULT])
    prompt = prompt.summarised([SUMMARY, CALL, RESULT], 2)
    later = {**CALL, "content": "Once more."}
    prompt = prompt.extended([CALL, RESULT, later, RESULT])
    assert prompt.messages == [SUMMARY, CALL, RESULT, later, RESULT]


def test_a_run_that_rewrote_its_messages_is_believed() -> None:
    """Where messages of earlier steps have changed, the conversation is the client's with the changed ones."""
    prompt = Prompt.of([ASKED])
    prompt = prompt.extended([CALL, RESULT])
    prompt = prompt.summarised([SUMMARY], 0)
    rewritten = [CALL, {**RESULT, "content": "(seen)"}]
    prompt = prompt.extended(rewritten)
    assert prompt.messages == [ASKED, *rewritten]
    prompt = prompt.extended([])
    assert prompt.messages == [ASKED]


def test_the_callers_messages_stay_as_they_are() -> None:
    """Lists and messages that were handed over are never changed."""
    client, run = [ASKED], [dict(CALL), dict(RESULT)]
    prompt = Prompt.of(client)
    prompt = prompt.extended(run)
    prompt = prompt.stopped("A beginning. " * 60)
    prompt = prompt.summarised([SUMMARY, *prompt.messages[-1:]], 1)
    prompt.joined()
    run.append(spoken("more"))
    prompt = prompt.extended(run)
    assert client == [ASKED]
    assert run == [CALL, RESULT, spoken("more")]


def test_a_stopped_answer_is_one_message_with_an_order_behind_it() -> None:
    """The model sees its words whole and is told to go on."""
    said = "The boat left. " * 100
    prompt = Prompt.of([ASKED])
    assert not prompt.is_stopped
    prompt = prompt.stopped(said)
    assert prompt.is_stopped
    assert prompt.joined() == [ASKED, spoken(said)]
    assert prompt.sent() == [ASKED, spoken(said), ORDER]


@given(growing_answers(), st.data())
def test_no_text_of_an_answer_is_lost_or_told_twice(parts: list[str], data: st.DataObject) -> None:
    """However often an answer is stopped and its head taken into summaries, these and the rest are the answer.

    At each stop the model reads all of it but what summaries hold; the same is so for the step that comes after.
    """
    prompt = Prompt.of([ASKED])
    said = summarised = ""
    for part in parts:
        said += part
        prompt = prompt.stopped(said)
        assert summarised + _words(prompt) == said
        prompt, gone = compacted(prompt, data.draw(st.integers(0, 400)))
        summarised += gone
        assert summarised + _words(prompt) == said
        assert sum(message["role"] == "assistant" for message in prompt.joined()) <= 1
    prompt = prompt.extended([{**CALL, "content": said}, RESULT])
    assert summarised + _words(prompt) == said
    assert [message["role"] for message in prompt.messages[-2:]] == ["assistant", "tool"]
    assert not prompt.is_stopped


def test_an_answer_that_repeats_itself_keeps_its_end() -> None:
    """An answer that says the same again and again keeps as much of its end as the compaction left."""
    said = "The boat left the harbour. " * 100
    prompt = Prompt.of([ASKED])
    prompt = prompt.stopped(said)
    prompt, gone = compacted(prompt, 700)
    assert 0 < len(gone) < len(said)
    assert gone + _words(prompt) == said


def test_the_next_steps_answer_is_whole() -> None:
    """Only the answer that was compacted loses its beginning, not the one of the step behind it."""
    said = "".join(f"{number} boats left. " for number in range(100))
    prompt = Prompt.of([ASKED])
    prompt = prompt.stopped(said)
    prompt, gone = compacted(prompt, 300)
    first = [{**CALL, "content": said}, RESULT]
    prompt = prompt.extended(first)
    prompt = prompt.extended([*first, {**CALL, "content": said}, RESULT])
    told = [message["content"] for message in prompt.messages if message["role"] == "assistant"]
    assert gone
    assert told == [said.removeprefix(gone), said]


def test_results_that_were_shortened_take_the_place_of_whole_ones() -> None:
    """Without a stopped answer, what is handed over is the conversation."""
    prompt = Prompt.of([ASKED])
    prompt = prompt.extended([CALL, RESULT])
    shortened = [ASKED, CALL, {**RESULT, "content": "..."}]
    prompt = prompt.shortened(shortened)
    assert prompt.messages == shortened


def test_thoughts_are_handed_back_before_a_word_is_said() -> None:
    """The last thoughts stand in the order to go on; the prompt itself holds nothing of them."""
    prompt = Prompt.of([ASKED])
    prompt = prompt.thinking_on("Perhaps a story about boats?")
    assert prompt.is_stopped
    assert prompt.messages == [ASKED]
    *before, order = prompt.sent()
    assert before == [ASKED]
    assert order["role"] == "user"
    assert "<thoughts>\nPerhaps a story about boats?\n</thoughts>" in order["content"]
    prompt = prompt.extended([])
    assert prompt.sent() == [ASKED]


@pytest.mark.parametrize("thoughts", ["{curly} 100 % {0}", "a\n\nb", "\\ $1"])
def test_thoughts_are_taken_at_their_word(thoughts: str) -> None:
    """Nothing in a thought is taken for a place to fill in."""
    prompt = Prompt.of([ASKED])
    prompt = prompt.thinking_on(thoughts)
    assert thoughts in prompt.sent([])[0]["content"]


@pytest.mark.parametrize("thoughts", ["", " \n"])
def test_without_thoughts_the_model_is_asked_anew(thoughts: str) -> None:
    """Where nothing has been thought there is nothing to take up."""
    prompt = Prompt.of([ASKED])
    prompt = prompt.thinking_on(thoughts)
    assert not prompt.is_stopped
    assert prompt.sent() == [ASKED]


def test_words_after_thoughts_replace_the_order_to_think_on() -> None:
    """Once the answer has begun, the model is told to continue that, and nothing else."""
    prompt = Prompt.of([ASKED])
    prompt = prompt.thinking_on("A story.")
    prompt = prompt.stopped("Once upon a time")
    assert prompt.sent() == [ASKED, spoken("Once upon a time"), ORDER]


def test_a_message_that_the_client_began_is_continued_in_one() -> None:
    """Where the client ends with words of the assistant, what the model has added is one message with them."""
    begun = {**spoken("Once upon"), "name": "teller"}
    said = " a time there was a boat. " * 40
    prompt = Prompt.of([ASKED, begun])
    prompt = prompt.stopped(said)
    whole = {**begun, "content": f"Once upon{said}"}
    assert prompt.joined() == [ASKED, whole]
    assert prompt.sent() == [ASKED, whole, ORDER]
    assert begun["content"] == "Once upon"


@pytest.mark.parametrize("last", [CALL, {"role": "assistant", "content": None}, {"role": "assistant", "content": []}])
def test_words_are_not_added_to_what_is_no_plain_text(last: Message) -> None:
    """Behind a message with calls or with parts a stopped answer stands alone."""
    prompt = Prompt.of([ASKED, last])
    prompt = prompt.stopped("Once")
    assert prompt.joined() == [ASKED, last, spoken("Once")]


def test_two_messages_of_the_client_stay_two() -> None:
    """Messages of the client are never joined, even where a stopped answer says the very same."""
    prompt = Prompt.of([spoken("One. "), spoken("Two. "), ASKED])
    prompt = prompt.stopped("Two. ")
    assert prompt.joined() == [spoken("One. "), spoken("Two. "), ASKED, spoken("Two. ")]


def _words(prompt: Prompt) -> str:
    """Return what the prompt holds of the assistant's words."""
    return "".join(message["content"] for message in prompt.joined() if message["role"] == "assistant")


def test_a_reply_that_is_there_already_or_says_nothing_is_not_added() -> None:
    """The step behind a call with its result was lost before its first word: nothing stands twice, nothing empty."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "look"}}]}
    result = {"role": "tool", "tool_call_id": "a", "content": "A boat."}
    prompt = Prompt.of([{"role": "user", "content": "Look."}])
    assert prompt.followed_by(call).messages == [*prompt.messages, call]
    prompt = prompt.extended([call, result])
    for reply in (call, {**call, "content": ""}, {"role": "assistant", "content": ""}):
        assert prompt.followed_by(reply).messages == prompt.messages
        assert prompt.followed_by(reply).of_client == prompt.of_client


def test_results_are_known_as_they_were_before_they_were_shortened() -> None:
    """Of this run by themselves, of an entry of the ledger by the id of the call that the client sends again."""
    calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    call, result = spoken("") | {"tool_calls": calls}, {"role": "tool", "tool_call_id": "a", "content": "A boat. " * 40}
    stub = {**result, "content": "[tool output trimmed; ref=abcdefghjkmn; look; 320 characters: A boat.]"}
    chain = Chain.of("", "writer", [ASKED, call, result])
    items = items_of([ASKED, call, result], chain)
    own = Prompt.of([ASKED, call, result]).shortened([ASKED, call, stub])
    for prompt in (own, Prompt(recalled(items, chain.keys[-1], [ASKED, call, stub]))):
        assert [group.unshortened for group in prompt.transcript.groups][:2] == [(), (call, result)]
        assert prompt.messages[2] == stub
    assert all(
        group.unshortened == ()
        for group in Prompt(recalled(items, chain.keys[-1], [ASKED, call, result])).transcript.groups
    )


def test_a_summary_knows_what_it_stands_for() -> None:
    """All that a first and a second compaction have removed, in one run and out of the ledger; nothing that stays."""
    first, second, asked = spoken("The hall is booked."), spoken("The boat is not."), {"role": "user", "content": "So?"}
    later = Summary(SUMMARY)
    prompt = Prompt.of([ASKED, first, second, asked]).summarised([ASKED, SUMMARY, second, asked], 2)
    assert [group.unshortened for group in prompt.transcript.groups] == [(), (first,), (), ()]
    again = prompt.summarised([ASKED, later, asked], 1)
    assert [group.unshortened for group in again.transcript.groups] == [(), (first, second), ()]

    chain = Chain.of("", "writer", [ASKED, first, second, asked])
    items = items_of([ASKED, first, second, asked], chain)
    found = Prompt(recalled(items, chain.keys[2], [ASKED, later]))
    assert [group.unshortened for group in found.transcript.groups] == [(), (first, second), ()]


def test_a_summary_of_which_nothing_is_known_is_no_message_of_anybody() -> None:
    """What it says is carried from its text; its frame is never quoted as if a person had written it."""
    first, asked = spoken("The hall is booked."), {"role": "user", "content": "So?"}
    begun = Prompt.of([ASKED, Summary(SUMMARY), first, asked])
    again = begun.summarised([ASKED, Summary(SUMMARY), asked], 1)
    assert [group.unshortened for group in again.transcript.groups] == [(), (first,), ()]


def test_system_messages_keep_their_places_where_the_messages_around_them_stay() -> None:
    """What came in the middle stands there in the next turn too, beside masks; a compaction puts it first."""
    rules, hint = {"role": "system", "content": "Be brief."}, {"role": "system", "content": "It is late."}
    calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    call, result = spoken("") | {"tool_calls": calls}, {"role": "tool", "tool_call_id": "a", "content": "A boat. " * 40}
    stub = {**result, "content": "[tool output trimmed; ref=abcdefghjkmn; look; 320 characters: A boat.]"}
    told, asked = spoken("It is a boat."), {"role": "user", "content": "So?"}
    said = [rules, ASKED, hint, call, result, told, asked]
    chain = Chain.of("", "writer", said)
    items = items_of(said, chain)
    begun = Prompt(items, items)

    masked = begun.shortened([rules, ASKED, hint, call, stub, told, asked])
    key, kept = masked.entry()
    assert (key, kept) == (chain.keys[2], [ASKED, call, stub])  # what follows stays the client's
    assert Prompt(recalled(items, key, kept)).messages == masked.messages

    summed = [ASKED, Summary(SUMMARY), told, asked]
    assert Prompt(recalled(items, chain.keys[-1], summed)).messages == [rules, hint, *summed]
