"""Settings of a running server: a changed file is read again; a wrong one is logged and ignored."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elbowroom.errors import SettingsError, WrongSettings
from elbowroom.settings.doubts import TOKEN_KEY, is_loopback, secrets_of
from elbowroom.settings.keys import Key, Problem, wrong_settings
from elbowroom.settings.load import (
    Flags,
    LoadedSettings,
    overrides,
    read_file,
    settings_of,
    usable_settings,
    usable_settings_of,
    with_agents,
)
from elbowroom.settings.shared import AgentList, SharedAgents

log = logging.getLogger(__name__)
Signature = tuple[int, int, int] | None


class LiveSettings:
    """The last valid settings. `current()` costs one `stat` for the file, and one for each file with a secret.

    `started` are the settings at the start of the server, and `address` the host and port of them, on which it listens.
    `when_changed` is called once changed settings are in force. `shared` are agents in place of those of the file.

    What is wrong in the file at the start is left out; the constructor raises SettingsError where that cannot be. Later
    a file with another mistake, or none, is logged once and ignored. `wrong` are the paths of what does not count, each
    with what is wrong.
    """

    def __init__(self, path: Path, environ: Mapping[str, str], flags: Flags, *, must_exist: bool = False) -> None:
        self._path = path
        self._environ = environ
        self._flags = flags
        seen = _signature(path)
        self._loaded = usable_settings(path, environ, flags, must_exist=must_exist or seen is not None)
        self.wrong = self._loaded.left_out
        self._seen = {path: seen} | {file: _signature(file) for file in _secret_files(self._loaded)}
        self._had_file = seen is not None
        self.address = self._loaded.settings.server.host, self._loaded.settings.server.port
        self.started = self._loaded.settings
        self.when_changed: Callable[[], object] | None = None
        self.shared: SharedAgents | None = None
        self._agents: AgentList | None = None
        self._has_news = False

    @property
    def path(self) -> Path:
        """Return the settings file, whether it exists or not."""
        return self._path

    @property
    def flags(self) -> Flags:
        """Return what flags of the command line set."""
        return self._flags

    @property
    def last_good(self) -> LoadedSettings:
        """Return the settings of the last `current()`; may be called from any thread."""
        return self._loaded

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return all that a person should know of the settings, in sentences; first what does not count, and why."""
        named = [f"{self._path}: {text}" if key else text for key, text in self.wrong]  # without a key, by its text
        new = [f"{text} The settings before stay in force." for text in named]
        return (*(() if self.wrong == self._loaded.left_out else new), *self._loaded.warnings)

    @property
    def lost_file(self) -> bool:
        """Tell whether the file of the settings in force has been deleted."""
        return self._had_file and _signature(self._path) is None

    @property
    def locked(self) -> dict[Key, str]:
        """Return the keys that a flag or the environment sets, each with the name of that flag or variable."""
        return {key: source for key, (_, source) in overrides(self._environ, self._flags).items()}

    def would_be(self, data: Mapping[str, Any]) -> LoadedSettings:
        """Return the settings that a file with this content would make; what is left out now may stay wrong.

        Raises WrongSettings, also where a server that other machines reach would lose its token.
        """
        try:
            loaded = settings_of(data, self._path, self._environ, self._flags)
        except WrongSettings as error:
            if not {*error.fields} <= {*self._loaded.left_out}:
                raise
            loaded = usable_settings_of(data, self._path, self._environ, self._flags)
        self._check_what_stays_open(loaded)
        return loaded

    async def ready(self) -> None:
        """Wait until the newest of the agents that several servers share are known, or cannot be read."""
        if self.shared is not None and not self.shared.is_told:
            await self.shared.look()

    def look_again(self) -> None:
        """Make the next `current()` read the file even if it looks unchanged; may be called from any thread."""
        self._has_news = True

    def current(self) -> LoadedSettings:
        """Read the file again if it has changed; return the last valid settings."""
        seen, before = dict(zip(self._seen, map(_signature, self._seen), strict=True)), self._seen
        agents = self.shared.known if self.shared else None
        if seen != before or self._has_news or agents is not self._agents:
            self._seen, self._has_news, self._agents = seen, False, agents
            if seen[self._path] is not None or not self._had_file:
                self._read_again(must_exist=seen[self._path] is not None)
            elif before[self._path] is not None:
                log.warning("The settings file %s is gone; the last settings stay in force.", self._path)
        return self._loaded

    def _read_again(self, *, must_exist: bool) -> None:
        try:
            written = read_file(self._path, must_exist=must_exist)
            loaded = self.would_be(with_agents(written, self._agents.rows if self._agents else None))
        except SettingsError as error:
            self.wrong = error.fields if isinstance(error, WrongSettings) else (("", error.message),)
            log.error("The changed settings are wrong; the last good ones stay in force.\n%s", error)  # noqa: TRY400
            return
        for warning in loaded.warnings:
            log.warning("%s", warning)
        if (loaded.settings.server.host, loaded.settings.server.port) != self.address:
            log.warning("server.host and server.port take effect when elbowroom is started again.")
        log.info("Settings read again from %s.", self._path)
        self._seen = {self._path: self._seen[self._path]} | {
            file: self._seen.get(file, _signature(file)) for file in _secret_files(loaded)
        }
        self._had_file = must_exist
        self._loaded, self.wrong = loaded, loaded.left_out
        if self.when_changed:
            self.when_changed()

    def _check_what_stays_open(self, loaded: LoadedSettings) -> None:
        """Refuse to remove the token while the server still listens to other machines, whatever host the file names."""
        host, _ = self.address
        if not is_loopback(host) and loaded.settings.server.token.reveal(loaded.folder, self._environ) is None:
            message = (
                f"server.token cannot go while elbowroom listens on {host}, where other machines reach it. "
                "Stop elbowroom first."
            )
            raise wrong_settings([Problem(TOKEN_KEY, message, f"{self._path}: {message}")])


def _secret_files(loaded: LoadedSettings) -> list[Path]:
    files = [secret.file(loaded.folder) for secret in secrets_of(loaded.settings).values()]
    return [file for file in files if file is not None]


def _signature(path: Path) -> Signature:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
