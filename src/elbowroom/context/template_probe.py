"""Questions to a chat template: small conversations, and whether they come out whole."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.context.transcript import Message

Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]]], str]
"""Renders OpenAI-style messages and tools to the prompt, generation prompt included; raises where it cannot."""

TYPE_KEY: Final = re.compile("""["']type["']""")


def says(role: str, content: object) -> Message:
    """Return a message of this role."""
    return {"role": role, "content": content}


def call(word: str, call_id: str) -> Mapping[str, Any]:
    """Return a tool call about a word."""
    function = {"name": "look_up", "arguments": json.dumps({"subject": word})}
    return {"id": call_id, "type": "function", "function": function}


def calls(*several: Mapping[str, Any], content: object = "") -> Message:
    """Return an assistant message with calls."""
    return {"role": "assistant", "content": content, "tool_calls": list(several)}


def result(word: str, call_id: str) -> Message:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": word}


ASK, ASK_AGAIN = says("user", "QuestionWord"), says("user", "AnotherWord")
ANSWER, ADD = says("assistant", "AnswerWord"), says("assistant", "AdditionWord")
SYSTEM, SYSTEM_AGAIN = says("system", "InstructionWord"), says("system", "AmendmentWord")
CALL, SECOND_CALL = call("SubjectWord", "callAbc01"), call("MatterWord", "callAbc02")
CALLS, RESULT, SECOND_RESULT = calls(CALL), result("OutcomeWord", "callAbc01"), result("FindingWord", "callAbc02")
LONG_ID: Final = "call_of_a_usual_length"
TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "ToolWord",
        "parameters": {"type": "object", "properties": {"subject": {"type": "string", "description": "What of"}}},
    },
}


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks a template questions; a failure is an answer too, whatever it raises.

    Conversations without calls are tried with and without a tool on offer, those with calls only with it.
    """

    render: Render

    def texts(self, *messages: Message) -> Iterator[str | None]:
        """Yield the prompts of a conversation; None where the template fails."""
        if not any(message.get("tool_calls") for message in messages):
            yield self.text(messages, ())
        yield self.text(messages, (TOOL,))

    def text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str | None:
        """Return the prompt, or None."""
        try:
            return self.render(messages, tools)
        except Exception:  # noqa: BLE001 - whoever renders has errors of its own
            return None

    def refuses(self, *messages: Message) -> bool:
        """Tell whether the template fails."""
        return None in self.texts(*messages)

    def loses(self, words: str, *messages: Message) -> bool:
        """Tell whether the template fails, or any of the words is missing from the prompt."""
        wanted = words.split()
        return any(text is None or any(word not in text for word in wanted) for text in self.texts(*messages))

    def shows_tools(self, *messages: Message) -> bool:
        """Tell whether the tool on offer is in the prompt."""
        return TOOL["function"]["description"] in (self.text(messages, (TOOL,)) or "")
