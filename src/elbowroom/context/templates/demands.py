"""Finds out what a model's chat template demands of a history, by rendering small histories with it.

No template says what it refuses, and many lose text without a word: a second call, a later system message. So each
question is a history with one peculiarity, and the answer is whether all of its words come out.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.context.transcript import Message

Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]]], str]
"""Renders OpenAI-style messages and tools to the prompt, generation prompt included; raises where it cannot."""

TYPE_KEY: Final = re.compile("""["']type["']""")


def _says(role: str, content: object) -> Message:
    return {"role": role, "content": content}


def _call(word: str, call_id: str) -> Mapping[str, Any]:
    function = {"name": "look_up", "arguments": json.dumps({"subject": word})}
    return {"id": call_id, "type": "function", "function": function}


def _calls(*several: Mapping[str, Any], content: object = "") -> Message:
    return {"role": "assistant", "content": content, "tool_calls": list(several)}


def _result(word: str, call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": word}


ASK, ASK_AGAIN = _says("user", "QuestionWord"), _says("user", "AnotherWord")
ANSWER, ADD = _says("assistant", "AnswerWord"), _says("assistant", "AdditionWord")
SYSTEM, SYSTEM_AGAIN = _says("system", "InstructionWord"), _says("system", "AmendmentWord")
CALL, SECOND_CALL = _call("SubjectWord", "callAbc01"), _call("MatterWord", "callAbc02")
CALLS, RESULT, SECOND_RESULT = _calls(CALL), _result("OutcomeWord", "callAbc01"), _result("FindingWord", "callAbc02")
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
class _Probe:
    """Asks a template questions; any exception that it raises is an answer too.

    Histories without calls are tried with and without a tool on offer, those with calls only with it.
    """

    render: Render

    def texts(self, *messages: Message) -> Iterator[str | None]:
        """Yield the prompts of a history; None where the template fails."""
        if not any(message.get("tool_calls") for message in messages):
            yield self.text(messages, ())
        yield self.text(messages, (TOOL,))

    def text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str | None:
        try:
            return self.render(messages, tools)
        except Exception:  # noqa: BLE001 - whoever renders has errors of its own
            return None

    def refuses(self, *messages: Message) -> bool:
        return None in self.texts(*messages)

    def loses(self, words: str, *messages: Message) -> bool:
        """Tell whether the template fails, or any of the words is missing from a prompt."""
        wanted = words.split()
        return any(text is None or any(word not in text for word in wanted) for text in self.texts(*messages))

    def shows_tools(self, *messages: Message) -> bool:
        return TOOL["function"]["description"] in (self.text(messages, (TOOL,)) or "")


@dataclass(frozen=True, slots=True)
class TemplateDemands:
    """The demands that `normalise` meets; without any, every sound history is fine as it is.

    Where the engine translates for templates that know no tools, as LM Studio does, `results_as_text` is not wanted:
    probe through the engine, or take the flag off with `dataclasses.replace`.
    """

    roles_alternate: bool = False
    """User and assistant take turns, the user first."""
    calls_take_turns: bool = False
    """An assistant message with calls is a turn of the assistant too, its results one of the user."""
    user_first: bool = False
    """Nobody speaks before the user; a system message may."""
    user_needed: bool = False
    """A user message has to be somewhere."""
    one_answer_at_end: bool = False
    """A history may end with one assistant message, which is then continued, and not with several."""
    no_user_after_result: bool = False
    """Between a tool result and a user message stands an answer; implied, as far as it goes, where roles alternate."""
    system_as_user: bool = False
    """There is no system role, or what it says is lost: right away, or when a tool result is the last message."""
    system_first_only: bool = False
    """One system message may open the history; a later one is refused or lost."""
    no_developer_role: bool = False
    """The developer role is refused or lost."""
    results_as_text: bool = False
    """Tool results are refused or lost."""
    one_call_a_message: bool = False
    """Of several calls in one message all but one are refused or lost."""
    portable_ids: bool = False
    """Tool-call ids are nine letters and digits."""
    no_null_content: bool = False
    """Content is a text, never null; where it isn't, the template fails or writes "None"."""
    no_empty_answer: bool = False
    """An assistant message says something or calls a tool."""
    text_content_only: bool = False
    """Content given as text parts is refused, or written with the brackets around it."""
    drops_text_beside_calls: bool = False
    """What an assistant says in the same message as a call is lost; `normalise` moves no text to such a place."""


def demands_of(render: Render) -> TemplateDemands:
    """Ask a template some forty questions; one that fails on a single user message demands nothing."""
    probe = _Probe(render)
    if probe.loses("QuestionWord", ASK):
        return TemplateDemands()
    knows_results = not probe.loses("OutcomeWord", ASK, CALLS, RESULT)
    found = _system_demands(probe) | _content_demands(probe) | _turn_demands(probe)
    if knows_results:
        found |= _tool_demands(probe) | _tool_turn_demands(probe, found)
    return TemplateDemands(**found, results_as_text=not knows_results)


def _system_demands(probe: _Probe) -> dict[str, bool]:
    """Ask what becomes of system messages, at the beginning and later."""
    both = "InstructionWord AmendmentWord"
    return {
        "system_as_user": probe.loses("InstructionWord", SYSTEM, ASK),
        "system_first_only": probe.loses(both, SYSTEM, SYSTEM_AGAIN, ASK)
        or probe.loses(both, SYSTEM, ASK, SYSTEM_AGAIN)
        or probe.loses(both, SYSTEM, ASK, ANSWER, SYSTEM_AGAIN, ASK_AGAIN),
        "no_developer_role": probe.loses("InstructionWord", _says("developer", "InstructionWord"), ASK),
    }


def _content_demands(probe: _Probe) -> dict[str, bool]:
    roles = ("system", "user", "assistant", "tool")
    return {
        "no_null_content": any(_breaks_null(probe, role) for role in roles),
        "no_empty_answer": probe.refuses(ASK, _says("assistant", ""), ASK_AGAIN),
        "text_content_only": any(_breaks_parts(probe, role) for role in roles),
    }


def _breaks_null(probe: _Probe, role: str) -> bool:
    """Tell whether null as content is refused or written out, where an empty text is fine."""
    empty, null = (list(probe.texts(*_history_with(role, content))) for content in ("", None))
    return any(
        before is not None and (after is None or after.count("None") > before.count("None"))
        for before, after in zip(empty, null, strict=True)
    )


def _breaks_parts(probe: _Probe, role: str) -> bool:
    """Tell whether text parts are refused, lost, or written as a list, where the same content as one text is fine."""
    first, second = "BeginningWord", "EndingWord"
    parts = [{"type": "text", "text": first}, {"type": "text", "text": second}]
    as_text, as_parts = (list(probe.texts(*_history_with(role, content))) for content in (f"{first} {second}", parts))
    return any(
        before is not None
        and (
            after is None
            or min(after.count(first), after.count(second)) < before.count(first)
            or len(TYPE_KEY.findall(after)) > len(TYPE_KEY.findall(before))
        )
        for before, after in zip(as_text, as_parts, strict=True)
    )


def _history_with(role: str, content: object) -> list[Message]:
    if role == "system":
        return [_says(role, content), ASK]
    if role == "assistant":
        return [ASK, _calls(CALL, content=content), RESULT, _says(role, content), ASK_AGAIN]
    return [ASK, CALLS, {**RESULT, "content": content}] if role == "tool" else [_says(role, content)]


def _turn_demands(probe: _Probe) -> dict[str, bool]:
    """Ask which role may or must follow which, in histories without tools."""
    return {
        "roles_alternate": probe.refuses(ASK, ASK_AGAIN) or probe.refuses(ASK, ANSWER, ADD, ASK_AGAIN),
        "user_first": probe.loses("AnswerWord QuestionWord", ANSWER, ASK),
        "user_needed": probe.loses("InstructionWord", SYSTEM) or probe.refuses(ANSWER) or probe.refuses(SYSTEM, ANSWER),
        "one_answer_at_end": not probe.refuses(ASK, ANSWER) and probe.refuses(ASK, ANSWER, ADD),
    }


def _tool_demands(probe: _Probe) -> dict[str, bool]:
    shows_calls = not probe.loses("SubjectWord", ASK, CALLS, RESULT)
    two = "OutcomeWord FindingWord SubjectWord MatterWord" if shows_calls else "OutcomeWord FindingWord"
    remark = _calls(CALL, content="RemarkWord")
    return {
        "one_call_a_message": probe.loses(two, ASK, _calls(CALL, SECOND_CALL), RESULT, SECOND_RESULT),
        "portable_ids": probe.refuses(ASK, _calls(_call("SubjectWord", LONG_ID)), _result("OutcomeWord", LONG_ID)),
        "drops_text_beside_calls": probe.loses("RemarkWord", ASK, remark, RESULT)
        or probe.loses("RemarkWord", ASK, remark, RESULT, ANSWER, ASK_AGAIN),
    }


def _tool_turn_demands(probe: _Probe, found: dict[str, bool]) -> dict[str, bool]:
    """Ask again the questions of `_turn_demands` and `_system_demands`, around calls and results."""
    words = "OutcomeWord" if probe.loses("SubjectWord", ASK, CALLS, RESULT) else "OutcomeWord SubjectWord"
    shows_tools = probe.shows_tools(ASK, CALLS, RESULT)
    alternate = found["roles_alternate"]
    return {
        "system_as_user": found["system_as_user"] or probe.loses("InstructionWord", SYSTEM, ASK, CALLS, RESULT),
        "user_first": found["user_first"] or probe.loses(words, CALLS, RESULT, ANSWER, ASK),
        "user_needed": found["user_needed"]
        or probe.loses(words, CALLS, RESULT)
        or (shows_tools and not probe.shows_tools(CALLS, RESULT)),
        "calls_take_turns": alternate and probe.refuses(ASK, ANSWER, CALLS, RESULT),
        "no_user_after_result": not alternate and probe.refuses(ASK, CALLS, RESULT, ASK_AGAIN),
    }
