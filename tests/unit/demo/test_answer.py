"""What the simulated model says by itself."""

import json
from typing import Any

from elbowroom.demo import Script, Text, ToolCall
from elbowroom.demo.answer import Situation, default_answer
from elbowroom.demo.overflow import Reading

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_note",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]


def answer(message: dict[str, Any], dropped: int = 0, *, cut: bool = False, **body: Any) -> Script:
    """Return the default answer to this last message."""
    reading = Reading((message,), 1234, dropped, cut_message=cut)
    return default_answer(Situation("Qwen2.5 7B", 8192, 1 + dropped, reading, body))


def said(script: Script) -> str:
    """Return the text of a script."""
    return "".join(step.text for step in script.steps if isinstance(step, Text))


def user(content: Any) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": content}


def test_answer_says_what_it_is_and_what_it_got() -> None:
    """It calls itself simulated, quotes the question and tells messages, tokens and window."""
    text = said(answer(user("Why is the sky blue?")))
    for part in ("simulated Qwen2.5 7B", "“Why is the sky blue?”", "1 message", "1234 tokens", "8192"):
        assert part in text
    assert "no longer see" not in text


def test_answer_quotes_only_the_beginning() -> None:
    """A long question is not repeated whole."""
    text = said(answer(user("word " * 500)))
    assert len(text) < 500
    assert "word…”" in text


def test_answer_admits_what_it_lost() -> None:
    """Messages that were cut are named, and a last message whose beginning is gone."""
    text = said(answer(user("Go on"), dropped=3, cut=True))
    assert "no longer see 3 messages" in text
    assert "only see the end" in text


def test_tool_asked_for_by_name_is_called() -> None:
    """The tool's name in the question is enough; quoted text becomes its argument."""
    script = answer(user("Please use read_note on 'ideas.md'."), tools=TOOLS)
    assert script == Script(ToolCall("read_note", {"path": "ideas.md"}))


def test_tool_not_asked_for_is_not_called() -> None:
    """A part of another word is not its name, and `none` forbids any call."""
    assert said(answer(user("What does unread_notes mean?"), tools=TOOLS))
    assert said(answer(user("Use read_note"), tools=TOOLS, tool_choice="none"))


def test_required_tool_is_called_without_its_name() -> None:
    """`required` takes the first tool there is."""
    script = answer(user("Hello"), tools=TOOLS, tool_choice="required")
    assert script == Script(ToolCall("read_note", {"path": "Hello"}))


def test_tool_result_is_quoted() -> None:
    """After a tool's result the answer repeats it and calls nothing more."""
    text = said(answer({"role": "tool", "tool_call_id": "0", "content": "Buy milk"}, tools=TOOLS))
    assert "The tool answered: “Buy milk”" in text


def test_image_is_noticed() -> None:
    """Its kind and size are told, and that nobody looked at it."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    text = said(answer(user([{"type": "text", "text": "What is it?"}, image])))
    assert "An image came" in text
    assert "image/png, 3 bytes" in text


def test_schema_is_answered_with_json_that_fits() -> None:
    """A structured answer has the required shape and the user's words in it."""
    schema = {"type": "object", "properties": {"summary": {"type": "string"}, "keep": {"type": "array"}}}
    shape = {"type": "json_schema", "json_schema": {"name": "plan", "schema": schema}}
    assert json.loads(said(answer(user("Sum up"), response_format=shape))) == {
        "summary": "Sum up",
        "keep": [],
    }
