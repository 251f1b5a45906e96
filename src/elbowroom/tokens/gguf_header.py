"""What a GGUF file says about its model and its tokenizer, read from the header alone."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from elbowroom.tokens.errors import UnreadableModelFile
from elbowroom.tokens.gguf_bytes import MetadataReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from elbowroom.tokens.gguf_bytes import Numbers, Value

PREFIX: Final = "tokenizer.ggml."
TEMPLATE: Final = "tokenizer.chat_template"
VOCABULARY_ARRAYS: Final = frozenset(PREFIX + name for name in ("tokens", "merges", "scores", "token_type"))
ID_SUFFIX: Final = "_token_id"

T = TypeVar("T", str, bool)


@dataclass(frozen=True, slots=True, eq=False)
class GgufVocabulary:
    """The tokenizer's tables as they stand in the file.

    `model` is the algorithm ("gpt2", "llama", "gemma4", "bert" ...), `pre` the name of its split patterns, ""
    where the file names none. `tokens` is indexed by id; bytes that are no UTF-8 are escaped as lone
    surrogates. `token_types` and `scores` are as long as `tokens`, or empty. `ids` are the tokens that have a
    name: "bos", "eos", "unknown", "fim_pre" and so on.
    """

    model: str
    pre: str
    tokens: tuple[str, ...]
    token_types: Sequence[int] = ()
    scores: Sequence[float] = ()
    merges: tuple[str, ...] = ()
    ids: Mapping[str, int] = field(default_factory=dict)
    adds_bos: bool | None = None
    adds_eos: bool | None = None
    adds_space_prefix: bool | None = None
    lowercases: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GgufHeader:
    """A model as its GGUF file describes it.

    `context_length` is what the model was trained for, in tokens. `chat_templates` has the main one under
    "default" and others under their own names. `vocabulary` is None where the file has none, or where it was
    not asked for.
    """

    path: Path
    architecture: str
    name: str
    context_length: int | None
    chat_templates: Mapping[str, str]
    vocabulary: GgufVocabulary | None

    @property
    def chat_template(self) -> str | None:
        """The main chat template, as Jinja source."""
        return self.chat_templates.get("default")


def read_gguf_header(path: str | PathLike[str], *, vocabulary: bool = True) -> GgufHeader:
    """Read the header of a GGUF file; without `vocabulary` its large tables are skipped.

    Raises `UnreadableModelFile` where the file is missing, damaged or no GGUF.
    """
    path = Path(path)

    def wanted(key: str) -> bool:
        if key in VOCABULARY_ARRAYS:
            return vocabulary
        return key.startswith(("general.architecture", "general.name", PREFIX, TEMPLATE)) or (
            key.endswith(".context_length")
        )

    try:
        with path.open("rb") as file:
            values = _Metadata(path, MetadataReader(file, str(path)).read(wanted))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableModelFile(f"The model file {path} cannot be opened: {reason}.") from error
    return _header(path, values, vocabulary=vocabulary)


class _Metadata:
    """The values of a header, each taken out by the type that it must have."""

    def __init__(self, path: Path, values: Mapping[str, Value]) -> None:
        self._path = path
        self.values = values

    def text(self, key: str) -> str:
        return self._of_type(key, str) or ""

    def flag(self, key: str) -> bool | None:
        return self._of_type(key, bool)

    def _of_type(self, key: str, kind: type[T]) -> T | None:
        value = self.values.get(key)
        if value is None or isinstance(value, kind):
            return value
        raise self._wrong(key, "a text" if kind is str else "true or false")

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._wrong(key, "a whole number")

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, ())
        if isinstance(value, tuple):
            return value
        raise self._wrong(key, "a list of texts")

    def numbers(self, key: str, count: int) -> Numbers:
        value = self.values.get(key)
        if value is None:
            return array("i")
        if not isinstance(value, array):
            raise self._wrong(key, "a list of numbers")
        if len(value) < count:
            raise self._wrong(key, f"as long as the list of tokens ({count:,} entries, not {len(value):,})")
        return value

    def whole_numbers(self, key: str, count: int) -> array[int]:
        value = self.numbers(key, count)
        if value.typecode in "fd":
            raise self._wrong(key, "a list of whole numbers")
        return value  # type: ignore[return-value]  # the type code says so

    def _wrong(self, key: str, expected: str) -> UnreadableModelFile:
        return UnreadableModelFile(
            f"In the model file {self._path}, {key} should be {expected}. The file is damaged or badly"
            " converted; download or convert the model again."
        )


def _header(path: Path, values: _Metadata, *, vocabulary: bool) -> GgufHeader:
    architecture = values.text("general.architecture")
    return GgufHeader(
        path=path,
        architecture=architecture,
        name=values.text("general.name"),
        context_length=values.number(f"{architecture}.context_length"),
        chat_templates=MappingProxyType(_chat_templates(values)),
        vocabulary=_vocabulary(values) if vocabulary and f"{PREFIX}model" in values.values else None,
    )


def _chat_templates(values: _Metadata) -> dict[str, str]:
    templates = {}
    for key in values.values:
        if key == TEMPLATE:
            templates["default"] = values.text(key)
        elif key.startswith(f"{TEMPLATE}."):
            templates[key.removeprefix(f"{TEMPLATE}.")] = values.text(key)
    return templates


def _vocabulary(values: _Metadata) -> GgufVocabulary:
    tokens = values.texts(f"{PREFIX}tokens")
    keys = (key for key in values.values if key.startswith(PREFIX) and key.endswith(ID_SUFFIX))
    ids = {key.removeprefix(PREFIX).removesuffix(ID_SUFFIX): values.number(key) for key in keys}
    return GgufVocabulary(
        model=values.text(f"{PREFIX}model"),
        pre=values.text(f"{PREFIX}pre"),
        tokens=tokens,
        token_types=values.whole_numbers(f"{PREFIX}token_type", len(tokens)),
        scores=values.numbers(f"{PREFIX}scores", len(tokens)),
        merges=values.texts(f"{PREFIX}merges"),
        ids=MappingProxyType({name: number for name, number in ids.items() if number is not None}),
        adds_bos=values.flag(f"{PREFIX}add_bos_token"),
        adds_eos=values.flag(f"{PREFIX}add_eos_token"),
        adds_space_prefix=values.flag(f"{PREFIX}add_space_prefix"),
        lowercases=values.flag(f"{PREFIX}normalizer.lowercase"),
    )
