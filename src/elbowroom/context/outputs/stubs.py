"""The short forms of an old result and of long arguments, and the errors in results, which stay word for word.

    [tool output trimmed; ref=k3v9…; read notes/plan.md lines 1-50 (read_note); 2,345 characters: # Plan]

A stub says what was done and where the whole can be read. Any part of it that came from a tool is data: on one line,
and cut.
"""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from elbowroom.caches import Recent
from elbowroom.context.outputs.changes import LONGEST_CHANGE, change_in
from elbowroom.context.outputs.failures import (
    MOST_AROUND,
    Part,
    exit_code_in,
    failure_in,
    lines_standing_out,
    lines_that_fail,
    parts_to_show,
)
from elbowroom.context.outputs.output import words_in
from elbowroom.context.outputs.view import bytes_of_whole, ref_in_view
from elbowroom.context.transcript import Group, as_json, object_in, text_of
from elbowroom.settings.model import ToolKind

NEWS: Final = "; it says: "
LONGEST_NEWS: Final = 140
LONG_RESULT: Final = 4000
"""Characters from which a result can be trimmed softly."""

ENDS: Final = 1500
LONG_ARGUMENTS: Final = 500
MARK: Final = "[tool output trimmed; ref="
STUB: Final = re.compile(r"\[tool output trimmed; ref=(?P<ref>[^\s;\]]+); [^\n]*\](?:\n(?P<error>.*))?", re.DOTALL)
NOTE: Final = re.compile(
    r"\n\[tool output trimmed; ref=(?P<ref>[^\s;\]]+); (?P<left>[\d,]+) characters are left out\]\n"
)

LONGEST_TARGET: Final = 100
LONGEST_DEED: Final = 60
LONGEST_BEGINNING: Final = 60
LONGEST_FAILURE: Final = 200
LONGEST_VALUE: Final = 40
LEAST_LINE: Final = 24
PATHS: Final = ("path", "file_path", "filepath", "filename", "file")
PATH_WORDS: Final = frozenset({"path", "file"})
"""The last words of all other names that arguments have for a file: `absolute_path`, `targetFile`."""
TARGETS: Final = ("uri", "url", "note", "source", "src", "paths", "files", "title", "name", "id", "ref_id")
QUESTIONS: Final = ("query", "pattern", "q", "search", "regex", "text", "keyword", "keywords", "term", "question")
FIRSTS: Final = ("start_line", "line_start", "first_line", "from_line", "start", "offset", "line")
LASTS: Final = ("end_line", "line_end", "last_line", "to_line", "end")
COUNTS: Final = ("limit", "lines", "count", "max_lines", "length")
BROKEN_ENVELOPE: Final = re.compile(
    r"(?:meta=[^\n]{0,200}?)?content=\[TextContent\(type='text', text=['\"](?:\{.{0,120}?\"text\": \")?", re.DOTALL
)
"""The beginning of an envelope that was cut and cannot be opened any more."""

COMMANDS: Final = ("command", "cmd", "script")
SHELL_OPTION: Final = re.compile(r"-\w*c")
SEPARATORS: Final = re.compile(r"&&|\|\|?|;|\n")
PROGRAM: Final = re.compile(r"\s*(?:sudo\s+)?(?P<program>git \w+|\S+)")
READS: Final = re.compile(
    r"cd|cat|head|tail|less|more|sed|awk|grep|rg|ag|find|fd|ls|tree|wc|sort|uniq|cut|tr|jq|diff|echo|pwd|stat|file"
    r"|git (?:log|show|diff|blame|grep)"
)
"""Programs of a shell that show what there is."""

TARGETED: Final[tuple[ToolKind, ...]] = ("read", "write", "query")
DEEDS: Final[dict[ToolKind, str]] = {"read": "read", "write": "changed", "execute": "ran", "query": "asked for"}
SUMMARY_OF_TESTS: Final = re.compile(r"\b(\d+) (passed|failed|errors?|skipped|xfailed)\b")

LONGEST_PLAIN_ERROR: Final = 4000
"""Characters up to which the first words of a text can make it an error; a longer text is a document."""

LAST_WORDS: Final = 200
REMEMBERED: Final = 512  # texts: every step of a run asks about the same ones
MOST_ENVELOPES: Final = 3
CONTENT: Final = re.compile(r"(?:meta=.{0,200}?\s)?content=\[TextContent\(", re.DOTALL)
TEXT: Final = re.compile(
    r"""TextContent\(type='text', text=('[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+")""", re.DOTALL
)
SAYS_ERROR: Final = re.compile(r"\bisError=True\s*\Z")
BEGINNING: Final = re.compile(
    r"[\s\[(<!*❌✗-]{0,4}(?:Traceback \(most recent call last\)|panic:|fatal\b"
    r"|(?:error|exception|failure|failed)\b(?![./_-]\w)"
    r"|[\w.]*(?:Error|Exception)\b\s*[:(\[]"
    r"|[^\n:]{0,40}\b(?:error|exception)\b\s*[:\[(]"
    r"|(?:the |this )?(?:tool|call|tool call|request|command)\b[^\n]{0,40}\b(?:failed|timed out|not found)\b)",
    re.IGNORECASE,
)
HINTS: Final = re.compile(
    r"is_?error\\*[\"']?\s*[:=]\s*true|\\*\"(?:error|errors|status|result|success|ok|exit_?code|return_?code)\\*\"\s*:",
    re.IGNORECASE,
)


def is_stub(text: str) -> bool:
    """Tell whether a result has been cleared to its stub; the error of a failed call stands below its stub."""
    found = STUB.fullmatch(text) if text.startswith(MARK) else None
    return found is not None and (found["error"] is None or found[0].partition("\n")[0].endswith(" failed]"))


def is_cleared(group: Group) -> bool:
    """Tell whether all results of a group have been cleared to their stubs."""
    results = group.messages[1:]
    return group.kind == "tools" and bool(results) and all(is_stub(text_of(result)) for result in results)


def is_soft_trimmed(text: str) -> bool:
    """Tell whether a result has been trimmed to its beginning and end."""
    return NOTE.match(text, ENDS) is not None


def ref_of_whole(text: str) -> str | None:
    """Return the id that a view, a stub or a trimmed result names; None for a text that is shown whole."""
    return ref_in_view(text) or ref_of(text)


def ref_of(text: str) -> str | None:
    """Return the id under which the whole of a stub or of a trimmed result is kept; None for any other text."""
    found = STUB.fullmatch(text) if text.startswith(MARK) else NOTE.match(text, ENDS)
    return found["ref"] if found else None


def error_below(text: str) -> str | None:
    """Return the error that stands below the stub of a failed call; None for any other text."""
    return text.partition("\n")[2] if "\n" in text and is_stub(text) else None


def stub(kind: ToolKind, tool: str, arguments: str, text: str, ref: str, *, keeps_errors: bool = True) -> str:
    """Return the stub of a result; the words of an error, or the failing parts of an output, stand below it."""
    error = failure_of(kind, arguments, text) if keeps_errors else None
    if error is None:
        told = f"{size_of_result(text)}{_gist(kind, text)}{_news(kind, text)}"
        return f"{MARK}{ref}; {_deed(kind, tool, arguments)}; {told}]"
    if kind != "execute" or error == error_in(text):
        return f"{MARK}{ref}; {one_line(tool, LONGEST_VALUE)} failed]\n{error}"
    counts = outcome_of_tests(text)
    gist = f": {counts}" if counts else ""
    return f"{MARK}{ref}; {_deed(kind, tool, arguments)}; {size_of_result(text)}{gist}; it failed]\n{error}"


def failure_of(kind: ToolKind, arguments: str, text: str) -> str | None:
    """Return the words of an error, or of a long output the parts that failed; None for a success.

    Of a command's output that is no error as a whole, the parts are returned that say what failed.
    """
    error = error_in(text)
    if kind != "execute" or (error is not None and len(error) <= MOST_AROUND) or _passes_on(arguments):
        return error
    return failure_in(_unwrapped(text).text, only_reads=only_reads(arguments)) or error


def brief_failure(text: str) -> str:
    """Return in one line what says most of a failure: of an output the lines that tell it, else its beginning."""
    told = (line for line in lines_that_fail(_unwrapped(text).text) if line.strip())
    return one_line(" / ".join(line.strip() for line in told) or text, LONGEST_FAILURE)


def telling_parts(kind: ToolKind, arguments: str, text: str) -> Sequence[Part]:
    """Return the parts of a command's output that say what failed, else those whose lines stand out.

    The results of other tools have none.
    """
    if kind != "execute" or _passes_on(arguments):
        return ()
    return parts_to_show(text, only_reads=only_reads(arguments))


def command_in(arguments: str) -> str:
    """Return the command of a shell that a call runs, also where it is given in words such as `bash -lc ...`."""
    given = object_in(arguments) or {}
    command = next((given[key] for key in COMMANDS if given.get(key)), "")
    if not isinstance(command, list):
        return str(command)
    words = [str(word) for word in command]
    return words[-1] if SHELL_OPTION.fullmatch("".join(words[-2:-1])) else shlex.join(words)


def _passes_on(arguments: str) -> bool:
    """Tell whether a call carries out another tool's call, which is no command."""
    return not command_in(arguments) and any(
        isinstance(value, dict | list) for value in (object_in(arguments) or {}).values()
    )


def only_reads(arguments: str) -> bool:
    """Tell whether a shell's command only shows what there is: each of its programs is one such as `cat` or `grep`."""
    parts = SEPARATORS.split(command_in(arguments))
    programs = [found["program"] for part in parts if (found := PROGRAM.match(part))]
    return bool(programs) and all(map(READS.fullmatch, programs))


def _deed(kind: ToolKind, tool: str, arguments: str) -> str:
    """Return in one line what a call did: "read notes/plan.md lines 1-50 (read_note)"."""
    name = one_line(tool, LONGEST_VALUE)
    what = target_of(kind, arguments)
    if kind == "other" or not what:
        return " ".join(filter(None, (name, what)))
    return f"{DEEDS[kind]} {what} ({name})"


def target_of(kind: ToolKind, arguments: str) -> str:
    """Return the target of a call: a file with its lines, a question, else its arguments."""
    leaves = list(_leaves(object_in(arguments) or {}))
    by_key = _by_key(leaves)
    asked = next((by_key[key] for key in QUESTIONS if by_key.get(key)), "") if kind == "query" else ""
    target = (asked or _first_target(by_key)) if kind in TARGETED else ""
    if not target:
        return one_line(", ".join(one_line(value, LONGEST_VALUE) for _, value in leaves if value), LONGEST_DEED)
    return one_line(target, LONGEST_TARGET) + (_lines(by_key) if kind == "read" else "")


def path_in(arguments: str) -> str:
    """Return the whole path, or the like, of what a call is about; empty where its arguments name none."""
    return _first_target(_by_key(list(_leaves(object_in(arguments) or {}))))


def _first_target(by_key: Mapping[str, str]) -> str:
    others = (key for key in by_key if key.rpartition("_")[2] in PATH_WORDS)
    return next((by_key[key] for key in (*PATHS, *others, *TARGETS) if by_key.get(key)), "")


def _by_key(leaves: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the first value of each key, whose words are written one way: `filePath` is `file_path`."""
    return {"_".join(words_in(key)) or key: value for key, value in reversed(leaves)}


def _lines(leaves: Mapping[str, str]) -> str:
    """Return which lines a call asked for, as " lines 1-50"."""
    first, last, count = (
        next((int(leaves[key]) for key in keys if leaves.get(key, "").isdecimal()), None)
        for keys in (FIRSTS, LASTS, COUNTS)
    )
    if last is None and count is not None:
        last = max(1, first or 1) + count - 1
    if first is None and last is None:
        return ""
    return f" lines {max(1, first or 1)}-{'' if last is None else last}"


def _leaves(value: object, key: str = "", depth: int = 4) -> Iterator[tuple[str, str]]:
    """Yield the innermost values of arguments, as text with their nearest key."""
    if isinstance(value, dict) and depth:
        for inner, item in value.items():
            yield from _leaves(item, str(inner), depth - 1)
    elif isinstance(value, list) and depth:
        for item in value[:3]:
            yield from _leaves(item, key, depth - 1)
    elif value is not None:
        yield key, value if isinstance(value, str) else as_json(value)


def _news(kind: ToolKind, text: str) -> str:
    """Return what a result says has changed, else what stands out in a command's output, for the end of its stub."""
    change = one_line(change_in(text), LONGEST_CHANGE)
    told = change if 0 < len(change) <= LONGEST_NEWS else standing_out(kind, text)
    return f"{NEWS}{told}" if told else ""


def standing_out(kind: ToolKind, text: str) -> str:
    """Return in one line what stands out in a command's long output; empty where nothing does."""
    lines = lines_standing_out(_unwrapped(text).text) if kind == "execute" else ()
    return one_line(" / ".join(map(str.strip, lines)), LONGEST_NEWS)


def _gist(kind: ToolKind, text: str) -> str:
    if kind == "query":
        return " came"
    gist = outcome_of_tests(text) if kind == "execute" else ""
    gist = gist or _beginning_of(text)
    return f": {gist}" if gist else ""


def outcome_of_tests(text: str) -> str:
    """Return the counts that a run of tests reports, as "2 passed, 1 failed"; an empty text for any other output."""
    counts = {what: number for number, what in SUMMARY_OF_TESTS.findall(text[-2 * ENDS :])}
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def _beginning_of(text: str) -> str:
    """Return the first line of a result's own words that says something."""
    own = _unwrapped(text).text
    if own == text and (broken := BROKEN_ENVELOPE.match(text)):
        own = text[broken.end() :][: 8 * LONGEST_BEGINNING].replace("\\\\n", "\n").replace("\\n", "\n")
    own = own.lstrip()
    first = own[: 4 * LONGEST_BEGINNING].partition("\n")[0]
    return one_line(first if len(first.strip()) >= LEAST_LINE else own, LONGEST_BEGINNING)


def size_of_result(text: str) -> str:
    """Return the size of a result before it was trimmed or viewed, as "2,345 characters"."""
    if (whole := bytes_of_whole(text)) is not None:
        return f"{whole:,} bytes"
    note = NOTE.match(text, ENDS)
    return f"{int(note['left'].replace(',', '')) + 2 * ENDS if note else len(text):,} characters"


def soft_trimmed(text: str, ref: str) -> str:
    """Return the beginning and the end of a long result, with a note between them on how to read the rest."""
    return f"{text[:ENDS]}\n{MARK}{ref}; {len(text) - 2 * ENDS:,} characters are left out]\n{text[-ENDS:]}"


def shorter_arguments(arguments: str) -> str:
    """Return long arguments as a JSON object of at most 500 characters; short ones and broken ones unchanged.

    Keys stay, and short values with them. A long value becomes its beginning and its number of characters.
    """
    if len(arguments) <= LONG_ARGUMENTS:
        return arguments
    value = object_in(arguments)
    if value is None:
        return arguments
    for longest, depth in ((100, 4), (40, 4), (40, 1), (0, 1), (0, 0)):
        shorter = as_json({key: _shorter(item, longest, depth) for key, item in value.items()})
        if len(shorter) <= LONG_ARGUMENTS:
            return shorter
    kept: dict[str, str] = {}
    for key in value:
        more = {**kept, one_line(key, LONGEST_VALUE): ""}
        if len(as_json(more)) > LONG_ARGUMENTS - LONGEST_TARGET:
            break
        kept = more
    return as_json({**kept, "left_out": f"{len(value) - len(kept):,} more, {len(arguments):,} characters in all"})


def _shorter(value: Any, longest: int, depth: int) -> Any:
    if isinstance(value, dict) and depth > 1:
        return {key: _shorter(item, longest, depth - 1) for key, item in value.items()}
    if isinstance(value, list) and depth > 1:
        return [_shorter(item, longest, depth - 1) for item in value]
    text = value if isinstance(value, str) else as_json(value)
    if len(text) <= max(longest, 20):
        return value
    beginning = f"{one_line(text, longest)} " if longest else ""
    return f"{beginning}[{len(text):,} characters, not repeated here]"


def one_line(text: str, longest: int) -> str:
    """Return the beginning of a text in one line, without signs that print nothing."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * longest]).split())
    return line if len(line) <= longest and len(text) <= 4 * longest else f"{line[: longest - 1]}…"


@dataclass(frozen=True, slots=True)
class _Unwrapped:
    """A result's own words, and whether the envelope around them called them an error."""

    text: str
    is_error: bool = False


_ERRORS: Final = Recent[bytes, tuple[str | None]]("errors_in_results", REMEMBERED)
"""By the digest of a result, for results may be large."""


def error_in(text: str) -> str | None:
    """Return the words of an error, word for word but without an envelope around them; None for a success."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if (known := _ERRORS.get(digest)) is not None:
        return known[0]
    error = _error_in(text)
    if error is None or len(error) <= LONGEST_PLAIN_ERROR:
        _ERRORS.put(digest, (error,))
    return error


def _error_in(text: str) -> str | None:
    is_enveloped = text.lstrip()[:1] == "{" or CONTENT.match(text) is not None
    if is_enveloped and not HINTS.search(text) and not SAYS_ERROR.search(text[-LAST_WORDS:]):
        return _plain_error(_unwrapped(text).text) if len(text) <= LONGEST_PLAIN_ERROR else None
    found = _unwrapped(text)
    return found.text if found.is_error else _plain_error(found.text)


def _plain_error(text: str) -> str | None:
    is_short = len(text) <= LONGEST_PLAIN_ERROR
    begins = BEGINNING.match(text) if is_short or text.startswith("Traceback (most") else None
    return text if begins or exit_code_in(text) else None


def _unwrapped(text: str) -> _Unwrapped:
    """Return a result's own words from the envelopes of a tool server: JSON, or Python's printed form of it."""
    found = _Unwrapped(text)
    for _ in range(MOST_ENVELOPES):
        inner = _opened(found.text)
        if inner is None:
            break
        found = _Unwrapped(inner.text, found.is_error or inner.is_error)
    return found


def _opened(text: str) -> _Unwrapped | None:
    """Return the content of the outermost envelope, None where there is none."""
    if CONTENT.match(text):
        return _printed(text)
    if text.lstrip()[:1] != "{":
        return None
    value = object_in(text)
    return _from_json(value, text) if value is not None else None


def _printed(text: str) -> _Unwrapped | None:
    try:
        texts = [str(ast.literal_eval(literal)) for literal in TEXT.findall(text)]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return _Unwrapped("\n".join(texts), SAYS_ERROR.search(text) is not None) if texts else None


def _from_json(value: Mapping[str, Any], text: str) -> _Unwrapped | None:
    """Return the texts of a tool server's answer; JSON of any other form stays text, and may call itself an error."""
    says_error = value.get("isError") is True or value.get("is_error") is True
    content = value.get("content")
    if isinstance(content, list) and content and all(map(_is_text_part, content)):
        return _Unwrapped("\n".join(part["text"] for part in content), says_error)
    failed = says_error or any(map(_has_failed, [value, *value.values()]))
    return _Unwrapped(text, is_error=True) if failed else None


def _has_failed(value: object) -> bool:
    """Tell whether JSON calls itself an error in one of the common ways."""
    if not isinstance(value, Mapping):
        return False
    codes = (value.get(key) for key in ("exit_code", "exitCode", "returncode", "return_code"))
    return (
        bool(value.get("error") or value.get("errors"))
        or any(str(value.get(key)).casefold() in ("error", "failed", "failure") for key in ("status", "result"))
        or value.get("success") is False
        or value.get("ok") is False
        or any(isinstance(code, int) and code != 0 for code in codes)
    )


def _is_text_part(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
