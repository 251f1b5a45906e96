"""Who may reach the server: loopback only, or a token, and the secrets behind the settings."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path

from elbowroom.errors import SettingsError
from elbowroom.settings.model import Settings

NEW_TOKEN = "python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"  # noqa: S105  # a command, not a token


def is_loopback(host: str) -> bool:
    """Tell whether only programs on this machine can reach this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_access(
    settings: Settings, sources: Mapping[tuple[str | int, ...], str], folder: Path, environ: Mapping[str, str]
) -> None:
    """Refuse settings whose secrets cannot be read, or that open the server to a network without a token.

    Raises SettingsError that says how to mend it.
    """
    token = settings.server.token.reveal(folder, environ)
    source = sources.get(("server", "token"))
    if token is None and source is not None:
        raise SettingsError(
            f"{source}: server.token = {settings.server.token} names a variable that is not set. "
            "Set it, or remove the line."
        )
    if token is None and not is_loopback(settings.server.host):
        raise SettingsError(
            f"{sources.get(('server', 'host'), 'server.host')}: listening on {settings.server.host} lets other "
            "machines in, so it needs a token. Set one and start again:\n"
            f'  export ELBOWROOM_TOKEN="$({NEW_TOKEN})"'
        )
    for provider in settings.providers:
        if provider.api_key is not None:
            provider.api_key.reveal(folder, environ)
