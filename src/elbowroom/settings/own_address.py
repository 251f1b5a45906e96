"""Under which address programs of this machine reach a server that listens on a host and port."""

from collections.abc import Mapping
from typing import Final

EVERYWHERE: Final[Mapping[str, str]] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # read, not bound to


def reached_host(host: str) -> str:
    """Return the host to connect to: that of this machine itself where a server listens everywhere."""
    return EVERYWHERE.get(host, host)


def own_address(host: str, port: int) -> str:
    """Return the address as people write it, such as `http://127.0.0.1:2345`."""
    host = reached_host(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
