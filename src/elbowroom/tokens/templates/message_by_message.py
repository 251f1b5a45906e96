"""Renders a history that has grown from its new messages alone, where the template writes each message by itself.

That is proven in two steps. The loop over the messages is compiled a second time, with every expression in it replaced
that could see more than its message, its place and what stands before the loop. Where such an expression would be
evaluated, or a message holds more than texts, the rendering is given up, and the template itself renders the whole.
Imports Jinja: load it when a template is rendered.
"""

import marshal
import secrets
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, Literal

from jinja2 import Environment, nodes

from elbowroom.caches import BACK, BY_VALUE, ENDS_KNOWN, PLAIN, End, ends_of
from elbowroom.tokens.templates.messages import Message

MOST_BYTES: Final = 4 * 2**20
MOST_GIVEN_UP: Final = 8
"""After so many renderings that were given up and none that was not, it is not tried again."""
MESSAGE_BYTES: Final = 300
LETTER_BYTES: Final = 3
"""A letter is kept twice, in its message and in the prompt, and takes one byte or two."""
MESSAGES: Final = "messages"
NEW, KNOWN, GIVE_UP = "_new_messages", "_known_messages", "_give_up"
PLACES: Final = frozenset({"first", "index", "index0", "previtem"})
"""What a loop may be asked for: nothing that depends on the messages to come."""
VALUES: Final = (
    *(nodes.Const, nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Compare, nodes.Operand, nodes.Concat),
    *(nodes.Add, nodes.Sub, nodes.Mod, nodes.And, nodes.Or, nodes.Not, nodes.CondExpr, nodes.List),
    *(
        nodes.Tuple,
        nodes.Neg,
        nodes.Pos,
    ),
)
FILTERS: Final = frozenset(
    {"default", "trim", "length", "string", "upper", "lower", "capitalize", "title", "tojson", "safe"}
)
METHODS: Final = frozenset(
    {"strip", "lstrip", "rstrip", "split", "startswith", "endswith", "upper", "lower", "replace"}
)


class GivenUp(Exception):
    """The template looks at more than one message."""


def give_up() -> None:
    """Stand in a template for what may see other messages."""
    raise GivenUp


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A history and the text that the loop over its messages wrote; `ends` are where each message ends in that.

    All of it takes about `size` bytes.
    """

    messages: list[Message]
    text: str
    ends: "array[int]"
    size: int = 0

    def first(self, length: int) -> "Written":
        """Return so many of its first messages, with what the loop wrote for these."""
        if length == len(self.messages):
            return self
        return Written(self.messages[:length], self.text[: self.ends[length - 1]], self.ends[:length])


Mark = tuple[bytes, End]
"""The hash of the variables that the template reads up to the end of its loop, and the end of a history."""


class GrowingPrompts:
    """The prompts of one template that were rendered last; two threads may use it at the same time.

    Those used last are kept with their messages, `most_bytes` of them.
    """

    def __init__(self, environment: Environment, source: str, *, most_bytes: int = MOST_BYTES) -> None:
        self._mark = f"\0{secrets.token_hex(16)}\0"
        tree, self._read = in_parts(environment, source, self._mark)
        self._template = environment.from_string(tree) if tree is not None else None
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Written, list[Mark]] = OrderedDict()
        self._known: dict[Mark, Written] = {}
        self._ends = Counter[End]()
        self._lock = threading.Lock()
        self._given_up = 0
        self.size = 0
        """About how many bytes all of them take."""

    def knows(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether a prompt seems to be known but for the last few of its messages, and so takes little time."""
        return any(end in self._ends for end in ends_of(messages, BACK))

    def pieces(self, variables: Mapping[str, Any], hidden: Mapping[str, Any]) -> list[str] | None:
        """Return what the template renders with both; None where it has to render the whole by itself.

        `hidden` are variables that are never the same; a template that reads them renders the whole.
        """
        messages: Any = variables.get(MESSAGES)
        if self._template is None or self._given_up >= MOST_GIVEN_UP or type(messages) is not list:
            return None
        try:
            others = _digest({name: variables[name] for name in sorted(self._read & variables.keys())})
            before = self._taken_out(others, messages)
            new = messages[len(before.messages) :]
            if not _are_plain(new):
                return None
            own = {NEW: new, KNOWN: len(before.messages), GIVE_UP: give_up}
            pieces = list(self._template.generate({**variables, **hidden, **own}))
        except Exception:  # noqa: BLE001  # the template itself will say what is wrong, if anything is
            self._given_up += 1
            return None
        self._given_up = 0
        start, *begun, end = (place for place, piece in enumerate(pieces) if piece == self._mark)
        texts, ends, length = [before.text], before.ends[:], len(before.text)
        for first, after in pairwise([*begun, end]):
            texts.append("".join(pieces[first + 1 : after]))
            length += len(texts[-1])
            ends.append(length)
        text = "".join(texts)
        size = MESSAGE_BYTES * len(messages) + LETTER_BYTES * len(text)
        self._put_in(others, Written(messages[:], text, ends, size))
        return [*pieces[:start], text, *pieces[end + 1 :]]

    def _taken_out(self, others: bytes, messages: Sequence[Message]) -> Written:
        """Return the longest beginning of these messages that is known, an empty one where none is.

        The history that has it is known no longer, since another one takes its place.
        """
        for end in ends_of(messages, BACK):
            length = end[0]
            with self._lock:
                known = self._known.get((others, end))
                if known is not None and known.messages[:length] == messages[:length]:
                    self._drop(known)
                    return known.first(length)
        return Written([], "", array("Q"))

    def _put_in(self, others: bytes, known: Written) -> None:
        messages = known.messages
        if not messages or known.size > self._most_bytes:
            return
        with self._lock:
            marks = self._kept[known] = []
            for end in ends_of(messages, ENDS_KNOWN):
                mark = (others, end)
                marks.append(mark)
                self._known[mark] = known
                self._ends[mark[1]] += 1
            self.size += known.size
            while self.size > self._most_bytes:
                self._drop(next(iter(self._kept)))

    def _drop(self, known: Written) -> None:
        for mark in self._kept.pop(known):
            if self._known.get(mark) is known:  # else another history that ends so was kept since
                del self._known[mark]
            self._ends[mark[1]] -= 1
            if not self._ends[mark[1]]:
                del self._ends[mark[1]]
        self.size -= known.size


def _digest(variables: Mapping[str, Any]) -> bytes:
    """Return the hash of variables. Raises ValueError where they hold what is no JSON."""
    return blake2b(marshal.dumps(dict(variables), BY_VALUE), digest_size=16).digest()


def _are_plain(messages: Sequence[Message]) -> bool:
    """Tell whether messages are roles and texts, in this order, and nothing else; a template may print them as JSON."""
    return all(
        type(message) is dict
        and len(message) == PLAIN
        and next(iter(message)) == "role"
        and type(message.get("role")) is str
        and type(message.get("content")) is str
        for message in messages
    )


def in_parts(environment: Environment, source: str, mark: str) -> tuple[nodes.Template | None, frozenset[str]]:
    """Return the tree of a template whose loop, between two marks, goes over the new messages; None without a loop.

    Another mark stands before each message. Beside the tree are the names that are read up to the end of the loop,
    that of the messages apart.
    """
    tree = environment.parse(source)
    loops = [(place, node) for place, node in enumerate(tree.body) if isinstance(node, nodes.For)]
    if len(loops) != 1 or (target := _target_of(loops[0][1])) is None:
        return None, frozenset()
    place, loop = loops[0]
    macros = frozenset(node.name for node in tree.body[:place] if isinstance(node, nodes.Macro))
    kept = macros | {MESSAGES, "loop", target, NEW, KNOWN, GIVE_UP}
    before = [_Alone(kept, macros, "before").block(node) for node in tree.body[:place]]
    loop.iter = nodes.Name(NEW, "load")
    marks = [nodes.Output([nodes.TemplateData(mark)]) for _ in range(3)]
    loop.body = [marks[2], *(_Alone(kept, macros, "messages").block(node) for node in loop.body)]
    read = frozenset(name.name for node in (*before, loop) for name in node.find_all(nodes.Name)) - {MESSAGES}
    whole = nodes.Template([*before, marks[0], loop, marks[1], *tree.body[place + 1 :]])
    whole.set_lineno(1)
    whole.set_environment(environment)
    return whole, read


def _target_of(loop: nodes.For) -> str | None:
    """Return the name that a loop gives to each message; None where it is no plain loop over the messages."""
    is_plain = not (loop.else_ or loop.test or loop.recursive) and _is_name(loop.iter, MESSAGES)
    return loop.target.name if is_plain and isinstance(loop.target, nodes.Name) else None


@dataclass(frozen=True, slots=True)
class _Alone:
    """Replaces what could see other messages than the first, the loop's own and the one before.

    `kept` are names nobody may set, `macros` those of them that are macros. `scope` is where the statements stand:
    before the loop over the messages, in it, or in a macro or a loop over something else.
    """

    kept: frozenset[str]
    macros: frozenset[str]
    scope: Literal["before", "messages", "elsewhere"]

    def block(self, node: nodes.Node) -> nodes.Node:
        """Return a statement in which nothing sees more than it may."""
        if isinstance(node, nodes.Output):
            return nodes.Output([self._value(value) for value in node.nodes])
        if isinstance(node, nodes.If):
            others = [self._if(one) for one in node.elif_]
            return nodes.If(self._value(node.test), self.blocks(node.body), others, self.blocks(node.else_))
        if isinstance(node, nodes.Assign) and self._may_set(node.target):
            return nodes.Assign(node.target, self._value(node.node))
        if isinstance(node, nodes.For) and self._may_set(node.target) and not (node.test or node.recursive):
            inside = replace(self, scope="elsewhere").blocks(node.body)
            return nodes.For(node.target, self._value(node.iter), inside, self.blocks(node.else_), None, False)
        if isinstance(node, nodes.Macro) and self.scope == "before" and all(map(self._may_set, node.args)):
            defaults = [self._value(value) for value in node.defaults]
            return nodes.Macro(node.name, node.args, defaults, replace(self, scope="elsewhere").blocks(node.body))
        return nodes.Output([_given_up()])

    def blocks(self, statements: Sequence[nodes.Node]) -> list[nodes.Node]:
        """Return such statements."""
        return [self.block(statement) for statement in statements]

    def _may_set(self, target: nodes.Node) -> bool:
        return isinstance(target, nodes.Name) and target.name not in self.kept

    def _if(self, node: nodes.If) -> nodes.If:
        return nodes.If(self._value(node.test), self.blocks(node.body), [], [])

    def _value(self, node: nodes.Node) -> nodes.Node:
        """Return an expression in which nothing sees more than it may."""
        if isinstance(node, nodes.TemplateData | nodes.Const):
            return node
        if isinstance(node, nodes.Name):
            is_hidden = node.name == MESSAGES or (node.name == "loop" and self.scope != "elsewhere")
            return _given_up() if is_hidden else node
        if (place := self._place(node)) is not None:
            return place
        if _is_first_message(node):
            return node
        return self._inside(node) if self._is_pure(node) else _given_up()

    def _place(self, node: nodes.Node) -> nodes.Node | None:
        """Return the place of the loop's message among all messages, or the one before, where that is asked for."""
        if self.scope != "messages" or not isinstance(node, nodes.Getattr) or not _is_name(node.node, "loop"):
            return None
        if node.attr not in PLACES:
            return None
        own = nodes.Getattr(node.node, "index" if node.attr == "index" else "index0", "load")
        place = nodes.Add(own, nodes.Name(KNOWN, "load"))
        is_first = nodes.Compare(place, [nodes.Operand("eq", nodes.Const(0))])
        if node.attr == "previtem":
            before = nodes.Getitem(nodes.Name(MESSAGES, "load"), nodes.Sub(place, nodes.Const(1)), "load")
            return nodes.CondExpr(nodes.Not(is_first), before, None)
        return is_first if node.attr == "first" else place

    def _is_pure(self, node: nodes.Node) -> bool:
        """Tell whether an expression has the same value each time, and changes nothing, as long as its parts do so."""
        if isinstance(node, nodes.Filter | nodes.Test | nodes.Call):
            if node.kwargs or node.dyn_args or node.dyn_kwargs:
                return False
            if isinstance(node, nodes.Call):
                is_macro = isinstance(node.node, nodes.Name) and node.node.name in self.macros
                return is_macro or (isinstance(node.node, nodes.Getattr) and node.node.attr in METHODS)
            return isinstance(node, nodes.Test) or (node.name in FILTERS and node.node is not None)
        return isinstance(node, VALUES)

    def _inside(self, node: nodes.Node) -> nodes.Node:
        """Return an expression of which no part sees more than it may."""
        for name, field in node.iter_fields():
            if isinstance(field, nodes.Node):
                is_called = isinstance(node, nodes.Call) and name == "node"
                setattr(node, name, self._inside(field) if is_called else self._value(field))
            elif isinstance(field, list):
                setattr(node, name, [self._value(one) if isinstance(one, nodes.Node) else one for one in field])
        return node


def _given_up() -> nodes.Call:
    return nodes.Call(nodes.Name(GIVE_UP, "load"), [], [], None, None)


def _is_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name


def _is_first_message(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Getitem)
        and _is_name(node.node, MESSAGES)
        and isinstance(node.arg, nodes.Const)
        and type(node.arg.value) is int
        and node.arg.value == 0
    )
