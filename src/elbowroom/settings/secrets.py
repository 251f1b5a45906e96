"""A secret in the settings: named by reference, read when it is needed, never printed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from elbowroom.errors import SettingsError

HIDDEN = "********"


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

    def reveal(self, folder: Path, environ: Mapping[str, str] = os.environ) -> str | None:
        """Return the secret, or None where the environment variable is not set.

        A relative path is looked up in `folder`, the folder of the settings file.

        Raises SettingsError where the file cannot be read or is empty.
        """
        if self._written.startswith("env:"):
            return environ.get(self._written.removeprefix("env:")) or None
        if not self._written.startswith("file:"):
            return self._written
        path = folder / Path(self._written.removeprefix("file:")).expanduser()
        try:
            value = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"The secret in {path} cannot be read: {error}.") from error
        if not value:
            raise SettingsError(f"The secret file {path} is empty.")
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
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from_text = core_schema.no_info_after_validator_function(cls, core_schema.str_schema(min_length=1))
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), from_text]),
            serialization=core_schema.to_string_ser_schema(),
        )
