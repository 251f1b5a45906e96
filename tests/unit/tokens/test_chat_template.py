"""A chat template renders as `transformers` renders it, and says clearly what is wrong when it doesn't."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from template_chats import CHATS, Chat, rendered

from elbowroom.tokens.errors import TemplateFailed, TemplateOverran, TemplateRefused
from elbowroom.tokens.templates.template import ChatTemplate, sha256_of

CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}{{ message.content }}
    {%- else %}
        {%- for part in message.content or [] if part.type == 'text' %}{{ part.text }}{% endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
FEATURES = {
    "blocks are trimmed": "  {% if true %}\n  x\n  {% endif %}\ny\n\n",
    "JSON is not escaped for HTML": "{{ tools | tojson }}{{ messages | tojson(indent=2) }}",
    "JSON options": "{{ {'b': 'é', 'a': [1]} | tojson(ensure_ascii=true, separators=(',', ':'), sort_keys=true) }}",
    "loop controls": "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}"
    "{% if loop.index0 > 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "namespaces": "{% set ns = namespace(n=0, self=1) %}"
    "{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "macros": "{% macro show(m, end='!') %}{{ m.role ~ end }}{% endmacro %}"
    "{% for m in messages %}{{ show(m) }}{% endfor %}",
    "generation blocks": "{% for m in messages %}{% generation %}{{ m.role }}\n{% endgeneration %}{% endfor %}",
    "slices and methods": "{{ messages[::-1][0].role.upper() }}{{ 'a</think>b'.split('</think>')[-1].lstrip('\n') }}",
    "filters": "{{ messages | map(attribute='role') | join(',') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "items": "{% for key, value in messages[0].items() %}{{ key }}={{ value }};{% endfor %}"
    "{{ dict(a=1) | items | list }}",
    "undefined": "{{ nothing }}{{ messages[0].nothing is defined }}{{ nothing is none }}{{ tools is none }}",
    "arguments": "{{ enable_thinking }}{{ bos_token }}{{ documents }}{{ add_generation_prompt }}",
    "comments": "{# nothing #}a{#- nothing -#} b",
    "a whole template": CHATML,
}


def oracle(template: str, chat: Chat, **arguments: Any) -> str:
    """Render with transformers."""
    from transformers.utils.chat_template_utils import render_jinja_template

    tools: list[Any] | None = list(chat.tools) or None
    rendered: Any = render_jinja_template([list(chat.messages)], tools, chat_template=template, **arguments)
    return str(rendered[0][0])


def same_words(error: Exception) -> str:
    """Return a pattern for the beginning of an error's text."""
    return re.escape(" ".join(str(error).split())[:60])


@pytest.mark.parametrize("feature", FEATURES)
def test_renders_as_transformers_does(feature: str) -> None:
    """Every feature that templates use gives the oracle's text for every conversation, or fails in its words."""
    template = ChatTemplate(FEATURES[feature])
    arguments: dict[str, Any] = {"enable_thinking": True, "bos_token": "<s>", "add_generation_prompt": True}
    for chat in CHATS.values():
        if any("reasoning_content" in message for message in chat.messages):
            continue  # the oracle gives reasoning a second name
        try:
            expected = oracle(template.source, chat, **arguments)
        except Exception as error:  # noqa: BLE001 - whatever the oracle makes of it
            with pytest.raises(TemplateFailed, match=same_words(error)):
                rendered(template, chat.messages, chat.tools or None, **arguments)
        else:
            assert rendered(template, list(chat.messages), list(chat.tools) or None, **arguments) == expected


def test_generation_prompt_can_be_left_out() -> None:
    """`add_generation_prompt` decides whether the prompt ends with the opening of an answer."""
    template = ChatTemplate(CHATML)
    messages = [{"role": "user", "content": "hi"}]
    assert rendered(template, messages) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(template, messages, add_generation_prompt=False) == "<|im_start|>user\nhi<|im_end|>\n"


def test_date_comes_from_the_given_clock() -> None:
    """A template that writes the date writes the clock's, in macros as well."""
    source = "{% macro today() %}{{ strftime_now('%d %b %Y') }}{% endmacro %}{{ today() }}{{ strftime_now('%H') }}"
    template = ChatTemplate(source, clock=lambda: datetime(2024, 2, 29, 7, tzinfo=UTC))
    assert rendered(template, []) == "29 Feb 202407"


def test_refusal_carries_the_templates_own_words() -> None:
    """`raise_exception` is told apart from a broken template, and names template and reason."""
    template = ChatTemplate("{{ raise_exception('System role not supported') }}", name="gemma-2")
    with pytest.raises(TemplateRefused) as caught:
        rendered(template, [])
    assert caught.value.template == "gemma-2"
    assert caught.value.reason == "System role not supported"
    assert str(caught.value) == "The chat template of gemma-2 refuses these messages: System role not supported"
    assert caught.value.as_openai()["error"]["code"] == "chat_template_refused"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for %}", r"TemplateSyntaxError: .* \(line 1\)"),
        ("{{ nothing.at.all }}", "UndefinedError: 'nothing' is undefined"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages | nothing }}", "No filter named 'nothing'"),
        ("{% include '/etc/passwd' %}", "no loader for this environment"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append('x') }}", "SecurityError"),
        ("{% set ns = namespace(__x=1) %}", "SecurityError"),
        ("{{ dict.mro() }}", "has no attribute 'mro'"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
    ],
)
def test_broken_or_prying_template_fails_with_its_cause(source: str, reason: str) -> None:
    """A template that cannot be read, breaks, or reaches for Python fails with one error that says why."""
    template = ChatTemplate(source, name="odd-model")
    with pytest.raises(TemplateFailed, match=reason) as caught:
        rendered(template, [{"role": "user", "content": "hi"}])
    assert type(caught.value) is TemplateFailed
    assert "odd-model" in caught.value.message


def test_text_without_an_end_is_stopped() -> None:
    """A template that writes more than any window holds is stopped while it writes."""
    source = "{% for i in range(99999) %}{% for j in range(99999) %}{{ 'a' * 10000 }}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateOverran, match="16,000,000 characters"):
        rendered(ChatTemplate(source), [])


def test_recursion_without_an_end_is_stopped() -> None:
    """A macro that calls itself for ever ends with an error, not with the process."""
    with pytest.raises(TemplateOverran, match="calls itself"):
        rendered(ChatTemplate("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), [])


def test_callers_messages_are_never_changed() -> None:
    """Rendering leaves messages and tools as they are."""
    for chat in CHATS.values():
        messages, tools = copy.deepcopy(chat.messages), copy.deepcopy(chat.tools)
        rendered(ChatTemplate(CHATML), messages, tools)
        assert (messages, tools) == (chat.messages, chat.tools)


def test_hash_leaves_out_white_space_around_the_template() -> None:
    """A template is known whether or not its file ends with a line break."""
    assert sha256_of("{{ 1 }}") == sha256_of("\n{{ 1 }}\n") != sha256_of("{{ 2 }}")


def test_import_loads_nothing_heavy() -> None:
    """Importing the room loads no Jinja; the first rendering does."""
    script = (
        "import sys, elbowroom.tokens.templates.prompt, elbowroom.tokens.renderer as r\n"
        "from elbowroom.tokens.templates.template import ChatTemplate as T\n"
        "assert 'jinja2' not in sys.modules\n"
        "T('x').evaluate({})\n"
        "assert 'jinja2' in sys.modules and 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ, timeout=60)


def test_a_message_may_have_keys_with_the_names_of_methods() -> None:
    """A dot finds a dict's method first and then its items; what is missing is undefined."""
    message = {"role": "user", "items": "mine", "content": {"nested": 1}}
    source = "{{ m.items() | length }}{{ m['items'] }}{{ m.content.nested }}{{ m.nothing is defined }}"
    assert rendered(ChatTemplate(source), [], m=message) == "3mine1False"


class Basket:
    """What has an item under the name of a method that lists may not be asked for."""

    pop = "apple"


def test_what_one_kind_of_object_may_do_another_may_not() -> None:
    """A verdict on an attribute is remembered for the type it was given for, and stays the same."""
    template = ChatTemplate("{% for v in values %}{{ v.pop is defined }},{{ v.copy is defined }};{% endfor %}")
    values: list[Any] = ["text", [1], Basket(), {"a": 1}]
    once = "False,False;False,True;True,False;False,True;"
    assert rendered(template, [], values=values) == once
    assert rendered(template, [], values=[*values, *values]) == once + once
    with pytest.raises(TemplateFailed):
        rendered(ChatTemplate("{{ v.pop() }}"), [], v=[1])
