"""Reads what a GGUF file says about its model and its tokenizer, from the header alone."""

import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, TypeAlias, TypeVar

from elbowroom.tokens.errors import UnreadableModelFile

PREFIX: Final = "tokenizer.ggml."
TEMPLATE: Final = "tokenizer.chat_template"
ID_SUFFIX: Final = "_token_id"
MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
STRING: Final = 8
ARRAY: Final = 9
SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
ARRAY_CODES: Final = dict(zip(SCALARS, "BbHhIifBQqd", strict=True))
LENGTH: Final = SCALARS[10]

# The largest headers in use have 16 MB, 800,000 strings and templates of 60 kB; these limits leave room for
# larger ones and still keep what a hostile file can take below 500 MB and a second.
MAX_HEADER_BYTES: Final = 64 << 20
MAX_KEYS: Final = 1 << 16
MAX_KEY_BYTES: Final = 1 << 16
MAX_TEXT_BYTES: Final = 4 << 20
MAX_STRINGS: Final = 2_000_000
MAX_TOKEN_BYTES: Final = 4096
MAX_KEPT_BYTES: Final = 40 << 20

FIRST_CHUNK: Final = 4 << 20

Numbers: TypeAlias = "array[int] | array[float]"
Value: TypeAlias = "str | int | float | bool | tuple[str, ...] | Numbers"
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

    `chat_templates` has the main template under "default" and others under their own names. `vocabulary` is None
    where the file has none.
    """

    path: Path
    architecture: str
    name: str
    chat_templates: Mapping[str, str]
    vocabulary: GgufVocabulary | None


def read_gguf_header(path: str | PathLike[str]) -> GgufHeader:
    """Read the header of a GGUF file.

    Raises `UnreadableModelFile` where the file is missing, damaged or no GGUF.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            values = _Metadata(path, MetadataReader(file, str(path)).read(_is_wanted))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableModelFile(f"The model file {path} cannot be opened: {reason}.") from error
    return GgufHeader(
        path=path,
        architecture=values.text("general.architecture"),
        name=values.text("general.name"),
        chat_templates=MappingProxyType(_chat_templates(values)),
        vocabulary=_vocabulary(values) if f"{PREFIX}model" in values.values else None,
    )


def _is_wanted(key: str) -> bool:
    return key.startswith(("general.architecture", "general.name", PREFIX, TEMPLATE))


class MetadataReader:
    """Reads the metadata at the start of an open GGUF file.

    `read()` raises `UnreadableModelFile` for everything that is not a sound header of a reasonable size.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._data = b""
        self._position = 0
        self._strings = 0
        self._kept_bytes = 0

    def read(self, wanted: Callable[[str], bool]) -> dict[str, Value]:
        """Return the values whose key is `wanted`, in the file's order; the others are skipped."""
        self._check_version()
        self._scalar(LENGTH)  # the number of tensors
        count = self._length()
        if count > MAX_KEYS:
            raise self._failure(f"declares {count:,} metadata keys; no model has more than {MAX_KEYS:,}")
        values: dict[str, Value] = {}
        for _ in range(count):
            key = self._key()
            value = self._value(key, keep=wanted(key))
            if value is None:
                continue
            if key in values:
                raise self._failure(f"has the key {key} twice")
            values[key] = value
        return values

    def _check_version(self) -> None:
        if self._bytes(4) != MAGIC:
            raise self._failure("is no GGUF file: it does not begin with the four letters GGUF")
        version = int(self._scalar(SCALARS[4]))
        if version in VERSIONS:
            return
        if int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS:
            raise self._failure("was written for big-endian machines; convert it for this one")
        raise self._failure(f"has GGUF version {version}; versions 2 and 3 can be read")

    def _key(self) -> str:
        length = self._length()
        if length > MAX_KEY_BYTES:
            raise self._failure(f"declares a key of {length:,} bytes")
        try:
            return self._bytes(length).decode()
        except UnicodeDecodeError as error:
            raise self._failure("has a key that is no UTF-8") from error

    def _value(self, key: str, *, keep: bool) -> "Value | None":
        kind = int(self._scalar(SCALARS[4]))
        if kind in SCALARS:
            value = self._scalar(SCALARS[kind])
            return value if keep else None
        if kind == STRING:
            return self._text(key, keep=keep)
        if kind == ARRAY:
            return self._array(key, keep=keep)
        raise self._failure(f"gives {key} the unknown value type {kind}")

    def _text(self, key: str, *, keep: bool) -> str | None:
        length = self._length()
        if keep and length > MAX_TEXT_BYTES:
            raise self._failure(f"gives {key} a text of {length:,} bytes; {MAX_TEXT_BYTES:,} is the limit")
        data = self._bytes(length)
        return data.decode(errors="replace") if keep else None

    def _array(self, key: str, *, keep: bool) -> "Value | None":
        kind = int(self._scalar(SCALARS[4]))
        count = self._length()
        if kind == STRING:
            return self._strings_array(key, count, keep=keep)
        if kind not in SCALARS:
            what = "arrays in an array" if kind == ARRAY else f"the unknown value type {kind}"
            raise self._failure(f"gives {key} {what}")
        if count > MAX_HEADER_BYTES:
            raise self._failure(f"declares {count:,} entries in {key}")
        return self._numbers_array(kind, count, keep=keep)

    def _numbers_array(self, kind: int, count: int, *, keep: bool) -> "Numbers | None":
        data = self._bytes(count * SCALARS[kind].size)
        if not keep:
            return None
        self._charge(len(data))
        numbers: Numbers = array(ARRAY_CODES[kind])
        numbers.frombytes(data)
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers

    def _strings_array(self, key: str, count: int, *, keep: bool) -> tuple[str, ...] | None:
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise self._failure(f"declares {count:,} strings in {key}; at most {MAX_STRINGS:,} are read")
        texts: list[str] = []
        length_at, length_bytes = LENGTH.unpack_from, LENGTH.size
        data, end, position = self._data, len(self._data), self._position
        first = position
        for _ in range(count):
            start = position + length_bytes
            if start > end:
                data, end = self._filled(start)
            (length,) = length_at(data, position)
            position = start + length
            if keep and length > MAX_TOKEN_BYTES:
                raise self._failure(f"has an entry of {length:,} bytes in {key}")
            if position > end:
                data, end = self._filled(position)
            if keep:  # bytes that are no UTF-8 stay apart from every real text: no two tokens fall together
                texts.append(data[start:position].decode("utf-8", "surrogateescape"))
        self._position = position
        if not keep:
            return None
        self._charge(position - first)
        return tuple(texts)

    def _charge(self, size: int) -> None:
        self._kept_bytes += size
        if self._kept_bytes > MAX_KEPT_BYTES:
            raise self._failure(f"has a vocabulary of more than {MAX_KEPT_BYTES:,} bytes")

    def _length(self) -> int:
        return int(self._scalar(LENGTH))

    def _scalar(self, layout: struct.Struct) -> int | float | bool:
        (value,) = layout.unpack(self._bytes(layout.size))
        number: int | float | bool = value
        return number

    def _bytes(self, size: int) -> bytes:
        start, end = self._position, self._position + size
        if end > len(self._data):
            self._filled(end)
        self._position = end
        return self._data[start:end]

    def _filled(self, needed: int) -> tuple[bytes, int]:
        """Read on until `needed` bytes of the file are here; return all bytes and how many they are."""
        if needed > MAX_HEADER_BYTES:
            raise self._failure(f"has a header of more than {MAX_HEADER_BYTES:,} bytes, or a damaged one")
        goal = min(MAX_HEADER_BYTES, max(needed, FIRST_CHUNK, 2 * len(self._data)))
        self._data += self._file.read(goal - len(self._data))
        if len(self._data) < needed:
            raise self._failure("ends in the middle of its header; its download or copy was cut short")
        return self._data, len(self._data)

    def _failure(self, what: str) -> UnreadableModelFile:
        return UnreadableModelFile(
            f"The model file {self._name} {what}. Download or convert the model again, or name another file."
        )


class _Metadata:
    """The values of a header; each method raises UnreadableModelFile for a value of another type."""

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

    def whole_numbers(self, key: str, count: int) -> "array[int]":
        value = self.numbers(key, count)
        if value.typecode in "fd":
            raise self._wrong(key, "a list of whole numbers")
        return value  # type: ignore[return-value]  # the type code says so

    def _wrong(self, key: str, expected: str) -> UnreadableModelFile:
        return UnreadableModelFile(
            f"In the model file {self._path}, {key} should be {expected}. The file is damaged or badly"
            " converted; download or convert the model again."
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
