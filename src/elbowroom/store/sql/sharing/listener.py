"""Connections of their own: on one a server says that it is there and hears of the others, on others it has locks."""

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, select

from elbowroom.store.base import StoreUnavailable
from elbowroom.store.place import ServerPlace
from elbowroom.store.sql.dialect import create_engines, plain_errors
from elbowroom.store.sql.sharing.servers import CHANNEL, LEASE_SECONDS, renewing, since_renewal

log = logging.getLogger(__name__)
RENEWED_SECONDS: Final = 0.3 * LEASE_SECONDS
"""How often a server says that it is there."""
HEARD_SECONDS: Final = 0.5
"""How long it listens before it looks whether it is to renew."""
NAMED_LOCKS: Final = 0x656C626E
"""With a hash of the name, the advisory lock of that name."""
AGAIN_SECONDS: Final = 0.05
"""How long it waits before it connects again; where that fails, twice as long each time."""
LONGEST_SECONDS: Final = 1.0


def passed() -> float:
    """Return the seconds of a clock that nobody sets, which goes on while the machine sleeps where that can be had."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Listener:
    """Listens in a thread, which connects anew whenever its connection is lost.

    `wanted` is called in that thread when the server has something to read, and `lapsed` when others may have taken it
    for dead since it last said that it is there. While `is_listening`, others know of it and it hears of them.
    """

    def __init__(
        self, place: ServerPlace, server: str, wanted: Callable[[], object], lapsed: Callable[[], object]
    ) -> None:
        self._place = place
        self._server = server
        self._wanted = wanted
        self._lapsed = lapsed
        self._is_over = threading.Event()
        self._ending, self._ended = socket.socketpair()
        self._renewed = 0.0
        self.is_listening = False
        self._thread = threading.Thread(target=self._run, name="store-listener", daemon=True)

    @property
    def counts_for(self) -> float:
        """Return for how many seconds more others count this server as there; 0 where it has not said so."""
        return max(0.0, self._renewed + LEASE_SECONDS - passed()) if self._renewed else 0.0

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it a moment."""
        self._is_over.set()
        self._ending.close()
        if self._thread.is_alive():
            self._thread.join(2 * HEARD_SECONDS)

    def _run(self) -> None:
        unused, engine = create_engines(self._place, 1)
        unused.dispose()
        has_told, pause = False, AGAIN_SECONDS
        while not self._is_over.is_set():
            try:
                self._listen(engine)
            except StoreUnavailable as error:
                log.log(
                    logging.DEBUG if has_told else logging.WARNING,
                    "This server does not hear of the others at the moment: %s",
                    error,
                )
                pause = AGAIN_SECONDS if self.is_listening else min(LONGEST_SECONDS, 2 * pause)
                has_told, self.is_listening = True, False
                self._is_over.wait(pause)
        with suppress(Exception):  # the process may be ending
            engine.dispose()
        self._ended.close()

    def _listen(self, engine: Engine) -> None:
        with plain_errors(), engine.connect() as plain:
            connection = plain.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            driver: Any = connection.connection.driver_connection
            self._renew(connection)
            self.is_listening = True
            self._wanted()  # something may have come while nobody listened
            with DefaultSelector() as selector:
                for heard in (driver, self._ended):
                    selector.register(heard, EVENT_READ)
                while not self._is_over.is_set():
                    self._renew(connection)
                    if self._server in [told.payload for told in driver.notifies(timeout=0)]:
                        self._wanted()
                    selector.select(HEARD_SECONDS)

    def _renew(self, connection: Connection) -> None:
        if (began := passed()) - self._renewed < RENEWED_SECONDS:
            return
        since = connection.scalar(since_renewal(self._server))
        connection.execute(renewing(self._server))
        if self._renewed and (since is None or since > LEASE_SECONDS):
            self._lapsed()
        self._renewed = began


class NamedLock:
    """An advisory lock of a session, on a connection of its own: whoever dies has it no more."""

    def __init__(self, place: ServerPlace, name: str) -> None:
        self._place = place
        self._name = name
        self._engine: Engine | None = None
        self._connection: Connection | None = None

    def is_taken(self) -> bool:
        """Take the lock if nobody has it; tell whether it is taken. Raises StoreUnavailable."""
        with plain_errors():
            if self._engine is None:
                unused, self._engine = create_engines(self._place, 1)
                unused.dispose()
                self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            assert self._connection is not None  # noqa: S101  # both are made together
            asked = select(func.pg_try_advisory_lock(NAMED_LOCKS, func.hashtext(self._name)))
            return bool(self._connection.scalar(asked))

    def close(self) -> None:
        """Give the lock back."""
        if self._engine is not None:
            with suppress(Exception):  # a connection that is lost has no lock
                if self._connection is not None:
                    self._connection.close()
            self._engine.dispose()
