"""The simulator's own tokenizer."""

from typing import Any

import pytest

from elbowroom.demo import SimulatedTokenizer
from elbowroom.demo.tokenizer import IMAGE_TOKENS

TOKENIZER = SimulatedTokenizer()


@pytest.mark.parametrize(
    "text", ["", "Hello, world!", "  two  spaces\n\nand lines\t", "naïve 東京 🙂 snake_case 12345", "a" * 100]
)
def test_split_pieces_join_to_the_text(text: str) -> None:
    """No character is lost or added, whatever the text."""
    assert "".join(TOKENIZER.split(text)) == text


def test_encode_gives_one_id_a_piece() -> None:
    """Equal pieces have equal ids, and there are as many ids as pieces."""
    ids = TOKENIZER.encode("tick tack tick")
    assert len(TOKENIZER.split("tick tack tick")) == len(ids)
    assert len(TOKENIZER.encode(" tick tack tick")) == 3
    assert TOKENIZER.encode(" tick") == TOKENIZER.encode(" tack tick")[1:]


def test_count_covers_template_tools_and_generation_prompt() -> None:
    """The count is that of the rendered prompt, and tools make it larger."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    tools = [{"type": "function", "function": {"name": "read_note"}}]
    rendered = TOKENIZER.render(messages, tools)
    assert rendered.endswith("<|im_start|>assistant\n")
    assert len(TOKENIZER.encode(rendered)) == TOKENIZER.count_tokens(messages, tools)
    assert TOKENIZER.count_tokens(messages) < TOKENIZER.count_tokens(messages, tools)


def test_count_takes_an_image_for_its_fixed_price() -> None:
    """An image costs IMAGE_TOKENS, however long its data is."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    text: dict[str, Any] = {"type": "text", "text": "What is this?"}
    without = TOKENIZER.count_tokens([{"role": "user", "content": [text]}])
    assert without + IMAGE_TOKENS == TOKENIZER.count_tokens([{"role": "user", "content": [text, image]}])


def test_count_reads_tool_calls() -> None:
    """What an assistant called is part of the prompt."""
    call = {"id": "1", "type": "function", "function": {"name": "read_note", "arguments": '{"path": "a.md"}'}}
    bare = {"role": "assistant", "content": None}
    assert TOKENIZER.count_tokens([bare]) < TOKENIZER.count_tokens([bare | {"tool_calls": [call]}])


def test_a_developer_is_the_system() -> None:
    """Templates see a developer's words as the system's, as in llama.cpp, so that both take as many tokens."""
    said = {"content": "Be brief."}
    assert TOKENIZER.render([{"role": "developer", **said}]) == TOKENIZER.render([{"role": "system", **said}])
