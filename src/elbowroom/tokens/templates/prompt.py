"""Makes the prompt of a chat request as the engine does: with normalised messages, and special cases by family.

The rules are those of llama.cpp's server, found in its source and checked against it: the same request gives the
same text. Only a leading begin-of-text token stays here, which the server removes and its tokenizer adds again.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from elbowroom.tokens.errors import ConversationNotContinuable
from elbowroom.tokens.templates.messages import (
    Capabilities,
    Message,
    canonical_messages,
    canonical_tools,
    fit_messages,
    for_deepseek_v4,
    for_gpt_oss,
    for_ministral,
    for_old_gemma4,
    for_stepfun,
    text_of,
    with_thinking,
)
from elbowroom.tokens.templates.reasoning import ReasoningMarks, capabilities_of, reasoning_marks_of
from elbowroom.tokens.templates.template import ChatTemplate, local_time, sha256_of

STEPFUN_SIGN: Final = "You have access to the following functions in JSONSchema format"
NEEDLESS_REFUSALS: Final = (
    """{%- if "<|channel|>analysis<|message|>" in message.content or \
"<|channel|>final<|message|>" in message.content %}""",
    """{%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) and \
(message['tool_calls'] is not defined or message['tool_calls'] is none or message['tool_calls']|length == 0) %}""",
)
"""Conditions under which some templates refuse messages that the engine has always rendered."""
SEARCH: Final = """{%- for j in range(loop.index0 - 1, -1, -1) -%}
            {%- if not prev_nt.found -%}
                {%- if loop_messages[j]['role'] != 'tool' -%}
                    {%- set prev_nt.role = loop_messages[j]['role'] -%}
                    {%- set prev_nt.found = true -%}
                {%- endif -%}"""
"""Gemma 4's templates search on to the conversation's beginning after they have found the message before."""
ENDED_SEARCH: Final = SEARCH.replace("true -%}", "true -%}{%- break -%}")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """OpenAI-style messages and tools, and arguments for the template such as `enable_thinking`.

    The model continues a last message that is the assistant's. `arguments` override those that the engine passes by
    itself.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True


class ChatPrompt:
    """A model's chat template as its engine uses it.

    `bos_token` and `eos_token` are the texts of those tokens, empty where the vocabulary has none. Small
    conversations are rendered once, at first use, to find out what the template can take.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str = "this model",
        bos_token: str = "",
        eos_token: str = "",
        clock: Callable[[], datetime] = local_time,
    ) -> None:
        self.source = source
        self.name = name
        self.bos_token = bos_token
        self.eos_token = eos_token
        self.clock = clock
        self.family = family_of(source)
        self.template = ChatTemplate(as_the_engine_reads_it(source), name=name, clock=clock, dialect="llama.cpp")

    @functools.cached_property
    def sha256(self) -> str:
        """The hash by which the template may be known."""
        return sha256_of(self.source)

    @property
    def is_warm(self) -> bool:
        """Whether the template has been compiled and tried out, which takes some ten milliseconds."""
        return {"capabilities", "reasoning_marks"} <= vars(self).keys()

    @functools.cached_property
    def capabilities(self) -> Capabilities:
        """The forms of messages that the template can take."""
        return capabilities_of(self.template)

    @functools.cached_property
    def reasoning_marks(self) -> ReasoningMarks:
        """How the template marks what the model thinks."""
        if self.family.marks is not None:
            return self.family.marks
        return reasoning_marks_of(self.template, self.bos_token, self.eos_token)

    def text(self, request: ChatRequest) -> str:
        """Return the prompt for a request.

        Raises `TemplateFailed`, and `ConversationNotContinuable` where the engine answers with a 400 as well.
        """
        messages = canonical_messages(request.messages)
        variables = self.variables(request)
        if not (messages and messages[-1]["role"] == "assistant"):
            return self.answered(self.fitted(messages), variables, request.add_generation_prompt)
        *history, unfinished = messages
        refuse_to_continue(history, unfinished)
        return self.continued(self.fitted(history), unfinished, variables)

    def variables(self, request: ChatRequest) -> dict[str, Any]:
        """Return the template's variables, the messages aside."""
        now = self.clock()
        variables: dict[str, Any] = {
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "enable_thinking": self.reasoning_marks != ReasoningMarks(),
            "datetime": now.strftime("%b %d %Y"),
            "date_string": now.strftime("%d %b %Y"),
        }
        if tools := canonical_tools(request.tools):
            variables["tools"] = tools
        variables.update(copy.deepcopy(dict(request.arguments)))
        if isinstance(effort := variables.get("reasoning_effort"), str):
            variables["reasoning_strength"] = effort
        if isinstance(preserve := variables.get("preserve_reasoning"), bool):
            variables["preserve_thinking"] = preserve
            for name in ("clear_thinking", "truncate_history_thinking", "drop_thinking"):
                variables[name] = not preserve
        return variables

    def fitted(self, messages: list[Message]) -> list[Message]:
        """Return canonical messages as this template and its family want them."""
        if STEPFUN_SIGN in self.source:
            messages = for_stepfun(messages)
        if self.family is not GPT_OSS:
            messages = [
                {**message, "role": "system"} if message["role"] == "developer" else message for message in messages
            ]
        messages = fit_messages(messages, self.capabilities)
        return self.family.adapt(messages) if self.family.adapt else messages

    def answered(self, messages: list[Message], variables: dict[str, Any], add_generation_prompt: bool) -> str:
        """Render a conversation that the model is to answer."""
        text = self.rendered(messages, variables, add_generation_prompt)
        return self.with_open_turn(text) if add_generation_prompt else text

    def with_open_turn(self, text: str) -> str:
        """Open the model's turn where Gemma 4's templates do not: after text beside a tool's result."""
        closed = self.family in (GEMMA4, OLD_GEMMA4) and text.endswith("<turn|>\n")
        return text + "<|turn>model\n" if closed else text

    def continued(self, history: list[Message], unfinished: Message, variables: dict[str, Any]) -> str:
        """Render a history and an unfinished answer after it, without an end of turn or a new generation prompt."""
        text = self.rendered_apart(history, variables, add_generation_prompt=False)
        if self.family is GPT_OSS:
            text = "<|end|>".join(text.rsplit("<|return|>", 1))
        if unfinished.keys() == {"role", "content"} and not unfinished["content"]:
            return text
        marks = self.reasoning_marks
        opening = self.family.opening
        if opening is None:
            opening = self.generation_prompt(history, variables)
            if marks.start:
                opening = opening.split(marks.start, 1)[0]
        return self.with_open_turn(text + opening) + self.unfinished_answer(unfinished, marks)

    def unfinished_answer(self, unfinished: Message, marks: ReasoningMarks) -> str:
        """Write the reasoning between its marks, and the text; without any text the reasoning stays open."""
        reasoning = unfinished.get("reasoning_content", "")
        thought = ""
        if marks.start:
            replaced = self.family.without_reasoning is not None and not reasoning
            thought = (self.family.without_reasoning or "") if replaced else marks.start + reasoning
        if reasoning and not unfinished["content"]:
            return thought
        return thought + (marks.end if marks.start else "") + text_of(unfinished, between="\n\n")

    def generation_prompt(self, messages: list[Message], variables: dict[str, Any]) -> str:
        """Return the end of a rendering that the generation prompt adds or changes."""
        without = self.rendered_apart(messages, variables, add_generation_prompt=False)
        with_prompt = self.rendered_apart(messages, variables, add_generation_prompt=True)
        if with_prompt.startswith(without):
            return with_prompt[len(without) :]
        pairs = enumerate(zip(without, with_prompt, strict=False))
        different = (at for at, (left, right) in pairs if left != right)
        return with_prompt[next(different, len(with_prompt)) :]

    def rendered_apart(self, messages: list[Message], variables: dict[str, Any], add_generation_prompt: bool) -> str:
        """Render copies, so that a template that changes its lists does not change the next rendering."""
        return self.rendered(copy.deepcopy(messages), copy.deepcopy(variables), add_generation_prompt)

    def rendered(self, messages: list[Message], variables: dict[str, Any], add_generation_prompt: bool) -> str:
        """Render messages; a generation prompt that isn't wanted is undefined, not false."""
        prompt = {"add_generation_prompt": True} if add_generation_prompt else {}
        return self.template.evaluate({"messages": messages, **variables, **prompt})


def as_the_engine_reads_it(source: str) -> str:
    """Return a template without refusals that the engine ignores and without needless searches."""
    for condition in NEEDLESS_REFUSALS:
        source = source.replace(condition, "{%- if false %}")
    return source.replace(SEARCH, ENDED_SEARCH)


def refuse_to_continue(history: list[Message], unfinished: Message) -> None:
    """Raise `ConversationNotContinuable` where the unfinished answer cannot be continued."""
    if unfinished.get("tool_calls"):
        raise ConversationNotContinuable(
            "The conversation ends with an assistant message that calls tools: add the tools' results to go on."
        )
    if history and history[-1]["role"] == "assistant":
        raise ConversationNotContinuable(
            "The conversation ends with two assistant messages; only one can be continued. Join them into one."
        )


@dataclass(frozen=True, slots=True)
class Family:
    """A prompt format: the signs of its templates, how they want messages, and how an answer is continued.

    A continued answer begins with `opening`, then comes the reasoning between `marks`, then the text. Where `opening`
    is None, the generation prompt takes its place; where `marks` is None, the template is tried out for them.
    `without_reasoning` replaces the first mark in an answer without reasoning.
    """

    signs: tuple[str, ...]
    counter_signs: tuple[str, ...] = ()
    adapt: Callable[[list[Message]], list[Message]] | None = None
    opening: str | None = None
    marks: ReasoningMarks | None = None
    without_reasoning: str | None = None

    def wrote(self, source: str) -> bool:
        """Tell whether a template is of this family."""
        return all(sign in source for sign in self.signs) and not any(sign in source for sign in self.counter_signs)


GEMMA4_SIGN: Final = "'<|tool_call>call:'"
GEMMA4_MARKS: Final = ReasoningMarks("<|channel>thought\n", "<channel|>")
THINK_TAGS: Final = ReasoningMarks("<think>", "</think>")
THINK_LINES: Final = ReasoningMarks("<think>\n", "\n</think>\n\n")
NO_MARKS: Final = ReasoningMarks()
CHATML: Final = "<|im_start|>assistant\n"

DEEPSEEK_ANSWER: Final = "<\N{FULLWIDTH VERTICAL LINE}Assistant\N{FULLWIDTH VERTICAL LINE}>"

MINISTRAL: Final = Family(
    ("[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"),
    ("[CALL_ID]",),
    adapt=for_ministral,
    opening="",
    marks=ReasoningMarks("[THINK]", "[/THINK]"),
)
GPT_OSS: Final = Family(
    ("<|channel|>",),
    adapt=for_gpt_oss,
    opening="<|start|>assistant",
    marks=ReasoningMarks("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
)
MUSE: Final = Family(
    ("<atem:function_calls>", "<|eom|>"),
    opening="<|start|>assistant",
    marks=ReasoningMarks(" to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>"),
)
FUNCTIONARY: Final = Family(
    (">>>all", ">>>${recipient}"), opening="<|start_header_id|>assistant<|end_header_id|>\n\n>>>all\n", marks=NO_MARKS
)
KIMI_K2: Final = Family(
    ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    opening="<|im_assistant|>assistant<|im_middle|>",
    marks=THINK_TAGS,
)
KIMI_K3: Final = Family(
    ("<|open|>", "<|close|>", "<|end_of_msg|>"),
    opening='<|open|>message role="assistant"<|sep|>',
    marks=ReasoningMarks("<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>"),
)
LING: Final = Family(("<role>ASSISTANT</role>", "<arg_key>"), opening="<role>ASSISTANT</role>\n", marks=THINK_TAGS)
COHERE: Final = Family(
    ("<|START_TEXT|>", "<|START_ACTION|>"),
    opening="<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    marks=ReasoningMarks("<|START_THINKING|>", "<|END_THINKING|><|START_TEXT|>"),
)
LFM2: Final = Family(
    ("<|tool_list_start|>", "<|tool_list_end|>"), adapt=with_thinking, opening=CHATML, marks=THINK_TAGS
)
LFM2_5: Final = Family(("List of tools: [",), adapt=with_thinking, opening=CHATML, marks=THINK_TAGS)
GIGACHAT: Final = Family(
    ("<|role_sep|>", "<|message_sep|>"), ("<|function_call|>",), opening="assistant<|role_sep|>\n", marks=NO_MARKS
)
MINIMAX_M3: Final = Family(
    ("]<]minimax[>[", "<tool_call>", "<invoke name="), marks=ReasoningMarks("<mm:think>", "</mm:think>")
)
DEEPSEEK_V3: Final = Family(("dsml_token", "DSML", "function_calls"), opening=DEEPSEEK_ANSWER, marks=THINK_TAGS)
DEEPSEEK_V4: Final = Family(
    ("dsml_token", "DSML", "tool_calls"),
    adapt=for_deepseek_v4,
    opening=DEEPSEEK_ANSWER,
    marks=THINK_TAGS,
    without_reasoning="",
)
GEMMA4: Final = Family((GEMMA4_SIGN, "{#- OpenAI Chat Completions:"), marks=GEMMA4_MARKS)
OLD_GEMMA4: Final = Family((GEMMA4_SIGN,), adapt=for_old_gemma4, marks=GEMMA4_MARKS)
MINICPM: Final = Family(
    ("Tool usage guidelines:", '<function name="', '<param name="'), opening=CHATML, marks=THINK_LINES
)
QWEN_CODER_SIGNS: Final = ("<tool_call>", "<function=", "<parameter=")
NO_LINES_BETWEEN_TAGS: Final = "'<tool_call><function=' ~ tool_call.name ~ '>'"
THINKING_QWEN_CODER: Final = Family(
    (*QWEN_CODER_SIGNS, "<think>"), (NO_LINES_BETWEEN_TAGS,), opening=CHATML, marks=THINK_LINES
)
QWEN_CODER: Final = Family(QWEN_CODER_SIGNS, (NO_LINES_BETWEEN_TAGS,), opening=CHATML, marks=NO_MARKS)

FAMILIES: Final = (
    MINISTRAL,
    GPT_OSS,
    MUSE,
    FUNCTIONARY,
    KIMI_K2,
    KIMI_K3,
    LING,
    COHERE,
    LFM2,
    LFM2_5,
    GIGACHAT,
    MINIMAX_M3,
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    GEMMA4,
    OLD_GEMMA4,
    MINICPM,
    THINKING_QWEN_CODER,
    QWEN_CODER,
)
ORDINARY: Final = Family(())
"""The family of all other templates."""


def family_of(source: str) -> Family:
    """Return the family that a template belongs to."""
    return next((family for family in FAMILIES if family.wrote(source)), ORDINARY)
