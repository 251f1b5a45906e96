"""The programs that are paired, each with a token of its own, of which a hash is kept and nothing else."""

import asyncio
import contextlib
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from elbowroom.errors import Conflict, SettingsNotSaved
from elbowroom.settings.files import not_saved, put_in_place, sync_folder, write_new

log = logging.getLogger(__name__)
FILE_NAME: Final = "paired.json"
TOKENS_BEGIN: Final = "elbp_"
"""How every token of a paired program begins."""
TOKEN_BYTES: Final = 32
ID_BYTES: Final = 8
MOST_DEVICES: Final = 50
MOST_COPIES: Final = 9
"""How many files that could not be understood are kept beside the one that took their place."""
WRITTEN_AGAIN_SECONDS: Final = 3600.0
"""How much later a use is than the one in the file when the file is written again."""


class Device(msgspec.Struct, frozen=True):
    """A paired program; times are Unix seconds, `token_hash` is the SHA-256 of its token in hexadecimal."""

    id: str
    name: str
    token_hash: str
    created: float
    last_used: float | None = None


_DECODER: Final = msgspec.json.Decoder(list[Device])


class PairedDevices:
    """All of them, in a file that its owner alone can read; without a `path` they last as long as the process.

    Where the file cannot be read the log says so, and no program is paired.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._devices = {device.token_hash: device for device in self._read()}
        self._written = {device.id: device.last_used or 0.0 for device in self._devices.values()}
        self._lock = threading.Lock()
        self._saving: asyncio.Task[None] | None = None
        self._requests: dict[str, set[asyncio.Task[object]]] = {}

    def listed(self) -> list[Device]:
        """Return them, the one paired last first."""
        return sorted([*self._devices.values()], key=lambda device: device.created, reverse=True)

    def using(self, token: str) -> Device | None:
        """Return the program that has this token and take note that it was used; None where there is none."""
        token_hash = _hash(token)
        device = self._devices.get(token_hash)
        if device is None:
            return None
        self._devices[token_hash] = used = msgspec.structs.replace(device, last_used=self._clock())
        if self._is_due(used) and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save_uses())
        return used

    @contextlib.contextmanager
    def asking(self, device: Device) -> Iterator[None]:
        """Run a request of a program in the current task, which is cancelled when its token is revoked."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a handler runs in a task
        requests = self._requests.setdefault(device.id, set())
        requests.add(task)
        try:
            yield
        finally:
            requests.discard(task)
            if not requests:
                self._requests.pop(device.id, None)

    async def add(self, name: str) -> tuple[Device, str]:
        """Pair a program and return it with its token. Raises Conflict where there are too many, SettingsNotSaved."""
        if len(self._devices) >= MOST_DEVICES:
            raise Conflict(
                f"{MOST_DEVICES} programs are paired already. Revoke those that are not used any more, on elbowroom's "
                "page under Connect.",
                code="too_many_paired",
            )
        token = TOKENS_BEGIN + secrets.token_urlsafe(TOKEN_BYTES)
        device = Device(secrets.token_hex(ID_BYTES), name, _hash(token), self._clock())
        self._devices[device.token_hash] = device
        try:
            await self._save()
        except SettingsNotSaved:
            self._devices.pop(device.token_hash, None)
            raise
        return device, token

    async def remove(self, device_id: str) -> bool:
        """Revoke a program's token, and end what it asks for now; tell whether there was such a program.

        Raises SettingsNotSaved.
        """
        for device in [device for device in self._devices.values() if device.id == device_id]:
            del self._devices[device.token_hash]
            try:
                await self._save()
            except SettingsNotSaved:
                self._devices[device.token_hash] = device
                raise
            for request in tuple(self._requests.get(device_id, ())):
                request.cancel()
            return True
        return False

    async def aclose(self) -> None:
        """Write down when each was used last."""
        if any((device.last_used or 0.0) != self._written.get(device.id) for device in self._devices.values()):
            await self._save_uses()

    def _is_due(self, device: Device) -> bool:
        return (device.last_used or 0.0) - self._written.get(device.id, 0.0) > WRITTEN_AGAIN_SECONDS

    async def _save_uses(self) -> None:
        try:
            await self._save()
        except SettingsNotSaved as error:
            log.warning("When paired programs were used last is not kept: %s", error.message)

    async def _save(self) -> None:
        """Write the file in a thread, which goes on when whoever waits for it leaves. Raises SettingsNotSaved."""
        self._written = {device.id: device.last_used or 0.0 for device in self._devices.values()}
        if self._path is not None:
            await asyncio.to_thread(self._write, self._path)

    def _write(self, path: Path) -> None:
        with self._lock:
            _replace(path, msgspec.json.format(msgspec.json.encode(self.listed())))

    def _read(self) -> list[Device]:
        if self._path is None or not self._path.exists():
            return []
        try:
            return _DECODER.decode(self._path.read_bytes())
        except (OSError, ValueError) as error:
            kept = _set_aside(self._path)
            log.warning(
                "The programs that are paired cannot be read from %s: %s. Pair them anew; %s.", self._path, error, kept
            )
            return []


def _set_aside(path: Path) -> str:
    """Keep a copy of a file that cannot be understood, before another one takes its place; say where it is."""
    try:
        content = path.read_bytes()
        for number in range(1, MOST_COPIES + 1):
            copy = path.with_name(f"{path.name}.damaged-{number}")
            if not copy.exists():
                write_new(copy, content)
            if copy.read_bytes() == content:
                return f"it is kept as {copy.name}"
    except OSError as error:
        return f"it cannot be copied ({error.strerror or error})"
    return "the copies that are beside it are those of earlier ones"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _replace(path: Path, content: bytes) -> None:
    """Replace the file, or create it, readable by its owner alone. Raises SettingsNotSaved."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put_in_place(path, content, lambda _: None)
    except OSError as error:
        raise not_saved(path, error) from error
    with contextlib.suppress(OSError):  # the file is replaced in any case
        sync_folder(path.parent)
