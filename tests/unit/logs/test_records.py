"""What gets into a log line, and what does not."""

import json
import logging
from pathlib import Path

import pytest
from cases import cases

from elbowroom.errors import SettingsError
from elbowroom.logs.file import LogFile, last_lines
from elbowroom.logs.formats import FIELDS, HumanFormatter, JsonFormatter
from elbowroom.logs.redaction import Redactor
from elbowroom.logs.request_facts import request_facts, requested
from elbowroom.logs.set_up import SafeRecords

PROMPT = "My sister's diagnosis is a secret between us"


def record(message: str, *arguments: object, name: str = "elbowroom.test", fields: object = None) -> logging.LogRecord:
    """Return a record as it is after the filter."""
    extra = {FIELDS: fields or {}}
    made = logging.getLogger(name).makeRecord(name, logging.WARNING, __file__, 1, message, arguments, None, extra=extra)
    SafeRecords(Redactor()).filter(made)
    return made


def raised(error: Exception) -> logging.LogRecord:
    """Return the record of an error that was raised, after the filter."""
    try:
        raise error
    except type(error) as caught:
        info = (type(caught), caught, caught.__traceback__)
        made = logging.LogRecord("elbowroom.test", logging.ERROR, __file__, 1, "It failed", None, info)
    SafeRecords(Redactor()).filter(made)
    return made


@cases("name", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\u2028b", "a\u202eb", "a\0b", "a\udc80b"])
def test_a_name_cannot_break_a_line(name: str) -> None:
    """Control characters in what a client has chosen are written out, in both forms of the log."""
    made = record("%s: asked by %r", name, name)
    for line in (HumanFormatter().format(made), JsonFormatter().format(made)):
        assert line.isprintable()
    assert json.loads(JsonFormatter().format(made))["message"].startswith("a")


def test_lines_of_a_settings_error_stay_lines() -> None:
    """They are ours; at a terminal they are set in, so that none looks like a line of the log."""
    error = SettingsError("one is wrong\n12:00:00 INFO two is wrong")
    text = HumanFormatter().format(record("Wrong settings:\n%s", error))
    assert text.split("\n")[1:] == ["    one is wrong", "    12:00:00 INFO two is wrong"]


def test_an_error_is_told_without_its_words() -> None:
    """Where it was raised and what it is are told; its message may quote a conversation."""
    text = JsonFormatter().format(raised(ValueError(PROMPT)))
    assert "ValueError" in text
    assert "in raised" in text
    assert PROMPT not in text


def test_foreign_loggers_are_cut_to_their_first_line() -> None:
    """asyncio adds the repr of an error to its line."""
    made = record(f"Task exception was never retrieved\nfuture: ValueError({PROMPT!r})", name="asyncio")
    assert made.getMessage() == "Task exception was never retrieved"


def test_lines_of_a_request_carry_its_id() -> None:
    """Inside of a request they do, outside they do not."""
    with requested() as facts:
        inside = json.loads(JsonFormatter().format(record("inside")))
        assert request_facts() is facts
    assert inside["request"] == facts.id
    assert "request" not in json.loads(JsonFormatter().format(record("outside")))


@pytest.mark.parametrize("quote", [PROMPT, f"It says: {PROMPT.upper()}", f"'{PROMPT[3:30]}...'"])
def test_quotes_of_the_prompt_are_taken_out(quote: str) -> None:
    """An engine that repeats what it was asked does not bring that into the log."""
    with requested() as facts:
        facts.quotable = ({"model": "writer", "messages": [{"role": "user", "content": f"({PROMPT})"}]},)
        text = record("LM Studio refuses the request: %s (400)", quote).getMessage()
    assert PROMPT[8:20].lower() not in text.lower()
    assert text.startswith("LM Studio refuses the request: ")
    assert text.endswith("(400)")


def test_the_words_of_a_line_itself_stay() -> None:
    """They are the program's, whoever has said the same; only what is put into them may be a client's."""
    with requested() as facts:
        facts.quotable = ({"messages": [{"content": f"What of the conversation ahead of us? {PROMPT}"}]},)
        text = record("%s has read the conversation ahead of its next message: %s", "tiny", PROMPT).getMessage()
    assert text.startswith("tiny has read the conversation ahead of its next message: ")
    assert PROMPT not in text


def test_a_line_that_cannot_be_put_together_ends_nothing() -> None:
    """As in logging itself."""
    assert "cannot be put together" in record("%d", "no number").getMessage()


def test_the_file_is_rotated_and_private(tmp_path: Path) -> None:
    """It keeps to its size and number, and only its owner can read it."""
    path = tmp_path / "logs" / "elbowroom.jsonl"
    handler = LogFile(path, file_bytes=2000, older_files=2)
    for number in range(200):
        handler.handle(record("line %d", number))
    handler.close()
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["elbowroom.jsonl", "elbowroom.jsonl.1", "elbowroom.jsonl.2"]
    assert all(file.stat().st_size <= 2000 for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised; there is one warning, however often it is tried; and once it can be written, it is."""
    path = tmp_path / "logs" / "elbowroom.jsonl"
    path.parent.write_text("no folder", encoding="utf-8")
    handler = LogFile(path, pause=0)
    logging.getLogger("elbowroom").addHandler(handler)
    try:
        for number in range(5):
            logging.getLogger("elbowroom.test").warning("line %d", number)
        path.parent.unlink()
        logging.getLogger("elbowroom.test").warning("the last line")
    finally:
        logging.getLogger("elbowroom").removeHandler(handler)
        handler.close()
    assert len([made for made in caplog.records if "cannot be written" in made.getMessage()]) == 1
    assert json.loads(path.read_text(encoding="utf-8"))["message"] == "the last line"


def test_the_tail_is_the_newest_lines_in_order(tmp_path: Path) -> None:
    """Across the file's rotation, without lines that are broken, and cleaned of what is known as a secret now."""
    path = tmp_path / "elbowroom.jsonl"
    handler = LogFile(path, file_bytes=100_000)
    for number in range(1000):
        handler.handle(record("line %d of %s", number, "sesame-open", fields={"number": number}))
    handler.close()
    assert path.with_name("elbowroom.jsonl.1").exists()
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"time": "half a li')
    redactor = Redactor()
    redactor.learn("sesame-open")
    found = last_lines(path, 900, redactor)
    assert [line["number"] for line in found] == list(range(100, 1000))
    assert "sesame" not in json.dumps(found)
    assert last_lines(tmp_path / "none", 5, redactor) == []
