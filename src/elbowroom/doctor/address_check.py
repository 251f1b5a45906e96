"""Checks of where elbowroom listens: the port is free or its own, and clients can get there."""

import errno
import os
import socket
import sys
from collections.abc import Mapping
from typing import Final

from elbowroom.doctor.data_check import lock_is_held
from elbowroom.doctor.fetch import Answer, fetch
from elbowroom.doctor.finding import Finding
from elbowroom.doctor.patient_thread import in_thread
from elbowroom.doctor.subject import Subject
from elbowroom.settings.access import is_loopback
from elbowroom.settings.address_check import try_bind
from elbowroom.settings.model import ServerSettings
from elbowroom.settings.own_address import own_address

PORT: Final = "port"
CLIENTS: Final = "clients"
IN_USE: Final = "the port is in use"
CONTAINER_MARKS: Final = ("/var/run/docker.sock", "/run/podman/podman.sock", "/.dockerenv")


async def check_port(subject: Subject) -> list[Finding]:
    """Return what is wrong with the address that elbowroom listens on."""
    server = subject.loaded.settings.server
    if server.port == 0:
        return [Finding("ok", PORT, "server.port = 0: each start takes another free port.")]
    held = await lock_is_held(subject)
    cannot_bind = await in_thread(lambda: _cannot_bind(server))
    answer = await fetch(subject.http, f"{_address(server)}/health")
    return of_port(server, answer, cannot_bind=cannot_bind, held=held)


def of_port(server: ServerSettings, answer: Answer, *, cannot_bind: str, held: bool) -> list[Finding]:
    """Judge the port by what `/health` answers there, and why nothing new can listen there.

    `held` says that a server has the data folder.
    """
    where = f"server.host = {server.host!r}, server.port = {server.port}"
    if answer.table.get("status") in ("ok", "stopping") and isinstance(answer.table.get("providers"), list):
        return [Finding("ok", PORT, f"elbowroom {answer.table.get('version')} is running at {_address(server)}.")]
    if cannot_bind == IN_USE or answer.trouble in ("", "no http"):
        what = f"Another program listens on port {server.port}."
        other = server.port + 1 if server.port < 65535 else server.port - 1
        remedy = f"Stop that program, or choose another port: server.port = {other}, and the same port in your clients."
        return [Finding("fail", PORT, what, where, remedy)]
    if cannot_bind:
        what = f"Nothing can listen there: {cannot_bind}."
        remedy = "Set server.host to an address of this machine (127.0.0.1 for itself alone), and a port above 1023."
        return [Finding("fail", PORT, what, where, remedy)]
    if held:
        what = f"An elbowroom is running with this data folder, but it does not listen on port {server.port}."
        remedy = "It was started with another --port or other settings: stop it, or use its address in your clients."
        return [Finding("warn", PORT, what, where, remedy)]
    return [Finding("ok", PORT, f"Port {server.port} is free; elbowroom is not running.")]


async def check_clients(subject: Subject) -> list[Finding]:
    """Return what keeps clients from reaching elbowroom."""
    server = subject.loaded.settings.server
    has_token = server.token.reveal(subject.loaded.folder, subject.environ) is not None
    findings = [*of_hosts(server), *of_origins(server)]
    if findings:
        return findings
    has_container = sys.platform == "linux" and await in_thread(_has_containers)
    return [Finding("ok", CLIENTS, *_reach(server, has_token=has_token, has_container=has_container))]


def of_hosts(server: ServerSettings) -> list[Finding]:
    """Judge `allowed_hosts`: names that no Host header ever has, and names of a server that only listens here."""
    findings = []
    for host in server.allowed_hosts:
        if "/" in host or "@" in host or not host.strip():
            bare = host.rpartition("//")[2].partition("/")[0]
            what = f"server.allowed_hosts has {host!r}, which no Host header is ever like."
            findings.append(Finding("warn", CLIENTS, what, "server.allowed_hosts", f"Write the bare name: {bare!r}."))
    if not is_loopback(server.host):
        return findings
    if foreign := [
        host for host in server.allowed_hosts if not is_loopback(_name(host).strip("[]")) and "/" not in host
    ]:
        what = (
            f"Clients are expected under {', '.join(map(repr, foreign))}, but elbowroom listens on {server.host} only: "
            "containers such as Open WebUI's, and other machines, cannot reach it, unless a proxy on this machine "
            "passes their requests on."
        )
        remedy = (
            'Set a token (export ELBOWROOM_TOKEN="...") and start with --host 0.0.0.0; in Open WebUI\'s container the '
            f"address is then http://host.docker.internal:{server.port}/v1, with the token as its API key."
        )
        findings.append(Finding("warn", CLIENTS, what, "server.host", remedy))
    return findings


def of_origins(server: ServerSettings) -> list[Finding]:
    """Judge `allowed_origins`: what no Origin header is like, and what lets every web page in."""
    findings = []
    for origin in server.allowed_origins:
        if origin == "*":
            what = "server.allowed_origins = '*' lets every web page that you open use your models and conversations."
            remedy = "Name the pages that may, such as 'https://chat.example.org'."
        elif "://" not in origin or origin.rstrip("/").count("/") > 2 or origin.endswith("/"):
            what = f"server.allowed_origins has {origin!r}, which no Origin header is ever like."
            remedy = "Write scheme, name and port without anything behind them, such as 'http://192.168.1.5:8080'."
        else:
            continue
        findings.append(Finding("warn", CLIENTS, what, "server.allowed_origins", remedy))
    return findings


def _reach(server: ServerSettings, *, has_token: bool, has_container: bool) -> tuple[str, str, str]:
    if not is_loopback(server.host):
        return f"Other machines reach elbowroom with the token at port {server.port}.", "", ""
    what = f"Programs on this machine reach elbowroom at {_address(server)}/v1."
    if not has_container:
        return what, "", ""
    hint = (
        "Open WebUI in a container does not reach that: for it start with --host 0.0.0.0"
        f"{'' if has_token else ' and a token in ELBOWROOM_TOKEN'}."
    )
    return what, "", hint


def _has_containers() -> bool:
    """Tell whether containers can be run on this machine, or this is one."""
    return any(os.path.exists(path) for path in CONTAINER_MARKS)


def _cannot_bind(server: ServerSettings) -> str:
    """Return why nothing can listen at the address, empty where something can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)[0]
        try_bind(family, kind, protocol, address)
    except OSError as error:
        known: Mapping[int, str] = {
            errno.EADDRINUSE: IN_USE,
            errno.EADDRNOTAVAIL: f"{server.host} is no address of this machine",
            errno.EACCES: f"the system keeps port {server.port} for its administrator",
        }
        return known.get(error.errno or 0, str(error.strerror or error))
    except UnicodeError as error:
        return str(error)
    return ""


def _name(host: str) -> str:
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host


def _address(server: ServerSettings) -> str:
    return own_address(server.host, server.port)
