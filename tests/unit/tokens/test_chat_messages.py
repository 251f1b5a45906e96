"""OpenAI-style messages take the form that templates are given, and the caller's stay as they are."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from template_chats import CHATS, call, parts

from elbowroom.tokens.errors import TemplateFailed
from elbowroom.tokens.templates import ChatPrompt, ChatRequest
from elbowroom.tokens.templates.messages import Capabilities, canonical_messages, canonical_tools, fit_messages

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}


def fitted(*messages: dict[str, Any], **able: bool) -> list[dict[str, Any]]:
    """Return the messages as a template of these abilities gets them."""
    return fit_messages(canonical_messages(messages), Capabilities(**able))


def test_only_what_an_engine_reads_is_kept() -> None:
    """Unknown keys go, the rest keeps the engine's order, and no content is the empty text."""
    message = {
        "tool_calls": [{**call({"a": 1}), "index": 0}],
        "role": "assistant",
        "content": None,
        "annotations": [],
        "reasoning_content": "Hm.",
        "refusal": None,
    }
    (result,) = canonical_messages([message])
    assert list(result) == ["role", "content", "reasoning_content", "tool_calls"]
    assert result["content"] == ""
    function = {"name": "get_weather", "arguments": '{"a": 1}'}
    assert result["tool_calls"] == [{"type": "function", "function": function, "id": "call00001"}]


@pytest.mark.parametrize(
    ("given", "able", "expected"),
    [
        ('{"a": 1.0, "b": [null]}', True, {"a": 1.0, "b": [None]}),
        ({"a": 1}, True, {"a": 1}),
        ("", True, {}),
        ('{"a": ', True, '{"a": '),
        ('{"a": 1}', False, '{"a": 1}'),
        ({"a": "é"}, False, '{"a":"é"}'),
    ],
)
def test_arguments_become_what_the_template_takes(given: Any, able: bool, expected: Any) -> None:
    """Arguments are parsed for templates that take objects; broken JSON stays text."""
    called = {"id": "1", "type": "function", "function": {"name": "f", "arguments": given}}
    (message,) = fitted({"role": "assistant", "tool_calls": [called]}, object_arguments=able)
    assert message["tool_calls"][0]["function"]["arguments"] == expected


def test_parts_become_text_where_text_is_all_a_template_reads() -> None:
    """Text parts are joined by line breaks; an image takes no text and no line break."""
    content = [*parts("one", "two"), IMAGE, *parts("three", "four")]
    (message,) = fitted({"role": "user", "content": content})
    assert message["content"] == "one\ntwothree\nfour"


def test_parts_stay_parts_where_a_template_reads_them() -> None:
    """An image stays as a part of type `image` without its bytes; other keys of a part go."""
    content = [{"type": "text", "text": "see", "cache_control": {}}, IMAGE]
    (message,) = fitted({"role": "user", "content": content}, typed_content=True)
    assert message["content"] == [{"type": "text", "text": "see"}, {"type": "image"}]


def test_text_becomes_a_part_where_parts_are_all_a_template_reads() -> None:
    """The opposite kind of template gets a list with one text."""
    (message,) = fitted({"role": "user", "content": "hi"}, typed_content=True, string_content=False)
    assert message["content"] == [{"type": "text", "text": "hi"}]


def test_system_message_goes_before_the_next_where_there_is_no_such_role() -> None:
    """Its text is put in front of the next message's; alone it is left out."""
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": parts("a", "b")}
    assert fitted(system, user, system_role=False) == [{"role": "user", "content": "Be brief.\na\nb"}]
    assert fitted(system, system_role=False) == []


def test_tools_have_a_description_and_parameters() -> None:
    """A bare definition is completed, and keys such as `strict` go."""
    bare = {"type": "function", "function": {"name": "now", "strict": True}}
    function = {"name": "now", "description": "", "parameters": {}}
    assert canonical_tools([bare]) == [{"type": "function", "function": function}]
    assert canonical_tools(None) == []


def test_callers_messages_are_never_changed() -> None:
    """Whatever is done to the results, the caller's objects keep their value; a plain message stands for itself."""
    for chat in CHATS.values():
        messages, tools = copy.deepcopy(chat.messages), copy.deepcopy(chat.tools)
        for able in (Capabilities(), Capabilities(False, True, False, False)):
            for message in fit_messages(canonical_messages(messages), able):
                for called in message.get("tool_calls", ()):
                    called["function"].clear()
                if message.keys() == {"role", "content"} and isinstance(message["content"], list):
                    message["content"].clear()
                if not any(message is own for own in messages):
                    message.clear()
        for tool in canonical_tools(tools):
            tool["function"]["parameters"].clear()
        assert (messages, tools) == (chat.messages, chat.tools)


@pytest.mark.parametrize(
    "change",
    [
        *("m.update(content='')", "m.clear()", "m.pop('content')", "m.popitem()", "m.setdefault('name', 'x')"),
        *("m.__setitem__('content', '')", "(m | attr('update'))(content='')", "(m | attr('__ior__'))({'content': ''})"),
    ],
)
def test_no_template_changes_a_message(change: str) -> None:
    """A plain message, which stands for itself in a prompt, keeps its value; whoever wants to change it is stopped."""
    messages = [{"role": "user", "content": "Hello"}]
    source = f"{{% for m in messages %}}{{{{ {change} }}}}{{% endfor %}}"
    with suppress(TemplateFailed):
        ChatPrompt(source).text(ChatRequest(messages))
    assert messages == [{"role": "user", "content": "Hello"}]


def test_form_is_final() -> None:
    """Bringing canonical messages into canonical form changes nothing."""
    for chat in CHATS.values():
        once, tools = canonical_messages(chat.messages), canonical_tools(chat.tools)
        assert canonical_messages(once) == once
        assert canonical_tools(tools) == tools


@pytest.mark.parametrize("content", [7, {}, [None, "x"], [{"type": "text", "text": None}], [{}]])
def test_odd_content_is_no_crash(content: Any) -> None:
    """Content that is neither text nor parts counts as nothing, part by part."""
    (message,) = fitted({"role": "user", "content": content})
    assert message["content"] == ""
