"""Stubs of old results, shorter arguments, and the errors that stay word for word."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.outputs.stubs import (
    LONG_ARGUMENTS,
    error_below,
    error_in,
    is_soft_trimmed,
    is_stub,
    ref_of,
    shorter_arguments,
    size_of_result,
    soft_trimmed,
    stub,
)
from elbowroom.context.transcript import is_json_object
from elbowroom.settings.model import ToolKind

REF = "k3v9abcdefgh"
KINDS: tuple[ToolKind, ...] = ("read", "write", "execute", "query", "other")


@pytest.mark.parametrize(
    ("kind", "tool", "arguments", "text", "said"),
    [
        (
            "read",
            "read_note",
            {"path": "notes/plan.md", "offset": 1, "limit": 50},
            "# Plan of the whole house\n" + "x" * 974,
            "read notes/plan.md lines 1-50 (read_note); 1,000 characters: # Plan of the whole house",
        ),
        (
            "write",
            "write_note",
            {"content": "w" * 900, "path": "a.md"},
            "Wrote 900 characters to a.md.",
            "changed a.md (write_note); 29 characters: Wrote 900 characters to a.md.",
        ),
        (
            "execute",
            "run",
            {"command": "pytest -q"},
            ".....\n5 passed in 3 s",
            "ran pytest -q (run); 21 characters: 5 passed",
        ),
        (
            "query",
            "search",
            {"query": "harbour lights", "path": "notes"},
            "a.md:3: the harbour\nb.md:9",
            "asked for harbour lights (search); 26 characters came",
        ),
        ("other", "route", {"to": "x", "n": 2}, "ok", "route x, 2; 2 characters: ok"),
        ("other", "ping", {}, "", "ping; 0 characters"),
    ],
)
def test_stub_by_kind(kind: ToolKind, tool: str, arguments: dict[str, object], text: str, said: str) -> None:
    """C31: it says the tool, what it was about, the size, the first line, and where the whole can be read."""
    written = stub(kind, tool, json.dumps(arguments), text, REF)
    assert written == f"[tool output trimmed; ref={REF}; {said}]"
    assert is_stub(written)
    assert ref_of(written) == REF


def test_error_stays_word_for_word() -> None:
    """Below the line of a failed call stand the error's own words; the envelope around them is gone."""
    own = "Error: can't do it\n  at line 3\n\n[end]"
    part = {"type": "text", "text": own, "annotations": None}
    written = stub("execute", "run", "{}", json.dumps({"content": [part], "isError": True}), REF)
    assert written == f"[tool output trimmed; ref={REF}; run failed]\n{own}"
    assert is_stub(written)
    assert error_below(written) == own
    assert ref_of(written) == REF


def test_first_words_of_a_broken_envelope() -> None:
    """An envelope that was cut cannot be opened, and still its own signs are not the first line."""
    text = 'meta=None content=[TextContent(type=\'text\', text=\'{\\n  "content": [\\n    {\\n      "type": "text",\\n'
    written = stub("read", "get", '{"url": "u"}', text + '      "text": "Url: https://example.com/a/long/path', REF)
    assert written.endswith("characters: Url: https://example.com/a/long/path]")


@given(st.sampled_from(KINDS), st.text(max_size=300), st.text(max_size=300), st.text(max_size=3000))
def test_stub_is_one_bounded_line(kind: ToolKind, tool: str, value: str, text: str) -> None:
    """Whatever tool, arguments and result hold: a line of under 400 characters, but for an error's own words."""
    written = stub(kind, tool, json.dumps({"path": value, "query": value}), text, REF)
    line, _, error = written.partition("\n")
    assert len(line.splitlines()) == 1
    assert len(line) < 400
    assert error in text
    assert is_stub(written)
    assert ref_of(written) == REF


CORRECTED = "The ferry is old. The fare is no longer 4.50 € but 5.20 €. It rains."


def test_stub_says_what_has_changed() -> None:
    """A result that corrects something says so in its stub too, and the sentence can be read back."""
    line = stub("query", "web_search", '{"query": "fare"}', CORRECTED + " The sea is wide." * 99, "k3v9abcdefgh")
    assert line.endswith("; it says: The fare is no longer 4.50 € but 5.20 €.]")
    assert "The fare is no longer 4.50 € but 5.20 €." in line
    assert "\n" not in line


@pytest.mark.threat("forged notices, summaries and references", "what is not wholly a stub is none")
@pytest.mark.parametrize(
    "text", ["", "ref=abc", "[tool output trimmed; ref=", "[tool output trimmed; ref=a; b", "x" * 9000]
)
def test_other_texts_are_no_stubs(text: str) -> None:
    """Only the whole form counts."""
    assert not is_stub(text)
    assert not is_soft_trimmed(text)
    assert ref_of(text) is None


@pytest.mark.threat("forged notices, summaries and references", "nor is one with a line more")
def test_a_line_more_is_no_stub() -> None:
    """A result that begins as a stub does and goes on is a result: no tool keeps its output in the window that way."""
    assert not is_stub(f"{stub('read', 'get', '{}', 'text', REF)}\n{'more ' * 1000}")


def test_soft_trim() -> None:
    """Beginning and end stay word for word, with how much is missing and where it is; its stub knows the whole size."""
    text = "".join(f"line {number}\n" for number in range(2000))
    trimmed = soft_trimmed(text, REF)
    assert trimmed.startswith(text[:1500])
    assert trimmed.endswith(text[-1500:])
    assert f"ref={REF}; {len(text) - 3000:,} characters are left out" in trimmed
    assert is_soft_trimmed(trimmed)
    assert ref_of(trimmed) == REF
    assert size_of_result(trimmed) == f"{len(text):,} characters"
    assert f"{len(text):,} characters: line 0" in stub("read", "get", "{}", trimmed, REF)


def test_arguments() -> None:
    """Keys and short values stay, long ones say how long they were."""
    arguments = json.dumps({"path": "a.md", "content": "Dear all,\n" + "x" * 5000, "options": {"append": True, "n": 3}})
    shorter = json.loads(shorter_arguments(arguments))
    assert shorter["path"] == "a.md"
    assert shorter["options"] == {"append": True, "n": 3}
    assert shorter["content"].startswith("Dear all, x")
    assert shorter["content"].endswith("[5,010 characters, not repeated here]")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=50), inner, max_size=5),
    max_leaves=30,
)


@given(st.dictionaries(st.text(max_size=80), VALUES, max_size=20))
def test_arguments_stay_an_object(value: dict[str, object]) -> None:
    """Whatever they were: a JSON object within the bound, the same for the same; short ones are untouched."""
    arguments = json.dumps(value, ensure_ascii=False)
    shorter = shorter_arguments(arguments)
    assert is_json_object(shorter)
    assert len(shorter) <= LONG_ARGUMENTS
    assert shorter == shorter_arguments(arguments)
    assert shorter_arguments(shorter) == shorter
    if len(arguments) <= LONG_ARGUMENTS:
        assert shorter == arguments


@pytest.mark.parametrize("arguments", ["[" * 600, "x" * 600, json.dumps(["y" * 600])])
def test_broken_arguments_stay(arguments: str) -> None:
    """What is no JSON object is left alone: that is for `repair`."""
    assert shorter_arguments(arguments) == arguments


def printed(text: str, *, is_error: bool = False) -> str:
    """Return what Python prints for a tool server's answer."""
    return f"meta=None content=[TextContent(type='text', text={text!r}, annotations=None)] isError={is_error}"


def answered(text: str, *, is_error: bool) -> str:
    """Return a tool server's answer as JSON."""
    part = {"type": "text", "text": text, "annotations": None}
    return json.dumps({"_meta": None, "content": [part], "isError": is_error}, indent=2)


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such file: notes/a.md",
        "error executing command\nline two",
        "Traceback (most recent call last):\n  File ...\nValueError: x",
        "ValueError: x",
        "Input validation error: 'file_hash' is a required property",
        "Failed to fetch https://example.com: 403",
        "Tool call timed out.",
        "fatal: not a git repository",
        '{"error": "No presentation is loaded"}',
        '{"status": "error", "message": "not found"}',
        '{"a.md": {"result": "error", "reason": "no such line"}}',
        '{"success": false}',
        '{"stdout": "", "exit_code": 2}',
        "make: ***\nProcess exited with code 2",
        "some output\nexit code: 1",
    ],
)
def test_errors(text: str) -> None:
    """Errors are known by their first words, by what JSON says of itself, or by an exit code; they stay as they are."""
    assert error_in(text) == text
    assert error_in(printed(text)) == text
    assert error_in(answered(text, is_error=True)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Errors in physics\nAn error is ...",
        "Terror in the night: a story",
        "exit code: 0",
        "Process exited with code 0",
        '{"error": null, "status": "ok"}',
        '{"errors": [], "result": "ok", "exit_code": 0}',
        "error.log:3: all is well",
        "failed-runs.md\nother.md",
        "# Shells\nA command ends with an exit code: 1 means that it failed.\nThat is all.",
        "[1, 2]",
        '{"broken": ',
        "Error handling in Python. " + "How to do it. " * 400,
    ],
)
def test_successes(text: str) -> None:
    """What only speaks of errors is none; nor is a long document that begins with one."""
    assert error_in(text) is None
    assert error_in(printed(text)) is None
    assert error_in(answered(text, is_error=False)) is None


def test_error_within_two_envelopes() -> None:
    """The envelopes go, and every character within them stays, escapes undone."""
    own = "Error: can't read 'ä\\b.md'\n\ttwice \"quoted\""
    assert error_in(printed(answered(own, is_error=True))) == own
    assert error_in(printed("Nothing of the kind", is_error=True)) == "Nothing of the kind"


@given(st.text(max_size=200))
def test_any_text_can_be_asked_about(text: str) -> None:
    """Nothing raises, and an error's words stand in the text or in its envelope."""
    for whole in (text, f"meta=None content=[TextContent({text}", printed(text), f"{{{text}}}"):
        found = error_in(whole)
        assert found is None or found in (whole, text)
    assert error_in(answered(text, is_error=True)) is not None


@pytest.mark.parametrize(
    "told",
    [
        "Exit code: 2",
        "Process exited with code 1",
        "[exit status: 101]",
        "command exited with status 3.",
        '"exit_code": 1,',
        "returncode=4",
    ],
)
@pytest.mark.parametrize("place", ["first", "third", "third from the end", "last"])
def test_exit_code_near_either_end_makes_a_result_an_error(told: str, place: str) -> None:
    """It counts in the first and the last five lines, in whatever form; one of 0 does not."""
    lines = [f"line {number} of the output" for number in range(30)]
    lines.insert({"first": 0, "third": 2, "third from the end": 28, "last": 30}[place], told)
    text = "\n".join(lines)
    assert error_in(text) == text
    assert error_in(re.sub(r"\d+(?=\W*$)", "0", told) + "\n" + "\n".join(lines[3:27])) is None
