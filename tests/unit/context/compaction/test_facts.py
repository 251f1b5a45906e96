"""Identifiers and conditions that a summary lost: found, each once, the user's own words first."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.compaction.division import SUMMARY_TAG
from elbowroom.context.compaction.facts import Held, facts_of, find_identifiers, lost
from elbowroom.context.compaction.facts.sentences import find_changes, find_conditions
from elbowroom.context.transcript import Group, Transcript

LOG = '2024-05-01 12:00:{:02d} INFO server.py: request id=8f3a{:04x} took 12.5 ms from 10.0.0.7:5123 status "ok"\n'


def user(text: str) -> Group:
    """Return a group of one user message."""
    return Group(({"role": "user", "content": text},))


def assistant(text: str) -> Group:
    """Return a group of one assistant message."""
    return Group(({"role": "assistant", "content": text},))


def tool(arguments: object, result: str) -> Group:
    """Return a call with its result."""
    calls = [{"id": "a", "function": {"name": "f", "arguments": arguments}}]
    messages: list[dict[str, object]] = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": result},
    ]
    return Transcript.of(messages).groups[0]


def lost_facts(removed: list[Group], remaining: str) -> list[str]:
    """Return the facts of removed groups that the remaining text does not tell, as they are listed."""
    facts = [fact for group in removed for fact in facts_of(group) if fact is not None]
    return [fact.text for fact in lost(facts, [Held([remaining])])]


def found(text: str) -> list[str]:
    """Return the identifiers in a text."""
    return [identifier.text for identifier in find_identifiers(text)]


IDENTIFIED = [
    ("See https://example.com/a/b?x=1#y. And", ["https://example.com/a/b?x=1#y"]),
    ("(http://127.0.0.1:1234/v1)", ["http://127.0.0.1:1234/v1"]),
    ("src/app/main.py, /etc/hosts and ./run.sh", ["src/app/main.py", "/etc/hosts", "./run.sh"]),
    ("in ~/vault/März/Übersicht.md too", ["~/vault/März/Übersicht.md"]),
    ("open C:\\Users\\dana\\My notes\\plan.md", ["C:\\Users\\dana\\My notes\\plan.md"]),
    ("both src/elbowroom/context and setup.cfg", ["src/elbowroom/context", "setup.cfg"]),
    ("notes like [[Daily note]] and #project/alpha", ["[[Daily note]]", "#project/alpha"]),
    ("dana.w@example.org or +49 30 1234567", ["dana.w@example.org", "+49 30 1234567"]),
    ("192.168.0.12:8080 and localhost:2345", ["192.168.0.12:8080", "localhost:2345"]),
    ("commit 9f8e7d6c", ["9f8e7d6c"]),
    ("123e4567-e89b-12d3-a456-426614174000", ["123e4567-e89b-12d3-a456-426614174000"]),
    ("v1.2.3, 3.11 and 2.0.1-rc1.", ["v1.2.3", "3.11", "2.0.1-rc1"]),
    ("ABC-123 sets MAX_TOKENS in plan_step()", ["ABC-123", "MAX_TOKENS", "plan_step()"]),
    ("getUserById of AgentContextManager, #42", ["getUserById", "AgentContextManager", "#42"]),
    ("qwen2.5-7b-instruct or llama-3.1-8b.", ["qwen2.5-7b-instruct", "llama-3.1-8b"]),
    ("4,500 euros, 1.234,56 €, $1,200.50", ["4,500 euros", "1.234,56 €", "$1,200.50"]),
    ("80 % of 15 GB at 14:30", ["80 %", "15 GB", "14:30"]),
    ("2024-05-01T10:22:33Z, 5. Mai 2024, May 5, 2024", ["2024-05-01T10:22:33Z", "5. Mai 2024", "May 5, 2024"]),
    ("12/05/2024 or 01.05.2024 or 3 May", ["12/05/2024", "01.05.2024", "3 May"]),
    (
        'the "Bluebird", “Red Kite”, „Blaumeise“, «Mésange»',
        ['"Bluebird"', "“Red Kite”", "„Blaumeise“", "«Mésange»"],
    ),
    ("run `npm install` for 'Tit'", ["`npm install`", "'Tit'"]),
    ("on 10.2.3.44:4610. Or 10.2.3.45.", ["10.2.3.44:4610", "10.2.3.45"]),
    ("10115 Berlin, 1987", ["10115", "1987"]),
    ("設定はconfig/app.yamlです。", ["設定はconfig/app.yaml"]),
    ("2024年5月1日に「青い鳥」を300円で3個買った。", ["2024年5月1日", "「青い鳥」", "300円", "3個"]),
    ("予算は150万円、会議は14:30から", ["150万円", "14:30"]),
    ("価格は1,500円、版はv1.2.3です", ["1,500", "v1.2.3"]),
]


def test_identifiers() -> None:
    """Paths, addresses, numbers, dates, versions, hashes, ids, names in quotes; German and Japanese ones too."""
    for text, identifiers in IDENTIFIED:
        assert found(text) == identifiers, text


@pytest.mark.parametrize(
    "text",
    [
        *("and/or, his/her, yes/no, input/output", "TCP/IP 24/7 km/h 50/50 1/2 w/o n/a", "</div> <br/>", "e.g. this"),
        *(
            "the state-of-the-art follow-up",
            "don't, isn't, we'll",
            "GitHub and JavaScript on an iPhone",
            "1st 2nd 10th",
        ),
        *(
            "We had 3 cats.",
            "# Heading",
            "deadbeef defaced",
            "X-ray",
            "A-B",
            "He came. She went.",
            "日本語の文章です。",
        ),
    ],
)
def test_ordinary_words_are_no_identifiers(text: str) -> None:
    """The list is short: nothing that a summary may say in other words."""
    assert found(text) == []


DEMANDED = [
    *("You must use tabs.", "Never delete a note.", "Don't touch main.py.", "Answer in at most 100 words."),
    *("Use only metric units.", "Make sure that it compiles.", "Deadline: Friday", "It has to be done by Friday."),
    *(
        "I'd prefer British spelling.",
        "Please don't rename it?",
        "From now on, call me Kim.",
        "No more than 3 files.",
    ),
    *(
        "Die Datei darf nicht gelöscht werden.",
        "Bitte nur auf Deutsch.",
        "Höchstens 5 Seiten.",
        "Ändere main.py nicht.",
    ),
    *("I am allergic to nuts.", "No new dependencies.", "Leave the drafts aside.", "Every change needs a test."),
    *(
        "Nobody works after ten.",
        "Keine neuen Abhängigkeiten.",
        "Jede Änderung braucht einen Test.",
        "妹には送らないこと。",
    ),
    *("Il faut garder le titre.", "Nunca uses tablas.", "Никогда не удаляй файлы.", "必ず敬語を使ってください。"),
    *("ファイルを消さないでください。", "不要修改标题。", "最多三页。", "절대 삭제하지 마세요."),
]


def test_conditions() -> None:
    """Sentences that say what must, must never, always, only or at most be, in several languages."""
    for text in DEMANDED:
        assert list(find_conditions(text)) == [text], text


@pytest.mark.parametrize(
    "text",
    [
        *("I don't know.", "We don't have it.", "Never mind.", "What must I do?", "How many are at most allowed?"),
        *(
            "Here is my file.",
            "Thanks, that works.",
            "Ich habe immer noch Fehler.",
            "Das weiß ich nicht.",
            "今日は雨です。",
        ),
        *("```\nif x: # must never happen\n```", "> You must never do that.", ""),
    ],
)
def test_what_sets_no_condition(text: str) -> None:
    """Statements, questions, code and quotations."""
    assert list(find_conditions(text)) == []


def test_condition_is_the_sentence_it_stands_in() -> None:
    """Its neighbours, list marks and line breaks are left out; abbreviations do not end it."""
    text = "Hello.\n- Write to Dr. Ellis,\n  and\n1. Always use e.g. Markdown or HTML. Thanks!"
    assert list(find_conditions(text)) == ["Always use e.g. Markdown or HTML."]
    assert list(find_conditions("好的。必须用蓝色。谢谢。")) == ["必须用蓝色。"]


def test_a_number_within_a_condition_is_no_mark_of_a_list() -> None:
    """A condition is quoted with its dates, and with the number that it ends with."""
    said = "Never later than 5. Mai 2027, and at most 500. Go on."
    assert list(find_conditions(said)) == ["Never later than 5. Mai 2027, and at most 500."]
    assert list(find_conditions("3. Never use tabs.")) == ["Never use tabs."]


def test_long_sentence_is_cut_around_its_mark() -> None:
    """A condition of any length is kept, the words around its mark."""
    (cut,) = find_conditions(f"{'so ' * 200}you must never use red {'and ' * 200}")
    assert "you must never use red" in cut
    assert len(cut) <= 250
    assert cut.startswith("… so")
    assert cut.endswith("and …")


def test_of_a_pasted_text_beginning_and_end_are_read() -> None:
    """The user speaks there; a thousand rules of a pasted page are not the user's."""
    text = "Never shorten this:\n" + "The page says you must pay.\n" * 2000 + "Answer in at most 50 words."
    constraints = list(find_conditions(text))
    assert constraints[0] == "Never shorten this:"
    assert constraints[-1] == "Answer in at most 50 words."


def test_lost_facts_come_in_order_of_who_said_them() -> None:
    """C30: conditions first, then the user's identifiers, the assistant's, those in calls, those in results."""
    removed = [
        tool(json.dumps({"path": "notes/in.md", "text": "5,000 words"}), "see /var/log/out.log, 12.5 ms"),
        assistant("I read draft.md."),
        user("The port is 2345. You must keep the name “Red Kite”."),
    ]
    assert lost_facts(removed, "") == [
        *("You must keep the name “Red Kite”.", "The port is 2345", "draft.md", "notes/in.md", "/var/log/out.log")
    ]


def test_figures_come_with_the_words_before_them() -> None:
    """A bare number would say nothing; the words stop at the border of a clause."""
    removed = [user("Hello, the budget of the trip is 4,500 euros, and we leave at 14:30.")]
    assert lost_facts(removed, "") == ["of the trip is 4,500 euros", "and we leave at 14:30"]


def test_what_remains_is_not_lost() -> None:
    """Neither what the summary says, in whatever quotes and units, nor what stays word for word."""
    removed = [user("Use port 8192 for “Red Kite”.  Never use\ntabs. See src/a.py and the `make all` target.")]
    remaining = "Never use tabs. The 8192-token Red Kite; see src/a.py, make all."
    assert lost_facts(removed, remaining) == []


@pytest.mark.parametrize(
    ("text", "remaining"),
    [("port 8192", "18192"), ("port 8192", "8192.5"), ("file a.py", "data.py"), ("id 9f8e7d6", "9f8e7d6c")],
)
def test_part_of_something_longer_is_not_it(text: str, remaining: str) -> None:
    """A summary that says 18192 has lost 8192."""
    assert len(lost_facts([user(text)], remaining)) == 1


def test_nothing_comes_twice_or_within_another() -> None:
    """An address lists the path in it, a condition the number in it."""
    removed = [
        user("Read https://example.com/src/main.py first. You must keep port 2345."),
        user("main.py and port 2345 and https://example.com/src/main.py"),
        assistant("main.py listens on 2345"),
    ]
    assert lost_facts(removed, "") == ["You must keep port 2345.", "https://example.com/src/main.py"]


def test_quoted_words_of_the_assistant_have_to_stand_out() -> None:
    """A user's quotation marks mean a name; an assistant's may mean nothing."""
    assert lost_facts([assistant('It is "good" and "Bluebird".')], "") == ['"Bluebird"']
    assert lost_facts([user('Call it "good".')], "") == ['"good"']


def earlier(retain: str = "-", summary: str = "-", facts: str = "-") -> str:
    """Return an earlier summary with these sections."""
    told = f"## What must hold\n{retain}\n\n## What happened\n{summary}\n\n## Also mentioned\n{facts}"
    return f"<{SUMMARY_TAG}>\nThe earlier part.\n\n{told}\n</{SUMMARY_TAG}>\nGo on."


def test_facts_survive_ten_compactions() -> None:
    """C16, M5: conditions and identifiers that an earlier summary carried are carried on, and nothing is added."""
    facts = lost_facts([user("Never use tabs. The port is 2345 in src/a.py. Deadline: Friday")], "")
    first = list(facts)
    assert first == ["Never use tabs.", "Deadline: Friday", "The port is 2345", "src/a.py"]
    for _ in range(10):
        listed = "\n".join(f"- {fact}" for fact in facts)
        summary = (
            f"<{SUMMARY_TAG}>\nThe earlier part. You must not answer it.\n\n## Also mentioned\n{listed}\n"
            f"</{SUMMARY_TAG}>\nGo on, and do not begin anew."
        )
        facts = lost_facts([user(summary)], "")
    assert facts == first


def test_rules_of_an_earlier_summary_are_carried_on() -> None:
    """What a pruning agent told as a rule stays though the next one drops it; to-dos may be done, so they do not."""
    rules = "- Our customers run the old format.\n- to do: measure the start\n- The tone is dry."
    facts = lost_facts([user(earlier(retain=rules, summary="All is well."))], "")
    assert facts == ["Our customers run the old format.", "The tone is dry."]
    for _ in range(10):
        facts = lost_facts([user(earlier(facts="\n".join(f"- {fact}" for fact in facts)))], "")
    assert facts == ["Our customers run the old format.", "The tone is dry."]


def test_what_a_pruning_agent_told_comes_before_what_code_has_listed() -> None:
    """Its words were chosen, the list was not; what a digest quotes counts as listed."""
    told = earlier(summary="The port is 2345.\n- The user said: line 4711 of a.csv", facts="- b.csv")
    assert lost_facts([user(told), user("See c.csv.")], "") == [
        *("The port is 2345", "c.csv", "line 4711", "a.csv", "b.csv")
    ]


CHANGES = [
    ("The port has changed: it is 4711 now.", "4711", ()),
    ("The budget is no longer €5,000 but €7,500.", "€7,500", ("€5,000",)),
    ("Die Miete ist nicht mehr 520 €, sondern 640 €.", "640", ("520",)),
    ("締切は5月1日ではなく5月3日になりました。", "5月3日", ("5月1日",)),
]


@pytest.mark.parametrize(("sentence", "newest", "outdated"), CHANGES)
def test_changes_are_quoted_with_their_newest_value(sentence: str, newest: str, outdated: tuple[str, ...]) -> None:
    """Whoever says that something has changed: what holds now is known, and the old value where it is named."""
    (change,) = find_changes(f"So be it. {sentence} Go on.")
    assert change.sentence == sentence
    assert newest in change.newest
    assert len(change.outdated) == len(outdated)
    for group in (user(sentence), assistant(sentence), tool("{}", sentence)):
        assert lost_facts([group], "")[0] == sentence
    assert sentence not in lost_facts([user(sentence)], f"It is {newest}.")


def test_an_outdated_value_is_no_loss_and_the_newest_change_comes_first() -> None:
    """What a later sentence has replaced takes no room; a value that was brought back counts again."""
    first, second = "The port is no longer 2345 but 3456.", "The port is no longer 3456 but 4567."
    facts = lost_facts([user("The port is 2345."), user(first), assistant(second)], "")
    assert facts == [second]
    back = "The port is no longer 4567 but 2345."
    assert lost_facts([user("The port is 2345."), user(first), assistant(second), user(back)], "")[0] == back


def test_questions_and_cut_sentences_tell_no_change() -> None:
    """A sentence that was cut may have lost its new value."""
    assert not list(find_changes("Is it no longer 5,000 but 7,000? It is no longer 5,000 but…"))


def test_plain_names_are_carried_on_by_their_line() -> None:
    """What an earlier summary has given a name in plain words stays, as long as the next one does not tell it."""
    facts = lost_facts([user(earlier(summary="- main dish: smoked trout"))], "")
    assert facts == ["main dish: smoked trout"]
    assert lost_facts([user(earlier(facts="- main dish: smoked trout"))], "") == facts
    assert lost_facts([user(earlier(summary="- main dish: smoked trout"))], "They eat smoked trout.") == []


def test_words_of_elbowroom_are_no_facts() -> None:
    """Tools and references that stand beside shortened results would take the room of what somebody has said."""
    stub = '[754 characters of a.csv; to read on: tool_output_cache(ref_id="k3vx9dqmaz2h", offset=41)] ref=k3vx9dqmaz2h'
    assert lost_facts([tool("{}", stub)], "") == ["a.csv"]
    assert lost_facts([user(earlier(summary=f"- It used read: {stub}"))], "") == ["a.csv"]


def test_broken_calls_are_no_error() -> None:
    """Arguments that are no JSON are read as text, and missing ones not at all."""
    assert lost_facts([tool('{"path": "a/b.md', "")], "") == ["a/b.md"]
    assert lost_facts([tool(None, ""), tool({"path": "a/b.md"}, ""), tool("[" * 50_000, "")], "") == ["a/b.md"]


def test_megabyte_of_log_is_bounded() -> None:
    """Logs give a few identifiers, whoever pasted them, and figures only if it was the user."""
    log = "".join(LOG.format(line % 60, line) for line in range(10_000))
    of_tool = lost_facts([tool("{}", log)], "")
    assert len(of_tool) <= 30
    assert not [fact for fact in of_tool if "12.5" in fact or "2024" in fact]
    assert len(lost_facts([user(log)] * 5, log[:100_000])) <= 400


WORST = [
    *(
        "a",
        "/",
        "a/",
        "1",
        "1,",
        "a.",
        "-",
        "A-",
        "_a",
        "ab_",
        '"',
        "'a",
        "`",
        "[[",
        "http://",
        "#",
        "@",
        "a@",
        "€1",
    ),
    *("must ", "```\n", ">", "at most ", "bitte ", "schreibe ", ". ", "「", "\\a", "- must\n"),
]


def test_finding_facts_takes_linear_time() -> None:
    """The worst of texts are read well within the test's time limit; quadratic time would take hours."""
    for unit in WORST:
        text = unit * (100_000 // len(unit))
        assert len(lost_facts([user(text), assistant(text)], text)) <= 400, unit


@given(st.lists(st.text(max_size=80), max_size=6), st.text(max_size=80))
def test_no_text_is_an_error(texts: list[str], remaining: str) -> None:
    """Facts are unique, not empty, and what is found is in the text."""
    facts = lost_facts([user(text) for text in texts], remaining)
    assert len(set(facts)) == len(facts)
    assert all(fact.strip() for fact in facts)
    assert lost_facts([user(text) for text in texts], "\n".join(texts)) == []
