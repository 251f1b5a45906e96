"""A model file as the bench's models have it: a tokenizer and a chat template, and no weights."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from gguf import GGUFWriter, TokenType

from elbowroom.tokens.families.vocabularies import bundled_tokens
from elbowroom.tokens.files.engines import CHARACTER_OF_BYTE

SIZE = 20_000
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_2 = """\
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful assistant<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
"""One that elbowroom knows by its hash."""
UNKNOWN = QWEN_2.replace("You are a helpful assistant", "You answer in whole sentences")
"""One that nobody knows, which renders in a process of its own."""


def write_model_file(path: Path, template: str) -> None:
    """Write a GGUF file with the first 20,000 tokens of Qwen's vocabulary."""
    ranks = {token: rank for rank, token in enumerate(islice(bundled_tokens("qwen"), SIZE))}
    tokens = [written(token) for token in ranks]
    writer = GGUFWriter(path, "qwen2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *CONTROL])
    writer.add_token_types([TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * len(CONTROL))
    writer.add_token_merges(list(merges(ranks)))
    writer.add_eos_token_id(len(tokens) + CONTROL.index("<|im_end|>"))
    writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def merges(ranks: Mapping[bytes, int]) -> Iterator[str]:
    """Yield for every token of several bytes the pair that it is joined from."""
    for token, rank in ranks.items():
        if len(token) > 1:
            left, right = last_pair(token, rank, ranks)
            yield f"{written(left)} {written(right)}"


def last_pair(token: bytes, rank: int, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes]:
    """Return the two parts that a token consists of before the join that makes it."""
    parts = [token[place : place + 1] for place in range(len(token))]
    while len(parts) > 2:
        joins = [ranks.get(parts[place] + parts[place + 1], rank) for place in range(len(parts) - 1)]
        place = min(range(len(joins)), key=joins.__getitem__)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts[0], parts[1]


def written(token: bytes) -> str:
    """Return a token as model files write it: a printable character for each byte."""
    return "".join(CHARACTER_OF_BYTE[byte] for byte in token)
