"""The history of a turn: what the model gets of it when an answer is stopped, compacted around and goes on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.agents.turn.history import CONTINUE, LEAST_PIECE, History, pieces_of
from elbowroom.context.transcript import Message

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


def compact(history: History, kept: int) -> str:
    """Compact all but the last `kept` messages into a summary; return the answer's text that went into it."""
    messages = history.messages
    gone = messages[: max(0, len(messages) - kept)]
    history.replace([SUMMARY, *messages[len(gone) :]], len(messages) - len(gone))
    return "".join(message["content"] for message in gone if message["role"] == "assistant")


@given(st.text() | SENTENCES.map(lambda sentences: "".join(sentences * 20)), st.integers(0, 1000))
def test_pieces_together_are_the_text(text: str, length: int) -> None:
    """Pieces joined are the text, and none but an only one is shorter than the least length."""
    pieces = pieces_of(text, length)
    assert "".join(pieces) == text
    assert all(len(piece) >= LEAST_PIECE for piece in pieces) or pieces == [text]


def test_text_without_sentences_is_cut_at_words() -> None:
    """No piece is much longer than twice the length, though nothing but blanks, or not even these, divide it."""
    for text, end in (("harbour " * 2000, " "), ("x" * 20_000, "x")):
        pieces = pieces_of(text, 500)
        assert "".join(pieces) == text
        assert all(len(piece) <= 1100 and piece.endswith(end) for piece in pieces)


def test_pieces_have_about_the_length_that_is_asked_for() -> None:
    """Every piece but the last ends where a sentence does, at the first such place behind the length."""
    sentence = "The boat left the harbour at noon. "
    pieces = pieces_of(sentence * 100, 500)
    assert len(pieces) > 3
    assert all(500 <= len(piece) < 500 + len(sentence) for piece in pieces[:-1])
    assert all(piece.startswith("The boat") for piece in pieces)


def test_each_step_adds_what_is_new() -> None:
    """Messages of the run follow those of the client, each once, however often the whole is handed over."""
    history = History([ASKED])
    history.extend_to([])
    assert history.messages == [ASKED]
    history.extend_to([CALL, RESULT])
    history.extend_to([CALL, RESULT])
    history.extend_to([CALL, RESULT, spoken("It is high.")])
    assert history.messages == [ASKED, CALL, RESULT, spoken("It is high.")]


def test_what_is_compacted_stays_compacted() -> None:
    """Later steps go on behind a compaction; the client's own messages are not there again."""
    history = History([ASKED])
    history.extend_to([CALL, RESULT])
    history.replace([SUMMARY, CALL, RESULT], 2)
    later = {**CALL, "content": "Once more."}
    history.extend_to([CALL, RESULT, later, RESULT])
    assert history.messages == [SUMMARY, CALL, RESULT, later, RESULT]


def test_a_run_that_rewrote_its_messages_is_believed() -> None:
    """Where messages of earlier steps have changed, the conversation is the client's with the changed ones."""
    history = History([ASKED])
    history.extend_to([CALL, RESULT])
    history.replace([SUMMARY], 0)
    rewritten = [CALL, {**RESULT, "content": "(seen)"}]
    history.extend_to(rewritten)
    assert history.messages == [ASKED, *rewritten]
    history.extend_to([])
    assert history.messages == [ASKED]


def test_the_callers_messages_stay_as_they_are() -> None:
    """Lists and messages that were handed over are never changed."""
    client, run = [ASKED], [dict(CALL), dict(RESULT)]
    history = History(client)
    history.extend_to(run)
    history.stop_at("A beginning. " * 60, 200)
    history.replace([SUMMARY, *history.messages[-1:]], 1)
    history.joined(history.messages)
    run.append(spoken("more"))
    history.extend_to(run)
    assert client == [ASKED]
    assert run == [CALL, RESULT, spoken("more")]


def test_a_stopped_answer_is_one_message_with_an_order_behind_it() -> None:
    """The model sees its words whole and is told to go on; a compaction sees them in pieces."""
    said = "The boat left. " * 100
    history = History([ASKED])
    assert not history.is_stopped
    history.stop_at(said, 300)
    assert history.is_stopped
    assert len(history.messages) > 3
    assert history.joined(history.messages) == [ASKED, spoken(said)]
    assert history.sent(history.messages) == [ASKED, spoken(said), ORDER]


@given(growing_answers(), st.data())
def test_no_text_of_an_answer_is_lost_or_told_twice(parts: list[str], data: st.DataObject) -> None:
    """However often an answer is stopped and its head taken into summaries, these and the rest are the answer.

    At each stop the model reads all of it but what summaries hold; the same is so for the step that comes after.
    """
    history = History([ASKED])
    said = summarised = ""
    for part in parts:
        said += part
        history.stop_at(said, data.draw(st.integers(0, 400)))
        assert summarised + _words(history) == said
        summarised += compact(history, data.draw(st.integers(0, len(history.messages))))
        assert summarised + _words(history) == said
        assert sum(message["role"] == "assistant" for message in history.joined(history.messages)) <= 1
    history.extend_to([{**CALL, "content": said}, RESULT])
    assert summarised + _words(history) == said
    assert [message["role"] for message in history.messages[-2:]] == ["assistant", "tool"]
    assert not history.is_stopped


def test_equal_pieces_are_told_apart() -> None:
    """An answer that says the same again and again keeps as much of its end as the compaction left."""
    said = "The boat left the harbour. " * 100
    history = History([ASKED])
    history.stop_at(said, 270)
    gone = compact(history, 3)
    assert 0 < len(gone) < len(said)
    assert gone + _words(history) == said


def test_the_next_steps_answer_is_whole() -> None:
    """Only the answer that was compacted loses its beginning, not the one of the step behind it."""
    said = "".join(f"{number} boats left. " for number in range(100))
    history = History([ASKED])
    history.stop_at(said, 300)
    gone = compact(history, 1)
    first = [{**CALL, "content": said}, RESULT]
    history.extend_to(first)
    history.extend_to([*first, {**CALL, "content": said}, RESULT])
    told = [message["content"] for message in history.messages if message["role"] == "assistant"]
    assert gone
    assert told == [said.removeprefix(gone), said]


def test_results_that_were_shortened_take_the_place_of_whole_ones() -> None:
    """Without a stopped answer, what is handed over is the conversation."""
    history = History([ASKED])
    history.extend_to([CALL, RESULT])
    shortened = [ASKED, CALL, {**RESULT, "content": "..."}]
    history.shorten(shortened)
    assert history.messages == shortened


def test_thoughts_are_handed_back_before_a_word_is_said() -> None:
    """The last thoughts stand in the order to go on; the history itself holds nothing of them."""
    history = History([ASKED])
    history.stop_thinking("Perhaps a story about boats?")
    assert history.is_stopped
    assert history.messages == [ASKED]
    *before, order = history.sent(history.messages)
    assert before == [ASKED]
    assert order["role"] == "user"
    assert "<thoughts>\nPerhaps a story about boats?\n</thoughts>" in order["content"]
    history.extend_to([])
    assert history.sent(history.messages) == [ASKED]


@pytest.mark.parametrize("thoughts", ["{curly} 100 % {0}", "a\n\nb", "\\ $1"])
def test_thoughts_are_taken_at_their_word(thoughts: str) -> None:
    """Nothing in a thought is taken for a place to fill in."""
    history = History([ASKED])
    history.stop_thinking(thoughts)
    assert thoughts in history.sent([])[0]["content"]


@pytest.mark.parametrize("thoughts", ["", " \n"])
def test_without_thoughts_the_model_is_asked_anew(thoughts: str) -> None:
    """Where nothing has been thought there is nothing to take up."""
    history = History([ASKED])
    history.stop_thinking(thoughts)
    assert not history.is_stopped
    assert history.sent(history.messages) == [ASKED]


def test_words_after_thoughts_replace_the_order_to_think_on() -> None:
    """Once the answer has begun, the model is told to continue that, and nothing else."""
    history = History([ASKED])
    history.stop_thinking("A story.")
    history.stop_at("Once upon a time", 100)
    assert history.sent(history.messages) == [ASKED, spoken("Once upon a time"), ORDER]


def test_a_message_that_the_client_began_is_continued_in_one() -> None:
    """Where the client ends with words of the assistant, what the model has added is one message with them."""
    begun = {**spoken("Once upon"), "name": "teller"}
    said = " a time there was a boat. " * 40
    history = History([ASKED, begun])
    history.stop_at(said, 200)
    whole = {**begun, "content": f"Once upon{said}"}
    assert history.joined(history.messages) == [ASKED, whole]
    assert history.sent(history.messages) == [ASKED, whole, ORDER]
    assert begun["content"] == "Once upon"


@pytest.mark.parametrize("last", [CALL, {"role": "assistant", "content": None}, {"role": "assistant", "content": []}])
def test_words_are_not_added_to_what_is_no_plain_text(last: Message) -> None:
    """Behind a message with calls or with parts a stopped answer stands alone."""
    history = History([ASKED, last])
    history.stop_at("Once", 100)
    assert history.joined(history.messages) == [ASKED, last, spoken("Once")]


def test_two_messages_of_the_client_stay_two() -> None:
    """Messages of the client are never joined, even where a stopped answer says the very same."""
    history = History([spoken("One. "), spoken("Two. "), ASKED])
    history.stop_at("Two. ", 100)
    assert history.joined(history.messages) == [spoken("One. "), spoken("Two. "), ASKED, spoken("Two. ")]


def _words(history: History) -> str:
    """Return what the history holds of the assistant's words."""
    return "".join(message["content"] for message in history.joined(history.messages) if message["role"] == "assistant")


def test_a_reply_that_is_there_already_or_says_nothing_is_not_added() -> None:
    """The step behind a call with its result was lost before its first word: nothing stands twice, nothing empty."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "look"}}]}
    result = {"role": "tool", "tool_call_id": "a", "content": "A boat."}
    history = History([{"role": "user", "content": "Look."}])
    assert history.followed_by(call).messages == [*history.messages, call]
    history.extend_to([call, result])
    for reply in (call, {**call, "content": ""}, {"role": "assistant", "content": ""}):
        assert history.followed_by(reply).messages == history.messages
        assert history.followed_by(reply).of_client == history.of_client
