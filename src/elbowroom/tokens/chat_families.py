"""Model families whose messages or continued answers the engine writes in a way of its own.

The texts that mark a family and the ones that open an answer are constants of its prompt format, as llama.cpp (MIT)
states them. A family is recognised by what stands in its template; the first that fits is the one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from elbowroom.tokens.chat_reasoning import ReasoningMarks
from elbowroom.tokens.family_messages import (
    for_deepseek_v4,
    for_gpt_oss,
    for_ministral,
    for_old_gemma4,
    with_thinking,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from elbowroom.tokens.chat_messages import Message


@dataclass(frozen=True, slots=True)
class Family:
    """A prompt format: how to know it, how it wants its messages, and how an unfinished answer goes on.

    The answer goes on with `opening` in place of the generation prompt, then the reasoning between `marks`, then the
    text. Where `opening` is None it is the generation prompt itself, where `marks` is None they are looked for.
    `without_reasoning` replaces the first mark where there is no reasoning.
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
    (">>>all", ">>>${recipient}"),
    opening="<|start_header_id|>assistant<|end_header_id|>\n\n>>>all\n",
    marks=NO_MARKS,
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
    ("<|role_sep|>", "<|message_sep|>"),
    ("<|function_call|>",),
    opening="assistant<|role_sep|>\n",
    marks=NO_MARKS,
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
"""What a template without ways of its own is treated as."""


def family_of(source: str) -> Family:
    """Return the family that a template belongs to."""
    return next((family for family in FAMILIES if family.wrote(source)), ORDINARY)
