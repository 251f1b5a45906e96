"""Checks of settings that are valid by themselves: access without a token, secrets, addresses, programs, folders.

What cannot work is refused; what may surprise becomes a sentence for the person.
"""

import errno
import ipaddress
import json
import os
import re
import shutil
import socket
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from elbowroom.elsewhere import NotAnswering, glance
from elbowroom.errors import SettingsError
from elbowroom.settings.fields import SecretRef, expanded
from elbowroom.settings.keys import Key, Problem, key_text
from elbowroom.settings.model import McpServerSettings, Settings

NEW_TOKEN = "python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"  # noqa: S105  # a command, not a token
SECRET_WORDS = re.compile(r"key|token|secret|passw|auth|credential", re.IGNORECASE)
HOST_KEY: Key = ("server", "host")
TOKEN_KEY: Key = ("server", "token")
SIGNING_KEY: Key = ("server", "open_webui_secret")
PORT_KEY: Key = ("server", "port")
EVERYWHERE: Final[Mapping[str, str]] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # read, not bound to


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
    keys: dict[Key, SecretRef | None] = {SIGNING_KEY: settings.server.open_webui_secret}
    keys |= {("providers", index, "api_key"): provider.api_key for index, provider in enumerate(settings.providers)}
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


def access_problems(
    settings: Settings, sources: Mapping[Key, str], folder: Path, environ: Mapping[str, str]
) -> list[Problem]:
    """Return why secrets cannot be read, and that the server is open to a network without a token."""
    unreadable = [*_unreadable_secrets(settings, sources, folder, environ)]
    if any(problem.key == TOKEN_KEY for problem in unreadable) or settings.server.token.reveal(folder, environ):
        return unreadable
    return [*unreadable, *_missing_token(settings, sources)]


def _unreadable_secrets(
    settings: Settings, sources: Mapping[Key, str], folder: Path, environ: Mapping[str, str]
) -> Iterator[Problem]:
    for key, secret in secrets_of(settings).items():
        try:
            value = secret.reveal(folder, environ)
        except SettingsError as error:
            message = f"{key_text(key)} = {secret} is not accepted: {error}"
            yield Problem(key, message, f"{sources.get(key, 'default')}: {message}")
            continue
        if value is None and key in (TOKEN_KEY, SIGNING_KEY) and (source := sources.get(key)):
            message = f"{key_text(key)} = {secret} names a variable that is not set. Set it, or remove the line."
            yield Problem(key, message, f"{source}: {message}")


def _missing_token(settings: Settings, sources: Mapping[Key, str]) -> Iterator[Problem]:
    if not is_loopback(settings.server.host):
        needed = f"listening on {settings.server.host} lets other machines in, so it needs a token."
        yield Problem(
            HOST_KEY,
            f"{needed[0].upper()}{needed[1:]} Give server.token a value first, or together with this.",
            f"{sources.get(HOST_KEY, 'server.host')}: {needed} Set one and start again:\n"
            f'  export ELBOWROOM_TOKEN="$({NEW_TOKEN})"',
        )


def doubtful_secrets(
    settings: Settings, sources: Mapping[Key, str], folder: Path, environ: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each secret that stands in the file itself, or in a variable that is not set."""
    for key, secret in secrets_of(settings).items():
        source = sources.get(key)
        if source is None:
            continue
        if secret.is_literal and sounds_secret(key) and not source.startswith("environment"):
            yield f"{source}: {key_text(key)} holds the secret itself; env:NAME or file:PATH keeps it elsewhere."
        if secret.reveal(folder, environ) is None:
            without = "it is left out" if key[0] == "mcp_servers" else "no key is sent"
            yield f"{source}: {key_text(key)} = {secret} names a variable that is not set; {without}."


def sounds_secret(key: Key) -> bool:
    """Tell whether a key holds a secret: a variable of an MCP server may be a folder or a switch, as its name tells."""
    is_variable = key[0] == "mcp_servers" and key[2] == "env"
    return not is_variable or SECRET_WORDS.search(str(key[-1])) is not None


def address_problem(host: str, port: int, own_port: int) -> Problem | None:
    """Return why no server could listen on an address, None where it can be bound.

    `own_port` is the port of this server, which is free after a restart: only the host is tried for it.
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
    """Bind an address from `getaddrinfo` as the server would, and release it. Raises OSError."""
    with socket.socket(family, kind, protocol) as listener:
        if os.name == "posix":  # as the server itself will do; on Windows it would take the place of another program
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)


def _problem(error: OSError | UnicodeError, host: str, port: int) -> Problem:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        key, said = PORT_KEY, f"port {port} on {host} is in use by another program; choose another one."
    elif number in (errno.EACCES, errno.EPERM):
        key, said = PORT_KEY, f"elbowroom may not listen on port {port}; choose one above 1023."
    else:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        key, said = HOST_KEY, f"{host!r} is not an address of this machine ({reason})."
    message = f"{'.'.join(map(str, key))}: {said}"
    return Problem(key, message, message)


def doubtful_servers(settings: Settings, folder: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each MCP program that is not found, and each disabled MCP server that an agent names.

    `folder` is the folder of the settings file.
    """
    for index, server in enumerate(settings.mcp_servers):
        if server.enabled and server.command and not _is_found(server, folder, environ):
            words = server.command[0].split() if len(server.command) == 1 else ()
            apart = f" Write each argument by itself: {json.dumps(words)}." if len(words) > 1 else ""
            yield (
                f"mcp_servers[{index}].command: the program {server.command[0]!r} is not found; "
                f"the tools of {server.name!r} are missing until it is.{apart}"
            )
    disabled = {server.name for server in settings.mcp_servers if not server.enabled}
    for index, agent in enumerate(settings.agents):
        for name in dict.fromkeys(name.partition("/")[0] for name in agent.mcp if agent.enabled):
            if name in disabled:
                yield (
                    f"agents[{index}].mcp: the MCP server {name!r} is not enabled; {agent.id!r} goes without its tools."
                )


def _is_found(server: McpServerSettings, folder: Path, environ: Mapping[str, str]) -> bool:
    program = os.path.expanduser(server.command[0])
    if os.path.dirname(program):
        start = folder / os.path.expanduser(server.cwd) if server.cwd else ""
        return shutil.which(os.path.join(start, program)) is not None
    path = environ.get("PATH")
    return path is None or shutil.which(program, path=path) is not None


def missing_folders(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each folder that the settings name and that is missing: the vault, or folders in it."""
    if not settings.vault.path:
        return
    root = expanded(settings.vault.path)
    try:
        yield from glance(root, lambda: list(_missing_in(root, settings)))
    except NotAnswering:
        yield f"vault.path: {settings.vault.path} does not answer; agents cannot use their vault tools until it does."


def _missing_in(root: Path, settings: Settings) -> Iterator[str]:
    if not os.path.isdir(root):
        yield f"vault.path: there is no folder {settings.vault.path}; agents cannot use their vault tools."
        return
    named = {"vault": settings.vault} | {f"agents[{n}].vault": agent.vault for n, agent in enumerate(settings.agents)}
    for key, section in named.items():
        for field, folders in (("include", section.include), ("exclude", section.exclude)):
            for folder in folders:
                if not _is_there(root, folder):
                    yield f"{key}.{field}: there is no folder {folder!r} in the vault."


def _is_there(root: Path, folder: str) -> bool:
    """Tell whether the vault has this folder, whatever the case of its letters."""
    here = [root]
    for name in folder.split("/"):
        here = [found for parent in here for found in _folders_in(parent) if folded(found.name) == folded(name)]
    return bool(here)


def _folders_in(parent: Path) -> list[Path]:
    try:
        return [path for path in parent.iterdir() if path.is_dir()]
    except OSError:
        return []


def folded(name: str) -> str:
    """Return a name as folders compare it that tell no capitals from small letters."""
    return unicodedata.normalize("NFC", name).casefold()


def reached_host(host: str) -> str:
    """Return the host to connect to: loopback where a server listens on all addresses."""
    return EVERYWHERE.get(host, host)


def own_address(host: str, port: int) -> str:
    """Return the address as people write it, such as `http://127.0.0.1:2345`."""
    host = reached_host(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
