"""A conversation as Markdown that a person can read, and that fetches nothing when a program shows it.

What was said stands in quotations, code and what tools were given and returned in fenced blocks: whatever is in it, it
cannot end its block and pass for something else. JSON is the form that keeps everything to the letter; here

- images and files are named, not embedded;
- images elsewhere become links, also in code (`remote_images`), and tags in what was said become text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

from elbowroom.context.conversation import Conversation, ConversationRow, KeptCompaction, KeptMessage
from elbowroom.context.conversation_branch import ConversationTree
from elbowroom.context.conversation_changes import Status
from elbowroom.context.message_content import is_text, parts_of, text_in, whole_characters
from elbowroom.context.remote_images import ImageGuard
from elbowroom.context.tool_calls import as_json, calls_of
from elbowroom.context.transcript import SYSTEM_ROLES

LINE_END: Final = re.compile(r"\r\n|\r|\n")
MARKS: Final = re.compile(r"([\\`*{}\[\]<>#|~$%=!&@]|(?<![^\W_])_|_(?![^\W_]))")
"""What has a meaning within a line of Markdown; an underscore has none within a word."""
BACKTICKS: Final = re.compile(r"`+")
TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
CODE: Final = re.compile(r"(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
"""The line that opens a code block. One that is indented may belong to a list: it is left where it is."""
LANGUAGES: Final = frozenset(
    {"bash", "c", "console", "cpp", "cs", "csharp", "css", "diff", "go", "html", "ini", "java", "javascript", "js"}
    | {"json", "kotlin", "lua", "makefile", "markdown", "md", "php", "powershell", "py", "python", "r", "rs", "ruby"}
    | {"rust", "sh", "shell", "sql", "swift", "text", "toml", "ts", "typescript", "xml", "yaml"}
)
"""Code in these is only shown. There are programs that run others as soon as a page is opened, `dataviewjs` for one."""
LEAST_FENCE: Final = 3
WAYS: Final[Mapping[Status, str]] = {
    "complete": "",
    "interrupted": " (interrupted)",
    "streaming": " (still being said)",
}


def markdown_of(conversation: Conversation) -> Iterator[str]:
    """Yield the text of the branch that was used last, piece by piece."""
    guard = ImageGuard()
    for piece in _pieces(conversation):
        if shown := guard.feed(whole_characters(piece)):
            yield shown
    yield guard.end()


def spoken(text: str) -> Iterator[str]:
    """Yield what somebody said: in quotations, the code blocks in it between them as such."""
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

    `info` stands behind the fence. Its first word is the language; where that is none of `LANGUAGES`, it is plain text.
    """
    longest = max((len(found) for found in BACKTICKS.findall(text)), default=0)
    fence = "`" * max(LEAST_FENCE, longest + 1)
    words = info.replace("`", " ").split()
    told = ["text"] if words and words[0].lower() not in LANGUAGES else []
    end = "" if text.endswith(("\n", "\r")) or not text else "\n"
    return f"{fence}{' '.join([*told, *words])}\n{text}{end}{fence}\n\n"


def inline(text: str) -> str:
    """Return a text as it can stand within a line, without any meaning to Markdown."""
    return MARKS.sub(r"\\\1", " ".join(text.split()))


def _quotation(lines: Sequence[str]) -> str:
    """Return lines as a quotation, which nothing in them ends; white space alone is none."""
    if not any(line.strip() for line in lines):
        return ""
    return "".join(f"> {TAG.sub('&lt;', line)}\n" if line else ">\n" for line in lines) + "\n"


def _code(lines: Iterator[str], fence: str) -> str:
    """Take the lines of a code block, up to the one that closes it or to the last."""
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
    told = "\n".join(f"- {_moment(each.at)}: {_sizes(each)}" for each in compactions)
    yield f"Compacted for the model; what is below is the original:\n\n{told}\n\n"
    for number, each in enumerate(compactions, 1):
        if each.details and each.details.summary:
            yield f"Summary {number}:\n\n{fenced(each.details.summary)}"


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
            yield from [fenced(text)] if is_result else spoken(text)
        else:
            yield _named(part)
    if refusal := _text(message.get("refusal")):
        yield "Refused:\n\n"
        yield from spoken(refusal)
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
    spoken = inline(role.capitalize()) or "Message"
    return f"{spoken} {inline(name)}" if name else spoken


def _call(call: Mapping[str, Any]) -> Iterator[str]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        yield "Called a tool:\n\n" + fenced(as_json(call), "json")
        return
    arguments = function.get("arguments")
    yield f"Called {inline(_text(function.get('name'))) or 'a tool'}:\n\n"
    yield fenced(arguments if isinstance(arguments, str) else as_json(arguments), "json")


def _call_names(kept: KeptMessage) -> Iterator[tuple[str, str]]:
    """Yield the ids and names of the tools that a message calls."""
    for call in calls_of(kept.message):
        function = call.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str) and isinstance(call.get("id"), str):
            yield call["id"], name


def _named(part: object) -> str:
    """Return the name of what is no text; what is not known stands there whole."""
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
    """Return an image's address; in place of the data that it may consist of, their kind and size."""
    if url[:5].lower() != "data:":
        return inline(url)
    kind, _, data = url[5:].partition(",")
    return f"{inline(kind.partition(';')[0]) or 'data'}, {_size(data)}"


def _size(data: str) -> str:
    """Return how large what is written in base64 is."""
    return f"{len(data) * 3 // 4 - data[-2:].count('='):,} bytes"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
