"""Builds the tokenizer of a GGUF file so that it cuts text exactly as llama.cpp does."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from elbowroom.tokens.errors import UnreadableModelFile, UnsupportedTokenizer
from elbowroom.tokens.files.engines import FastBpe, LibraryEngine, fast_bpe
from elbowroom.tokens.files.gguf import GgufHeader, GgufVocabulary
from elbowroom.tokens.files.special_tokens import (
    LINES,
    SPACE_MARK,
    SPLIT_PATTERNS,
    SpecialToken,
    SplitPatterns,
    TokenType,
    named_id,
    named_text,
    special_tokens,
)
from elbowroom.tokens.files.tokenizer import ModelText, Tokenizer, TokenizerKind

SENTENCEPIECE_MERGES: Final = ("gemma4", "granite-embed-multi-311m", "sarvam-moe")
ALWAYS_ADDS_BOS: Final = ("gemma4", "granite-embed-multi-311m")
MARKED_WORDS: Final = f"{SPACE_MARK}*[^{SPACE_MARK}]+|{SPACE_MARK}+"
LONGEST_WORD: Final = 10_000
MAX_SPECIAL_CHARACTERS: Final = 2_000_000


def model_text(header: GgufHeader) -> ModelText:
    """Return the tokenizer and the chat templates of a GGUF file.

    Raises `UnsupportedTokenizer` for a kind that is not known, `UnreadableModelFile` without a vocabulary.
    """
    return ModelText(build_tokenizer(header), header.chat_templates)


def build_tokenizer(header: GgufHeader, *, fast: bool = True) -> Tokenizer:
    """Build the tokenizer of a header read with its vocabulary; `fast=False` leaves out the fast path."""
    vocabulary = header.vocabulary
    if vocabulary is None or not vocabulary.tokens:
        raise UnreadableModelFile(
            f"The model file {header.path} has no tokenizer in it. If the model is split over several files,"
            " name the first one; otherwise download or convert it again."
        )
    specials = tuple(token for token in special_tokens(header, vocabulary) if _is_sound(token.text))
    if sum(len(token.text) for token in specials) > MAX_SPECIAL_CHARACTERS:
        raise UnsupportedTokenizer(f"The model file {header.path} has {len(specials):,} special tokens: too many.")
    kind, engine, adds_bos = _engine(header, vocabulary, specials, fast=fast)
    return Tokenizer(
        name=header.name or header.path.stem,
        kind=kind,
        engine=engine,
        special_tokens=frozenset(token.text for token in specials),
        cut_points=frozenset(token.text for token in specials if not token.strips_left),
        bos_token=named_text(vocabulary, "bos"),
        eos_token=named_text(vocabulary, "eos"),
        adds_bos=adds_bos and named_id(vocabulary, "bos") is not None,
        adds_eos=vocabulary.model == "bert" or bool(vocabulary.adds_eos),
    )


def _engine(
    header: GgufHeader, vocabulary: GgufVocabulary, specials: tuple[SpecialToken, ...], *, fast: bool
) -> tuple[TokenizerKind, FastBpe | LibraryEngine, bool]:
    model, pre = vocabulary.model, vocabulary.pre
    if model == "gemma4" or (model == "gpt2" and pre in SENTENCEPIECE_MERGES):
        adds_bos = model == "gemma4" or pre in ALWAYS_ADDS_BOS or bool(vocabulary.adds_bos)
        return "sentencepiece", _finished(_marked_bpe(vocabulary), specials), adds_bos
    if model == "gpt2":
        patterns = _split_patterns(header, pre)
        adds_bos = patterns.adds_bos if vocabulary.adds_bos is None else vocabulary.adds_bos
        quick = fast_bpe(header.name, vocabulary, patterns, specials) if fast else None
        return "byte-level", quick or _finished(_byte_level_bpe(vocabulary, patterns), specials), adds_bos
    adds_bos = vocabulary.adds_bos is not False
    if model == "llama":
        return "sentencepiece", _finished(_sentencepiece(vocabulary), specials), adds_bos
    if model == "bert":
        return "wordpiece", _finished(_wordpiece(header.path, vocabulary), specials), True
    raise UnsupportedTokenizer(
        f"The model file {header.path} has a tokenizer of the kind {model!r}, which elbowroom does not know."
    )


def _split_patterns(header: GgufHeader, pre: str) -> SplitPatterns:
    try:
        return SPLIT_PATTERNS[pre or "default"]
    except KeyError:
        raise UnsupportedTokenizer(
            f"The model file {header.path} splits words by the rules {pre!r}, which elbowroom does not know."
            " A newer version of elbowroom may."
        ) from None


def _finished(tokenizer: LibraryTokenizer, specials: Iterable[SpecialToken]) -> LibraryEngine:
    """Give a tokenizer its special tokens, user-defined tokens before control tokens."""
    for control in (False, True):
        tokens = [
            AddedToken(
                token.text, normalized=False, special=control, lstrip=token.strips_left, rstrip=token.strips_right
            )
            for token in specials
            if (token.type is not TokenType.USER_DEFINED) is control
        ]
        if tokens:
            add = tokenizer.add_special_tokens if control else tokenizer.add_tokens
            add(tokens)
    return LibraryEngine(tokenizer)


def _byte_level_bpe(vocabulary: GgufVocabulary, patterns: SplitPatterns) -> LibraryTokenizer:
    ids = token_ids(vocabulary.tokens)
    merges = list(known_merges(vocabulary.merges, ids))
    tokenizer = LibraryTokenizer(models.BPE(ids, merges, ignore_merges=patterns.ignores_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(step), "isolated") for step in patterns.steps),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False),
        ]
    )
    return tokenizer


def _marked_bpe(vocabulary: GgufVocabulary) -> LibraryTokenizer:
    """Build Gemma 4's BPE: spaces become marks, lines are cut apart, and the file's merges join the rest."""
    ids = token_ids(vocabulary.tokens)
    tokenizer = LibraryTokenizer(_bpe_with_bytes(vocabulary, ids, list(known_merges(vocabulary.merges, ids))))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE_MARK)
    steps = [LINES] if marks_lie_inside(ids) else [LINES, MARKED_WORDS]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(step), "isolated") for step in steps])
    return tokenizer


def _sentencepiece(vocabulary: GgufVocabulary) -> LibraryTokenizer:
    """Build SentencePiece's BPE, which joins the pair that makes the best-scored piece first."""
    ids = token_ids(vocabulary.tokens)
    merges = list(scored_merges(vocabulary.tokens, vocabulary.scores, ids))
    tokenizer = LibraryTokenizer(_bpe_with_bytes(vocabulary, ids, merges))
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    if vocabulary.adds_space_prefix is not False:
        steps.insert(0, normalizers.Prepend(SPACE_MARK))
    tokenizer.normalizer = normalizers.Sequence(steps)
    if not marks_lie_inside(ids):
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(MARKED_WORDS), "isolated")
    return tokenizer


def _bpe_with_bytes(vocabulary: GgufVocabulary, ids: dict[str, int], merges: list[tuple[str, str]]) -> models.BPE:
    unknown = named_id(vocabulary, "unknown")
    return models.BPE(
        ids,
        merges,
        byte_fallback="<0x00>" in ids,
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=False,
    )


def _wordpiece(path: Path, vocabulary: GgufVocabulary) -> LibraryTokenizer:
    """Build BERT's WordPiece: GGUF marks the pieces that begin a word, the library those inside a word."""
    types = vocabulary.token_types or [TokenType.NORMAL] * len(vocabulary.tokens)
    pieces: dict[str, int] = {}
    for number, (text, kind) in enumerate(zip(vocabulary.tokens, types, strict=False)):
        if not _is_sound(text):
            continue
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            pieces[text] = number
        elif text.startswith(SPACE_MARK):
            pieces.setdefault(text[1:], number)
        else:
            pieces.setdefault("##" + text, number)
    unknown = named_text(vocabulary, "unknown")
    if unknown not in pieces:
        raise UnreadableModelFile(
            f"The model file {path} names no token for unknown words. Download or convert it again."
        )
    tokenizer = LibraryTokenizer(models.WordPiece(pieces, unk_token=unknown, max_input_chars_per_word=LONGEST_WORD))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=vocabulary.lowercases is not False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def token_ids(tokens: Sequence[str]) -> dict[str, int]:
    """Return the id of every token that can occur in text; bytes that are no UTF-8 cannot."""
    ids = {text: number for number, text in enumerate(tokens)}
    if not _is_sound("".join(tokens)):
        return {text: number for text, number in ids.items() if _is_sound(text)}
    return ids


def known_merges(merges: Iterable[str], ids: dict[str, int]) -> Iterable[tuple[str, str]]:
    """Yield the pairs of a merge list whose parts and whole are tokens."""
    for merge in merges:
        space = merge.find(" ", 1)  # the left part may itself be a space
        left, right = merge[:space], merge[space + 1 :]
        if left in ids and right in ids and left + right in ids:
            yield left, right


def scored_merges(tokens: Sequence[str], scores: Sequence[float], ids: dict[str, int]) -> Iterable[tuple[str, str]]:
    """Yield every pair of tokens that makes a token, the best score first and then the lower id."""
    order: Iterable[int] = range(len(tokens))
    if scores:
        order = sorted(order, key=lambda number: -scores[number])
    for number in order:
        text = tokens[number]
        if text not in ids:
            continue
        for cut in range(1, len(text)):
            if text[:cut] in ids and text[cut:] in ids:
                yield text[:cut], text[cut:]


def marks_lie_inside(tokens: Iterable[str]) -> bool:
    """Tell whether a token has a space mark after another character, so that text cannot be cut into words first."""
    return any(SPACE_MARK in text.lstrip(SPACE_MARK) for text in tokens if SPACE_MARK in text)


def _is_sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
