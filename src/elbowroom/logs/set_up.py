"""Sets up logging to the terminal and to the file, and makes every record safe to be written."""

import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from elbowroom.errors import SettingsError
from elbowroom.logs.file import LogFile, log_path
from elbowroom.logs.formats import FIELDS, HumanFormatter, escaped, shortened
from elbowroom.logs.redaction import REDACTOR, Redactor
from elbowroom.logs.request_facts import CURRENT
from elbowroom.settings.fields import data_dir, without_secrets
from elbowroom.settings.load import LoadedSettings, list_settings

log = logging.getLogger(__name__)
REASON: Final = "reason"
ONLY_IN_FILE = "only_in_file"
"""The attribute of a record that is not written to the terminal."""
OWN: Final = "elbowroom"
DONE: Final = "is_safe"
MOST_FRAMES: Final = 40
LONGEST_FIELD: Final = 200
Info = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
TEXTS: Final = re.compile(r"(?:instructions|prompt|directives|tool_description|command|stop)$")
"""Keys whose values are texts for a model or arguments of a program, which may contain a secret."""
LINE: Final = re.compile(r"(?P<key>.+?) = (?P<value>.*?)   \((?P<source>[^()]*(?:\([^()]*\))?[^()]*)\)", re.DOTALL)
LONGEST_VALUE: Final = 300
PLACE: Final = re.compile(r"%[^a-z%]*[a-z%]")
"""Where a value is put into a line."""


def log_to_terminal(level: str) -> None:
    """Write records of this level and above (`debug` to `error`) to stderr, without secrets."""
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler()
    handler.setLevel(number)
    handler.setFormatter(HumanFormatter())
    handler.addFilter(SafeRecords(REDACTOR, verbose=number <= logging.DEBUG))
    handler.addFilter(lambda record: not getattr(record, ONLY_IN_FILE, False))
    if number > logging.DEBUG:
        handler.addFilter(_is_ours_or_a_warning)
    root = logging.getLogger()
    if not root.handlers:  # a program around this one may have set up its own
        root.addHandler(handler)
        root.setLevel(min(number, logging.INFO))


@contextmanager
def logging_to_file(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[Path | None]:
    """Write every record as a line of JSON to the file in the data folder; the first line lists the settings in force.

    Yields the file, None where the data folder is wrong. A file that cannot be written stops nothing.
    """
    REDACTOR.follow(loaded, environ)
    try:
        path = log_path(data_dir(environ))
    except SettingsError as error:
        log.warning("There is no log file: %s", error)
        yield None
        return
    root = logging.getLogger()
    handler = LogFile(path)
    handler.setLevel(logging.DEBUG if root.isEnabledFor(logging.DEBUG) else logging.INFO)
    handler.addFilter(SafeRecords(REDACTOR, verbose=root.isEnabledFor(logging.DEBUG)))
    handler.addFilter(_is_ours_or_a_warning)
    root.addHandler(handler)
    try:
        settings = {key: REDACTOR.clean(value) for key, value in effective_settings(loaded, environ)}
        log.info("The settings in force.", extra={FIELDS: {"settings": settings}, ONLY_IN_FILE: True})
        yield path
    finally:
        root.removeHandler(handler)
        handler.close()


def _plain_reason(record: logging.LogRecord) -> tuple[str, ...]:
    """Return the reason among the fields of a record, which quotes nobody though a model was told it in these words."""
    reason = getattr(record, FIELDS, {}).get(REASON)
    return (reason,) if isinstance(reason, str) and reason else ()


def _words_of_its_own(record: logging.LogRecord) -> list[str]:
    """Return what one of our lines says around the values that are put into it; those of others may quote anything."""
    return PLACE.split(str(record.msg)) if record.name.split(".")[0] == OWN else []


def _is_ours_or_a_warning(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] == OWN or record.levelno >= logging.WARNING


class SafeRecords(logging.Filter):
    """Removes secrets and clients' words from records, and adds the id of their request.

    With `verbose`, which is for DEBUG, only secrets are removed.
    """

    def __init__(self, redactor: Redactor, *, verbose: bool = False) -> None:
        super().__init__()
        self._redactor = redactor
        self._verbose = verbose

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place, once for all handlers; return True: no record is dropped."""
        if not hasattr(record, DONE):
            facts = CURRENT.get()
            record.request = facts.id if facts else ""
            text = self._text(record) if self._verbose else shortened(self._text(record))
            if facts is not None and facts.words is not None and not self._verbose:
                names = (*facts.names, *_plain_reason(record), *_words_of_its_own(record))
                text = facts.words.removed_from(text, names)
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
        """Return the value of a field, without secrets and in one line: a client may have chosen names in it."""
        return self._redactor.clean_name(shortened(escaped(value), LONGEST_FIELD)) if isinstance(value, str) else value

    def _text(self, record: logging.LogRecord) -> str:
        is_own = record.name.split(".")[0] == OWN
        if not is_own and not self._verbose:  # further lines of a library may quote anything
            return escaped(_message(record).partition("\n")[0])
        if isinstance(record.args, tuple):
            record.args = tuple(_harmless(argument) for argument in record.args)
        elif record.args:
            record.args = {name: _harmless(value) for name, value in record.args.items()}
        return "\n".join(map(escaped, _message(record).split("\n")))


def trace(info: Info, *, verbose: bool) -> str:
    """Return where an error was raised; its message, which may quote a conversation, only if `verbose`."""
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
    except Exception:  # noqa: BLE001  # as logging does: a record that cannot be formatted stops nothing
        return f"(a line of {record.name} that cannot be put together: {type(sys.exception()).__name__})"


def _harmless(argument: Any) -> Any:
    """Return an argument with its text in one line; errors of our own settings may have several."""
    if isinstance(argument, int | float):
        return argument
    text = str(argument)
    if text.isprintable():
        return argument
    lines = text.split("\n") if isinstance(argument, SettingsError) else [text]
    return "\n".join(map(escaped, lines))


def effective_settings(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each key with its value and its source, such as `2345 (default)`."""
    for line in list_settings(loaded, environ):
        if found := LINE.fullmatch(line):
            value = found["value"]
            if TEXTS.search(found["key"]) and value not in ("''", "[]", "not set"):
                value = f"{len(value)} characters"
            value = without_secrets(value) if "://" in value else value
            yield found["key"], f"{escaped(shortened(value, LONGEST_VALUE))} ({found['source']})"
