"""The branches of a conversation, and the latest of them as Markdown.

A person who edits a question or asks again goes on from an earlier place in the tree of its messages.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Final

from elbowroom.context.conversation import Conversation, ConversationRow, KeptCompaction, KeptMessage, Status
from elbowroom.context.outputs import ref_of_whole
from elbowroom.context.remote_images import ImageGuard
from elbowroom.context.transcript import (
    SYSTEM_ROLES,
    as_json,
    calls_of,
    is_text,
    parts_of,
    text_in,
    text_of,
)
from elbowroom.tokens.files import whole_characters

LINE_END: Final = re.compile(r"\r\n|\r|\n")
MARKS: Final = re.compile(r"([\\`*{}\[\]<>#|~$%=!&@]|(?<![^\W_])_|_(?![^\W_]))")
"""Characters with a meaning within a line of Markdown; an underscore has none within a word."""
BACKTICKS: Final = re.compile(r"`+")
TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
CODE: Final = re.compile(r"(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
"""The line that opens a code block. One that is indented may belong to a list: it is left where it is."""
LANGUAGES: Final = frozenset(
    {"bash", "c", "console", "cpp", "cs", "csharp", "css", "diff", "go", "html", "ini", "java", "javascript", "js"}
    | {"json", "kotlin", "lua", "makefile", "markdown", "md", "php", "powershell", "py", "python", "r", "rs", "ruby"}
    | {"rust", "sh", "shell", "sql", "swift", "text", "toml", "ts", "typescript", "xml", "yaml"}
)
"""Code in these is only shown; programs run code in some others as soon as a page is opened, `dataviewjs` for one."""
LEAST_FENCE: Final = 3
WAYS: Final[Mapping[Status, str]] = {
    "complete": "",
    "interrupted": " (interrupted)",
    "streaming": " (still being said)",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A place in the tree: one message of a client, or a turn with all its messages in order.

    The key of a turn is empty until it has ended.
    """

    key: str
    parent: str
    messages: tuple[KeptMessage, ...]

    @property
    def last(self) -> KeptMessage:
        """Return the last message of this place."""
        return self.messages[-1]

    @property
    def is_turn(self) -> bool:
        """Tell whether this is a turn, and not a message that a client has sent."""
        return bool(self.last.turn)

    @property
    def is_system(self) -> bool:
        """Tell whether this is a system message, which hangs beside the branches."""
        return not self.is_turn and self.last.message.get("role") in SYSTEM_ROLES

    @property
    def is_unfinished(self) -> bool:
        """Tell whether this is a turn that was interrupted or is still running."""
        return self.is_turn and any(message.status != "complete" for message in self.messages)


@dataclass(frozen=True, slots=True)
class ConversationTree:
    """All messages of a conversation by their places; made by `of`."""

    nodes: tuple[Node, ...]
    _by_key: dict[str, Node] = field(repr=False)
    _after: dict[str, list[Node]] = field(repr=False)

    @classmethod
    def of(cls, messages: Sequence[KeptMessage]) -> "ConversationTree":
        """Return the tree; a turn stands for its answer where a client sends that back unchanged."""
        nodes = tuple(_nodes(messages))
        by_key = {node.key: node for node in nodes if node.key and not node.is_turn}
        by_key |= {node.key: node for node in nodes if node.key and node.is_turn}
        after: dict[str, list[Node]] = {}
        for node in nodes:
            if node.is_turn or by_key.get(node.key, node) is node:
                after.setdefault(node.parent, []).append(node)
        return cls(nodes, by_key, after)

    def latest(self) -> list[KeptMessage]:
        """Return the messages of the branch that was used last, from the first to the last."""
        said = [node for node in self.nodes if not node.is_system]
        if not said:
            return [message for node in self.nodes for message in node.messages]
        return self.branch_to(max(said, key=lambda node: node.last.number))

    def ends(self) -> list[KeptMessage]:
        """Return the last message of every branch, in the order in which they came in."""
        ends = [
            node
            for node in self.nodes
            if not node.is_system and self._stands_for(node) and not self.goes_on_after(node)
        ]
        return sorted((node.last for node in ends), key=attrgetter("number"))

    def branch_to(self, end: Node, *, with_unfinished: bool = True) -> list[KeptMessage]:
        """Return all messages of the branch that ends there.

        Each system message stands after the message that it follows; of several that replaced each other, the last.
        Interrupted turns stand where they began, even where the branch went on without them, unless `with_unfinished`
        is off.
        """
        path = self._path(end)
        return [*self.beside(path[0].parent, path[0], with_unfinished), *self.along([*path, None], with_unfinished)]

    def along(self, path: Sequence[Node | None], with_unfinished: bool = True) -> Iterator[KeptMessage]:
        """Yield the messages of all places but the last, each with those beside it."""
        for node, following in pairwise(path):
            if node is not None:
                yield from node.messages
                if node.key:
                    yield from self.beside(node.key, following, with_unfinished)

    def beside(self, key: str, following: Node | None, with_unfinished: bool = True) -> Iterator[KeptMessage]:
        """Yield the messages after a place that are not the next place of the branch."""
        seen: set[str] = set()
        place = key
        while place not in seen and (systems := [node for node in self._after.get(place, ()) if node.is_system]):
            seen.add(place)
            yield from systems[-1].messages
            place = systems[-1].key
        if following is not None and with_unfinished:
            for node in self._after.get(key, ()):
                if node.is_unfinished and node is not following:
                    yield from node.messages

    def goes_on_after(self, node: Node) -> bool:
        """Tell whether a branch goes on after a place."""
        return bool(node.key) and any(not other.is_system for other in self._after.get(node.key, ()))

    def _path(self, end: Node) -> list[Node]:
        """Return the places from the first to this one."""
        path = [end if end.is_turn else self._by_key.get(end.key, end)]
        seen = {path[0].key} - {""}
        while (node := self._by_key.get(path[-1].parent)) and node.key not in seen:
            seen.add(node.key)
            path.append(node)
        return path[::-1]

    def _stands_for(self, node: Node) -> bool:
        """Tell whether a place stands for itself, and no turn for it."""
        return node.is_turn or self._by_key.get(node.key, node) is node


def never_shown(messages: Sequence[KeptMessage]) -> frozenset[str]:
    """Return the ids of messages that no client has seen.

    These are results of the server's tools, and replies that only call these. Results that a client has sent are its
    own.
    """
    results = {(kept.turn, kept.message.get("tool_call_id")) for kept in messages if _is_result(kept)}

    def only_calls(kept: KeptMessage) -> bool:
        calls = calls_of(kept.message) if kept.turn else []
        return (
            bool(calls) and not text_of(kept.message) and all((kept.turn, call.get("id")) in results for call in calls)
        )

    return frozenset(kept.id for kept in messages if _is_result(kept) or only_calls(kept))


def _is_result(kept: KeptMessage) -> bool:
    return bool(kept.turn) and kept.message.get("role") == "tool"


def _nodes(messages: Sequence[KeptMessage]) -> Iterator[Node]:
    """Yield the places in the order in which they began."""
    places: dict[tuple[str, str], list[KeptMessage]] = {}
    for message in sorted(messages, key=attrgetter("number")):
        place = ("turn", message.turn) if message.turn else ("message", message.id)
        places.setdefault(place, []).append(message)
    for said in places.values():
        key = next((message.key for message in reversed(said) if message.key), "")
        yield Node(key, said[0].parent, tuple(said))


def full_output_of(message: Mapping[str, Any]) -> str | None:
    """Return the path under which the server shows the whole of a tool's result that the message has a part of."""
    ref = ref_of_whole(text_of(message)) if message.get("role") == "tool" else None
    return f"/v1/tool_outputs/{ref}" if ref else None


def markdown_of(conversation: Conversation) -> Iterator[str]:
    """Yield the branch that was used last as Markdown, piece by piece."""
    guard = ImageGuard()
    for piece in _pieces(conversation):
        if shown := guard.feed(whole_characters(piece)):
            yield shown
    yield guard.end()


def quoted(text: str) -> Iterator[str]:
    """Yield a text as quotations, with the code blocks in it between them."""
    said: list[str] = []
    lines = iter(LINE_END.split(text))
    for line in lines:
        if opening := CODE.match(line):
            yield _quotation(said)
            said = []
            yield fenced(_code(lines, opening["fence"]), opening["info"])
        else:
            said.append(line)
    yield _quotation(said)


def fenced(text: str, info: str = "text") -> str:
    """Return a text as a code block with a fence that is longer than any row of backticks in it.

    `info` stands after the fence. Its first word is the language; one that is not in `LANGUAGES` becomes plain text.
    """
    longest = max((len(found) for found in BACKTICKS.findall(text)), default=0)
    fence = "`" * max(LEAST_FENCE, longest + 1)
    words = info.replace("`", " ").split()
    told = ["text"] if words and words[0].lower() not in LANGUAGES else []
    end = "" if text.endswith(("\n", "\r")) or not text else "\n"
    return f"{fence}{' '.join([*told, *words])}\n{text}{end}{fence}\n\n"


def inline(text: str) -> str:
    """Return a text that stands within a line without any meaning to Markdown."""
    return MARKS.sub(r"\\\1", " ".join(text.split()))


def _quotation(lines: Sequence[str]) -> str:
    """Return lines as a quotation that nothing in them ends; white space alone is none."""
    if not any(line.strip() for line in lines):
        return ""
    return "".join(f"> {TAG.sub('&lt;', line)}\n" if line else ">\n" for line in lines) + "\n"


def _code(lines: Iterator[str], fence: str) -> str:
    """Take the lines of a code block, up to the line that closes it or to the last."""
    code = []
    for line in lines:
        mark = line.strip(" \t")
        if len(mark) >= len(fence) and not mark.strip(fence[0]):
            break
        code.append(line)
    return "\n".join(code)


def _pieces(conversation: Conversation) -> Iterator[str]:
    branch = ConversationTree.of(conversation.messages).latest()
    yield _head(conversation.row, len(branch), len(conversation.messages))
    yield from _compactions(conversation.compactions)
    tools = dict(chain.from_iterable(map(_call_names, branch)))
    for number, kept in enumerate(branch, 1):
        yield from _message(number, kept, tools)


def _head(row: ConversationRow, shown: int, kept: int) -> str:
    usage, totals = row.totals.usage, row.totals
    used = f"{'about ' if usage.is_counted else ''}{usage.total:,} in {totals.steps:,} model calls"
    if (pruning := totals.pruning) is not None and pruning.steps:
        used += f", {pruning.usage.total:,} of them in {pruning.steps:,} of the pruning agent"
    prompt = f"{usage.input:,} read, {usage.cache_read:,} from a cache, {usage.cache_creation:,} put in one"
    lines = [
        f"# {inline(row.title) or 'Conversation'}",
        "",
        f"- Conversation: {inline(row.id)}" + (f" ({inline(row.name)})" if row.name else ""),
        f"- Agent: {inline(row.agent)}",
        f"- Begun {_moment(row.created)}, last used {_moment(row.updated)}",
        f"- Tokens: {used} ({prompt}, {usage.output:,} written)",
        f"- Messages: {shown:,}" + (f" of {kept:,}; the others are in other branches" if kept > shown else ""),
    ]
    return "\n".join(lines) + "\n\n"


def _compactions(compactions: Sequence[KeptCompaction]) -> Iterator[str]:
    if not compactions:
        return
    told = "\n".join(f"- {_moment(each.at)}: {_sizes(each)}{_fate(each)}" for each in compactions)
    yield f"Compacted for the model; what is below is the original:\n\n{told}\n\n"
    for number, each in enumerate(compactions, 1):
        if each.edited is not None:
            yield f"Summary {number}, in a person's words:\n\n{fenced(each.edited)}"
        if each.details and each.details.summary:
            before = "" if each.edited is None else ", as it was"
            yield f"Summary {number}{before}:\n\n{fenced(each.details.summary)}"


def _fate(compaction: KeptCompaction) -> str:
    return "" if compaction.undone is None else f"; taken back {_moment(compaction.undone)}"


def _sizes(compaction: KeptCompaction) -> str:
    sizes = f"{compaction.before:,} to {compaction.after:,} tokens ({compaction.rung})"
    if (details := compaction.details) is None:
        return sizes
    messages = f"{details.messages_kept:,} messages kept, {details.messages_removed:,} replaced"
    return f"{sizes} in {details.seconds:.1f} s, {messages}"


def _message(number: int, kept: KeptMessage, tools: Mapping[str, str]) -> Iterator[str]:
    yield f"## {number}. {_speaker(kept, tools)}{WAYS[kept.status]}\n\n{_moment(kept.at)}\n\n"
    message = kept.message
    if thought := kept.reasoning or _text(message.get("reasoning_content")):
        yield "Thought:\n\n" + fenced(thought)
    is_result = message.get("role") in ("tool", "function")
    for part in parts_of(message.get("content")):
        if is_text(part):
            text = text_in(part)
            yield from [fenced(text)] if is_result else quoted(text)
        else:
            yield _named(part)
    if output := full_output_of(message):
        yield f"Full output on this server: {output}\n\n"
    if refusal := _text(message.get("refusal")):
        yield "Refused:\n\n"
        yield from quoted(refusal)
    for call in calls_of(message):
        yield from _call(call)


def _speaker(kept: KeptMessage, tools: Mapping[str, str]) -> str:
    message = kept.message
    role, name = _text(message.get("role")), _text(message.get("name"))
    if role in SYSTEM_ROLES:
        return "System"
    if role in ("tool", "function"):
        tool = tools.get(_text(message.get("tool_call_id"))) or name
        return f"Result of {inline(tool)}" if tool else "Result of a tool"
    if role == "assistant":
        return inline(kept.agent) or "Assistant"
    speaker = inline(role.capitalize()) or "Message"
    return f"{speaker} {inline(name)}" if name else speaker


def _call(call: Mapping[str, Any]) -> Iterator[str]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        yield "Called a tool:\n\n" + fenced(as_json(call), "json")
        return
    arguments = function.get("arguments")
    yield f"Called {inline(_text(function.get('name'))) or 'a tool'}:\n\n"
    yield fenced(arguments if isinstance(arguments, str) else as_json(arguments), "json")


def _call_names(kept: KeptMessage) -> Iterator[tuple[str, str]]:
    for call in calls_of(kept.message):
        function = call.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str) and isinstance(call.get("id"), str):
            yield call["id"], name


def _named(part: object) -> str:
    """Return the name of a part that is no text; an unknown part stands there whole."""
    if not isinstance(part, Mapping):
        return fenced(json.dumps(part), "json")
    match part.get("type"), part:
        case "image_url", {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
            return f"Image: {_place(url)}\n\n"
        case "input_audio", {"input_audio": {"data": str(data), **rest}}:
            return f"Audio: {inline(str(rest.get('format', '')))}, {_size(data)}\n\n"
        case "file", {"file": {**file}}:
            name = inline(_text(file.get("filename")) or _text(file.get("file_id")))
            data = _text(file.get("file_data"))
            return f"File: {name or 'without a name'}{', ' + _size(data.partition(',')[2] or data) if data else ''}\n\n"
        case _:
            return fenced(as_json(part), "json")


def _place(url: str) -> str:
    """Return an image's address; kind and size of the data where it is a data URL."""
    if url[:5].lower() != "data:":
        return inline(url)
    kind, _, data = url[5:].partition(",")
    return f"{inline(kind.partition(';')[0]) or 'data'}, {_size(data)}"


def _size(data: str) -> str:
    return f"{len(data) * 3 // 4 - data[-2:].count('='):,} bytes"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
