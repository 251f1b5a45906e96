"""Changes the settings file of a running server: merges a patch, checks the result, replaces the file."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from elbowroom.errors import Conflict, NotFound, SettingsError, WrongSettings
from elbowroom.settings.doubts import address_problem
from elbowroom.settings.fields import ID_FORM, ID_TAKES
from elbowroom.settings.files import backup_of, not_saved, replace_file, write_private
from elbowroom.settings.keys import Key, Problem, key_text, unknown_keys, wrong_settings
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.load import LoadedSettings, parse_file, with_agents
from elbowroom.settings.merge import (
    FOLDER,
    asked_for,
    extract_secrets,
    is_same,
    mark_secrets,
    merged,
    own_files,
    shown_values,
)
from elbowroom.settings.model import Settings
from elbowroom.settings.references import pruning_agents

log = logging.getLogger(__name__)
Patch = Mapping[str, Any]
Decide = Callable[[Settings], Patch]
ATTEMPTS: Final = 5
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class SettingsChanger:
    """Writes changes into the settings file, one at a time; blocking, for threads.

    `environ` holds the variables that secrets refer to.
    """

    def __init__(self, live: LiveSettings, environ: Mapping[str, str]) -> None:
        self._live = live
        self._environ = environ
        self._lock = threading.Lock()

    def change(self, decide: Decide) -> None:
        """Apply the merge patch that `decide` returns for the settings that the file makes now.

        The next `current()` of the live settings returns the result. Raises WrongSettings for a value that is not
        accepted, Conflict where a flag or the environment sets the key or the file is broken, SettingsNotSaved where
        the file cannot be written, and what `decide` raises; nothing has changed then.
        """
        with self._lock:
            for _ in range(ATTEMPTS):
                content = self._read()
                if self._change(content, decide):
                    return
        raise Conflict(
            f"{self._live.path} is being changed by another program. Try again.", code="settings_file_changing"
        )

    def _change(self, content: bytes | None, decide: Decide) -> bool:
        """Make the change; return False if another program changed the file meanwhile."""
        in_file, agents = self._parse(content), self._live.shared.known if self._live.shared else None
        data = with_agents(in_file, agents.rows if agents else None)
        now = self._as_it_is(data)
        patch = mark_secrets(decide((now or self._live.last_good).settings))
        new = merged(data, patch, shown_values(now, self._environ) if now else {})
        if is_same(new, data):
            return True
        self._check(patch, data, new, now)
        written, secrets = extract_secrets(new)
        if (shared := self._live.shared) is not None:
            rows = written.get("agents", [])
            if not is_same(rows, data.get("agents", [])) and not shared.save(agents, rows):
                return False
            written = with_agents(written, in_file.get("agents", []))
            if "agents" not in in_file:
                del written["agents"]
        return is_same(written, in_file) or self._replace(content, in_file, written, secrets)

    def _replace(self, content: bytes | None, data: Patch, written: Patch, secrets: Mapping[str, str]) -> bool:
        """Write the file anew; return False if another program changed it meanwhile."""
        text = self._rewritten(content, written)
        if self._read() != content:
            return False
        outdated = self._secrets_of_backup() - {*own_files(data), *own_files(written)}
        self._save(content, text, secrets)
        self._live.look_again()
        self._forget(outdated)
        log.info("Settings changed: %s.", ", ".join(_changed_keys(data, written)))
        return True

    def _read(self) -> bytes | None:
        try:
            return self._live.path.read_bytes()
        except FileNotFoundError:
            if self._live.lost_file:
                raise Conflict(
                    f"{self._live.path} is gone, though settings from it are in force. Put it back, or restart "
                    f"elbowroom to begin anew. What it held before the last change is in {backup_of(self._live.path)}.",
                    code="settings_file_gone",
                ) from None
            return None
        except OSError as error:
            raise not_saved(self._live.path, error) from error

    def _parse(self, content: bytes | None) -> dict[str, Any]:
        try:
            return parse_file(content or b"", self._live.path)
        except SettingsError as error:
            raise Conflict(
                f"{error.message} It is left as it is: mend it in an editor, or move it away.",
                code="settings_file_broken",
            ) from None

    def _as_it_is(self, data: Mapping[str, Any]) -> LoadedSettings | None:
        """Return the settings of the file before the change, None where they are wrong: the change may correct them."""
        try:
            return self._live.would_be(data)
        except SettingsError:
            return None

    def _check(self, patch: Patch, data: Patch, new: Patch, now: LoadedSettings | None) -> None:
        self._check_locks(data, new)
        self._check_names(patch, new)
        if unwritable := [Problem(key, text, text) for key, text in _unwritable(new, ())]:
            raise wrong_settings(unwritable)
        loaded = self._live.would_be(new)
        address = loaded.settings.server.host, loaded.settings.server.port
        before = (now.settings.server.host, now.settings.server.port) if now else self._live.address
        if address != before and (problem := address_problem(*address, self._live.address[1])):
            raise wrong_settings([problem])

    def _check_locks(self, data: Patch, new: Patch) -> None:
        for key, source in self._live.locked.items():
            if not is_same(_at(data, key), _at(new, key)):
                raise Conflict(
                    f"{key_text(key)} is set by the {source}, which counts before the settings file. "
                    "Change it there, or take it away and restart elbowroom.",
                    code="locked",
                    param=key_text(key),
                )

    def _check_names(self, patch: Patch, new: Patch) -> None:
        if unknown := [Problem(key, f"{text}.", f"{text}.") for key, text in unknown_keys(asked_for(patch, new))]:
            raise wrong_settings(unknown)

    def _rewritten(self, content: bytes | None, new: Patch) -> bytes:
        from elbowroom.settings.toml_text import rewritten

        before = content or b""
        try:
            text = rewritten(before.decode("utf-8-sig"), new)
        except ValueError as error:
            raise Conflict(
                f"{self._live.path} is written in a way that cannot be changed from here. Use an editor for that.",
                code="settings_file_unchangeable",
            ) from error
        return (BYTE_ORDER_MARK if before.startswith(BYTE_ORDER_MARK) else b"") + text.encode()

    def _save(self, before: bytes | None, content: bytes, secrets: Mapping[str, str]) -> None:
        written: list[Path] = []
        try:
            for name, secret in secrets.items():
                written.append(self._secret_file(name))
                write_private(written[-1], f"{secret}\n".encode())
            replace_file(self._live.path, content, before)
        except BaseException:
            for path in written:
                path.unlink(missing_ok=True)
            raise

    def _secrets_of_backup(self) -> set[str]:
        """Return the secret files that the backup refers to, which the next save replaces."""
        try:
            return {*own_files(parse_file(backup_of(self._live.path).read_bytes(), self._live.path))}
        except (OSError, SettingsError):
            return set()

    def _forget(self, secrets: Iterable[str]) -> None:
        for name in secrets:
            try:
                self._secret_file(name).unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s cannot be deleted: %s.", self._secret_file(name), error.strerror)

    def _secret_file(self, name: str) -> Path:
        return self._live.path.parent / FOLDER / name


def _at(data: Any, key: Key) -> Any:
    for part in key:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _changed_keys(before: Any, now: Any, key: Key = ()) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*before, *now]):
            if not is_same(before.get(name), now.get(name)):
                yield from _changed_keys(before.get(name), now.get(name), (*key, name))
    else:
        yield key_text(key)


def _unwritable(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    """Yield the key of each value that TOML cannot express, with a sentence."""
    if isinstance(value, dict):
        for name, item in value.items():
            if not _is_unicode(name):
                yield key, f"{key_text(key)} has a key that is not valid Unicode."
            else:
                yield from _unwritable(item, (*key, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unwritable(item, (*key, index))
    elif value is None:
        yield key, f"{key_text(key)} = null is not accepted; leave it out."
    elif isinstance(value, str) and not _is_unicode(value):
        yield key, f"{key_text(key)} is not valid Unicode."


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def add_agent(changer: SettingsChanger, agent: Mapping[str, Any]) -> str:
    """Add an agent and return its id.

    Raises Conflict where the id is taken, and the errors of `SettingsChanger.change`, with paths relative to the agent.
    """
    agent_id = _checked_id(agent.get("id"))

    def decide(settings: Settings) -> tuple[int, Patch]:
        if any(other.id == agent_id for other in settings.agents):
            raise Conflict(f"There is an agent {agent_id!r} already.", code="agent_exists", param="id")
        return len(settings.agents), agent

    _change_row(changer, agent_id, decide)
    return agent_id


def change_agent(changer: SettingsChanger, agent_id: str, patch: Mapping[str, Any]) -> str:
    """Merge a patch into an agent and return its id, which the patch may change.

    Raises NotFound, and the errors of `SettingsChanger.change`, with paths relative to the agent.
    """
    _change_row(changer, agent_id, lambda settings: (_place_of(settings, agent_id), patch))
    return _checked_id(patch.get("id", agent_id))


def remove_agent(changer: SettingsChanger, agent_id: str) -> None:
    """Remove an agent.

    Raises NotFound, Conflict where other settings refer to the agent, and the errors of `SettingsChanger.change`.
    """

    def decide(settings: Settings) -> tuple[int, None]:
        place = _place_of(settings, agent_id)
        if users := list(users_of(settings, agent_id)):
            raise Conflict(
                f"The agent {agent_id!r} is needed by {' and '.join(users)}. Choose another one there first.",
                code="agent_in_use",
                param="id",
            )
        return place, None

    _change_row(changer, agent_id, decide)


def users_of(settings: Settings, agent_id: str) -> Iterator[str]:
    """Yield each setting that refers to an agent, in words."""
    for key, pruning_agent in pruning_agents(settings):
        if pruning_agent == agent_id:
            yield key_text(key)
    for agent in settings.agents:
        for field, named in (("agent_tools", agent.agent_tools), ("handoffs", agent.handoffs)):
            if agent_id in named:
                yield f"{field} of the agent {agent.id!r}"


def _change_row(
    changer: SettingsChanger, agent_id: str, decide: Callable[[Settings], tuple[int, Patch | None]]
) -> None:
    """Change one agent's row; `decide` returns its index and the change."""
    place = 0

    def patch_of(settings: Settings) -> Patch:
        nonlocal place
        place, change = decide(settings)
        return {"agents": {agent_id: change}}

    try:
        changer.change(patch_of)
    except WrongSettings as error:
        raise _seen_from(f"agents[{place}].", error) from None


def _seen_from(row: str, error: WrongSettings) -> WrongSettings:
    fields = [(path.removeprefix(row), text.replace(row, "")) for path, text in error.fields]
    return WrongSettings("\n".join(text for _, text in fields), fields)


def _place_of(settings: Settings, agent_id: str) -> int:
    for place, agent in enumerate(settings.agents):
        if agent.id == agent_id:
            return place
    raise NotFound(f"There is no agent {agent_id!r} in the settings.", code="agent_not_found")


def _checked_id(value: Any) -> str:
    if value is None:
        raise WrongSettings("id is missing.", [("id", "id is missing.")])
    if not isinstance(value, str) or not ID_FORM.fullmatch(value):
        message = f"id = {value!r} is not accepted; it takes {ID_TAKES}."
        raise WrongSettings(message, [("id", message)])
    return value
