"""The types of single settings: ids, numbers, addresses, paths and secrets; and the base class of all tables."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import platformdirs
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from elbowroom.errors import SettingsError

ID_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ID_TAKES = "letters, digits, dots, dashes and underscores, beginning with a letter or digit"
APPLICATION = "elbowroom"
HIDDEN = "********"
PASSWORD_OR_QUERY = re.compile(r"((?<=^postgres:)|(?<=^postgresql:)).+|(?<=//)[^/]*(?=@)|(?<=\?).+", re.DOTALL)
"""Of the address of a PostgreSQL database nothing is sure to be no password: it may hold slashes and at-signs."""


def _checked_id(value: str) -> str:
    if not ID_FORM.fullmatch(value):
        raise ValueError(ID_TAKES)
    return value


def split_at_commas(value: Any) -> Any:
    """Return a list that was written as one text with commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def checked_url(value: str) -> str:
    """Return an HTTP address without a slash at its end. Raises ValueError for anything else."""
    if not _is_plain_url(value):
        raise ValueError("an address such as http://127.0.0.1:1234, without user name, password, query or fragment")
    return value.rstrip("/")


def _is_plain_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        port_is_known = parts.port != 0
        host = parts.hostname or ""
        if ":" not in host:
            host.encode("idna")  # a look-up encodes it too, which fails for 192.168.1..5
    except ValueError:
        return False
    if "@" in parts.netloc or "?" in value or "#" in value or any(c.isspace() or not c.isprintable() for c in value):
        return False
    return parts.scheme in ("http", "https") and bool(host) and port_is_known


def no_switch(value: Any) -> Any:
    """Refuse true and false, which Python takes for numbers."""
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")  # noqa: TRY004  # pydantic collects ValueErrors only
    return value


def _split_at_lines(value: Any) -> Any:
    if isinstance(value, str):
        return [line.strip() for line in value.splitlines() if line.strip()]
    return value


Whole = Annotated[int, BeforeValidator(no_switch)]


Real = Annotated[float, BeforeValidator(no_switch)]


Id = Annotated[str, AfterValidator(_checked_id)]


Names = Annotated[tuple[str, ...], BeforeValidator(split_at_commas)]


Sentences = Annotated[tuple[str, ...], BeforeValidator(_split_at_lines)]


Url = Annotated[str, AfterValidator(checked_url)]


class Misfit(ValueError):
    """A value that other values rule out; `key` is its key in the whole file, the message what the key takes."""

    def __init__(self, key: tuple[str | int, ...], takes: str) -> None:
        super().__init__(takes)
        self.key = key


class Contradiction(ValueError):
    """A value that contradicts others; the message is a whole sentence, `key` the value's key in the whole file."""

    def __init__(self, key: tuple[str | int, ...], sentence: str) -> None:
        super().__init__(sentence)
        self.key = key


class Misfits(ValueError):
    """All values that contradict others, one after the other in `each`."""

    def __init__(self, each: Sequence[Misfit | Contradiction]) -> None:
        super().__init__("; ".join(map(str, each)))
        self.each = tuple(each)


class Section(BaseModel):
    """A table of the settings file: frozen; an unknown key causes a warning, not an error."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)


def settings_path(environ: Mapping[str, str]) -> Path:
    """Return the settings file: `ELBOWROOM_CONFIG`, else `settings.toml` in the platform's config folder."""
    if named := environ.get("ELBOWROOM_CONFIG"):
        return expanded(named)
    return platformdirs.user_config_path(APPLICATION, appauthor=False) / "settings.toml"


def data_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of the store: `ELBOWROOM_DATA_DIR`, else the platform's folder for data of programs.

    Raises SettingsError where the variable holds a relative path, which would depend on the folder of each start.
    """
    if not (named := environ.get("ELBOWROOM_DATA_DIR")):
        return platformdirs.user_data_path(APPLICATION, appauthor=False)
    folder = expanded(named)
    if not folder.is_absolute():
        raise SettingsError(
            f"environment variable ELBOWROOM_DATA_DIR = {named!r} is not accepted; it takes the full path of a folder."
        )
    return folder


def expanded(written: str) -> Path:
    """Return a path with a leading `~` or `~user` replaced by the home folder.

    Raises SettingsError where the user is not known.
    """
    try:
        return Path(written).expanduser()
    except RuntimeError:
        raise SettingsError(f"The path {written} begins with a home folder that is not known.") from None


def without_secrets(address: str) -> str:
    """Return an address with stars in place of its password and its query."""
    return PASSWORD_OR_QUERY.sub(HIDDEN, address)


class SecretRef:
    """A token or key as the settings name it: `env:NAME`, `file:PATH`, or the value itself.

    References with the same text are equal. Neither `str` nor `repr` shows a literal value.
    """

    __slots__ = ("_written",)

    def __init__(self, written: str) -> None:
        self._written = written

    @property
    def is_literal(self) -> bool:
        """Tell whether the value itself stands in the settings."""
        return not self._written.startswith(("env:", "file:"))

    def file(self, folder: Path) -> Path | None:
        """Return the file that holds the secret, None for the other kinds of reference.

        A relative path is looked up in `folder`, the folder of the settings file.
        """
        return folder / expanded(self._written.removeprefix("file:")) if self._written.startswith("file:") else None

    def reveal(self, folder: Path, environ: Mapping[str, str] = os.environ) -> str | None:
        """Return the secret without blanks around it, or None where the environment variable is not set.

        Raises SettingsError where the file cannot be read or is empty, or the secret could not stand in a header.
        """
        value = self._read(folder, environ).strip()
        if not value.isprintable():
            raise SettingsError(f"{self} holds a line break or another control character; a secret is one line.")
        return value or None

    def _read(self, folder: Path, environ: Mapping[str, str]) -> str:
        if self._written.startswith("env:"):
            return environ.get(self._written.removeprefix("env:"), "")
        path = self.file(folder)
        if path is None:
            return self._written
        try:
            value = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise SettingsError(f"the file {path} cannot be read: {error.strerror or error}.") from error
        except UnicodeDecodeError as error:
            # Not chained: the decoding error carries the file's content.
            raise SettingsError(f"the file {path} is not UTF-8 text (byte {error.start}).") from None
        except ValueError as error:  # a path that holds a null byte
            raise SettingsError(f"the file {str(path)!r} cannot be read: {error}.") from None
        if not value.strip():
            raise SettingsError(f"the file {path} is empty.")
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretRef) and other._written == self._written

    def __hash__(self) -> int:
        return hash(self._written)

    def __str__(self) -> str:
        return HIDDEN if self.is_literal else self._written

    def __repr__(self) -> str:
        return f"SecretRef({str(self)!r})"

    @classmethod
    def _accept(cls, value: Any) -> "SecretRef":
        if isinstance(value, SecretRef):
            return value
        if not isinstance(value, str) or not value.strip():
            raise ValueError("env:NAME, file:PATH, or the secret itself as a text that is not empty")
        return cls(value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_after_validator_function(cls._accept, core_schema.str_schema()),
            python_schema=core_schema.no_info_plain_validator_function(cls._accept),
            serialization=core_schema.to_string_ser_schema(),
        )
