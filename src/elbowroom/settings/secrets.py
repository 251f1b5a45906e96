"""A secret in the settings: named by reference, read when it is needed, never printed."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from elbowroom.errors import SettingsError
from elbowroom.settings.paths import expanded

HIDDEN = "********"
PASSWORD_OR_QUERY = re.compile(r"(?<=//)[^/]*(?=@)|(?<=\?).+", re.DOTALL)


def without_secrets(address: str) -> str:
    """Return an address in which nobody can read a password or the values of a query."""
    return PASSWORD_OR_QUERY.sub(HIDDEN, address)


class SecretRef:
    """A token or key as the settings name it: `env:NAME`, `file:PATH`, or the value itself.

    Equal by what is written. Neither `str` nor `repr` shows a value that was written out.
    """

    __slots__ = ("_written",)

    def __init__(self, written: str) -> None:
        self._written = written

    @property
    def is_literal(self) -> bool:
        """Tell whether the value itself stands in the settings."""
        return not self._written.startswith(("env:", "file:"))

    def file(self, folder: Path) -> Path | None:
        """Return the file that holds the secret, None where no file does.

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
