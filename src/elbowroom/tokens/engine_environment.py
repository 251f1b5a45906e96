"""The Jinja environment as llama.cpp's own Jinja understands the language, where that differs from Python's.

Its interpreter is more forgiving, and prints some values in another way. Templates are written against it as well,
and it is what counts. This sandbox lets a template change lists, so it is only for messages that are copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import ChainableUndefined, Undefined

from elbowroom.tokens.jinja_environment import SandboxedTemplates, to_json

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

LARGEST_PLAIN_FLOAT = 1e6


class ForgivingUndefined(ChainableUndefined):
    """What is not there has no attributes and no items either, and asking for them is no error."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(self)(name=name)

    def __call__(self, *_arguments: Any, **_options: Any) -> Any:
        """Return no items where somebody asks for them; calling anything else is an error."""
        if self._undefined_name not in ("items", "keys", "values"):
            self._fail_with_undefined_error()
        return []


class EngineTemplates(SandboxedTemplates):
    """A sandbox with llama.cpp's reading of Jinja."""

    intercepted_binops = frozenset({"+"})

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow `append` and `pop` on a list beside all that the immutable sandbox allows."""
        return (type(obj) is list and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Add, with nothing beside a text being the empty text."""
        if type(left) is str and type(right) is str:
            return left + right
        if isinstance(right, str) and is_nothing(left):
            return right
        if isinstance(left, str) and is_nothing(right):
            return left
        return super().call_binop(context, operator, left, right)


def engine_environment() -> Environment:
    """Return a sandbox that renders as the engine does."""
    environment = EngineTemplates(undefined=ForgivingUndefined, finalize=printed)
    environment.filters.update(tojson=engine_json, safe=str, string=as_text)
    return environment


def is_nothing(value: object) -> bool:
    """Tell whether a value is none or undefined."""
    return value is None or isinstance(value, Undefined)


def printed(value: Any) -> Any:
    """Return what the engine prints for a value: nothing for none and objects, a list's items one after the other."""
    if type(value) is str or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        text = f"{value:.6f}".rstrip("0")
        return text + "0" if text.endswith(".") else text
    if isinstance(value, list):
        return "".join(str(printed(item)) for item in value)
    return "" if value is None or isinstance(value, Mapping) else value


def as_text(value: Any) -> str:
    """Return the text of a value, of a float as JSON has it."""
    return engine_json(value) if isinstance(value, float) else str(value)


def engine_json(value: Any, *arguments: Any, **options: Any) -> str:
    """Write JSON with floats in six digits, and lists that were not yet made from their filter."""
    return to_json(plain(value), *arguments, **options)


def plain(value: Any) -> Any:
    """Return a value that JSON can hold, its floats rounded as the engine writes them."""
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() and abs(short) < LARGEST_PLAIN_FLOAT else short
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [plain(item) for item in value]
    return None if isinstance(value, Undefined) else value
