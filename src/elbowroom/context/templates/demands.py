"""Finds out what a model's chat template demands of a history, by rendering small histories with it.

No template says what it refuses, and many lose text without a word: a second call, a later system message. So each
question is a history with one peculiarity, and the answer is whether all of its words come out.
"""

import json
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from elbowroom.context.transcript import Message

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
    """No answer stands before the first user message."""
    user_before_calls: bool = False
    """No call stands before the first user message."""
    user_needed: bool = False
    """A user message has to be somewhere."""
    no_answer_alone: bool = False
    """An answer that is to be continued needs a message before it, from whomever."""
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
    """Tool results are refused or lost, or the calls before them."""
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
    """What an assistant says in the same message as a call is lost, or the call is."""


@dataclass(frozen=True, slots=True)
class Question:
    """A history, and the tools on offer beside it; the answer is the prompt, None where the template fails."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]

    @property
    def key(self) -> str:
        """Return the same text for the same question."""
        return repr((list(self.messages), list(self.tools)))


T = TypeVar("T")
Asking = Generator[Question, str | None, T]
"""Yields questions, is sent their answers, and returns what these come to."""


def asked_demands() -> Asking[TemplateDemands]:
    """Ask a template some forty questions; one that fails on a single user message demands nothing."""
    if (yield from _loses("QuestionWord", ASK)):
        return TemplateDemands()
    knows_results = not (yield from _loses("OutcomeWord SubjectWord", ASK, CALLS, RESULT))
    found = (yield from _system_demands()) | (yield from _content_demands()) | (yield from _turn_demands())
    if knows_results:
        found |= (yield from _tool_demands()) | (yield from _tool_turn_demands(found))
    return TemplateDemands(**found, results_as_text=not knows_results)


def asked_without_tools() -> Asking[TemplateDemands]:
    """Ask what the template demands where no tools are on offer: some take then what they refuse with tools."""
    asking = asked_demands()
    question = next(asking)
    while True:
        answer = yield Question(question.messages, ())
        try:
            question = asking.send(answer)
        except StopIteration as end:
            return cast("TemplateDemands", end.value)


def _system_demands() -> Asking[dict[str, bool]]:
    """Ask what becomes of system messages, at the beginning and later."""
    both = "InstructionWord AmendmentWord"
    return {
        "system_as_user": (yield from _loses("InstructionWord", SYSTEM, ASK)),
        "system_first_only": (
            yield from _any(
                _loses(both, SYSTEM, SYSTEM_AGAIN, ASK),
                _loses(both, SYSTEM, ASK, SYSTEM_AGAIN),
                _loses(both, SYSTEM, ASK, ANSWER, SYSTEM_AGAIN, ASK_AGAIN),
            )
        ),
        "no_developer_role": (yield from _loses("InstructionWord", _says("developer", "InstructionWord"), ASK)),
    }


def _content_demands() -> Asking[dict[str, bool]]:
    roles = ("system", "user", "assistant", "tool")
    return {
        "no_null_content": (yield from _any(*map(_breaks_null, roles))),
        "no_empty_answer": (yield from _refuses(ASK, _says("assistant", ""), ASK_AGAIN)),
        "text_content_only": (yield from _any(*map(_breaks_parts, roles))),
    }


def _breaks_null(role: str) -> Asking[bool]:
    """Tell whether null as content is refused or written out, where an empty text is fine."""
    empty = yield from _texts(_history_with(role, ""))
    null = yield from _texts(_history_with(role, None))
    return any(
        before is not None and (after is None or after.count("None") > before.count("None"))
        for before, after in zip(empty, null, strict=True)
    )


def _breaks_parts(role: str) -> Asking[bool]:
    """Tell whether text parts are refused, lost, or written as a list, where the same content as one text is fine."""
    first, second = "BeginningWord", "EndingWord"
    parts = [{"type": "text", "text": first}, {"type": "text", "text": second}]
    as_text = yield from _texts(_history_with(role, f"{first} {second}"))
    as_parts = yield from _texts(_history_with(role, parts))
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


def _turn_demands() -> Asking[dict[str, bool]]:
    """Ask which role may or must follow which, in histories without tools."""
    return {
        "roles_alternate": (yield from _any(_refuses(ASK, ASK_AGAIN), _refuses(ASK, ANSWER, ADD, ASK_AGAIN))),
        "user_first": (yield from _any(_loses("AnswerWord QuestionWord", ANSWER, ASK), _takes_first_for_user())),
        "user_needed": (yield from _any(_loses("InstructionWord", SYSTEM), _refuses(SYSTEM, ANSWER))),
        "no_answer_alone": (yield from _refuses(ANSWER)),
        "one_answer_at_end": not (yield from _refuses(ASK, ANSWER)) and (yield from _refuses(ASK, ANSWER, ADD)),
    }


def _tool_demands() -> Asking[dict[str, bool]]:
    two = "OutcomeWord FindingWord SubjectWord MatterWord"
    remark, both = _calls(CALL, content="RemarkWord"), "RemarkWord SubjectWord"
    long_id = _calls(_call("SubjectWord", LONG_ID)), _result("OutcomeWord", LONG_ID)
    return {
        "one_call_a_message": (yield from _loses(two, ASK, _calls(CALL, SECOND_CALL), RESULT, SECOND_RESULT)),
        "portable_ids": (yield from _refuses(ASK, *long_id)),
        "drops_text_beside_calls": (
            yield from _any(_loses(both, ASK, remark, RESULT), _loses(both, ASK, remark, RESULT, ANSWER, ASK_AGAIN))
        ),
    }


def _tool_turn_demands(found: dict[str, bool]) -> Asking[dict[str, bool]]:
    """Ask again the questions of `_turn_demands` and `_system_demands`, around calls and results."""
    words = "OutcomeWord SubjectWord"
    shows_tools = yield from _shows_tools(ASK, CALLS, RESULT)
    alternate = found["roles_alternate"]
    return {
        "system_as_user": found["system_as_user"] or (yield from _loses("InstructionWord", SYSTEM, ASK, CALLS, RESULT)),
        "user_before_calls": (yield from _loses(words, CALLS, RESULT, ASK))
        and (yield from _loses(words, CALLS, RESULT, ANSWER, ASK)),
        "user_needed": found["user_needed"]
        or (yield from _loses(words, CALLS, RESULT))
        or (shows_tools and not (yield from _shows_tools(CALLS, RESULT))),
        "calls_take_turns": alternate and (yield from _refuses(ASK, ANSWER, CALLS, RESULT)),
        "no_user_after_result": not alternate and (yield from _refuses(ASK, CALLS, RESULT, ASK_AGAIN)),
    }


def _any(*several: Asking[bool]) -> Asking[bool]:
    """Ask until the first true answer."""
    for asking in several:
        if (yield from asking):
            return True
    return False


def _refuses(*messages: Message) -> Asking[bool]:
    return None in (yield from _texts(messages))


def _loses(words: str, *messages: Message) -> Asking[bool]:
    """Tell whether the template fails, or any of the words is missing from a prompt."""
    wanted = words.split()
    texts = yield from _texts(messages)
    return any(text is None or any(word not in text for word in wanted) for text in texts)


def _takes_first_for_user() -> Asking[bool]:
    """Tell whether an answer that comes first is written as the user's, as some templates do beside tools."""
    as_user = yield from _texts((_says("user", ANSWER["content"]), ASK))
    return any(one == other for one, other in zip((yield from _texts((ANSWER, ASK))), as_user, strict=True))


def _shows_tools(*messages: Message) -> Asking[bool]:
    text = yield Question(messages, (TOOL,))
    return TOOL["function"]["description"] in (text or "")


def _texts(messages: Sequence[Message]) -> Asking[list[str | None]]:
    """Return the prompts of a history with a tool on offer, and without calls in it also without one."""
    has_calls = any(message.get("tool_calls") for message in messages)
    texts = [] if has_calls else [(yield Question(messages, ()))]
    return [*texts, (yield Question(messages, (TOOL,)))]
