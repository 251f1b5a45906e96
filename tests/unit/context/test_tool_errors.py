"""Which results are errors, and what of them is the error's own words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.outputs.stubs import error_in, is_error


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
    assert not is_error(text)
    assert not is_error(printed(text))
    assert not is_error(answered(text, is_error=False))


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
