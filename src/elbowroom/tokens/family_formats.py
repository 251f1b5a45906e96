"""The formats in which families lay out conversations: templates of our own, and the tokens they are made of."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final, Literal

Format = Literal[
    "chatml",
    "command",
    "deepseek",
    "gemma",
    "gemma4",
    "granite",
    "harmony",
    "llama2",
    "llama3",
    "mistral",
    "phi",
    "tekken",
]

SPECIAL_TOKENS: Final[Mapping[Format, frozenset[str]]] = {
    "chatml": frozenset(
        {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<think>", "</think>"}
    ),
    "command": frozenset(
        {
            "<BOS_TOKEN>",
            "<|START_OF_TURN_TOKEN|>",
            "<|END_OF_TURN_TOKEN|>",
            "<|USER_TOKEN|>",
            "<|CHATBOT_TOKEN|>",
            "<|SYSTEM_TOKEN|>",
        }
    ),
    "deepseek": frozenset(
        {
            "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
            "<\uff5cend\u2581of\u2581sentence\uff5c>",
            "<\uff5cUser\uff5c>",
            "<\uff5cAssistant\uff5c>",
            *(
                f"<\uff5ctool\u2581{part}\u2581{end}\uff5c>"
                for part in ("calls", "call", "outputs", "output")
                for end in ("begin", "end")
            ),
            "<\uff5ctool\u2581sep\uff5c>",
        }
    ),
    "gemma": frozenset({"<bos>", "<start_of_turn>", "<end_of_turn>"}),
    "gemma4": frozenset(
        {
            *("<bos>", "<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>", '<|"|>', "<|tool>", "<tool|>"),
            *("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
        }
    ),
    "granite": frozenset({"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"}),
    "harmony": frozenset(
        {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"}
    ),
    "llama2": frozenset({"<s>", "</s>"}),
    "llama3": frozenset({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"}),
    "mistral": frozenset(
        {
            *("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
            *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        }
    ),
    "phi": frozenset({"<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"}),
    "tekken": frozenset(
        {
            *("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
            *("[TOOL_RESULTS]", "[TOOL_CONTENT]", "[/TOOL_RESULTS]"),
        }
    ),
}
"""The texts that are one token each in a format."""


def template_source(name: Format) -> str:
    """Return the Jinja source of a format.

    It has the family's marks and order, not the sentences that real templates add; families count these as numbers.
    """
    return files("elbowroom.tokens").joinpath("family_templates", f"{name}.jinja").read_text(encoding="utf-8")
