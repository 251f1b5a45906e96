"""Calls that models write into their text."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.agents.tools.calls_in_text import CallsInText

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}, "all": {"type": "boolean"}},
            },
        },
    }
    for name in ("read", "mcp__files__list-all", "read.note")
]
A: Any = {"path": 'a "b" {c}\n</tool_call> ]'}
READ = ("read", A)
JSON = json.dumps(A)
TYPED: Any = {"path": "12", "lines": 3, "all": True}
FORMS: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "hermes": (f'<tool_call>\n{{"name": "read", "arguments": {JSON}}}\n</tool_call>', [READ]),
    "hermes, twice": (f'<tool_call>{{"name": "read", "arguments": {JSON}}}</tool_call>\n' * 2, [READ, READ]),
    "hermes, not closed": (f'<tool_call>\n{{"name": "read", "arguments": {JSON}}}', [READ]),
    "qwen coder": (
        (
            "<tool_call>\n<function=read>\n<parameter=path>\n12\n</parameter>\n<parameter=lines>\n3\n</parameter>\n"
            "<parameter=all>\ntrue\n</parameter>\n</function>\n</tool_call>"
        ),
        [("read", TYPED)],
    ),
    "qwen coder, bare": (
        "<function=read>\n<parameter=path>\nx\ny\n</parameter>\n</function>",
        [("read", {"path": "x\ny"})],
    ),
    "glm": (
        (
            "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>12</arg_value>\n<arg_key>lines</arg_key>\n"
            "<arg_value>3</arg_value>\n<arg_key>all</arg_key><arg_value>true</arg_value>\n</tool_call>"
        ),
        [("read", TYPED)],
    ),
    "llama": (f'{{"name": "read", "parameters": {JSON}}}', [READ]),
    "llama, typed": (f'{{"type": "function", "name": "read", "parameters": {JSON}}}', [READ]),
    "llama, twice": (
        f'{{"name": "read", "parameters": {JSON}}}; {{"name": "read", "parameters": {JSON}}}',
        [READ, READ],
    ),
    "llama, tagged": (f'<|python_tag|>{{"name": "read", "parameters": {JSON}}}<|eom_id|>', [READ]),
    "llama, function": (f"<function=read>{JSON}</function>", [READ]),
    "mistral": (f'[TOOL_CALLS] [{{"name": "read", "arguments": {JSON}}}]', [READ]),
    "mistral, new": (
        f"[TOOL_CALLS]read[ARGS]{JSON}[TOOL_CALLS]mcp__files__list-all[ARGS]{{}}",
        [READ, ("mcp__files__list-all", {})],
    ),
    "mistral, with ids": (f"[TOOL_CALLS]read[CALL_ID]abc123XYZ[ARGS]{JSON}", [READ]),
    "deepseek": (
        (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n{JSON}\n```<｜tool▁call▁end｜>\n"
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n{JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        [READ, READ],
    ),
    "deepseek, new": (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [READ],
    ),
    "fenced": (f'```json\n{{"name": "read", "arguments": {JSON}}}\n```', [READ]),
    "fenced, without a label": (f'```\n{{"name": "read", "arguments": {JSON}}}\n```\n', [READ]),
    "fenced, twice": (f'```json\n{{"name": "read", "parameters": {JSON}}}\n```\n\n' * 2, [READ, READ]),
    "fenced list": (
        f'```tool_call\n[{{"name": "read", "arguments": {JSON}}}, {{"name": "read.note", "arguments": {{}}}}]\n```',
        [READ, ("read.note", {})],
    ),
    "hermes, as Python writes it": (
        "<tool_call>{'name': 'read', 'arguments': {'path': 'a', 'all': True,}}</tool_call>",
        [("read", {"path": "a", "all": True})],
    ),
    "hermes, without its last bracket": (
        '<tool_call>\n{"name": "read", "arguments": {"path": "a"}\n</tool_call>',
        [("read", {"path": "a"})],
    ),
    "gpt-oss": (
        f"<|channel|>commentary to=functions.read.note <|constrain|>json<|message|>{JSON}<|call|>",
        [("read.note", A)],
    ),
    "gpt-oss, with a start": (f"<|start|>assistant<|channel|>commentary to=read<|message|>{JSON}", [READ]),
}
TEXTS = [
    "Use <tool_call> for calls.",
    'An object: {"name": "read", "arguments": {}} is a call.',
    '{"name": "Anna", "age": 3}',
    '{"path": "a", "lines": [1, 2]}',
    '{"name": "write", "arguments": {}}',
    '<tool_call>\n{"name": "write", "arguments": {"a": 1}}\n</tool_call>',
    '<tool_call>\n{"name": "read", "arguments": {"a": 1',
    '{"name": "read", "parameters": {}} and more words',
    "if a < b [and c > d] then <function> is <function=unknown>{}</function>",
    "[TOOL_CALLS] are what Mistral writes",
    "<|channel|>final<|message|>Hello",
    "A list: [1, 2], a tag: <b>, the end: <",
    "[TOOL_CALL",
    '```json\n{"name": "read", "arguments": {}}\n```\nThis is how a call looks.',
    '```json\n{"name": "write", "arguments": {}}\n```',
    '```json\n{"name": "Anna", "age": 3}\n```',
    '```json\n[{"path": "a"}]\n```',
    '```json\n{"name": "read", "arguments": {}}',
    "```python\nprint([1, 2])\n```\nand `read`, twice ``",
    "`",
    "``` ",
    "  {",
    "",
]


def parted(pieces: list[str]) -> tuple[str, list[tuple[str, Any]]]:
    """Return what is shown of these pieces, and the calls with their arguments."""
    reader = CallsInText(TOOLS)
    parts = [*map(reader.feed, pieces), reader.end()]
    calls = [call for _, found in parts for call in found]
    assert [call.index for call in calls] == list(range(1000, 1000 + len(calls)))
    return "".join(text for text, _ in parts), [(str(call.name), json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", ["", "I look.\n"])
def test_forms(form: str, before: str) -> None:
    """Each family's form is a call, however it is cut into pieces, and nothing of it is shown."""
    written, calls = FORMS[form]
    if before and written.startswith("{"):
        assert parted([before + written]) == (before + written, [])
        return
    text = before + written
    for size in (1, 2, 3, 7, len(text)):
        assert parted([text[at : at + size] for at in range(0, len(text), size)]) == (before, calls)
    for at in range(len(text)):
        assert parted([text[:at], text[at:]]) == (before, calls)


@pytest.mark.parametrize("text", TEXTS)
def test_text_stays_text(text: str) -> None:
    """What is no call of an offered tool is shown, every character of it."""
    for size in (1, 2, 5, max(1, len(text))):
        assert parted([text[at : at + size] for at in range(0, len(text), size)]) == (text, [])


def test_words_around_a_call() -> None:
    """Text before and after a call is shown, the white space between calls is not."""
    call = FORMS["hermes"][0]
    for pieces in (
        ["One. ", f"{call}\n", f"\n{call}", "\nTwo ", " ", "words."],
        list(f"One. {call}\n\n{call}\nTwo  words."),
    ):
        assert parted(pieces) == ("One. Two  words.", [READ, READ])


@given(
    st.lists(
        st.sampled_from(
            ["<", "[", "{", '"', "tool_call>", "</tool_call>", "a", "\n", '"name": "read"', "}", "]", "```"]
        )
    )
)
def test_nothing_is_lost(pieces: list[str]) -> None:
    """Whatever comes, it is shown or it is a call, and pieces make no difference."""
    text = "".join(pieces)
    shown, calls = parted(pieces)
    assert calls or shown == text
    assert parted([text]) == (shown, calls)


def test_words_are_not_held_back() -> None:
    """After the first word, text without a sign that may begin a call is shown at once."""
    reader = CallsInText(TOOLS)
    for piece, _ in pairwise(["One", " two", " three.", ""]):
        assert reader.feed(piece) == (piece, [])
