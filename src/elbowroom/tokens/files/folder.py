"""Reads the tokenizer and the chat templates of an MLX or Hugging Face model folder."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as LibraryTokenizer

from elbowroom.tokens.errors import UnreadableModelFile
from elbowroom.tokens.files.engines import LibraryEngine
from elbowroom.tokens.files.slow import SlowEngine, has_slow_tokenizer, slow_tokenizer
from elbowroom.tokens.files.tokenizer import ModelText, Tokenizer, TokenizerKind

TOKENIZER: Final = "tokenizer.json"
CONFIG: Final = "tokenizer_config.json"
SPECIAL_TOKENS: Final = "special_tokens_map.json"
TEMPLATE: Final = "chat_template.jinja"
JSON_TEMPLATE: Final = "chat_template.json"
MORE_TEMPLATES: Final = "additional_chat_templates"
MAX_TOKENIZER_BYTES: Final = 256 << 20
MAX_CONFIG_BYTES: Final = 16 << 20
MOST_ADDED: Final = 50_000
MOST_GROWTH: Final = 100
"""How many times as long a normalizer may make a text: those of real models make it twice as long at most."""


def read_model_folder(folder: Path) -> ModelText:
    """Read a model's tokenizer and chat templates from its folder.

    The engine for such models (MLX) adds no BOS token of its own. Raises `UnreadableModelFile` where a file
    is missing or damaged, `UnsupportedTokenizer` where the folder has a tokenizer in a form that cannot be read here.
    """
    if not (folder / TOKENIZER).is_file() and has_slow_tokenizer(folder):
        library_tokenizer = slow_tokenizer(folder)
    else:
        library_tokenizer = _library_tokenizer(folder / TOKENIZER)
    config = _json_object(folder / CONFIG)
    named = {**_json_object(folder / SPECIAL_TOKENS), **config}
    engine, kind, added = _engine(library_tokenizer)
    tokenizer = Tokenizer(
        name=folder.name,
        kind=kind,
        engine=engine,
        special_tokens=frozenset(token.content for token in added),
        cut_points=frozenset(token.content for token in added if _is_cut_point(token)),
        bos_token=_token_text(named.get("bos_token")),
        eos_token=_token_text(named.get("eos_token")),
    )
    return ModelText(tokenizer, _chat_templates(folder, config))


def _library_tokenizer(path: Path) -> LibraryTokenizer:
    data = _bytes(path, MAX_TOKENIZER_BYTES)
    if data.count(b'"single_word"') > MOST_ADDED:
        raise _damaged(path, f"adds more than {MOST_ADDED:,} tokens")
    try:
        tokenizer = LibraryTokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        raise UnreadableModelFile(
            f"The file {path} is no tokenizer that can be read ({error}). Download the model again."
        ) from error
    if tokenizer.normalizer and _growth(json.loads(tokenizer.normalizer.__getstate__())) > MOST_GROWTH:
        raise _damaged(path, f"makes a text more than {MOST_GROWTH} times as long before it is cut into tokens")
    return tokenizer


def _growth(normalizer: Mapping[str, Any]) -> float:
    """Return how many times as long a normalizer of `tokenizer.json` may make a text."""
    match normalizer:
        case {"type": "Sequence", "normalizers": steps}:
            return math.prod(map(_growth, steps))
        case {"type": "Replace", "pattern": {"String": old}, "content": new} if old:
            return max(1, len(new) / len(old))
        case {"type": "Replace", "content": added} | {"type": "Prepend", "prepend": added}:
            return 1 + len(added)
        case _:
            return 1


def _engine(
    tokenizer: LibraryTokenizer | SlowEngine,
) -> tuple[LibraryEngine | SlowEngine, TokenizerKind, Iterable[AddedToken]]:
    """Return the engine, its kind, and the tokens that were added to the vocabulary."""
    if isinstance(tokenizer, SlowEngine):
        return tokenizer, "sentencepiece", tokenizer.added_tokens
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return LibraryEngine(tokenizer), _kind(tokenizer), tokenizer.get_added_tokens_decoder().values()


def _kind(tokenizer: LibraryTokenizer) -> TokenizerKind:
    if isinstance(tokenizer.model, models.WordPiece):
        return "wordpiece"
    return "byte-level" if isinstance(tokenizer.decoder, decoders.ByteLevel) else "sentencepiece"


def _is_cut_point(token: AddedToken) -> bool:
    """Tell whether a text can be cut before this token, because it does not depend on the text before it."""
    return bool(token.content) and not (token.lstrip or token.single_word or token.normalized)


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the templates by name; a template file wins over the configuration."""
    templates = {}
    stated = config.get("chat_template") or _json_object(folder / JSON_TEMPLATE).get("chat_template")
    if isinstance(stated, str):
        templates["default"] = stated
    elif isinstance(stated, list):
        for entry in stated:
            if isinstance(entry, dict) and isinstance(entry.get("template"), str):
                templates[str(entry.get("name", "default"))] = entry["template"]
    for path in sorted((folder / MORE_TEMPLATES).glob("*.jinja")):
        templates[path.stem] = _text(path)
    if (folder / TEMPLATE).is_file():
        templates["default"] = _text(folder / TEMPLATE)
    return templates


def _token_text(value: object) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, an empty one where the file is not there."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_bytes(path, MAX_CONFIG_BYTES))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"is no valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise _damaged(path, "holds no JSON object")
    return value


def _text(path: Path) -> str:
    try:
        return _bytes(path, MAX_CONFIG_BYTES).decode()
    except UnicodeDecodeError as error:
        raise _damaged(path, "is no UTF-8 text") from error


def _bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise _damaged(path, f"cannot be opened: {error.strerror or error}") from error
    if len(data) > limit:
        raise _damaged(path, f"has more than {limit:,} bytes")
    return data


def _damaged(path: Path, what: str) -> UnreadableModelFile:
    return UnreadableModelFile(f"The model's file {path} {what}. Download the model again, or name another.")
