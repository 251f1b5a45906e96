"""Material that comes again: which message has it, and what the others say."""

from typing import Any, TypeVar

import pytest

from elbowroom.context.effects import KeepText, Work
from elbowroom.context.outputs import note_on_whole, ref_to
from elbowroom.context.repeats import moved_to_last, without_repeats
from elbowroom.context.transcript import Message, text_of

T = TypeVar("T")
LOG, LIST = "The boat left at noon. " * 100, "Beans, frost in May. " * 100
LOG_REF, LIST_REF = ref_to("", LOG).id, ref_to("", LIST).id
VIEW = f"{LOG[:700]}\n\n{note_on_whole('log.md', 900, 500, LOG_REF, has_reader=False)}\n\n{LOG[-700:]}"


def done(work: Work[T]) -> T:
    """Carry work out that keeps texts."""
    answer: Any = None
    while True:
        try:
            effect = work.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        assert isinstance(effect, KeepText)
        answer = ref_to("", effect.text)


def said(*texts: str) -> list[Message]:
    """Return questions with these texts as files, each with an answer."""
    messages: list[Message] = [{"role": "system", "content": "You help."}]
    for text in texts:
        file = f'<source id="1" name="log.md">{text}</source>\n\n' if text else ""
        messages += [{"role": "user", "content": f"{file}Why?"}, {"role": "assistant", "content": "So."}]
    return messages


def shape(messages: list[Message] | None) -> str:
    """Return what each question has: the log, its view, the list, a note on either (small), or nothing."""
    forms = ((VIEW, "V"), (LOG, "L"), (LIST, "I"), (f"{LOG_REF}]", "l"), (f"{LIST_REF}]", "i"), ("", "-"))
    asked = [text_of(message) for message in messages or [] if message["role"] == "user"]
    assert all(text.endswith("Why?") for text in asked)
    return "".join(next(letter for form, letter in forms if form in text) for text in asked)


@pytest.mark.parametrize(
    ("texts", "has_views", "expected"),
    [
        ((LOG,), False, ""),
        ((LOG, LIST), False, ""),
        ((LOG, LOG), False, "Ll"),
        ((LOG, "", LOG, LOG), False, "L-ll"),
        ((LOG, LIST, LOG, LIST), False, "LIli"),
        ((VIEW, LOG), False, ""),
        ((VIEW, LOG), True, "Vl"),
        ((LOG, VIEW), True, ""),
        ((VIEW, LIST), True, ""),
        ((VIEW, VIEW), True, ""),
    ],
)
def test_the_first_message_keeps_its_text(texts: tuple[str, ...], has_views: bool, expected: str) -> None:
    """The others say that it has come; a view counts as its text only where it is said that it may."""
    messages = said(*texts)
    assert shape(done(without_repeats(messages, has_views=has_views, has_reader=False))) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((LOG, LIST), ""),
        ((LOG, LOG), "lL"),
        ((LOG, LOG, LOG), "llL"),
        ((VIEW, LOG, "", LOG), "ll-V"),
        ((LOG, LIST, LIST, LOG), "liIL"),
    ],
)
def test_before_a_compaction_the_last_has_it(texts: tuple[str, ...], expected: str) -> None:
    """The text and the last note change places, and nothing else; nothing moves where nothing was said again."""
    once = done(without_repeats(said(*texts), has_views=True, has_reader=True))
    assert shape(done(moved_to_last(once or said(*texts)))) == expected


def test_a_note_says_where_the_text_is() -> None:
    """It names it, and how the model and the person come to it."""
    once = done(without_repeats(said(LOG, LOG), has_views=False, has_reader=True))
    assert once is not None
    assert text_of(once[3]) == (
        f'<source id="1" name="log.md">[{len(LOG):,} characters of log.md are left out here: the same text has come in '
        f'another message of this conversation. To read it: tool_output_cache(ref_id="{LOG_REF}"). The user '
        f"can open it on this server: /v1/tool_outputs/{LOG_REF}]</source>\n\nWhy?"
    )
