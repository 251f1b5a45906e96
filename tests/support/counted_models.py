"""A small model file with a template, and the simulated LM Studio that counts with it."""

from pathlib import Path
from typing import Any

from vocabulary_kinds import byte_level, write_header

from elbowroom.demo import SimulatedTokenizer
from elbowroom.tokens.files.loading import load_model
from elbowroom.tokens.templates.prompt import ChatPrompt, ChatRequest

CHATML = """\
{%- if tools %}{{- '<|im_start|>tools\\n' + tools | tojson + '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{- call.function | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
OVERRIDDEN = CHATML.replace("'<|im_end|>\\n' }}\n{%- endfor", "'<|im_end|>\\n---\\n' }}\n{%- endfor")
"""The same with a line more after each message, as a person may have written it into LM Studio."""


def write_counted_model(path: Path, template: str = CHATML) -> Path:
    """Write the file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_header(path, byte_level("qwen2", size=600), template=template)


class FileTokenizer(SimulatedTokenizer):
    """Counts for the simulator with a model's own file, and with another template where one is given."""

    def __init__(self, path: Path, template: str | None = None) -> None:
        text = load_model(path).text
        self._tokenizer = text.tokenizer
        self._prompt = ChatPrompt(template or text.chat_template or "", name="the override")

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text in the file's vocabulary."""
        return self._tokenizer.encode(text)

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
        """Return the prompt."""
        return self._prompt.text(ChatRequest(messages, tools))

    def count_tokens(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> int:
        """Return the tokens of the whole prompt."""
        return len(self.encode(self.render(messages, tools)))
