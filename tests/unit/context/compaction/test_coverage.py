"""What code quotes of a removed part: what adds most rare words for its tokens, whoever wrote it."""

from itertools import product

import pytest
from compacting import chosen, said, used

from elbowroom.context.compaction.coverage import Coverage, quoted, sentences_of, words_of
from elbowroom.context.compaction.division import summary_message
from elbowroom.context.divisible import divided
from elbowroom.context.transcript import Group, Summary, Transcript, messages_of

CHAT = (
    "the deploy went fine and the checks passed again",
    "the deploy went fine and the checks passed again",
    "btw our codename is ESZYC-417, keep it off the slides",
    "the deploy went fine and the checks failed once",
)


def groups_of(*texts: str, role: str = "user") -> tuple[Group, ...]:
    """Return a group for each text."""
    return Transcript.of([said(role, text) for text in texts]).groups


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Its port: 8080, (see https://a.example/x.)", {"its", "port", "8080", "see", "https", "//a.example/x"}),
        ("締切は3月", {"締切", "切は", "3", "月"}),
        ("Срок — 5 мая", {"срок", "—", "5", "мая"}),
        ("", set()),
        ("-- A._b. ... *c-d*, e_ 'f'", {"a._b", "c-d", "e", "f"}),
        ("-- Ä._b. ... *c-d*, e_ „f“", {"ä._b", "c-d", "e", "f"}),
    ],
)
def test_words(text: str, words: set[str]) -> None:
    """Words in small letters; of scripts without spaces each two letters in a row."""
    assert words_of(text) == words


def test_a_date_with_an_ordinal_number_stays_whole() -> None:
    """The stop after a day ends no sentence: a quotation says what is on which day."""
    assert sentences_of("Abgenommen wird am 3. Oktober. Gut! Bis 5. Mai um 21:50. Ja") == [
        "Abgenommen wird am 3. Oktober.",
        "Gut!",
        "Bis 5. Mai um 21:50.",
        "Ja",
    ]


def test_what_is_said_once_comes_before_what_is_said_again_and_again() -> None:
    """In a room for one line the line with the rarest words stays."""
    lines = quoted(groups_of(*CHAT), len, 60)
    assert lines == ["- btw our codename is ESZYC-417, keep it off the slides"]


def test_order_and_room() -> None:
    """Lines stand in the order in which they were said, each once, within the room."""
    lines = quoted(groups_of(*CHAT), len, 200)
    assert lines == [f"- {CHAT[0]}", f"- {CHAT[2]}", f"- {CHAT[3]}"] or lines == [f"- {text}" for text in CHAT[1:]]
    assert quoted(groups_of(*CHAT), len, 20) == []


def test_what_stays_anyway_is_not_quoted() -> None:
    """Words that stand in the prompt already add nothing, nor does a sentence of the user that stands there whole."""
    groups = groups_of(*CHAT)
    assert chosen(groups, "; ".join(CHAT[1:])) == []
    assert chosen(groups, "; ".join(CHAT), for_user=1000) == []
    assert [unit.text for unit in chosen(groups[:3], staying=groups[3:], for_user=1000)] == [
        CHAT[0],
        CHAT[2],
    ]


def test_the_users_words_come_before_those_of_others() -> None:
    """The same words weigh more in the user's mouth; who else speaks is named."""
    groups = (*groups_of("alpha beta gamma delta", role="assistant"), *groups_of("epsilon zeta theta iota"))
    assert quoted(groups, len, 30) == ["- epsilon zeta theta iota"]
    assert quoted(groups, len, 100) == ["- Assistant: alpha beta gamma delta", "- epsilon zeta theta iota"]


def test_calls_and_results_are_quoted_by_their_names() -> None:
    """A call stands with its arguments, and no result passes for words of the user."""
    groups = Transcript.of(used("read_file", {"path": "src/a.py"}, "MAX_ROWS = 417", "c1")).groups
    assert quoted(groups, len, 200) == ['- Call: read_file {"path": "src/a.py"}', "- Tool: MAX_ROWS = 417"]


def test_lines_of_an_earlier_summary_compete_as_they_stand() -> None:
    """A second compaction leaves the lines byte for byte, with their headings."""
    text = summary_message("Be brief.", "", ["- The hall is booked.", "- Tool: 12 seats"], "done")
    groups = (Group((Summary(role="user", content=text),)), *groups_of("And the boat?"))
    units = chosen(groups)
    assert [(unit.heading, unit.line, unit.speaker) for unit in units] == [
        ("What must hold", "Be brief.", "summary"),
        ("Word for word", "- The hall is booked.", "user"),
        ("Word for word", "- Tool: 12 seats", "tool"),
        ("", "- And the boat?", "user"),
    ]


def test_a_text_without_end_is_read_at_both_ends() -> None:
    """Hostile lengths cost bounded time: no spaces, one line, nothing but marks."""
    for text in ("x" * 200_000, "a " * 200_000, "." * 200_000, "- \n" * 100_000):
        assert sum(map(len, quoted(groups_of(text), len, 1000))) <= 1000


def test_shortened_results_are_quoted_from_the_whole_ones() -> None:
    """What a tool told may be quoted though a line stands for it in the prompt by now."""
    [group] = Transcript.of(used("read_file", {"path": "src/a.py"}, "MAX_ROWS = 417", "c1")).groups
    stub = {**group.messages[1], "content": "[tool output trimmed; ref=abcdefghjkmn]"}
    shortened = Group((group.messages[0], stub), unshortened=group.messages)
    assert quoted([shortened], len, 200) == ['- Call: read_file {"path": "src/a.py"}', "- Tool: MAX_ROWS = 417"]


def test_what_came_back_unasked_is_nothing_that_the_user_said() -> None:
    """The note at the end of a message is left out."""
    group = Group(
        (said("user", "And the boat?\n\n<earlier>\nThe hall is booked.\n</earlier>"),),
        note="\n\n<earlier>\nThe hall is booked.\n</earlier>",
    )
    assert quoted([group], len, 200) == ["- And the boat?"]


def test_the_note_in_a_divided_message_is_nothing_that_the_user_said() -> None:
    """What stays of a message is quoted as the user's, and not the note on how much of it is left out."""
    parts = divided(said("user", "\n".join(f"Boat {number} is at pier {number * 7}." for number in range(90))), 300)
    assert parts is not None
    lines = quoted([Group((parts.shown,))], len, 4000)
    assert "- Boat 0 is at pier 0." in lines
    assert not [line for line in lines if "left out" in line]


def test_a_line_of_a_log_weighs_less_than_a_sentence_of_its_own() -> None:
    """Lines that differ in their figures alone are worth less, each, the more of them there are."""
    log = [f"row {number} took {number * 7} ms" for number in range(100, 140)]
    lines = quoted(groups_of(*log, "the key is under pot 4417", *log, role="tool"), len, 60)
    assert "- Tool: the key is under pot 4417" in lines


def test_a_line_of_a_log_weighs_less_whoever_says_it() -> None:
    """A line that a person has pasted out of a log counts among those that a tool has shown."""
    log = [f"row {number} took {number * 7} ms" for number in range(100, 140)]
    [pasted] = groups_of("row 417 took 2919 ms and then it stopped", role="user")
    other = groups_of(*(f"{line} and then it stopped" for line in log), role="tool")
    lines = quoted((*other, pasted, *groups_of("the key is under pot 4417", role="assistant")), len, 45)
    assert lines == ["- Assistant: the key is under pot 4417"]


def test_names_that_nobody_else_says_make_no_line_of_a_log_worth_more() -> None:
    """Lines that differ from many in their names and figures alone leave room to one of a form of its own."""
    names = ("".join(pair) for pair in product(("tuz", "kap", "lbn", "sio", "web", "cfr"), repeat=2))
    log = [f"{name} queue {1009 * at % 9973} deep" for at, name in enumerate(names, 1)]
    fact = "the canary gets 15 % of the traffic"
    talk = groups_of(*["what does the canary do", "is the traffic gone", "who gets the rest of it"] * 2)
    lines = quoted((*groups_of(*log[:18], fact, *log[18:], role="tool"), *talk), len, 200)
    assert f"- Tool: {fact}" in lines


def test_a_summary_is_chosen_anew_from_what_it_stands_for() -> None:
    """What was said again and again weighs little also where a summary has it once, and nothing it left out is gone."""
    usual = "the deploy went fine and the checks passed"
    said_before = (*groups_of(*[usual] * 9), *groups_of("btw our codename is ESZYC-417"))
    text = summary_message("Be brief.", "", [f"- {usual}"], "done")
    summary = Group((Summary(role="user", content=text),), unshortened=tuple(messages_of(said_before)))
    groups = (summary, *groups_of("And the boat?"))
    assert [(unit.line, unit.place is None) for unit in chosen(groups)] == [
        ("Be brief.", False),
        (f"- {usual}", False),
        ("- btw our codename is ESZYC-417", True),
        ("- And the boat?", True),
    ]
    assert "- btw our codename is ESZYC-417" in [unit.line for unit in chosen(groups, room=50)]
    assert Coverage(groups, len).lost(
        groups, [said("user", "And the boat?"), said("user", "our codename is ESZYC-417")]
    ) == (
        3,
        [usual],
    )


@pytest.mark.parametrize("room", range(30, 150, 8))
@pytest.mark.parametrize(
    "texts",
    [
        ("The budget for the hall is 878 euros.", "Budget of the hall: 390."),
        ("the van is booked at harbour rentals", "van is booked with a friend of mine now"),
        ("Срок сдачи отчёта 5 мая", "теперь срок сдачи отчёта 19 мая"),
        ("the van leaves at 7", "the van leaves at 7 no more, but at 9 from the depot"),
        ("協力者のページはこれです", "協力者のページが変わりました"),
    ],
)
def test_what_is_older_never_stands_without_what_is_newer(texts: tuple[str, str], room: int) -> None:
    """Of two sentences about the same that tell different things the newer comes first, in any room."""
    others = [f"{word} went on as on any other day" for word in ("alpha", "beta", "gamma", "delta", "epsilon")]
    lines = quoted(groups_of(texts[0], *others, texts[1], *others), len, room)
    assert f"- {texts[0]}" not in lines or f"- {texts[1]}" in lines


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
@pytest.mark.parametrize("room", range(20, 140, 8))
def test_what_a_summary_told_never_stands_without_what_anybody_said_later(role: str, room: int) -> None:
    """A summary tells what everybody said: whoever says something else of the same later comes first."""
    text = summary_message("price of a meter: 38.244", "", (), "done")
    others = [f"{word} went on as on any other day" for word in ("alpha", "beta", "gamma", "delta", "epsilon")]
    summary = Group((Summary(role="user", content=text),))
    groups = (summary, *groups_of("Price of a meter, mended: 53.679", *others, role=role))
    lines = [unit.line for unit in chosen(groups, room=room)]
    assert "price of a meter: 38.244" not in lines or any("53.679" in line for line in lines)


def test_what_looks_alike_and_is_true_stays_where_there_is_room() -> None:
    """No row of a table goes because another one comes after it."""
    rows = [f"room {number}: seats {number // 7}" for number in (101, 102, 103)]
    assert quoted(groups_of(*rows, "one more thing"), len, 200) == [f"- {text}" for text in (*rows, "one more thing")]


def test_few_texts_are_counted_for_many_lines() -> None:
    """As long as there is room for a token for each byte, lines are not counted one by one; the room is held to."""
    counted: list[str] = []

    def size(text: str) -> int:
        counted.append(text)
        return len(text) // 3

    lines = quoted(groups_of(*(f"alpha{number} beta{number} gamma{number}" for number in range(400))), size, 2000)
    told = len("".join(f"{line}\n" for line in lines)) // 3
    assert 1900 < told <= 2000
    assert len(counted) < len(lines) / 2


def test_what_stays_is_not_lost_whoever_says_it() -> None:
    """The user's words count as kept where any message has them; of a shortened result only what is left of it."""
    read = Transcript.of(used("read_file", {"path": "src/a.py"}, "the harbour opens at dawn", "c1")).groups[0]
    stub = {**read.messages[1], "content": "[tool output trimmed; ref=abcdefghjkmn]"}
    shortened = Group((read.messages[0], stub), unshortened=read.messages)
    asked = groups_of("the harbour opens at dawn")
    for tools, lost in ((read, []), (shortened, ["the harbour opens at dawn"])):
        groups = (*asked, *groups_of("something else"), tools)
        assert Coverage(groups, len).lost(asked, list(tools.messages)) == (1, lost)
