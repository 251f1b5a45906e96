"""Formats log records: for a person at a terminal, and as one line of JSON for programs."""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

HUMAN: Final = "%(asctime)s %(levelname)-7s %(message)s"
FIELDS: Final = "fields"
"""The attribute of a record that holds additional fields of its JSON line."""
LONGEST: Final = 1500
"""The most characters of a message."""


class HumanFormatter(logging.Formatter):
    """`12:30:00 INFO    message`; further lines of a message are indented, so that none looks like a record."""

    def __init__(self) -> None:
        super().__init__(HUMAN, datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return super().format(record).replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC, ISO 8601), `level`, `logger`, `message`, and the additional fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON of a record, without a line break."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request := getattr(record, "request", ""):
            line["request"] = request
        line |= getattr(record, FIELDS, {})
        if record.exc_text:
            line["trace"] = record.exc_text
        return json.dumps(line, ensure_ascii=False, default=str)


def escaped(text: str) -> str:
    """Return the text with unprintable characters escaped, such as `\\n`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode("ascii")
        for letter in text
    )


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return the text, cut where it is too long."""
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text) - longest} characters more)"
