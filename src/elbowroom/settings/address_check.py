"""Tries out an address to listen on, before the settings name it."""

import errno
import os
import socket
from typing import Any, Final

from elbowroom.settings.keys import Key
from elbowroom.settings.problems import Problem

HOST: Final[Key] = ("server", "host")
PORT: Final[Key] = ("server", "port")


def address_problem(host: str, port: int, own_port: int) -> Problem | None:
    """Return why nothing could listen on an address, None where it can be bound.

    `own_port` is the one that this server listens on itself: it is free once that has ended, so that only the host is
    tried out for it.
    """
    tried = 0 if port == own_port else port
    try:
        found = socket.getaddrinfo(host, tried, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            try_bind(family, kind, protocol, address)
    except (OSError, UnicodeError) as error:  # a name with a part too long for the DNS is a UnicodeError
        return _problem(error, host, port)
    return None


def try_bind(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> None:
    """Bind an address that `getaddrinfo` found as the server would, and let it go again. Raises OSError."""
    with socket.socket(family, kind, protocol) as listener:
        if os.name == "posix":  # as the server itself will do; on Windows it would take the place of another program
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)


def _problem(error: OSError | UnicodeError, host: str, port: int) -> Problem:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        key, said = PORT, f"port {port} on {host} is in use by another program; choose another one."
    elif number in (errno.EACCES, errno.EPERM):
        key, said = PORT, f"elbowroom may not listen on port {port}; choose one above 1023."
    else:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        key, said = HOST, f"{host!r} is not an address of this machine ({reason})."
    message = f"{'.'.join(map(str, key))}: {said}"
    return Problem(key, message, message)
