"""Answers of pruning agents, in every form that models give them, read as plans, rewrites, or reasons against them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.compaction.answer import (
    CALLED,
    CUT_OFF,
    DECLINED,
    ECHO,
    EMPTY,
    NO_JSON,
    ONLY_THOUGHT,
    TOO_SHORT,
    Plan,
    Rewrite,
    Unusable,
    read_prune_answer,
)
from elbowroom.context.compaction.loose_json import find_values

RETAIN = "The user writes in British English."
SUMMARY = "A letter to the council was drafted in draft.md and sent on 3 May."
PLAN = Plan(RETAIN, SUMMARY, (3, 5))
JSON = json.dumps({"retain": RETAIN, "summary": SUMMARY, "keep": [3, 5]})
PRETTY = json.dumps({"retain": RETAIN, "summary": SUMMARY, "keep": [3, 5]}, indent=2)
CONVERSATION = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]


@pytest.mark.parametrize(
    "text",
    [
        JSON,
        PRETTY,
        f"```json\n{PRETTY}\n```",
        f"```JSON\n{PRETTY}\n```\nI hope this helps!",
        f"```\n{JSON}",
        f"Here is the plan you asked for, with {{braces}} in it:\n\n{JSON}\n\nLet me know if you need more.",
        f"~~~\n{JSON}\n~~~",
        f"<answer>{JSON}</answer>",
        f"[{JSON}]",
        f'{{"plan": {JSON}}}',
        f'{{"result": {{"output": {JSON}}}}}',
        f"{JSON}<|im_end|>",
        json.dumps(JSON),  # JSON in a JSON string
        JSON.replace('"keep"', '"Keep"').replace('"retain"', '"RETAIN"'),
        JSON.replace('"keep"', '"keep_ids"'),
        "\ufeff" + JSON,
    ],
)
def test_plan_in_whatever_stands_around_it(text: str) -> None:
    """Fences, prose, wrappings and special tokens do not hide a plan."""
    assert read_prune_answer(text) == PLAN


@pytest.mark.parametrize(
    "text",
    [
        f"<think>The form is {{...}}. Let me see.</think>\n{JSON}",
        f'<think>\nMaybe {{"retain": "a first thought of mine", "summary": "not thought through"}}\n</think>\n\n{JSON}',
        f"<THINKING>hm</THINKING><think></think>{JSON}",
        f"<reasoning>hm</reasoning>\n```json\n{JSON}\n```",
        f"[THINK]hm[/THINK]{JSON}",
        f"◁think▷hm◁/think▷{JSON}",
        f"So the user wants a summary of it all.\n</think>\n\n{JSON}",
        f"<|channel|>analysis<|message|>hm {{}}<|end|><|start|>assistant<|channel|>final<|message|>{JSON}<|return|>",
    ],
)
def test_thinking_before_a_plan_is_left_out(text: str) -> None:
    """C10: thinking of every family, also where only its end is in the answer, and drafts in it do not count."""
    assert read_prune_answer(text) == PLAN


def test_plan_may_speak_of_thinking_tags_and_fences() -> None:
    """What stands in a string is text, not markup."""
    said = "They asked what <think> and </think> and ```json {``` mean in an answer."
    assert read_prune_answer(json.dumps({"retain": "", "summary": said})) == Plan("", said)


@pytest.mark.parametrize(
    "text",
    [
        "<think>I should look at all the messages first",
        f"<think>{JSON}",
        "<think>hm</think>\n \n",
        "I should look at all of them.</think>",
        "<|channel|>analysis<|message|>We need to answer with JSON",
    ],
)
def test_only_thinking_is_no_summary(text: str) -> None:
    """C10: the cap was spent on thinking; not even a draft in it is stored."""
    assert read_prune_answer(text) == ONLY_THOUGHT


@pytest.mark.parametrize("text", ["", " \n\t", "\n\n"])
def test_empty_answer(text: str) -> None:
    """C11: nothing never replaces something."""
    assert read_prune_answer(text) == EMPTY


@pytest.mark.parametrize(
    "text",
    [
        PRETTY.replace("\n}", ",\n}").replace("5\n", "5,\n"),  # trailing commas
        str({"retain": RETAIN, "summary": SUMMARY, "keep": [3, 5]}),  # Python's own form
        f"{{retain: '{RETAIN}', summary: '{SUMMARY}', keep: [3, 5]}}",  # bare keys
        PRETTY.replace("{\n", "{ // the plan\n").replace('"keep"', '/* ids */ "keep"'),
        PRETTY.replace(",\n", "\n", 2),  # no commas
        PRETTY.replace(",", " ,"),
        f"{{“retain”: “{RETAIN}”, “summary”: “{SUMMARY}”, “keep”: [3, 5]}}",
        JSON[:-1],  # the last brace is missing
        JSON[:-1] + "\n```",
        JSON[:-1] + ', "note": "cut of',
        JSON.replace("[3, 5]", "[3, 5"),
        JSON.replace("[3, 5]", "[3, 5, ids of groups]"),
    ],
)
def test_slips_of_syntax_are_forgiven(text: str) -> None:
    """C10: what is whole is used, whatever is wrong around it."""
    assert read_prune_answer(text) == PLAN


def test_raw_line_breaks_and_quotes_and_paths_in_strings() -> None:
    """Line breaks and quotes that should be escaped and backslashes that should be doubled stay in the text."""
    text = '{"retain": "- one rule\n- another", "summary": "She said "no" to C:\\Users\\dana, then left.", "keep": []}'
    answer = read_prune_answer(text)
    assert answer == Plan("- one rule\n- another", 'She said "no" to C:\\Users\\dana, then left.')


def test_cut_anywhere_gives_whole_strings_or_nothing() -> None:
    """C10: an answer that ran into its limit is used if retain and summary were finished, and never half a summary."""
    for cut in range(1, len(JSON)):
        answer = read_prune_answer(JSON[:cut])
        if isinstance(answer, Plan):
            assert (answer.retain, answer.summary) == (RETAIN, SUMMARY), f"cut at {cut}"
            assert set(answer.keep) <= {3, 5}, f"cut at {cut}"
        else:
            assert answer in (CUT_OFF, NO_JSON), f"cut at {cut}"
            assert cut <= JSON.index('"keep"'), f"cut at {cut}"


@pytest.mark.parametrize(
    ("text", "so_far"),
    [
        (
            '{"retain": "- Use tabs everywhere, not blanks.", "summary": "- A letter came.\\n- It was re',
            ("- Use tabs everywhere, not blanks.", "- A letter came."),
        ),
        ('{"retain": "- Use tabs everywhere, not blanks.\\n- Never ren', ("- Use tabs everywhere, not blanks.", "")),
        ('{"retain": ["Use tabs everywhere, not blanks.", "Never ren', ("- Use tabs everywhere, not blanks.", "")),
        ('{"retain": "- Use tabs everywhere, not blanks.", "sum', ("- Use tabs everywhere, not blanks.", "")),
        (
            "<retain>Use tabs everywhere, not blanks.</retain><summary>- A letter came.\n- It was re",
            ("Use tabs everywhere, not blanks.", "- A letter came."),
        ),
        ('{"retain": "- Use tabs every', None),
    ],
)
def test_a_plan_that_was_cut_off_holds_its_complete_lines(text: str, so_far: tuple[str, str] | None) -> None:
    """It is asked for once more, and what was complete is there where that brings nothing."""
    answer = read_prune_answer(text)
    assert isinstance(answer, Unusable)
    assert answer == CUT_OFF
    assert (answer.so_far and (answer.so_far.retain, answer.so_far.summary)) == so_far


def test_retain_without_summary_is_a_plan_only_if_it_was_meant() -> None:
    """Where the answer was broken off in the summary, half of it is not the whole."""
    assert read_prune_answer(json.dumps({"retain": RETAIN})) == Plan(RETAIN, "")
    assert read_prune_answer(f'{{"retain": "{RETAIN}", "summary": "A letter to') == CUT_OFF
    assert read_prune_answer(f'{{"retain": "{RETAIN}", "summary": A letter}}') != Plan(RETAIN, "")
    assert read_prune_answer(f'{{"summary": "{SUMMARY}", "retain": ["No tabs", "No') == CUT_OFF
    assert read_prune_answer(f'{{"retain": "", "summary": "{SUMMARY}", "keep": [1, ') == Plan("", SUMMARY, (1,))


@pytest.mark.parametrize(
    ("keep", "ids"),
    [
        ([3, 5], (3, 5)),
        (["3", "5"], (3, 5)),
        (["g3", "[5]", "group 7"], (3, 5, 7)),
        ([3.0, 5.5], (3,)),
        ([{"id": 3, "reason": "2 rules"}, {"id": "g5"}], (3, 5)),
        ("3, 5 and 7", (3, 5, 7)),
        ("g3", (3,)),
        (4, (4,)),
        (["3-6"], (3, 4, 5, 6)),
        (["3 | user | first 9 words | 120"], (3,)),
        ([[1, 2], [3]], (1, 2, 3)),
        ([3, 3, "3"], (3,)),
        ([True, None, "all", 10**30, -1.5], ()),
        ("none", ()),
        (None, ()),
        ({"ids": [3]}, (3,)),
    ],
)
def test_ids_however_they_are_written(keep: Any, ids: tuple[int, ...]) -> None:
    """Group ids come as numbers, names, rows and ranges, each once."""
    answer = read_prune_answer(json.dumps({"retain": RETAIN, "summary": SUMMARY, "keep": keep}))
    assert answer == Plan(RETAIN, SUMMARY, ids)


def test_lists_and_objects_become_lines() -> None:
    """A model that answers with structure where text was asked for loses nothing."""
    text = json.dumps({"retain": ["No tabs", {"deadline": "Friday"}], "summary": {"done": ["a.py", "b.py"], "x": None}})
    answer = read_prune_answer(text)
    assert answer == Plan("- No tabs\n- - deadline: Friday", "- done: - a.py\n- b.py")


@pytest.mark.parametrize(
    ("fields", "to_do"),
    [
        ({"to_do": ["Row", "Sail"], "done": ["Paint"]}, (("open", "Row"), ("open", "Sail"), ("done", "Paint"))),
        ({"toDo": "- Row\n- Sail"}, (("open", "Row"), ("open", "Sail"))),
        ({"to-do": ["open"], "done": ["done", "none"]}, ()),
        ({"to_do": None, "done": []}, ()),
        (
            {"to_do": [{"task": "Sail", "status": "pending"}, {"status": "Done", "task": "Row"}, "Rest"]},
            (("open", "Sail"), ("done", "Row"), ("open", "Rest")),
        ),
        ({"to_do": {"items": [{"id": 1, "title": "Ship it", "owner": "Bob"}, {"id": 2}]}}, (("open", "Ship it"),)),
        ({"to_do": {"1": "Row", "2": ["Sail"]}, "done": [True, None]}, (("open", "Row"), ("open", "Sail"))),
        ({"to_do": {"task": "Sail", "status": "pending"}}, (("open", "Sail"),)),
    ],
)
def test_what_is_to_do(fields: dict[str, Any], to_do: tuple[tuple[str, str], ...]) -> None:
    """What is open and what is done come as lists or as text; the order's own words are neither."""
    assert read_prune_answer(json.dumps({"retain": RETAIN, "summary": SUMMARY, **fields})) == Plan(
        RETAIN, SUMMARY, to_do=to_do
    )


def test_last_of_several_objects_counts() -> None:
    """Drafts come before the result; an array of plans is one plan in pieces."""
    draft = json.dumps({"retain": "", "summary": "A first draft that is long enough."})
    assert read_prune_answer(f"Draft: {draft}\nFinal: {JSON}") == PLAN
    assert read_prune_answer(f'{JSON}\n{{"retain": "half a thing') == PLAN
    pieces = [{"summary": "The first half was written.", "keep": [1]}, {"retain": "Be kind.", "summary": "The second."}]
    assert read_prune_answer(json.dumps(pieces)) == Plan("Be kind.", "The first half was written.\nThe second.", (1,))


@pytest.mark.parametrize(
    "text",
    [
        f"<retain>{RETAIN}</retain>\n<summary>\n{SUMMARY}\n</summary><keep>3, 5</keep>",
        f"<retain>{RETAIN}\n<summary>{SUMMARY}</summary>\n<keep>[3, 5]",
        f"Sure!\n<Retain >{RETAIN}</Retain><SUMMARY>{SUMMARY}</SUMMARY><keep>g3 g5</keep>",
        f"## Retain\n{RETAIN}\n\n## Summary\n{SUMMARY}\n\n## Keep\n- 3\n- 5",
        f"**Retain:** {RETAIN}\n\n**Summary:** {SUMMARY}\n\n**Keep:** 3, 5",
        f"Retain: {RETAIN}\nSummary: {SUMMARY}\nKeep: [3, 5]",
        f"Sure.\n\n### 1. What must hold\n{RETAIN}\n### 2. What happened\n{SUMMARY}\n### 3. Keep\n3, 5<|eot_id|>",
        f"```markdown\n# RETAIN\n{RETAIN}\n# SUMMARY\n{SUMMARY}\n# KEEP\n3,5\n```",
    ],
)
def test_tags_and_headings_instead_of_json(text: str) -> None:
    """The same plan in the forms that models fall back to."""
    assert read_prune_answer(text) == PLAN


def test_headings_within_a_summary_are_part_of_it() -> None:
    """Only the names of the plan's own parts divide it."""
    text = "## Summary of the conversation\nA boat was built.\n### Files\nhull.md\n## Keep\n2"
    assert read_prune_answer(text) == Plan("", "A boat was built.\n### Files\nhull.md", (2,))


def test_unclosed_tag_is_whole_only_at_the_end_of_a_sentence() -> None:
    """Many models forget the last tag; one that was cut off stops in mid-sentence."""
    assert read_prune_answer(f"<summary>{SUMMARY}") == Plan("", SUMMARY)
    assert read_prune_answer(f"<summary>{SUMMARY[:-6]}") == CUT_OFF


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m really sorry, I cannot do this.",
        "I am unable to summarise this conversation.",
        "Sorry, I can't do that.",
        "As an AI language model, I do not keep conversations.",
        "Unfortunately, I don't have access to the conversation.",
        "I apologize, but no.",
        "Es tut mir leid, aber das geht nicht.",
        "Ich kann das leider nicht zusammenfassen.",
        "Je suis désolé, je ne peux pas.",
        "Lo siento, no puedo hacerlo.",
        "申し訳ありませんが、できません。",
        "抱歉，我无法完成。",
        json.dumps({"retain": "", "summary": "I'm sorry, but I can't help with summarising this conversation."}),
        "<summary>I cannot assist with that request.</summary>",
    ],
)
def test_refusals(text: str) -> None:
    """A refusal is told from other answers, also where it comes in the form of a plan."""
    assert read_prune_answer(text) == DECLINED


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"name": "read_note", "arguments": {"path": "a.md"}}),
        '<tool_call>\n{"name": "read_note", "arguments": {"path": "a.md"}}\n</tool_call>',
        "<tool_call>read_note(path='a.md')",
        '[TOOL_CALLS][{"name": "read_note", "arguments": {"path": "a.md"}}]',
        "<function=read_note><parameter=path>a.md</parameter></function>",
        json.dumps({"type": "function", "name": "read_note", "parameters": {"path": "a.md"}}),
    ],
)
def test_tool_call_as_text_is_refused_with_that_reason(text: str) -> None:
    """C13: the reason can be recorded and put to the model."""
    assert read_prune_answer(text) == CALLED


def test_plan_in_the_arguments_of_a_call_is_a_plan() -> None:
    """A model that calls a tool of its own invention to hand in the plan has handed it in."""
    arguments = {"retain": RETAIN, "summary": SUMMARY, "keep": [3, 5]}
    assert read_prune_answer(json.dumps({"name": "submit_plan", "arguments": arguments})) == PLAN
    assert read_prune_answer(json.dumps({"name": "submit_plan", "arguments": json.dumps(arguments)})) == PLAN


@pytest.mark.parametrize(
    "text",
    [
        '{"retain": "what must hold", "summary": "what happened", "keep": [ids of groups that must stay]}',
        '{"retain": "What must hold...", "summary": "What happened.", "keep": [1]}',
        '{"type": "object", "properties": {"retain": {"type": "string"}, "summary": {"type": "string"}}}',
        '{"retain": {"type": "string"}, "summary": {"type": "string"}, "keep": {"type": "array"}}',
        "<retain>what must hold</retain><summary>what happened</summary>",
    ],
)
def test_echo_of_the_form_is_no_answer(text: str) -> None:
    """The order's own example and its schema say nothing about the conversation."""
    assert read_prune_answer(text) == ECHO


def test_placeholder_in_one_part_is_dropped() -> None:
    """A plan with one real part does not carry the other's placeholder into the conversation."""
    assert read_prune_answer(json.dumps({"retain": "none", "summary": SUMMARY})) == Plan("", SUMMARY)


@pytest.mark.parametrize(
    "text",
    [
        '{"retain": "", "summary": "", "keep": [1, 2]}',
        '{"retain": [], "summary": {}}',
        '{"retain": null, "summary": "ok"}',
        '{"retain": "", "summary": "............................."}',
        "<summary></summary><retain>-</retain>",
    ],
)
def test_next_to_nothing_is_no_summary(text: str) -> None:
    """C11: an empty plan never replaces a history."""
    answer = read_prune_answer(text)
    assert answer == TOO_SHORT or (answer == NO_JSON and text.startswith("<"))


def test_few_signs_of_a_dense_script_are_enough() -> None:
    """What a short Chinese sentence says is not next to nothing."""
    assert read_prune_answer('{"retain": "", "summary": "用户要把登录页改成蓝色"}') == Plan(
        "", "用户要把登录页改成蓝色"
    )


def test_rewrite() -> None:
    """A whole conversation is taken as it is; the model's own counts are ignored."""
    answer = {"prunedConversation": CONVERSATION, "summary": SUMMARY, "originalTokens": 5, "prunedTokens": "many"}
    assert read_prune_answer(f"```json\n{json.dumps(answer)}\n```") == Rewrite(tuple(CONVERSATION), SUMMARY)
    assert read_prune_answer(json.dumps({"pruned_conversation": CONVERSATION})) == Rewrite(tuple(CONVERSATION), "")


def test_rewrite_may_hold_calls_and_parts() -> None:
    """Content may be parts, or nothing beside tool calls."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    assert read_prune_answer(json.dumps({"prunedConversation": messages})) == Rewrite(tuple(messages), "")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "Hello",
        [*CONVERSATION, "Hello"],
        [{"content": "no role"}],
        [{"role": "wizard", "content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": ""}],
        [{"role": "assistant", "content": "x", "tool_calls": ["f"]}],
    ],
)
def test_rewrite_with_bad_messages_names_them(messages: Any) -> None:
    """The reason says what prunedConversation has to be."""
    answer = read_prune_answer(json.dumps({"prunedConversation": messages}))
    assert isinstance(answer, Unusable)
    assert "prunedConversation" in answer.reason


def test_rewrite_without_messages_but_with_a_summary_is_a_plan() -> None:
    """It says that nothing is to stay word for word."""
    assert read_prune_answer(json.dumps({"prunedConversation": [], "summary": SUMMARY})) == Plan("", SUMMARY)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_rewrite_that_was_cut_off_is_never_used(share: float) -> None:
    """Half a conversation is not a shorter one."""
    text = json.dumps({"summary": SUMMARY, "prunedConversation": CONVERSATION * 3})
    assert read_prune_answer(text[: int(len(text) * share)]) == CUT_OFF
    whole_first = json.dumps({"prunedConversation": CONVERSATION * 3, "summary": SUMMARY})
    assert read_prune_answer(whole_first[: int(len(whole_first) * share)]) == CUT_OFF


def test_prose_is_no_plan() -> None:
    """An answer that goes on with the conversation is told from a summary of it."""
    assert read_prune_answer("The capital of France is Paris, and here is more about it.") == NO_JSON
    assert read_prune_answer('{"answer": 42}') == NO_JSON
    assert read_prune_answer("[]") == NO_JSON


def test_halves_of_characters_do_not_get_through() -> None:
    """What is read can be sent on as UTF-8."""
    answer = read_prune_answer(
        '{"summary": "A smile \\ud83d\\ude00 and half a one \\ud83d in a sentence", "retain": "\ud83d"}'
    )
    assert isinstance(answer, Plan)
    assert "😀" in answer.summary
    assert (answer.summary + answer.retain).encode()


GARBAGE = [
    *("{", '{"', '{"a":', '{"a":"', '{"a":{', "[{", '"/*', '{"a":"x" "', '\\"', ": ", "'", "{a:", "```json\n"),
    *("<think>", "</think>", "<think></think>", "<retain>", "<summary", "## Summary\n", "**", "<|channel|>", "<"),
    *("I'm sorry ", "{\\", '{"summary":"', "summary: ", "\n\n", " ", "}", "Keep: 3-", "😀"),
]


def test_garbage_is_read_in_linear_time() -> None:
    """A hundred kilobytes of the worst are read well within the test's time limit; quadratic time would take longer."""
    for unit in GARBAGE:
        text = unit * (100_000 // len(unit))
        assert isinstance(read_prune_answer(text), Plan | Unusable), unit


def test_doubled_apostrophes_stand_for_one() -> None:
    """Where strings are between apostrophes, as in some languages, two of them within a word end none."""
    text = "{'retain': 'The user''s rule: be brief.', 'summary': 'It''s done, they didn't say more.', 'keep': [3]}"
    assert read_prune_answer(text) == Plan("The user's rule: be brief.", "It's done, they didn't say more.", (3,))
    told = "They wrote 'It''s' in it."
    assert read_prune_answer(f'{{"retain": "{RETAIN}", "summary": "{told}",, "keep": []}}') == Plan(RETAIN, told)


@pytest.mark.parametrize("sign", ["\ue000", "\ue000\ue000", "\\uE000", "\\ue000 \ue000"])
def test_any_sign_may_be_in_broken_json(sign: str) -> None:
    """Signs of private use, as fonts with pictures have them, leave the string whole, cut off or not."""
    told = f"They typed {sign} and spoke about the ferry."
    meant = json.loads(f'"{told}"')
    assert read_prune_answer(f'{{"retain": "{RETAIN}", "summary": "{told}",, "keep": [3],}}') == Plan(
        RETAIN, meant, (3,)
    )
    cut = read_prune_answer(f'{{"retain": "{RETAIN}", "summary": "{told}\\nAnd th')
    assert isinstance(cut, Unusable)
    assert cut.so_far == Plan(RETAIN, meant)


def test_deep_nesting_is_no_error() -> None:
    """Nesting far deeper than Python's own stack is read as far as it makes sense."""
    assert isinstance(read_prune_answer('{"summary":' * 100_000), Unusable)
    assert isinstance(read_prune_answer("[" * 100_000 + "{"), Unusable)
    deep = f'{{"summary": {"[" * 40}"A summary that hides in many lists."{"]" * 40}}}'
    assert isinstance(read_prune_answer(deep), Plan)


@pytest.mark.parametrize("levels", [70, 225, 330, 400, 460])
@pytest.mark.parametrize("name", ["summary", "to_do", "keep"])
def test_sound_json_beyond_the_stack_is_unusable(name: str, levels: int) -> None:
    """JSON that Python still reads, but that is nested too deep for what reads it then, is no plan and no error."""
    fields: dict[str, Any] = {"retain": "The user wants short answers.", "summary": "They spoke about the ferry."}
    plan = json.dumps({**fields, name: "DEEP"}).replace('"DEEP"', "[" * levels + "]" * levels)
    assert isinstance(read_prune_answer(plan), Unusable)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=20), JSON_VALUES, max_size=5), st.booleans())
def test_valid_json_is_read_as_it_is(value: dict[str, Any], ascii_only: bool) -> None:
    """The tolerance changes nothing about JSON that is right."""
    found = list(find_values(f"Well: {json.dumps(value, ensure_ascii=ascii_only)} That is it."))
    assert [(each.value, each.is_whole) for each in found] == [(value, True)]


@given(st.text(alphabet="{}[]\":,'\\ntrue09-/*<>|sumary retik\n", max_size=200))
def test_any_text_has_an_answer(text: str) -> None:
    """No input is an error."""
    assert isinstance(read_prune_answer(text), Plan | Rewrite | Unusable)


@given(
    st.text(min_size=30, max_size=300), st.text(min_size=30, max_size=300), st.lists(st.integers(0, 999), max_size=5)
)
def test_plans_survive_the_way(retain: str, summary: str, keep: list[int]) -> None:
    """Whatever is in retain and summary comes out as it was put in."""
    answer = read_prune_answer(json.dumps({"retain": retain, "summary": summary, "keep": keep}))
    if isinstance(answer, Plan):
        assert answer == Plan(retain.strip(), summary.strip(), tuple(dict.fromkeys(keep)))
    else:
        assert answer == TOO_SHORT
