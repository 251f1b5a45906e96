"""Settings of a running server: the file is read again when it changes, and a wrong one changes nothing."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from elbowroom.errors import SettingsError
from elbowroom.settings.layers import Flags, LoadedSettings, load_settings

log = logging.getLogger(__name__)
Signature = tuple[int, int, int] | None


class LiveSettings:
    """The last good settings. `current()` costs one `stat` where the file is as it was.

    Raises SettingsError when made from wrong settings; afterwards a wrong file is logged once and ignored.
    """

    def __init__(
        self,
        path: Path,
        environ: Mapping[str, str],
        flags: Flags,
        *,
        must_exist: bool = False,
        on_change: Callable[[LoadedSettings], None] = lambda loaded: None,
    ) -> None:
        self._path = path
        self._environ = environ
        self._flags = flags
        self._seen = _signature(path)
        self._loaded = load_settings(path, environ, flags, must_exist=must_exist)
        self.on_change = on_change

    def current(self) -> LoadedSettings:
        """Return the last good settings, after another look at the file."""
        signature = _signature(self._path)
        if signature != self._seen:
            self._seen = signature
            self._read_again()
        return self._loaded

    def _read_again(self) -> None:
        try:
            loaded = load_settings(self._path, self._environ, self._flags)
        except SettingsError as error:
            log.error("The changed settings are wrong; the last good ones stay in force.\n%s", error)  # noqa: TRY400
            return
        for warning in loaded.warnings:
            log.warning("%s", warning)
        server, before = loaded.settings.server, self._loaded.settings.server
        if (server.host, server.port) != (before.host, before.port):
            log.warning("server.host and server.port take effect when elbowroom is started again.")
        log.info("Settings read again from %s.", self._path)
        self._loaded = loaded
        self.on_change(loaded)


def _signature(path: Path) -> Signature:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
