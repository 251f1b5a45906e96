"""What a chat template can take, found out by rendering small conversations with it.

A template says nowhere whether it reads content as text or as parts, whether it has a system role, or whether it
wants the arguments of a tool call as an object. llama.cpp tries it out, and so does this; the questions are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from elbowroom.tokens.chat_messages import Capabilities
from elbowroom.tokens.chat_template_errors import TemplateFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.tokens.chat_template import ChatTemplate

MARK: Final = "MARKED_TEXT"
USER: Final = {"role": "user", "content": "User message"}
TOOL: Final = {
    "type": "function",
    "function": {
        "name": "tool1",
        "description": "Tool description",
        "parameters": {
            "type": "object",
            "properties": {"arg": {"type": "string", "description": "Arg description"}},
            "required": ["arg"],
        },
    },
}
CALL: Final = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "tool1", "arguments": {"arg": MARK}},
}
TOOL_CHAT: Final = (
    USER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "Tool response", "tool_call_id": "call00001"},
    {"role": "assistant", "content": "The tool answered"},
    USER,
)


def capabilities_of(template: ChatTemplate) -> Capabilities:
    """Try the template on four small conversations and conclude what it can take."""
    as_text = attempt(template, [{"role": "user", "content": MARK}])
    as_parts = attempt(template, [{"role": "user", "content": [{"type": "text", "text": MARK}]}])
    system = attempt(template, [{"role": "system", "content": MARK}, USER])
    return Capabilities(
        string_content=MARK in as_text,
        typed_content=MARK in as_parts and not any(sign in as_parts for sign in ("'type'", '"type"')),
        system_role=MARK in system,
        object_arguments=MARK in attempt(template, TOOL_CHAT, [TOOL]),
    )


def attempt(
    template: ChatTemplate, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
) -> str:
    """Render a probe; a template that fails on it has written nothing."""
    variables = {"messages": messages, "tools": tools, "bos_token": "", "eos_token": ""}
    try:
        return template.evaluate({**variables, "add_generation_prompt": True})
    except TemplateFailed:
        return ""
