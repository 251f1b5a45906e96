"""Sets logging up for the program: what goes to the terminal, and what to the file."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from elbowroom.errors import SettingsError
from elbowroom.logs.effective import effective_settings
from elbowroom.logs.formats import FIELDS, HumanFormatter
from elbowroom.logs.log_file import LogFile, log_path
from elbowroom.logs.redaction import REDACTOR
from elbowroom.logs.safe_records import OWN, SafeRecords
from elbowroom.settings.layers import LoadedSettings
from elbowroom.settings.paths import data_dir

log = logging.getLogger(__name__)
ONLY_IN_FILE = "only_in_file"
"""The attribute of a record that a person at a terminal need not see."""


def log_to_terminal(level: str) -> None:
    """Write lines of this level and above (`debug` to `error`) to stderr; none of them holds a secret."""
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler()
    handler.setLevel(number)
    handler.setFormatter(HumanFormatter())
    handler.addFilter(SafeRecords(REDACTOR, verbose=number <= logging.DEBUG))
    handler.addFilter(lambda record: not getattr(record, ONLY_IN_FILE, False))
    if number > logging.DEBUG:
        handler.addFilter(_is_ours_or_a_warning)
    root = logging.getLogger()
    if not root.handlers:  # else somebody who runs this inside of another program has chosen
        root.addHandler(handler)
        root.setLevel(min(number, logging.INFO))


@contextmanager
def logging_to_file(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[Path | None]:
    """Write a line of JSON for every record to the file in the data folder; the first tells the settings in force.

    Yields the file, None where there is no place for one. That it cannot be written stops nothing.
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


def _is_ours_or_a_warning(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] == OWN or record.levelno >= logging.WARNING
