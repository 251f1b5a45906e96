"""Single model families get their messages in a form of their own."""

from __future__ import annotations

from cases import case
from template_chats import PLACE, answer, call, parts, result, system, user

from elbowroom.tokens.templates.messages import (
    for_deepseek_v4,
    for_gpt_oss,
    for_ministral,
    for_old_gemma4,
    for_stepfun,
    with_thinking,
)
from elbowroom.tokens.templates.prompt import FAMILIES, ORDINARY, family_of

THOUGHT = answer("Hi.", reasoning_content="Hm.")


def test_family_is_known_by_its_signs() -> None:
    """A template with all signs of a family is of that family; one without any is ordinary."""
    for family in FAMILIES:
        with case(family):
            known = next(one for one in FAMILIES if one is family)
            assert known.wrote(" ".join(known.signs))
            assert not any(known.wrote(f"{' '.join(known.signs)} {sign}") for sign in known.counter_signs)
            assert family_of("{% for message in messages %}{{ message.content }}{% endfor %}") is ORDINARY


def test_reasoning_gets_its_other_name() -> None:
    """Templates that read `thinking` find it; messages without reasoning stay as they are."""
    assert with_thinking([user("U"), THOUGHT]) == [user("U"), {**THOUGHT, "thinking": "Hm."}]


def test_gpt_oss_has_no_text_beside_a_reasoned_call() -> None:
    """The reasoning takes the place of the text where a tool is called, and only there."""
    called = answer("Looking.", reasoning_content="Hm.", tool_calls=[call(PLACE)])
    adapted, plain = for_gpt_oss([called, answer("Looking.", tool_calls=[call(PLACE)])])
    assert "content" not in adapted
    assert adapted["thinking"] == "Hm."
    assert plain["content"] == "Looking."


def test_ministral_has_reasoning_as_a_part() -> None:
    """System and assistant messages become parts, the reasoning first; the user's stay."""
    adapted = for_ministral([system("S"), user("U"), THOUGHT])
    assert adapted == [
        {"role": "system", "content": parts("S")},
        user("U"),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, *parts("Hi.")]},
    ]


def test_deepseek_v4_has_results_in_the_order_of_the_calls() -> None:
    """Results of one turn are sorted, and the user's message among them keeps its place."""
    called = answer("", tool_calls=[call(PLACE, number=1), call(PLACE, number=2)])
    history = [called, result("second", 2), user("U"), result("first", 1), answer("Done."), result("third", 2)]
    adapted = for_deepseek_v4(history)
    assert adapted == [called, result("first", 1), user("U"), result("second", 2), answer("Done."), result("third", 2)]


def test_old_gemma_keeps_results_without_a_call_of_their_own() -> None:
    """More results than calls are named after their ids; an orphan result stays a message."""
    called = answer("", tool_calls=[call(PLACE)])
    orphan, turn = for_old_gemma4([result("o", 9), called, result("a", 1), result("[1]", 2)])
    assert orphan == result("o", 9)
    assert turn["tool_responses"] == [
        {"name": "get_weather", "response": "a"},
        {"name": "call00002", "response": [1]},
    ]


def test_stepfun_is_trimmed() -> None:
    """Texts and texts of parts lose the space around them."""
    assert for_stepfun([user(" a \n"), user(parts(" b "))]) == [user("a"), user(parts("b"))]
