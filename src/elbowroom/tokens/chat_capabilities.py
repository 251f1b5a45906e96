"""What a chat template can take, found out by rendering small conversations with it.

A template says nowhere whether it reads content as text or as parts, whether it has a system role, or whether it
wants the arguments of a tool call as an object. llama.cpp tries it out, and so does this; the questions are the same.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from elbowroom.tokens.chat_messages import Capabilities
from elbowroom.tokens.chat_template_errors import TemplateFailed, TemplateOverran

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


class WatchedText(str):
    """A text that notices when a template goes through it as if it were a list of parts."""

    __slots__ = ("read_as_list",)

    def __iter__(self) -> Iterator[str]:
        self.read_as_list = True
        return super().__iter__()


class WatchedParts(list[Any]):
    """An empty list of parts that notices when a template goes through it."""

    read_as_list = False

    def __iter__(self) -> Iterator[Any]:
        self.read_as_list = True
        return super().__iter__()


def capabilities_of(template: ChatTemplate) -> Capabilities:
    """Try the template on small conversations and conclude what it can take."""
    text, parts = WatchedText(MARK), WatchedParts()
    with_text = attempt(template, [{"role": "user", "content": text}])
    with_no_parts = attempt(template, [{"role": "user", "content": parts}])
    with_part = attempt(template, [{"role": "user", "content": [{"type": "text", "text": MARK}]}])
    text_as_list = getattr(text, "read_as_list", False)
    parts_as_list = with_no_parts is not None and parts.read_as_list
    system = attempt(template, [{"role": "system", "content": MARK}, copy.copy(USER)])
    call = attempt(template, copy.deepcopy(TOOL_CHAT), [copy.deepcopy(TOOL)])
    return Capabilities(
        string_content=with_text is not None and (MARK in with_text or not text_as_list),
        typed_content=text_as_list or (parts_as_list and prints_only_the_text(with_part)),
        system_role=system is not None and MARK in system,
        object_arguments=call is not None and MARK in call,
    )


def prints_only_the_text(rendered: str | None) -> bool:
    """Tell whether a part came out as its text, not as the whole list it stands in."""
    return rendered is not None and MARK in rendered and "'type'" not in rendered and '"type"' not in rendered


def attempt(
    template: ChatTemplate, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
) -> str | None:
    """Render a probe; None where the template fails on it. One that overruns here would do so everywhere."""
    variables = {
        "messages": list(messages),
        "tools": list(tools),
        "bos_token": "",
        "eos_token": "",
        "add_generation_prompt": True,
    }
    try:
        return template.evaluate(variables)
    except TemplateOverran:
        raise
    except TemplateFailed:
        return None
