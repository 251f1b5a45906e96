"""A chat request becomes the prompt that llama.cpp's server makes of it."""

from __future__ import annotations

import contextlib
import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from template_chats import CHATS, PLACE, TOOLS, answer, call, parts, result, system, user

from elbowroom.tokens.errors import ConversationNotContinuable, TemplateRefused
from elbowroom.tokens.templates.prompt import ENDED_SEARCH, SEARCH, ChatPrompt, ChatRequest, as_the_engine_reads_it
from elbowroom.tokens.templates.template import ChatTemplate

PLAIN = """\
{{- bos_token }}
{%- for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""
THINKING = """\
{%- for m in messages %}<{{ m.role }}>
{%- if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>
{% endif %}{{ m.content }}</s>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% if not enable_thinking %}<think>

</think>
{% endif %}{% endif %}"""
GEMMA4 = """\
{%- macro show(m) %}{% for c in m.tool_calls %}{{ '<|tool_call>call:' + c.function.name }}{% endfor %}
{%- for r in m.tool_responses or [] %}<|tool_response>{{ r.name }}:{{ r.response | tojson }}{% endfor %}{% endmacro %}
{%- for m in messages %}<|turn>{{ m.role }}
{{ show(m) }}{{ m.content }}<turn|>
{% endfor %}{% if add_generation_prompt and messages[-1].role == 'user' %}<|turn>model
{% endif %}"""


def prompt(source: str, *messages: Any, tools: Any = None, **arguments: Any) -> str:
    """Return the prompt for a conversation."""
    return ChatPrompt(source, bos_token="<s>", eos_token="</s>").text(ChatRequest(messages, tools, arguments))


def test_conversation_is_rendered_with_a_generation_prompt() -> None:
    """The special tokens are there, and the prompt ends where the answer begins."""
    assert prompt(PLAIN, system("S"), user("U")) == "<s><system>S</s><user>U</s><assistant>"


def test_generation_prompt_can_be_left_out() -> None:
    """A request may ask for the conversation alone."""
    request = ChatRequest([user("U")], add_generation_prompt=False)
    assert ChatPrompt(PLAIN, eos_token="</s>").text(request) == "<user>U</s>"


def test_conversation_that_ends_with_the_assistant_is_continued() -> None:
    """There is no end of turn behind an unfinished answer, and no second opening."""
    assert prompt(PLAIN, user("U"), answer("It is ")) == "<s><user>U</s><assistant>It is "
    assert prompt(PLAIN, user("U"), answer(parts("a", "b"))) == "<s><user>U</s><assistant>a\n\nb"
    assert prompt(PLAIN, user("U"), answer("")) == "<s><user>U</s>"


def test_continued_answer_of_a_thinking_model_has_its_thoughts() -> None:
    """Thoughts are opened and closed as the template does it, and stay open while there is no text yet."""
    assert prompt(THINKING, user("U"), answer("It is ")) == "<user>U</s><assistant><think>\n\n</think>\nIt is "
    thought = answer("It is ", reasoning_content="Hm.")
    assert prompt(THINKING, user("U"), thought) == "<user>U</s><assistant><think>\nHm.\n</think>\nIt is "
    assert prompt(THINKING, user("U"), {**thought, "content": ""}) == "<user>U</s><assistant><think>\nHm."


def test_conversation_that_ends_with_a_call_is_refused() -> None:
    """The engine answers it with a 400, and so does this; so it does with two assistants at the end."""
    with pytest.raises(ConversationNotContinuable, match="results") as caught:
        prompt(PLAIN, user(), answer("", tool_calls=[call(PLACE)]), tools=TOOLS)
    assert caught.value.status == 400
    with pytest.raises(ConversationNotContinuable, match="two assistant messages"):
        prompt(PLAIN, user(), answer(), answer())


def test_thinking_is_on_where_the_template_knows_it() -> None:
    """`enable_thinking` is true for a thinking model and false for any other, unless the request says it."""
    assert prompt(THINKING, user("U")).endswith("<assistant>")
    assert prompt(THINKING, user("U"), enable_thinking=False).endswith("<think>\n\n</think>\n")
    assert prompt("{{ enable_thinking }}", user()) == "False"
    assert prompt("{{ enable_thinking }}", user(), enable_thinking=True) == "True"


def test_missing_tools_are_undefined() -> None:
    """Without tools, or with none in the list, a template sees no such variable."""
    source = "{{ tools is defined }}"
    assert prompt(source, user()) == prompt(source, user(), tools=[]) == "False"
    assert prompt(source, user(), tools=TOOLS) == "True"


def test_date_comes_from_the_given_clock() -> None:
    """The date that the engine passes and the one that a template asks for are the clock's."""
    source = "{{ date_string }}|{{ datetime }}|{{ strftime_now('%Y-%m-%d') }}"
    built = ChatPrompt(source, clock=lambda: datetime(2024, 2, 29, tzinfo=UTC))
    assert built.text(ChatRequest([user()])) == "29 Feb 2024|Feb 29 2024|2024-02-29"


def test_developer_is_the_system() -> None:
    """The newer name of the role is the older one for templates that know only that."""
    assert prompt(PLAIN, {"role": "developer", "content": "D"}, user("U")).startswith("<s><system>D</s>")


def test_system_role_is_merged_where_a_template_refuses_it() -> None:
    """A template that refuses the role, and is found to, gets its text with the first message."""
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN
    assert prompt(source, system("S"), user("U")) == "<s><user>S\nU</s><assistant>"


def test_refusal_of_the_conversation_is_the_templates_own() -> None:
    """What a template says about these very messages reaches the caller."""
    source = "{% if messages | length > 2 %}{{ raise_exception('too long') }}{% endif %}" + PLAIN
    with pytest.raises(TemplateRefused, match="too long"):
        prompt(source, user(), answer(), user())


def test_values_print_as_in_the_engine() -> None:
    """None and objects print nothing, lists their items, floats their decimals; JSON has short floats."""
    source = "{{ none }}|{{ {'a': 1} }}|{{ ['a', 1, none] }}|{{ 1e20 }}|{{ 0.5 }}|{{ true }}|{{ [1.0, 0.1] | tojson }}"
    assert prompt(source, user()) == "||a1|100000000000000000000.0|0.5|True|[1, 0.1]"


def test_undefined_is_forgiving_as_in_the_engine() -> None:
    """What isn't there has no attributes and no items, and adds nothing to a text."""
    source = "{% for k, v in nothing.at.all.items() %}x{% endfor %}{{ 'a' + nothing }}{{ none + 'b' }}"
    assert prompt(source, user()) == "ab"


def test_template_may_build_lists() -> None:
    """`append` works on the template's own lists, and on copies of the caller's alone."""
    source = "{% set l = [] %}{% set _ = l.append('x') %}{% set _ = messages.append('y') %}{{ l[0] }}{{ messages[-1] }}"
    messages = [user("U")]
    assert ChatPrompt(source).text(ChatRequest(messages)) == "xy"
    assert messages == [user("U")]


def test_what_a_template_does_to_its_lists_is_forgotten() -> None:
    """A continued answer takes several renderings, and each sees the conversation as it was sent."""
    source = "{% set _ = messages.append({'role': 'extra', 'content': 'x'}) %}" + PLAIN
    assert prompt(source, user("U"), answer("It is ")) == ("<s><user>U</s><extra>x</s><assistant>It is ")


def test_results_of_an_old_gemma_are_folded_into_the_call() -> None:
    """Calls, results and the answer after them are one turn; results that are JSON are parsed."""
    history = [user("U"), answer("", tool_calls=[call(PLACE)]), result('{"t": 21}'), answer("Sunny."), user("V")]
    turn = '<|turn>assistant\n<|tool_call>call:get_weather<|tool_response>get_weather:{"t": 21}Sunny.<turn|>\n'
    expected = f"<|turn>user\nU<turn|>\n{turn}<|turn>user\nV<turn|>\n<|turn>model\n"
    assert prompt(GEMMA4, *history, tools=TOOLS) == expected


def test_old_gemma_opens_its_turn_after_a_result() -> None:
    """Where the template forgets to open the answer, the engine does it."""
    history = [user("U"), answer("", tool_calls=[call(PLACE)]), result("x")]
    assert prompt(GEMMA4, *history, tools=TOOLS).endswith('<|tool_response>get_weather:"x"<turn|>\n<|turn>model\n')


@pytest.mark.parametrize("source", [PLAIN, THINKING, GEMMA4])
def test_callers_objects_are_never_changed(source: str) -> None:
    """Building a prompt leaves messages, tools and arguments as they are."""
    built = ChatPrompt(source)
    for chat in CHATS.values():
        before = copy.deepcopy(chat)
        with contextlib.suppress(ConversationNotContinuable):
            built.text(ChatRequest(chat.messages, chat.tools, chat.arguments))
        assert chat == before


def test_a_search_through_the_conversation_may_end_where_it_has_found() -> None:
    """Gemma 4's templates look for the message before each one; ended early, the search finds the same."""
    source = (
        "{%- for message in messages -%}{%- set loop_messages = messages -%}"
        "{%- set prev_nt = namespace(role=None, found=false) -%}"
        + SEARCH
        + """
            {%- endif -%}
        {%- endfor -%}
        {{- message.role + '<' + (prev_nt.role or 'nobody') + ' ' -}}{%- endfor -%}"""
    )
    roles = ["user", "assistant", "tool", "tool", "assistant", "user"]
    messages = [{"role": role, "content": "x"} for role in roles]
    searched = ChatTemplate(source, dialect="llama.cpp").evaluate({"messages": messages})
    assert searched.split()[-3:] == ["tool<assistant", "assistant<assistant", "user<assistant"]
    assert prompt(source, *messages) == searched
    assert ENDED_SEARCH in as_the_engine_reads_it(source)
