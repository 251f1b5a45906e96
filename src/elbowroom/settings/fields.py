"""The types of single settings, and the class of all tables."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

ID_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ID_TAKES = "letters, digits, dots, dashes and underscores, beginning with a letter or digit"


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
    """Return an address without a slash at its end. Raises ValueError for anything else."""
    if not _is_plain_url(value):
        raise ValueError("an address such as http://127.0.0.1:1234, without user name, password, query or fragment")
    return value.rstrip("/")


def _is_plain_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        port_is_known = parts.port != 0
        host = parts.hostname or ""
        if ":" not in host:
            host.encode("idna")  # what would be done to look it up: fails for 192.168.1..5
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
    """A value that is wrong beside other values: its key in the whole file, and in words what the key takes."""

    def __init__(self, key: tuple[str | int, ...], takes: str) -> None:
        super().__init__(takes)
        self.key = key


class Contradiction(ValueError):
    """A value that contradicts others, told in a sentence of its own; `key` is the value's in the whole file."""

    def __init__(self, key: tuple[str | int, ...], sentence: str) -> None:
        super().__init__(sentence)
        self.key = key


class Section(BaseModel):
    """A table of the settings file: frozen, and an unknown key is a warning, never a crash."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)
