"""Who may reach the server: loopback only, or a token; and the secrets behind the settings."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from elbowroom.errors import SettingsError
from elbowroom.settings.keys import Key, key_text
from elbowroom.settings.model import Settings
from elbowroom.settings.problems import Problem, wrong_settings
from elbowroom.settings.secrets import SecretRef

NEW_TOKEN = "python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"  # noqa: S105  # a command, not a token
SECRET_WORDS = re.compile(r"key|token|secret|passw|auth|credential", re.IGNORECASE)
HOST_KEY: Key = ("server", "host")
TOKEN_KEY: Key = ("server", "token")


def is_loopback(host: str) -> bool:
    """Tell whether only programs on this machine can reach this address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secrets_of(settings: Settings) -> dict[Key, SecretRef]:
    """Return every secret of the settings by its key."""
    keys = {("providers", index, "api_key"): provider.api_key for index, provider in enumerate(settings.providers)}
    return (
        {TOKEN_KEY: settings.server.token}
        | {key: secret for key, secret in keys.items() if secret is not None}
        | {
            ("mcp_servers", index, field, name): secret
            for index, server in enumerate(settings.mcp_servers)
            for field, secrets in (("env", server.env), ("headers", server.headers))
            for name, secret in secrets.items()
        }
    )


def check_access(settings: Settings, sources: Mapping[Key, str], folder: Path, environ: Mapping[str, str]) -> None:
    """Refuse settings whose secrets cannot be read, or that open the server to a network without a token.

    Raises WrongSettings that says how to mend it.
    """
    token = None
    for key, secret in secrets_of(settings).items():
        try:
            value = secret.reveal(folder, environ)
        except SettingsError as error:
            message = f"{key_text(key)} = {secret} is not accepted: {error}"
            raise wrong_settings([Problem(key, message, f"{sources.get(key, 'default')}: {message}")]) from error
        if key == TOKEN_KEY:
            token = value
    if token is None and (source := sources.get(TOKEN_KEY)):
        message = (
            f"server.token = {settings.server.token} names a variable that is not set. Set it, or remove the line."
        )
        raise wrong_settings([Problem(TOKEN_KEY, message, f"{source}: {message}")])
    if token is None and not is_loopback(settings.server.host):
        needed = f"listening on {settings.server.host} lets other machines in, so it needs a token."
        raise wrong_settings(
            [
                Problem(
                    HOST_KEY,
                    f"{needed[0].upper()}{needed[1:]} Give server.token a value first, or together with this.",
                    f"{sources.get(HOST_KEY, 'server.host')}: {needed} Set one and start again:\n"
                    f'  export ELBOWROOM_TOKEN="$({NEW_TOKEN})"',
                )
            ]
        )


def doubtful_secrets(
    settings: Settings, sources: Mapping[Key, str], folder: Path, environ: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each secret that stands in the file itself, or in a variable that is not set.

    A variable for an MCP server may be no secret: one that stands in the file is told where its name sounds like one.
    """
    for key, secret in secrets_of(settings).items():
        source = sources.get(key)
        if source is None:
            continue
        if secret.is_literal and _sounds_secret(key) and not source.startswith("environment"):
            yield f"{source}: {key_text(key)} holds the secret itself; env:NAME or file:PATH keeps it elsewhere."
        if secret.reveal(folder, environ) is None:
            without = "it is left out" if key[0] == "mcp_servers" else "no key is sent"
            yield f"{source}: {key_text(key)} = {secret} names a variable that is not set; {without}."


def _sounds_secret(key: Key) -> bool:
    is_variable = key[0] == "mcp_servers" and key[2] == "env"
    return not is_variable or SECRET_WORDS.search(str(key[-1])) is not None
