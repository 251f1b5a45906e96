"""The filter on every handler: no secret, no words of a conversation and no line break gets past it."""

import logging
import sys
import traceback
from types import TracebackType
from typing import Any, Final

from elbowroom.errors import SettingsError
from elbowroom.logs.formats import FIELDS
from elbowroom.logs.one_line import escaped, shortened
from elbowroom.logs.redaction import Redactor
from elbowroom.logs.request_facts import CURRENT

OWN: Final = "elbowroom"
DONE: Final = "is_safe"
MOST_FRAMES: Final = 40
LONGEST_FIELD: Final = 200
Info = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class SafeRecords(logging.Filter):
    """Makes records safe to be written; they then also carry the `request` that they were written for.

    With `verbose`, which is for DEBUG, errors keep their messages and lines what they quote.
    """

    def __init__(self, redactor: Redactor, *, verbose: bool = False) -> None:
        super().__init__()
        self._redactor = redactor
        self._verbose = verbose

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place, once for all handlers; it is always kept."""
        if not hasattr(record, DONE):
            facts = CURRENT.get()
            record.request = facts.id if facts else ""
            text = self._text(record) if self._verbose else shortened(self._text(record))
            if facts is not None and facts.words is not None and not self._verbose:
                text = facts.words.taken_out_of(text, facts.names)
            record.msg, record.args = self._redactor.clean(text), None
            if record.exc_info:
                record.exc_text = self._redactor.clean(trace(record.exc_info, verbose=self._verbose))
                record.exc_info = None
            record.stack_info = None
            if fields := getattr(record, FIELDS, None):
                setattr(record, FIELDS, {name: self._safe(value) for name, value in fields.items()})
            setattr(record, DONE, True)
        return True

    def _safe(self, value: Any) -> Any:
        """Return the value of a field: names in it may be a client's."""
        return self._redactor.clean(shortened(escaped(value), LONGEST_FIELD)) if isinstance(value, str) else value

    def _text(self, record: logging.LogRecord) -> str:
        is_own = record.name.split(".")[0] == OWN
        if not is_own and not self._verbose:  # what comes after the first line is repr of whatever was at hand
            return escaped(_message(record).partition("\n")[0])
        if isinstance(record.args, tuple):
            record.args = tuple(_harmless(argument) for argument in record.args)
        elif record.args:
            record.args = {name: _harmless(value) for name, value in record.args.items()}
        return "\n".join(map(escaped, _message(record).split("\n")))


def trace(info: Info, *, verbose: bool) -> str:
    """Return where an error was raised; what it says only where that may be known: it may quote a conversation."""
    error = info[1]
    if error is None:
        return ""
    if verbose:
        return "".join(traceback.format_exception(error))
    lines: list[str] = []
    while error is not None and len(lines) < MOST_FRAMES:
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
        lines.append(type(error).__qualname__)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(lines)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # as logging does: a line that cannot be put together ends nothing
        return f"(a line of {record.name} that cannot be put together: {type(sys.exception()).__name__})"


def _harmless(argument: Any) -> Any:
    """Return an argument whose text is one line; only our own settings' errors may have several."""
    if isinstance(argument, int | float):
        return argument
    text = str(argument)
    if text.isprintable():
        return argument
    lines = text.split("\n") if isinstance(argument, SettingsError) else [text]
    return "\n".join(map(escaped, lines))
