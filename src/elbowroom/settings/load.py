"""Loads the settings: flag over environment over file over default; and lists each value with its source."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from elbowroom.errors import SettingsError, WrongSettings
from elbowroom.settings.doubts import access_problems, doubtful_secrets, doubtful_servers, missing_folders
from elbowroom.settings.explain import validated
from elbowroom.settings.fields import SecretRef
from elbowroom.settings.keys import (
    Key,
    doubtful_sampling,
    key_text,
    unknown_keys,
    unknown_variables,
    variables_of,
    wrong_settings,
)
from elbowroom.settings.leftover import leave_out, opens_the_server
from elbowroom.settings.model import Sampling, Settings

VARIABLE: Final = "environment variable "
FLAG: Final = "flag --"
DEFAULT: Final = "default"
LEFT_OUT: Final = "It is left out until it is corrected."
Flags = Mapping[tuple[str, str], str | int | None]


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Valid settings and where they come from.

    `sources` maps a key such as `("server", "port")` to the file, variable or flag that set it; a key without a source
    has its default. `warnings` are sentences for the person. `left_out` are the paths of wrong values in the file that
    do not count, each with what is wrong.
    """

    settings: Settings
    path: Path
    sources: Mapping[Key, str]
    warnings: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        """Return the folder that relative secret files are looked up in."""
        return self.path.parent


def load_settings(path: Path, environ: Mapping[str, str], flags: Flags, *, must_exist: bool = False) -> LoadedSettings:
    """Read the file, apply the environment and the flags, and check the result.

    `flags` maps keys such as `("server", "port")` to values; None means that the flag was not given.

    Raises SettingsError, which names the place, the key, the value and what is accepted.
    """
    return settings_of(read_file(path, must_exist=must_exist), path, environ, flags)


def usable_settings(
    path: Path, environ: Mapping[str, str], flags: Flags, *, must_exist: bool = False
) -> LoadedSettings:
    """Read the settings as `load_settings` does, and leave out what is wrong in the file, which is told.

    Raises SettingsError where the file is no TOML, where what is wrong is no part of it, and where leaving it out would
    open the server.
    """
    return usable_settings_of(read_file(path, must_exist=must_exist), path, environ, flags)


def usable_settings_of(
    written: Mapping[str, Any], path: Path, environ: Mapping[str, str], flags: Flags
) -> LoadedSettings:
    """Return the settings that a file with this content would make, without what is wrong in it.

    Raises WrongSettings as `usable_settings` does.
    """
    rest, told = dict(written), dict[str, str]()
    while True:
        try:
            loaded = settings_of(rest, path, environ, flags)
        except WrongSettings as error:
            left = leave_out(rest, error.keys)
            if left == rest or opens_the_server(error.keys) or not error.keys:
                raise
            rest, told = left, {**dict(error.fields), **told}
        else:
            warnings = (*(f"{path}: {text} {LEFT_OUT}" for text in told.values()), *loaded.warnings)
            return replace(loaded, warnings=warnings, left_out=tuple(told.items()))


def with_agents(written: Mapping[str, Any], agents: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return the content of a file with other agents, unless they are None."""
    return dict(written) if agents is None else {**written, "agents": [dict(row) for row in agents]}


def settings_of(written: Mapping[str, Any], path: Path, environ: Mapping[str, str], flags: Flags) -> LoadedSettings:
    """Return the settings that a file at this path with this content would make.

    Raises WrongSettings, which names the place, the key, the value and what is accepted.
    """
    data = dict(written)
    sources: dict[Key, str] = {key: str(path) for key in _leaves(data)}
    for (table, field), (value, source) in overrides(environ, flags).items():
        if isinstance(row := data.get(table, {}), dict):
            data[table] = {**row, field: value}
            sources[table, field] = source
    settings, problems = validated(data, sources, path)
    if settings is not None and not any(problem.key[:1] == ("server",) for problem in problems):
        problems += access_problems(settings, sources, path.parent, environ)
    doubts = [
        *unknown_variables(environ),
        *(f"{path}: {warning}; it is ignored." for _, warning in unknown_keys(data)),
    ]
    if settings is None or problems:
        raise wrong_settings(problems, doubts)
    warnings = [
        *doubts,
        *(f"{path}: {warning}" for warning in doubtful_sampling(data)),
        *doubtful_secrets(settings, sources, path.parent, environ),
        *(f"{path}: {warning}" for warning in missing_folders(settings)),
        *(f"{path}: {warning}" for warning in doubtful_servers(settings, path.parent, environ)),
    ]
    return LoadedSettings(settings, path, sources, tuple(warnings))


def overrides(environ: Mapping[str, str], flags: Flags) -> dict[tuple[str, str], tuple[Any, str]]:
    """Return the value and the source of each key that the environment or a flag sets, whatever the file says."""
    variables = {key: (value, f"{VARIABLE}{name}") for key, (value, name) in variables_of(environ).items()}
    return variables | {key: (value, f"{FLAG}{key[1]}") for key, value in flags.items() if value is not None}


def parse_file(content: bytes, path: Path) -> dict[str, Any]:
    """Return the content of a settings file. Raises SettingsError where it is not TOML."""
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"The settings file {path} is not UTF-8 text (byte {error.start}).") from None
    except (ValueError, RecursionError) as error:  # broken syntax, an endless number, brackets in a thousand brackets
        raise SettingsError(f"The settings file {path} is not valid TOML: {error}.") from None


def read_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    """Return the content of the settings file, nothing where there is none. Raises SettingsError."""
    try:
        return parse_file(path.read_bytes(), path)
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(f"There is no settings file at {path}.") from None
        return {}
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror or error}.") from error


def _leaves(value: Any, key: Key = ()) -> Iterator[Key]:
    if isinstance(value, dict) and (value or not key):
        for name, item in value.items():
            yield from _leaves(item, (*key, name))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*key, index))
    else:
        yield key


def list_settings(loaded: LoadedSettings, environ: Mapping[str, str], *, defaults: bool = True) -> Iterator[str]:
    """Yield one line a value: `server.port = 2345   (default)`; without `defaults` only for what a person has set."""
    for key, value in leaves(loaded.settings):
        source = source_of(loaded, key)
        if defaults or source != DEFAULT or _is_set(value, environ):
            yield f"{key_text(key)} = {_shown(value, environ)}   ({source})"


def source_of(loaded: LoadedSettings, key: Key) -> str:
    """Return the source of a value; that of a table is the source of its first key."""
    return next((source for found, source in loaded.sources.items() if found[: len(key)] == key), DEFAULT)


def leaves(value: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield every value below a table of settings with its key; parameters of `sampling` only where they are set."""
    if isinstance(value, BaseModel):
        for name in [*type(value).model_fields, *(value.model_extra or {})]:
            part = getattr(value, name)
            if part is not None or not isinstance(value, Sampling):
                yield from leaves(part, (*key, name))
    elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        for index, item in enumerate(value):
            yield from leaves(item, (*key, index))
    else:
        yield key, value


def _is_set(value: Any, environ: Mapping[str, str]) -> bool:
    """Tell whether a value is a secret in a variable that is set; the variable's name may be the default."""
    return isinstance(value, SecretRef) and bool(environ.get(str(value).removeprefix("env:")))


def _shown(value: Any, environ: Mapping[str, str]) -> str:
    match value:
        case SecretRef():
            name = str(value).removeprefix("env:")
            state = "" if not str(value).startswith("env:") else ", set" if environ.get(name) else ", not set"
            return f"{value}{state}"
        case None:
            return "not set"
        case bool():
            return str(value).lower()
        case tuple():
            return repr(list(value))
        case _:
            return repr(value)
