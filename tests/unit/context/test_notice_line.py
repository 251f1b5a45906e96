"""Notices as lines of an answer: they come out of the history again, and nothing else does."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.seam import MARK, notice_line, without_notices

ANSWERS = st.text(st.sampled_from("ab.* >\n\r\t`é灯") | st.characters(codec="utf-8")).filter(
    lambda text: MARK not in text
)
NOTICES = st.lists(st.text(), min_size=1, max_size=4)
QUOTED = f"You wrote:{notice_line('The history was compacted.')}What is that?"


def spoken(content: Any) -> dict[str, Any]:
    """Return a message of the assistant."""
    return {"role": "assistant", "content": content}


def kept_of(content: Any) -> Any:
    """Return what is left of an assistant's content."""
    [message] = without_notices([spoken(content)])
    return message["content"]


@given(ANSWERS, NOTICES, st.data())
def test_an_answer_comes_back_exactly(answer: str, notices: list[str], data: st.DataObject) -> None:
    """Wherever notices stand in an answer, in its middle, at its ends or side by side, the rest is the answer."""
    told = answer
    for place in sorted((data.draw(st.integers(0, len(answer))) for _ in notices), reverse=True):
        told = told[:place] + notice_line(notices[0]) + told[place:]
        notices = [*notices[1:], notices[0]]
    assert kept_of(told) == answer


@given(answer=ANSWERS, notice=st.text(), is_first=st.booleans())
def test_clients_may_trim_an_answer(answer: str, notice: str, *, is_first: bool) -> None:
    """A notice at the beginning or end is found too where a client has taken white space from around the answer."""
    told = notice_line(notice) + answer if is_first else answer + notice_line(notice)
    assert MARK not in kept_of(told.strip())
    assert kept_of(told.strip()).strip() == answer.strip()


@given(st.text())
def test_a_notice_is_one_line_of_its_own(text: str) -> None:
    """Whatever a notice says, it is a quotation of one line in italics, between blank lines."""
    line = notice_line(text)
    assert line.startswith(f"\n\n{MARK}")
    assert line.endswith("*\n\n")
    assert len(line.strip("\n").splitlines()) == 1
    assert line.count("*") == 2


def test_words_of_a_notice_are_kept() -> None:
    """A person reads the notice's words, on one line."""
    assert notice_line("Compacted:\n 9,000 to  4,000 tokens.") == (
        "\n\n> *elbowroom: Compacted: 9,000 to 4,000 tokens.*\n\n"
    )


@pytest.mark.parametrize("role", ["user", "system", "developer", "tool"])
def test_what_others_quote_is_left_alone(role: str) -> None:
    """Only the assistant's words are looked at: a person may quote a notice and ask what it means."""
    message = {"role": role, "content": QUOTED}
    [kept] = without_notices([message])
    assert kept is message
    assert kept["content"] == QUOTED


@pytest.mark.parametrize(
    "text",
    [
        "The line begins with `> *elbowroom: ` and ends with a star.",
        "    > *elbowroom: indented*\n\nand so on",
        "One\n> *elbowroom: no blank line before it*\n\nTwo",
        "One\n\n> *elbowroom: no end of the italics\n\nTwo",
        "One\n\n> *elbowroom: a text* that goes on\n\nTwo",
        "One\n\n> *another: program*\n\nTwo",
    ],
)
def test_what_only_looks_like_a_notice_stays(text: str) -> None:
    """The assistant's own words stay where they speak of notices, but are none."""
    assert kept_of(text) == text


def test_the_history_stays_whole() -> None:
    """Messages keep their order and all other fields; those without a notice are the same objects."""
    call = {**spoken(f"Looking{notice_line('Compacted.')} it up."), "tool_calls": [{"id": "1"}]}
    messages = [{"role": "user", "content": QUOTED}, call, spoken(None), spoken("Done.")]
    before = copy.deepcopy(messages)
    kept = without_notices(messages)
    assert kept == [messages[0], {**call, "content": "Looking it up."}, spoken(None), spoken("Done.")]
    assert all(kept[index] is messages[index] for index in (0, 2, 3))
    assert messages == before


def test_answers_in_parts_lose_their_notices_too() -> None:
    """Clients may send an answer back as parts: each text is looked at, and what is no text stays."""
    parts = [{"type": "text", "text": f"One{notice_line('Compacted.')}Two"}, {"type": "refusal", "refusal": "No."}]
    before = copy.deepcopy(parts)
    assert kept_of(parts) == [{"type": "text", "text": "OneTwo"}, parts[1]]
    assert parts == before


@pytest.mark.parametrize("parts", [[], ["text"], [{"type": "text"}], [{"type": "text", "text": "One"}]])
def test_parts_without_notices_stay(parts: list[Any]) -> None:
    """Parts of any form come through as they are."""
    assert kept_of(parts) == parts


def test_forged_notices_cost_no_time() -> None:
    """A megabyte of nested or endless notices is read in one pass; the test's time limit would not hold otherwise."""
    for unit in ("\n\n> *elbowroom: ", "\n\n> *elbowroom: a*", "\n\n> *elbowroom: a*\n\n", "> *elbowroom: a*\n"):
        kept_of(unit * (1_000_000 // len(unit)))


def test_notices_with_collapsed_blank_lines_come_out_too() -> None:
    """Clients that join blank lines send two notices with one between them."""
    assert kept_of("Text.\n\n> *elbowroom: a*\n\n> *elbowroom: b*\n\nMore") == "Text.More"
