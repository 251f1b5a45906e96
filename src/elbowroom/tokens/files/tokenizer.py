"""The type that everybody who counts works with: a model's tokenizer, wherever it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

TokenizerKind = Literal["byte-level", "sentencepiece", "wordpiece"]


class Engine(Protocol):
    """Turns sound text (no lone surrogates) into token ids; parses special tokens; lets other threads run."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""
        ...

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Tokenizer:
    """Cuts text into tokens exactly as the engine that runs the model does; safe to use from any thread.

    `special_tokens` are the texts that become one token wherever they stand. `cut_points` are those before
    which a text can be cut without changing its tokens. `bos_token` and `eos_token` are "" where there is
    none. `adds_bos` and `adds_eos`: the engine puts that token around every prompt that lacks it.
    """

    name: str
    kind: TokenizerKind
    engine: Engine
    special_tokens: frozenset[str]
    cut_points: frozenset[str]
    bos_token: str = ""
    eos_token: str = ""
    adds_bos: bool = False
    adds_eos: bool = False

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text; special tokens in it are recognised, and nothing is added."""
        return self.engine.encode(without_surrogates(text)) if text else []

    def count(self, text: str) -> int:
        """Return how many tokens a text takes."""
        return len(self.encode(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text takes; faster than one by one."""
        return [len(ids) for ids in self.engine.encode_many([without_surrogates(text) for text in texts])]

    def added_tokens(self, prompt: str) -> int:
        """Return how many tokens the engine adds to a rendered prompt: BOS and EOS, never a second one."""
        bos = self.adds_bos and not (self.bos_token and prompt.startswith(self.bos_token))
        eos = self.adds_eos and not (self.eos_token and prompt.endswith(self.eos_token))
        return bos + eos


@dataclass(frozen=True, slots=True, eq=False)
class ModelText:
    """All that a model's own files say about text: its tokenizer, and its chat templates as Jinja source.

    The main template is under "default". `context_length` is what the model was trained for, if it says so.
    """

    tokenizer: Tokenizer
    chat_templates: Mapping[str, str]
    context_length: int | None = None

    @property
    def chat_template(self) -> str | None:
        """The main chat template."""
        return self.chat_templates.get("default")


def without_surrogates(text: str) -> str:
    """Return the text with halves of surrogate pairs joined, and lone ones replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


Branches = dict[str, "Branches"]
END = ""


def special_token_pattern(texts: Collection[str]) -> re.Pattern[str] | None:
    """Return the expression, None for no texts.

    It is built as a tree of common beginnings: with a flat list of a thousand alternatives each of them would
    be tried at every "<" of a prompt.
    """
    tree: Branches = {}
    for text in texts:
        branch = tree
        for character in text:
            branch = branch.setdefault(character, {})
        branch[END] = {}
    if not tree:
        return None
    try:
        return re.compile(_expression(tree))
    except RecursionError:  # runs of one character, hundreds long, each a token of its own
        return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))


def _expression(branches: Branches) -> str:
    """Return an expression for the rest of all texts below a branch; longer ones are tried first."""
    rest = ""
    while len(branches) == 1 and END not in branches:
        ((character, branches),) = branches.items()
        rest += re.escape(character)
    if not branches or branches.keys() == {END}:
        return rest
    ways = "|".join(re.escape(character) + _expression(below) for character, below in branches.items() if character)
    return f"{rest}(?:{ways})" + ("?" if END in branches else "")
