"""Where an answer may be cut, how its continuation is joined to it, and the notices that come out of it again."""

import copy
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.seam import MARK, Continuation, StopFinder, notice_line, without_notices

ENGLISH = """\
The harbour was quiet that morning, and Dr. Ellis, who had slept badly, counted 3.5 boats. "Is that all?" she asked.

## What the tide left

1. A rope of about 14 metres, e.g. for the ferry.
2. Two bottles; one said "Bergen, 1987" on its label!
3. Nothing else...

Later, at approx. noon, they walked back. Mr. Okafor carried the rope (it was wet). He said: never again.
"""
GERMAN = """\
Am 5. Mai fuhr Frau Weiß nach Köln, z.B. um dort den Dom zu sehen. Der Zug hatte 45 Minuten Verspätung!
Was tun? Sie las, bis es dunkel wurde, in einem Buch über Bienen; usw. ging die Fahrt dahin.

„Endlich“, rief der Schaffner. Niemand antwortete ihm… Dann hielt der Zug auf freier Strecke.
"""
JAPANESE = """\
昨日は雨が降っていた。駅まで歩いて、電車に乗った！「どこへ行くの？」と彼女が聞いた。私は黙って窓の外を見た。
海が見えた。白い船が三隻、ゆっくりと沖へ出ていくところだった。

春になったら、また来よう。そう思いながら、私は目を閉じた。
"""
CODE = """\
Here is the function:

```python
def area(radius: float) -> float:
    # Half. Of the truth.
    return 3.14159 * radius**2


print(area(2.5))
```

Call it with a number. It returns the area. Anything else raises TypeError.
"""
TEXTS = {"english": ENGLISH, "german": GERMAN, "japanese": JAPANESE, "code": CODE}


def pieces(text: str, rng: random.Random, longest: int = 9) -> Iterator[str]:
    """Yield a text in deltas of random lengths."""
    start = 0
    while start < len(text):
        end = start + rng.randint(1, longest)
        yield text[start:end]
        start = end


def joined(said: str, new: str, deltas: list[str] | None = None) -> str:
    """Return a said text with its continuation, fed in the given deltas or character by character."""
    continuation = Continuation(said)
    parts = [continuation.feed(delta) for delta in (list(new) if deltas is None else deltas)]
    return said + "".join(parts) + continuation.end()


def stops(text: str) -> list[str]:
    """Return the pieces between good places."""
    places = [0, *StopFinder().places(text), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places) if end > start]


def test_sentences_and_lines_are_good_places() -> None:
    """An answer may be cut behind a line end and before a new sentence, with the space between on the left."""
    assert stops('He came. "Why?" she asked. (Nobody knew.) Then\nnothing!  End') == [
        *("He came. ", '"Why?" she asked. ', "(Nobody knew.) ", "Then\n", "nothing!  ", "End")
    ]


NO_SENTENCE_ENDS = [
    *("See e.g. Berlin", "i.e. The one", "Dr. Ellis", "at approx. 12", "J. R. Tolkien", "the U.S. Navy", "vs. Us"),
    *("z.B. Köln", "am 5. Mai", "bzw. Wien", "1. First", "  12. Twelfth", "3.14", "v1.2.3", "a.py is", "No. 5"),
    *(
        "wait... and see",
        "yes! and no",
        "file.txt",
        "10.000 Euro",
        "Yahoo! is",
        "etc. )",
        "今日は、いい",
        "Hello.",
        "Hi. ",
    ),
]


def test_what_is_no_sentence_end() -> None:
    """Abbreviations, initials, ordinals, list numbers, decimals and file names; nor an end that nothing follows yet."""
    for text in NO_SENTENCE_ENDS:
        assert StopFinder().places(text) == [], text


def test_sentence_ends_of_chinese_and_japanese() -> None:
    """They need no space behind them; a closing quote belongs to the sentence before it."""
    assert stops("雨が降った。「どこ？」と聞いた！行こう。好。") == [
        "雨が降った。",
        "「どこ？」",
        "と聞いた！",
        "行こう。",
        "好。",
    ]


def test_years_and_marks_in_bold_end_sentences() -> None:
    """A number of three digits and more is no ordinal."""
    assert stops("It was 1987. **Then it rained.** Now") == ["It was 1987. ", "**Then it rained.** ", "Now"]


def test_in_a_code_fence_only_lines_count() -> None:
    """A comment's full stop is no place to cut; behind the fence sentences count again."""
    parts = stops(CODE)
    assert "    # Half. Of the truth.\n" in parts
    assert parts[-3:] == ["Call it with a number. ", "It returns the area. ", "Anything else raises TypeError.\n"]
    assert stops("~~~~\n```\na. B\n```\nc. D\n~~~~\ne. F and. G") == [
        *("~~~~\n", "```\n", "a. B\n", "```\n", "c. D\n", "~~~~\n", "e. F and. ", "G")
    ]
    assert stops("```inline``` code\nOne. Two") == ["```inline``` code\n", "One. ", "Two"]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_places_do_not_depend_on_the_deltas(text: str) -> None:
    """However the answer comes in, the same places are found."""
    for seed in range(30):
        finder, seen, found = StopFinder(), 0, []
        for delta in pieces(text, random.Random(seed)):
            found += [seen + place for place in finder.places(delta)]
            seen += len(delta)
        assert found == StopFinder().places(text)


def test_finder_takes_up_an_answer_in_the_middle() -> None:
    """It knows from what was said that a code fence is open."""
    finder = StopFinder("Look:\n```\nx = 1")
    assert finder.feed(" # Yes. No") is None
    assert finder.feed("\n\n\ny") == 3  # blank lines stay together
    assert finder.feed(" = 2\n```\nSo.") == 5
    assert finder.feed(" And") == 1  # the space has to be said, or words would stick together
    finder = StopFinder("It ended. ")
    assert finder.feed("Then") == 0


@given(st.text(alphabet="Ab .!?\n`~。」1e", max_size=200))
def test_good_places_lie_in_the_text(text: str) -> None:
    """Every place is within the text, in order."""
    places = StopFinder().places(text)
    assert places == sorted(set(places))
    assert all(0 < place <= len(text) for place in places)


@pytest.mark.parametrize("unit", [".", " ", "a. ", "。", "`", "\n", "x", "```\n", '."', "1. ", "!\t"])
def test_finding_places_takes_linear_time(unit: str) -> None:
    """A quarter of a megabyte of anything is read well within the test's time limit."""
    assert all(0 < place <= 250_000 for place in StopFinder().places(unit * (250_000 // len(unit))))


def test_texts_repeat_nothing() -> None:
    """The texts that are cut below hold no run of 12 characters twice, so that every join has one right answer."""
    for text in TEXTS.values():
        runs = [text[start : start + 12] for start in range(len(text) - 11)]
        assert len(set(runs)) == len(runs)


def test_thousand_random_cuts_leave_no_seam() -> None:
    """M8: with a repetition of 12 characters or more, or none, nothing is missing and nothing doubled."""
    for seed in range(1000):
        rng = random.Random(seed)
        text = rng.choice(list(TEXTS.values()))
        cut = rng.randint(1, len(text) - 1)
        overlap = rng.choice([0, rng.randint(12, 40), rng.randint(12, 300), 12])
        new = text[max(0, cut - overlap) if cut >= 12 else cut :]
        deltas = list(pieces(new, rng, rng.choice([1, 5, 40, 1000])))
        assert joined(text[:cut], new, deltas) == text, f"seed {seed}"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_joint_at_every_place_with_every_short_repetition(text: str) -> None:
    """A repetition below 12 characters may be chance and stays; from 12 on it goes, wherever white space lies."""
    for cut in range(12, len(text)):
        for overlap in (0, 5, 11, 12, 13, 20):
            if overlap <= cut:
                kept = overlap if overlap < 12 else 0
                assert joined(text[:cut], text[cut - overlap :]) == text[:cut] + text[cut - kept :]


@pytest.mark.parametrize("limit", [1, 7, 160, 161, 600])
def test_answer_that_only_repeats_adds_nothing(limit: int) -> None:
    """A continuation that stops within what had been said, at its end, is dropped whole; else it stays."""
    assert joined(ENGLISH, ENGLISH[-max(12, limit) :]) == ENGLISH
    assert joined("One two three four five six", "two three four") == "One two three four five sixtwo three four"


@pytest.mark.parametrize(
    ("said", "new", "whole"),
    [
        ("and compacts the context when", "  compacts the context when it", "and compacts the context when it"),
        ("and compacts the context when \n", "compacts the context when it", "and compacts the context when \nit"),
        ("and compacts the context.\n\n", "compacts the context.\nIt", "and compacts the context.\n\nIt"),
        ("and compacts the context. ", "compacts the context.\n\nIt", "and compacts the context. \n\nIt"),
        ("and compacts the context.", "\n\ncompacts the context.\n\nIt", "and compacts the context.\n\nIt"),
        ("and compacts", " the context", "and compacts the context"),
        ("and compacts ", "the context", "and compacts the context"),
        ("", "\n Hello", "\n Hello"),
        ("Hello", "", "Hello"),
        ("Hello", " \n", "Hello \n"),
    ],
)
def test_white_space_at_the_joint(said: str, new: str, whole: str) -> None:
    """It hides no repetition and is not doubled; without a repetition nothing of it is touched."""
    assert joined(said, new) == whole
    assert joined(said, new, [new]) == whole


def test_repetition_longer_than_a_held_piece_is_found_whole() -> None:
    """A model that says its last paragraph again is held back until that paragraph ends."""
    assert joined(ENGLISH, ENGLISH[-450:] + "The end.") == ENGLISH + "The end."


def test_nothing_is_held_back_longer_than_it_may_be_a_repetition() -> None:
    """The first character that what was said does not hold lets everything pass, and then each delta at once."""
    continuation = Continuation("and compacts the context when")
    assert continuation.feed("Q") == "Q"
    assert [continuation.feed(delta) for delta in ("comp", "acts ", "the context when")] == [
        *("comp", "acts ", "the context when")
    ]
    assert continuation.end() == ""


@pytest.mark.parametrize("row", ["0, 0, 0, 0, 0, 0\n", '  "value": null,\n', "The bell rang. The bell rang.\n"])
def test_rows_that_are_all_the_same_stay(row: str) -> None:
    """Where the answer itself has said the same several times, the next time is no repetition of the model."""
    for count in (2, 3, 7):
        assert joined(f"Rows:\n{row * count}", f"{row}End.") == f"Rows:\n{row * (count + 1)}End."


def test_only_the_first_repetition_is_dropped() -> None:
    """Behind the joint the text may repeat itself as it likes."""
    said = "refrain: la la la la la, oh"
    assert joined(said, said + "!\n" + said) == said + "!\n" + said


@pytest.mark.parametrize(
    "preamble",
    ["Sure, continuing:\n", "Certainly! Here is the rest of the text:\n\n", "Continuing from where I left off:\n\n"],
)
def test_preamble_is_dropped_only_with_a_repetition_behind_it(preamble: str) -> None:
    """What the repetition proves to be no part of the answer goes; without that proof it stays."""
    said, rest = ENGLISH[:200], ENGLISH[200:]
    assert joined(said, preamble + ENGLISH[160:]) == ENGLISH
    assert joined(said, preamble + rest) == said + preamble + rest
    assert joined(said, preamble) == said + preamble


@pytest.mark.parametrize(
    "text", ["Sure", "Here is a poem", "Of course not. " * 30, "Continuing rain\nfor a week: " * 9]
)
def test_words_that_only_look_like_a_preamble_stay(text: str) -> None:
    """Real text is never eaten."""
    assert joined(ENGLISH, text) == ENGLISH + text


@given(
    st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60), st.randoms(use_true_random=False)
)
def test_what_is_dropped_has_been_said(said: str, new: str, rng: random.Random) -> None:
    """Whatever comes: only a beginning is dropped, what is dropped was said, and deltas do not matter."""
    whole = joined(said, new)
    assert whole == joined(said, new, list(pieces(new, rng)))
    assert whole == joined(said, new, [new])
    rest = whole[len(said) :]
    assert new.endswith(rest)
    dropped = new.removesuffix(rest).split()
    assert "".join(dropped) == "" or "".join(said.split()).endswith("".join(dropped))


@given(st.text(min_size=1, max_size=200), st.text(max_size=200))
def test_short_texts_without_repetition_pass_untouched(said: str, new: str) -> None:
    """Where no run of 12 characters of the new text was said before, not one character changes."""
    runs = {new[start : start + 4] for start in range(len(new))}
    if not any(len(run) == 4 and run in said for run in runs):
        assert joined(said, new) == said + new


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


@pytest.mark.threat("forged notices, summaries and references", "words that look like a notice stay")
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


BEGINNING = "The ferry leaves the harbour at noon, with a band on board."
ANSWER = BEGINNING + "".join(f"\nOn day {day} it carried {day * 7} people over the water." for day in range(60))


@pytest.mark.parametrize("lead", ["", "\n\n", "Sure, continuing where I left off:\n"])
@pytest.mark.parametrize("longest", [1, 9, 200])
def test_answer_that_is_begun_anew_is_noticed_and_not_passed_on(lead: str, longest: int) -> None:
    """Its first words are enough, whatever the deltas; nothing of them comes through."""
    continuation = Continuation(ANSWER)
    given = ""
    for delta in pieces(lead + ANSWER, random.Random(longest), longest):
        given += delta
        assert continuation.feed(delta) == ""
        if continuation.begins_anew:
            break
    assert continuation.begins_anew
    assert len(given) <= len(lead) + 48 + longest


def test_what_only_begins_like_the_answer_is_passed_on() -> None:
    """A few equal words prove nothing, nor does a beginning that is said again in the answer itself."""
    for said, new in (
        (ANSWER, "The ferry leaves the harbour at one."),
        (ANSWER, "The ferry"),
        (f"{ANSWER}\n{BEGINNING}\nIt rains.", f"\n{BEGINNING}\nAnd again."),
    ):
        assert joined(said, new) == said + new
