"""Tells systemd how far the server is, by its protocol for services of `Type=notify`."""

import logging
import socket
from collections.abc import Mapping
from typing import Final, Literal

log = logging.getLogger(__name__)
NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
Notice = Literal["READY=1", "STOPPING=1"]


def tell_service_manager(notice: Notice, environ: Mapping[str, str]) -> None:
    """Send a notice to the socket that the environment names; where it names none, nobody waits for it."""
    address = environ.get(NOTIFY_SOCKET, "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):  # a name without a file
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.connect(address)
            connection.sendall(notice.encode())
    except OSError as error:
        log.warning("The service manager cannot be told %s: %s", notice, error)
