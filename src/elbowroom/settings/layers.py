"""Settings in layers: flag over environment over file over default, each value with its source."""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from elbowroom.errors import SettingsError
from elbowroom.settings.access import check_access
from elbowroom.settings.model import AgentSettings, ProviderSettings, Sampling, ServerSettings, Settings
from elbowroom.settings.secrets import HIDDEN

Key = tuple[str | int, ...]
Flags = Mapping[tuple[str, str], str | int | None]
PREFIX: Final = "ELBOWROOM_"
SECRET_KEYS: Final = frozenset({"token", "api_key"})
TABLES: Final[dict[str, type[BaseModel]]] = {"server": ServerSettings}
TABLE_LISTS: Final[dict[str, type[BaseModel]]] = {"providers": ProviderSettings, "agents": AgentSettings}


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings that are valid, and how they came about.

    `sources` maps a key such as `("server", "port")` to the file, variable or flag that set it; a key that is
    not in it has its default. `warnings` are sentences for the person.
    """

    settings: Settings
    path: Path
    sources: Mapping[Key, str]
    warnings: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Return the folder that relative secret files are looked up in."""
        return self.path.parent


def load_settings(path: Path, environ: Mapping[str, str], flags: Flags, *, must_exist: bool = False) -> LoadedSettings:
    """Read the file, lay the environment and the flags over it, and check the whole.

    `flags` maps keys such as `("server", "port")` to values; None means that the flag was not given.

    Raises SettingsError that names the place, the key, the value and what is accepted.
    """
    data = _read_file(path, must_exist=must_exist)
    sources: dict[Key, str] = {key: str(path) for key in _leaves(data)}
    variables, warnings = _from_environment(environ)
    given = {key: (value, f"flag --{key[1]}") for key, value in flags.items() if value is not None}
    for key, (value, source) in [*variables.items(), *given.items()]:
        _lay_over(data, *key, value, path)
        sources[key] = source
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        raise SettingsError(_explain(error, data, sources, path)) from None
    check_access(settings, sources, path.parent, environ)
    warnings += [f"{path}: {warning}" for warning in _unknown_keys(data)]
    warnings += _literal_secrets(settings, sources)
    return LoadedSettings(settings, path, sources, tuple(warnings))


def key_text(key: Key) -> str:
    """Write a key as a person would: `server.port`, `agents[0].model`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _read_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(f"There is no settings file at {path}.") from None
        return {}
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"The settings file {path} is not UTF-8 text (byte {error.start}).") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"The settings file {path} is not valid TOML: {error}.") from error


def _leaves(value: Any, key: Key = ()) -> Iterator[Key]:
    if isinstance(value, dict) and (value or not key):
        for name, item in value.items():
            yield from _leaves(item, (*key, name))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*key, index))
    else:
        yield key


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[tuple[str, str], tuple[str, str]], list[str]]:
    found: dict[tuple[str, str], tuple[str, str]] = {}
    warnings: list[str] = []
    for name, value in environ.items():
        if not name.startswith(PREFIX) or "__" not in name:
            continue
        table, _, field = name.removeprefix(PREFIX).lower().partition("__")
        if table in TABLES and field in TABLES[table].model_fields:
            found[table, field] = (value, f"environment variable {name}")
        else:
            known = [f"{PREFIX}{t}__{f}".upper() for t, model in TABLES.items() for f in model.model_fields]
            warnings.append(f"The environment variable {name} is not known{_nearest(name, known)}; it is ignored.")
    return found, warnings


def _lay_over(data: dict[str, Any], table: str, field: str, value: str | int, path: Path) -> None:
    row = data.setdefault(table, {})
    if not isinstance(row, dict):
        raise SettingsError(f"{path}: {table} = {row!r} is not accepted: it has to be a table, [{table}].")
    row[field] = value


def _unknown_keys(data: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown_in(data, Settings, ())
    for table, model in TABLES.items():
        yield from _unknown_in(data.get(table, {}), model, (table,))
    for table, model in TABLE_LISTS.items():
        for index, row in enumerate(data.get(table, [])):
            yield from _unknown_in(row, model, (table, index))
            yield from _misspelt_sampling(row, (table, index))


def _unknown_in(row: Mapping[str, Any], model: type[BaseModel], key: Key) -> Iterator[str]:
    for name in row:
        if name not in model.model_fields:
            near = _nearest(name, list(model.model_fields))
            yield f"{key_text((*key, name))} is not a setting of this version{near}; it is ignored."


def _misspelt_sampling(row: Mapping[str, Any], key: Key) -> Iterator[str]:
    known = list(Sampling.model_fields)
    for name in row.get("sampling", {}):
        if name not in known and (near := _nearest(name, known)):
            yield f"{key_text((*key, 'sampling', name))} is passed on as it stands{near}."


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""


def _literal_secrets(settings: Settings, sources: Mapping[Key, str]) -> list[str]:
    secrets: list[tuple[Key, Any]] = [(("server", "token"), settings.server.token)]
    secrets += [(("providers", i, "api_key"), p.api_key) for i, p in enumerate(settings.providers)]
    return [
        f"{sources[key]}: {key_text(key)} holds the secret itself; env:NAME or file:PATH keeps it elsewhere."
        for key, secret in secrets
        if secret is not None and secret.is_literal and not sources.get(key, "").startswith("environment")
    ]


def _explain(error: ValidationError, data: Mapping[str, Any], sources: Mapping[Key, str], path: Path) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        key = tuple(problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if not key:
            lines.append(f"{path}: {message}.")
            continue
        value, known_key = _look_up(data, key)
        source = sources.get(known_key, str(path))
        if problem["type"] == "missing":
            lines.append(f"{source}: {key_text(key)} is missing.")
        else:
            shown = HIDDEN if SECRET_KEYS.intersection(known_key) else repr(value)
            lines.append(f"{source}: {key_text(known_key)} = {shown} is not accepted: {message}.")
    return "\n".join(lines)


def _look_up(data: Any, key: Key) -> tuple[Any, Key]:
    for depth, part in enumerate(key):
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return data, key[:depth]
    return data, key
