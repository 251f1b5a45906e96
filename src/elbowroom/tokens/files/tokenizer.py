"""A model's tokenizer, wherever it came from, and the running count of an answer that it makes."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

TokenizerKind = Literal["byte-level", "sentencepiece", "wordpiece"]
Span = tuple[int, int]
"""Where a part of a text begins and ends."""


class Engine(Protocol):
    """Turns text without lone surrogates into token ids, special tokens included; lets other threads run."""

    @property
    def bytes_held(self) -> int:
        """About how much memory it takes."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""


@dataclass(frozen=True, slots=True, eq=False)
class Tokenizer:
    """Cuts text into tokens exactly as the engine that runs the model does; safe to use from any thread.

    `special_tokens` are the texts that become one token wherever they stand. `cut_points` are the special tokens
    before which a text can be cut without changing its tokens. `bos_token` and `eos_token` are "" where there is
    none. With `adds_bos` and `adds_eos` the engine adds that token to every prompt that lacks it.
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
        return self.engine.encode(whole_characters(text)) if text else []

    def count(self, text: str) -> int:
        """Return how many tokens a text takes."""
        return self.count_spans(text, [(0, len(text))])[0] if text else 0

    def count_spans(self, text: str, spans: Iterable[Span]) -> list[int]:
        """Return how many tokens each of these parts of a text takes by itself; faster than one by one."""
        counts: list[int] = []
        for group in in_groups(spans):  # all ids at once take ten times the memory of the text
            start, end = group[0]
            if end - start > PART:
                parts = in_parts(text, start, end) if self.kind == "byte-level" else iter([text[start:end]])
                counts.append(sum(len(self.engine.encode(whole_characters(part))) for part in parts))
            else:
                parts = (text[start:end] for start, end in group)
                counts += map(len, self.engine.encode_many([whole_characters(part) for part in parts]))
        return counts

    def added_tokens(self, prompt: str) -> int:
        """Return how many tokens the engine adds to a rendered prompt: BOS and EOS, never a second one."""
        bos = self.adds_bos and not (self.bos_token and prompt.startswith(self.bos_token))
        eos = self.adds_eos and not (self.eos_token and prompt.endswith(self.eos_token))
        return bos + eos


@dataclass(frozen=True, slots=True, eq=False)
class ModelText:
    """A model's tokenizer and chat templates, as Jinja source by name, from the model's own files."""

    tokenizer: Tokenizer
    chat_templates: Mapping[str, str]

    @property
    def chat_template(self) -> str | None:
        """The main chat template, None where the model has none."""
        return self.chat_templates.get("default")


PART: Final = 250_000
"""Characters that are cut into tokens at once."""
BETWEEN_WORDS: Final = re.compile(r"(?<=[a-z])\n(?=[A-Za-z])|(?<=[a-z])(?= [a-z])")
"""Places between words of ASCII letters, which no byte-level token reaches across."""
LONGEST_PART: Final = 2 * PART
"""Characters after which a text is cut anywhere: an engine takes fifty bytes for each of a word's."""


def in_groups(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Yield the parts of a text in groups of at most PART characters in all, a longer one by itself."""
    group: list[Span] = []
    size = 0
    for start, end in spans:
        if group and size + end - start > PART:
            yield group
            group, size = [], 0
        group.append((start, end))
        size += end - start
    if group:
        yield group


def in_parts(text: str, start: int = 0, end: int | None = None) -> Iterator[str]:
    """Yield a text, or what stands between two places in it, in parts of about PART characters.

    They have the same tokens as the whole. Half a million characters without a place to cut them, which are no
    language, may come to be a token more.
    """
    end = len(text) if end is None else end
    while start < end:
        most = min(end, start + LONGEST_PART)
        cut = BETWEEN_WORDS.search(text, start + PART, most)
        stop = cut.start() if cut else most
        yield text[start:stop]
        start = stop


def whole_characters(text: str) -> str:
    """Join the halves of split characters, and replace halves without the other half, which no encoder takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


Branches = dict[str, "Branches"]
END = ""


def special_token_pattern(texts: Collection[str]) -> re.Pattern[str] | None:
    """Return an expression that finds these texts, None for no texts.

    It is a tree of common beginnings: of a flat list of a thousand alternatives each would be tried at every "<" of
    a prompt.
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


COUNT_EVERY: Final = 256
"""Characters after which text that cannot change any more is counted and put aside."""
KEEP: Final = 24
"""Characters at the end that are never put aside: what comes next may still join them."""
FORCE_AFTER: Final = 4096
"""Characters without a safe place to cut after which the text is cut anywhere."""

LETTER: Final = r"[^\W\d_]"
BEFORE_A_WORD: Final = rf"{LETTER}(?= {LETTER})"
CJK_SIGNS: Final = "\u3001\u3002\u300c\u300d\u300e\u300f\u30fb\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
SAFE_CUT: Final = re.compile(BEFORE_A_WORD)
SAFE_BYTE_LEVEL_CUT: Final = re.compile(rf"{BEFORE_A_WORD}|(?<=\S)\n(?={LETTER})|{LETTER}(?=[\d{CJK_SIGNS}])")
ANCHOR: Final = "\n"


class StreamCounter:
    """Counts a text that comes in chunks, in a few microseconds each; only a short tail is counted again for `value`.

    Text is counted and put aside up to a place that no token reaches across, so that the sum is exact. Where 4,096
    characters have no such place (base64), a forced cut may make the sum a token too high.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._safe_cut = SAFE_BYTE_LEVEL_CUT if tokenizer.kind == "byte-level" else SAFE_CUT
        # SentencePiece puts a space before any text; after a line break it does not do so.
        self._anchor = "" if tokenizer.kind == "byte-level" else ANCHOR
        self._anchor_tokens = tokenizer.count(self._anchor)
        self._settled = 0
        self._is_first = True
        self._chunks: list[str] = []
        self._length = 0
        self._look_at = COUNT_EVERY

    def feed(self, text: str) -> None:
        """Take the next chunk."""
        self._chunks.append(text)
        self._length += len(text)
        if self._length >= self._look_at:
            self._settle()

    @property
    def value(self) -> int:
        """The tokens of the text so far."""
        return self._settled + self._count(self._tail())

    @property
    def at_most(self) -> int:
        """A bound on `value` without tokenizing: a tail takes no more tokens than it has bytes, and one."""
        return self._settled + len(self._tail().encode("utf-8", "surrogatepass")) + 1

    def _tail(self) -> str:
        if len(self._chunks) > 1:
            self._chunks = ["".join(self._chunks)]
        return self._chunks[0] if self._chunks else ""

    def _settle(self) -> None:
        """Put aside what can be put aside, and say when to look again."""
        tail = self._tail()
        end = len(tail) - KEEP
        cut = 0
        for match in self._safe_cut.finditer(tail, max(0, end - 2 * COUNT_EVERY), end):
            cut = match.end()
        if not cut and len(tail) >= FORCE_AFTER:
            cut = end
        if cut:
            self._settled += self._count(tail[:cut])
            self._is_first = False
            self._chunks = [tail[cut:]]
            self._length -= cut
        self._look_at = self._length + COUNT_EVERY

    def _count(self, text: str) -> int:
        if not text:
            return 0
        if self._is_first or not self._anchor:
            return self.tokenizer.count(text)
        return self.tokenizer.count(self._anchor + text) - self._anchor_tokens
