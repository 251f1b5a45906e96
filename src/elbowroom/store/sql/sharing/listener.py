"""Connections of their own: on one a server says that it is there and hears of the others, on others it has locks."""

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Final

from sqlalchemy import Connection, Engine

from elbowroom.store.base import StoreUnavailable, passed
from elbowroom.store.place import ServerPlace
from elbowroom.store.sql.dialect import create_engines, plain_errors
from elbowroom.store.sql.sharing.servers import CHANNEL, LEASE_SECONDS, renewing

log = logging.getLogger(__name__)
RENEWED_SECONDS: Final = 0.3 * LEASE_SECONDS
"""How often a server says that it is there."""
HEARD_SECONDS: Final = 0.5
"""How long it listens before it looks whether it is to renew."""
AGAIN_SECONDS: Final = 0.05
"""How long it waits before it connects again; where that fails, twice as long each time."""
LONGEST_SECONDS: Final = 1.0


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
        since = connection.scalar(renewing(self._server))
        if self._renewed and (since is None or since > LEASE_SECONDS):
            self._lapsed()
        self._renewed = began
