"""Finds out by small renderings how a chat template marks the model's thinking, and which messages it can take.

The marks are needed where an engine continues an unfinished answer: it opens and closes the thinking as the template
would have done. The comparisons are llama.cpp's, in a shorter form.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.tokens.errors import TemplateFailed, TemplateOverran
from elbowroom.tokens.templates.messages import Capabilities
from elbowroom.tokens.templates.template import ChatTemplate

THOUGHT: Final = "REASON_PART I am thinking END_R"
USER: Final = {"role": "user", "content": "U_USER_MSG Hello END_U"}
ANSWER: Final = {"role": "assistant", "content": "A_ASST_MSG I can help END_A"}
CALLS: Final = [
    {
        "id": "call00001",
        "type": "function",
        "function": {"name": "tool1", "arguments": {"arg": "VVVV"}},
    }
]
MARKER: Final = r"(?:<[^>]*>|\[[^\]]*\])"
SEGMENT: Final = re.compile(rf"{MARKER}|(?:(?!{MARKER}).)+", re.DOTALL)
WRAPPED: Final = re.compile(rf"({MARKER}\s*){THOUGHT}(\s*{MARKER}\s*)")
CLOSED: Final = re.compile(rf"(){THOUGHT}\s*({MARKER}\s*)")


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """The text before and after the model's thinking; both empty where a template knows no thinking."""

    start: str = ""
    end: str = ""


def reasoning_marks_of(template: ChatTemplate, bos_token: str = "", eos_token: str = "") -> ReasoningMarks:
    """Find the marks in a rendered thought, else in what switching the thinking off changes."""
    probe = Probe(template, bos_token, eos_token)
    marks = marks_in_history(probe)
    marks = marks_in_generation_prompt(probe, marks)
    return marks_of_old_templates(template.source, marks)


@dataclass(frozen=True, slots=True)
class Probe:
    """Renders small conversations, as None where the template fails."""

    template: ChatTemplate
    bos_token: str
    eos_token: str

    def text(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        thinking: bool = True,
        prompt: bool = False,
        tools: bool = False,
    ) -> str | None:
        """Render messages with thinking on or off, with or without a generation prompt and a tool."""
        variables: dict[str, Any] = {
            "messages": copy.deepcopy(list(messages)),
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "enable_thinking": thinking,
        }
        if prompt:
            variables["add_generation_prompt"] = True
        if tools:
            variables["tools"] = [copy.deepcopy(TOOL)]
        return text_or_none(self.template, variables)


def marks_in_history(probe: Probe) -> ReasoningMarks:
    """Look for the marks in an assistant message with a thought, then in one with a thought and a tool call."""
    answered = probe.text([USER, {**ANSWER, "reasoning_content": THOUGHT}])
    if answered and THOUGHT in answered and probe.text([USER, ANSWER]) is not None:
        return marks_around_thought(answered)
    called = probe.text(
        [USER, {"role": "assistant", "content": "", "reasoning_content": THOUGHT, "tool_calls": CALLS}],
        tools=True,
    )
    return marks_around_thought(called) if called else ReasoningMarks()


def marks_around_thought(text: str) -> ReasoningMarks:
    """Read the marks on both sides of the probe's thought, or the closing one alone."""
    found = WRAPPED.search(text) or CLOSED.search(text)
    return ReasoningMarks(found[1], found[2]) if found else ReasoningMarks()


def marks_in_generation_prompt(probe: Probe, marks: ReasoningMarks) -> ReasoningMarks:
    """Find missing marks in the difference between thinking switched off and on."""
    off = probe.text([USER], thinking=False, prompt=True)
    on = probe.text([USER], thinking=True, prompt=True)
    if off is None or on is None:
        return marks
    only_off, only_on = difference(off, on)
    if only_on.strip() and not only_off.strip() and on.endswith(only_on.strip()):
        return ReasoningMarks(marks.start or only_on, marks.end)
    if only_off.strip() and not only_on.strip() and off.endswith(only_off.strip()) and not marks.end:
        *_, before, last = ["", "", *(piece for piece in SEGMENT.findall(off) if piece.strip())]
        opens = last == only_off.strip() and re.fullmatch(MARKER, before)
        return ReasoningMarks(before if opens else marks.start, only_off)
    if only_off.strip() and only_on.strip():
        return marks_in_tails(off, on, marks)
    return marks


def marks_in_tails(off: str, on: str, marks: ReasoningMarks) -> ReasoningMarks:
    """Look for one prompt's end inside the other with an opening and a closing mark after it."""
    for base, extended in ((on, off), (off, on)):
        anchor = base[-64:]
        at = extended.rfind(anchor)
        extra = SEGMENT.findall(extended[at + len(anchor) :].strip()) if at >= 0 else []
        pieces = [piece for piece in extra if piece.strip()]
        if len(pieces) == 2 and all(re.fullmatch(MARKER, piece) for piece in pieces):
            return ReasoningMarks(marks.start or pieces[0], marks.end or pieces[1])
    return marks


def difference(left: str, right: str) -> tuple[str, str]:
    """Return two texts without their common beginning and end, cut only at markers."""
    a, b = SEGMENT.findall(left), SEGMENT.findall(right)
    while a and b and a[0] == b[0]:
        del a[0], b[0]
    while a and b and a[-1] == b[-1]:
        del a[-1], b[-1]
    return "".join(a), "".join(b)


def marks_of_old_templates(source: str, marks: ReasoningMarks) -> ReasoningMarks:
    """Return the marks of templates for which the comparisons find wrong ones."""
    if "<SPECIAL_10>" in source and "<TOOL_RESPONSE>" in source:
        return ReasoningMarks("<think>\n", "</think>")
    if "between <think></think> and write your response between <response></response>" in source:
        return ReasoningMarks("<think>", "</think>")
    if "content.split('</think>')" in source and "reasoning_content" not in source and marks == ReasoningMarks():
        return ReasoningMarks("<think>", "</think>")
    if "laguna_glm_thinking" in source:
        return ReasoningMarks(marks.start.strip(), marks.end.strip())
    return marks


MARK: Final = "MARKED_TEXT"
USER_MESSAGE: Final = {"role": "user", "content": "User message"}
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
    USER_MESSAGE,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "Tool response", "tool_call_id": "call00001"},
    {"role": "assistant", "content": "The tool answered"},
    USER_MESSAGE,
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
    system = attempt(template, [{"role": "system", "content": MARK}, copy.copy(USER_MESSAGE)])
    call = attempt(template, copy.deepcopy(TOOL_CHAT), [copy.deepcopy(TOOL)])
    return Capabilities(
        string_content=with_text is not None and (MARK in with_text or not text_as_list),
        typed_content=text_as_list or (parts_as_list and prints_only_the_text(with_part)),
        system_role=system is not None and MARK in system,
        object_arguments=call is not None and MARK in call,
    )


def prints_only_the_text(rendered: str | None) -> bool:
    """Tell whether a part was rendered as its text, not as the list around it."""
    return rendered is not None and MARK in rendered and "'type'" not in rendered and '"type"' not in rendered


def attempt(
    template: ChatTemplate, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
) -> str | None:
    """Render a small conversation; None where the template fails on it. Raises TemplateOverran."""
    variables = {
        "messages": list(messages),
        "tools": list(tools),
        "bos_token": "",
        "eos_token": "",
        "add_generation_prompt": True,
    }
    return text_or_none(template, variables)


def text_or_none(template: ChatTemplate, variables: Mapping[str, Any]) -> str | None:
    """Render; None where the template fails. Raises TemplateOverran: it would overrun everywhere."""
    try:
        return template.evaluate(variables)
    except TemplateOverran:
        raise
    except TemplateFailed:
        return None
