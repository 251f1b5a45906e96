"""The Jinja environment that chat templates are written for. Imports Jinja: load it when a template is rendered."""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import ChainableUndefined, Environment, TemplateError, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

CLOCK_VARIABLE = "_clock"
DICT_ATTRIBUTES = frozenset(dir(dict))
JUDGEMENTS_KEPT = 1000


class RefusedByTemplate(TemplateError):
    """A template called `raise_exception`."""


class GenerationBlock(Extension):
    """`{% generation %} ... {% endgeneration %}` marks what the model wrote; it adds nothing to the text."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it for instances

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the block as a call that returns its body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return caller()


class PlainNamespace(Namespace):
    """Jinja's `namespace` without names that begin with an underscore, which belong to Python."""

    def __init__(*args: Any, **attributes: Any) -> None:
        self, *mappings = args
        given = dict(*mappings, **attributes)
        for name in given:
            _refuse_private(name)
        Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


class ChatTemplates(Environment):
    """An environment with the settings, filters and functions that chat templates expect, for templates of our own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols], **settings)
        self.filters["tojson"] = to_json
        self.globals.update(
            raise_exception=raise_exception, strftime_now=strftime_now, namespace=PlainNamespace, dict=make_dict
        )

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute or an item; of a message, which is a plain dict, without trying the attribute first."""
        if type(obj) is dict and attribute not in DICT_ATTRIBUTES:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


class SandboxedTemplates(ChatTemplates, ImmutableSandboxedEnvironment):
    """The same environment as a sandbox, for templates from model files."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._judged: dict[tuple[type, str], bool] = {}

    def call(self, context: Context, called: Any, /, *arguments: Any, **options: Any) -> Any:
        """Call a function for a template; methods of texts and dicts directly, without Jinja's checks."""
        if type(called) is BuiltinMethodType:
            options.pop("_block_vars", None)
            options.pop("_loop_vars", None)
            return called(*arguments, **options)
        return super().call(context, called, *arguments, **options)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Tell whether a template may read an attribute; remembered by the object's type and the name."""
        asked = (type(obj), attr)
        judged = self._judged.get(asked)
        if judged is None:
            if len(self._judged) >= JUDGEMENTS_KEPT:
                self._judged.clear()
            judged = self._judged[asked] = super().is_safe_attribute(obj, attr, value)
        return judged


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write a value as JSON, with `<`, `>`, `&` and `'` as they are: a prompt is no web page."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> NoReturn:
    """Let a template refuse the messages it was given."""
    raise RefusedByTemplate(message)


@pass_context
def strftime_now(context: Context, pattern: str) -> str:
    """Write the time of rendering; the clock comes with the other variables of the template."""
    return str(context[CLOCK_VARIABLE]().strftime(pattern))


def make_dict(items: Iterable[Any] = (), **attributes: Any) -> dict[Any, Any]:
    """Stand in for the class `dict`, which would hand the template its own methods."""
    return dict(items, **attributes)


LARGEST_PLAIN_FLOAT = 1e6


class ForgivingUndefined(ChainableUndefined):
    """An undefined value, whose attributes and items are undefined too, without an error."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(self)(name=name)

    def __call__(self, *_arguments: Any, **_options: Any) -> Any:
        """Return an empty list for `items`, `keys` and `values`; any other call is an error."""
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
        """Add two values; none and undefined next to a text count as the empty text."""
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
    """Return a value as the engine prints it: none and objects as nothing, a list as its items in a row."""
    if type(value) is str or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        text = f"{value:.6f}".rstrip("0")
        return text + "0" if text.endswith(".") else text
    if isinstance(value, list):
        return "".join(str(printed(item)) for item in value)
    return "" if value is None or isinstance(value, Mapping) else value


def as_text(value: Any) -> str:
    """Return the text of a value, of a float as in JSON."""
    return engine_json(value) if isinstance(value, float) else str(value)


def engine_json(value: Any, *arguments: Any, **options: Any) -> str:
    """Write JSON with floats in six digits, and the results of filters as lists."""
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
