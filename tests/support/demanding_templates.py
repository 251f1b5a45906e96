"""Small chat templates, each with one peculiarity of the real ones, and one without any."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from demands_by_rendering import Render
from template_chats import rendered

from elbowroom.tokens.templates.template import ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


PLAIN: Final = """\
{%- macro text(content) %}
    {%- if content is string %}{{ content }}
    {%- else %}{% for part in content or [] %}{{ part.text }} {% endfor %}
    {%- endif %}
{%- endmacro %}
{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor %}
{%- set turn = namespace(of='user') %}
{%- for message in messages %}
    {%- set before = loop.previtem or {} %}
    {#- here #}
    {{- '[' ~ message.role ~ ']' ~ text(message.content) }}
    {%- for call in message.tool_calls or [] %}
        {{- '[call]' ~ call.function.name ~ (call.function.arguments | tojson) }}
    {%- endfor %}
{%- endfor %}
{{- '[assistant]' }}
"""
REFUSAL: Final = "{{ raise_exception('refused') }}"


def refusing(condition: str, template: str = PLAIN) -> str:
    """Return a template that refuses a history with any message that meets the condition."""
    return template.replace("{#- here #}", f"{{#- here #}}{{%- if {condition} %}}{REFUSAL}{{% endif %}}")


def hiding(condition: str) -> str:
    """Return a template that says nothing of messages that meet the condition."""
    return PLAIN.replace("{#- here #}", f"{{%- if {condition} %}}{{% continue %}}{{% endif %}}")


def alternating(counted: str) -> str:
    """Return a template that lets the roles alternate among the messages that are counted."""
    turn = "{%- set turn.of = 'user' if turn.of == 'assistant' else 'assistant' %}"
    return refusing(f"{counted} and (message.role == 'assistant') != (turn.of == 'assistant')").replace(
        "{{- '['", f"{{%- if {counted} %}}{turn}{{% endif %}}{{{{- '['"
    )


def plain_but(old: str, new: str) -> str:
    """Return the plain template with something else in one place."""
    assert old in PLAIN
    return PLAIN.replace(old, new)


SPOKEN: Final = "message.role not in ['system', 'developer']"
NO_USER: Final = "not messages | selectattr('role', 'equalto', 'user') | list"
NO_USER_YET: Final = "not messages[:loop.index] | selectattr('role', 'equalto', 'user') | list"
EMPTY_ANSWER: Final = "message.role == 'assistant' and not message.content and not message.tool_calls"

TEMPLATES: Final[dict[str, tuple[str, set[str]]]] = {
    "nothing demanded": (PLAIN, set()),
    "roles alternate around calls": (
        alternating(f"{SPOKEN} and message.role != 'tool' and not message.tool_calls"),
        {"roles_alternate", "user_first", "user_needed", "no_answer_alone", "one_answer_at_end"},
    ),
    "roles alternate, calls and results too": (
        alternating(f"{SPOKEN} and not (message.role == 'tool' and before.role == 'tool')"),
        {
            "roles_alternate",
            "calls_take_turns",
            "user_first",
            "user_before_calls",
            "user_needed",
            "no_answer_alone",
            "one_answer_at_end",
        },
    ),
    "roles alternate, no tools": (
        refusing("message.role == 'tool'", alternating(SPOKEN)),
        {"roles_alternate", "user_first", "user_needed", "no_answer_alone", "results_as_text", "one_answer_at_end"},
    ),
    "user first": (
        refusing(f"message.role == 'assistant' and {NO_USER_YET}"),
        {"user_first", "user_before_calls", "user_needed", "no_answer_alone"},
    ),
    "a user needed": (refusing(NO_USER), {"user_needed", "no_answer_alone"}),
    "one answer at the end": (
        refusing("loop.last and message.role == 'assistant' and before.role == 'assistant'"),
        {"one_answer_at_end"},
    ),
    "no user behind a result": (
        refusing("message.role == 'user' and before.role == 'tool'"),
        {"no_user_after_result"},
    ),
    "system role refused": (
        refusing("message.role in ['system', 'developer']"),
        {"system_as_user", "system_first_only", "no_developer_role", "user_needed"},
    ),
    "system message lost": (
        hiding("message.role == 'system'"),
        {"system_as_user", "system_first_only", "user_needed"},
    ),
    "system message lost behind results": (
        hiding("message.role == 'system' and messages[-1].role == 'tool'"),
        {"system_as_user"},
    ),
    "system message first": (refusing("message.role == 'system' and not loop.first"), {"system_first_only"}),
    "later system message lost": (hiding("message.role == 'system' and not loop.first"), {"system_first_only"}),
    "developer role refused": (refusing("message.role == 'developer'"), {"no_developer_role"}),
    "results lost": (hiding("message.role == 'tool'"), {"results_as_text"}),
    "one call refused with another": (refusing("(message.tool_calls or []) | length > 1"), {"one_call_a_message"}),
    "second call lost": (
        plain_but("message.tool_calls or []", "(message.tool_calls or [])[:1]"),
        {"one_call_a_message"},
    ),
    "portable ids": (refusing("message.role == 'tool' and message.tool_call_id | length != 9"), {"portable_ids"}),
    "null refused": (refusing("message.content is none"), {"no_null_content"}),
    "null written out": (
        plain_but("text(message.content)", "(none if message.content is none else text(message.content))"),
        {"no_null_content"},
    ),
    "empty answer refused": (refusing(EMPTY_ANSWER), {"no_empty_answer"}),
    "parts refused": (refusing("message.content and message.content is not string"), {"text_content_only"}),
    "parts written out": (plain_but("text(message.content)", "(message.content or '')"), {"text_content_only"}),
    "only the first part shown": (plain_but("in content or []", "in (content or [])[:1]"), {"text_content_only"}),
    "tools ignored": (plain_but("in tools or []", "in []"), set()),
    "calls lost": (plain_but("in message.tool_calls or []", "in []"), {"results_as_text"}),
    "text beside calls lost": (
        plain_but("text(message.content)", "('' if message.tool_calls else text(message.content))"),
        {"drops_text_beside_calls"},
    ),
}
"""Templates by what is peculiar about them, and the names of the demands that come of it."""


def render_with(source: str) -> Render:
    """Return what renders messages with this template, as an engine does: arguments of calls are objects."""
    template = ChatTemplate(source)

    def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        return rendered(template, [with_objects(message) for message in messages], tools)

    return render


def with_objects(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose calls have their arguments as objects."""
    if not message.get("tool_calls"):
        return dict(message)
    called = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": called}
