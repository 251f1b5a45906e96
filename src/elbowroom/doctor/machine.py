"""Checks of the machine: proxies, the clock, the settings file, the data folder, the port, and access for clients."""

import errno
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from elbowroom.doctor.subject import Answer, Finding, Subject, fetch, in_thread
from elbowroom.errors import SettingsError
from elbowroom.settings.doubts import doubtful_servers, is_loopback, missing_folders, own_address, try_bind
from elbowroom.settings.fields import data_dir
from elbowroom.settings.load import LoadedSettings
from elbowroom.settings.model import ServerSettings
from elbowroom.settings.shared import AGENTS_ELSEWHERE
from elbowroom.store import ServerPlace, database_path, is_in_use, store_place
from elbowroom.store.inspection import Inspection, inspect_file, inspect_server

PROXIES: Final = ("http_proxy", "all_proxy")
LOOPBACK: Final = ("localhost", "127.0.0.1")
EARLIEST: Final = datetime(2026, 6, 1, tzinfo=UTC)
"""The clock is wrong before this date."""
SETTINGS = "settings"
DATA_FOLDER: Final = "data folder"
LEAST_FREE_BYTES: Final = 200_000_000
DATABASE: Final = "database"
CHOOSE: Final = "or choose another one with the environment variable ELBOWROOM_DATA_DIR"
DAY_SECONDS: Final = 86_400.0
PORT: Final = "port"
CLIENTS: Final = "clients"
IN_USE: Final = "the port is in use"
CONTAINER_MARKS: Final = ("/var/run/docker.sock", "/run/podman/podman.sock", "/.dockerenv")


def judge_proxies(environ: Mapping[str, str]) -> list[Finding]:
    """Judge the proxies of the environment, which clients may use; elbowroom uses none."""
    named = {name.lower(): (name, value) for name, value in environ.items() if value}
    proxies = [named[name] for name in PROXIES if name in named]
    except_for = [part.strip().lower() for part in named.get("no_proxy", ("", ""))[1].split(",")]
    if not proxies or "*" in except_for or all(host in except_for for host in LOOPBACK):
        return []
    name, value = proxies[0]
    what = (
        f"{name} is set ({value.rpartition('@')[2]}) and NO_PROXY does not except this machine: OpenAI's clients, curl "
        "and MCP servers send what is meant for 127.0.0.1 to the proxy."
    )
    remedy = "export NO_PROXY=localhost,127.0.0.1,::1 where you start them."
    return [Finding("warn", "proxy", what, f"environment variable {name}", remedy)]


def judge_time(now: float) -> list[Finding]:
    """Judge the clock by itself; `now` is in Unix seconds."""
    if now >= EARLIEST.timestamp():
        return []
    what = f"The clock says {datetime.fromtimestamp(now, UTC):%Y-%m-%d}, which is before elbowroom was written."
    remedy = "Set the clock: certificates fail by it, and conversations are sorted and deleted by it."
    return [Finding("fail", "clock", what, "", remedy)]


def wrong_settings(error: SettingsError, path: str) -> list[Finding]:
    """Return the findings about settings that cannot be used at all."""
    lines = re.sub(r"\n\s+", " ", error.message).splitlines()  # what is indented goes on
    remedy = "Correct it; `elbowroom config check` says whether it is accepted. Most other checks wait for that."
    return [
        Finding("fail", SETTINGS, line.removeprefix(f"{path}: "), path, remedy if line is lines[-1] else "")
        for line in lines
    ]


def slow_settings(path: str) -> list[Finding]:
    """Return the finding about settings that could not be read in time."""
    what = "The settings file, or a folder or secret file that it names, could not be read in time."
    remedy = "A disk or a network share hangs: see whether the settings file and vault.path can be opened at all."
    return [Finding("fail", SETTINGS, what, path, remedy)]


async def check_settings(subject: Subject) -> list[Finding]:
    """Return a finding for each warning about the settings that no other check reports."""
    loaded = subject.loaded
    elsewhere = await in_thread(lambda: _told_elsewhere(loaded, subject.environ))
    wrong = [text for _, text in loaded.left_out]
    findings = [
        Finding(
            "fail" if is_wrong else "warn",
            SETTINGS,
            warning.removeprefix(f"{loaded.path}: "),
            str(loaded.path),
            "Correct it in the settings file, or on the page." if is_wrong else _remedy(warning),
        )
        for warning in loaded.warnings
        if warning not in elsewhere
        for is_wrong in [any(text in warning for text in wrong)]
    ]
    if findings:
        return findings
    there = f"{loaded.path} is accepted" if loaded.path.exists() else f"There is no {loaded.path}: defaults are used"
    return [Finding("ok", SETTINGS, f"{there}.")]


def _told_elsewhere(loaded: LoadedSettings, environ: Mapping[str, str]) -> set[str]:
    doubts = doubtful_servers(loaded.settings, loaded.folder, environ)
    return {f"{loaded.path}: {sentence}" for sentence in (*missing_folders(loaded.settings), *doubts)}


def _remedy(warning: str) -> str:
    if "is not a setting of this version" in warning or "is not known" in warning:
        return "Correct the name or remove it; docs/settings.md lists all keys."
    if "holds the secret itself" in warning:
        return "Put it into an environment variable and write env:NAME, or into a file and write file:PATH."
    if "names a variable that is not set" in warning:
        return "Set the variable where elbowroom is started, or remove the line."
    return "Change it in the settings file, or leave it where it is meant so."


async def check_data(subject: Subject) -> list[Finding]:
    """Return what is wrong with the data folder and the database in it."""
    settings, environ = subject.loaded.settings.store, subject.environ
    place = store_place(settings, environ)
    database = place if isinstance(place, Path) else None
    folders = {data_dir(environ), *([database.parent] if database else [])}
    findings = await in_thread(lambda: [found for folder in sorted(folders) for found in judge_folder(folder)])
    if isinstance(place, ServerPlace):
        inspection = await in_thread(lambda: inspect_server(place))
        elsewhere = [Finding("ok", "agents", AGENTS_ELSEWHERE)] if settings.agents == "database" else []
        return [*findings, judge_server(place, inspection), *elsewhere]
    if database is None:
        what = "Conversations are kept in memory only and end with the server, as store.url says."
        return [*findings, Finding("ok", DATA_FOLDER, what)]
    inspection = await in_thread(lambda: inspect_file(database))
    findings += judge_database(database, inspection)
    how = "there is no database in it yet" if inspection.state == "absent" else "its database is sound"
    return findings or [Finding("ok", DATA_FOLDER, f"{database.parent} can be written, and {how}.")]


def judge_server(place: ServerPlace, found: Inspection) -> Finding:
    """Judge a database on a PostgreSQL server."""
    match found.state:
        case "sound" | "absent":
            how = "there are no tables in it yet" if found.state == "absent" else "it has the tables of this version"
            return Finding("ok", DATABASE, f"{place} can be reached, and {how}.")
        case "newer":
            what = "The database was written by a newer elbowroom; this one goes on without it."
            return Finding("fail", DATABASE, what, str(place), "Update elbowroom, or name another one in store.url.")
        case "unfinished":
            what = f"The database is not whole: {found.detail}."
            return Finding("fail", DATABASE, what, str(place), "Let the copy come to its end, or name another one.")
        case _:
            what = f"The database cannot be used: {found.detail}."
            return Finding("fail", DATABASE, what, str(place), "Start the server, or correct store.url.")


def judge_folder(folder: Path) -> list[Finding]:
    """Return what is wrong with a folder; it need not exist, since elbowroom creates it."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if not there.is_dir():
        return [Finding("fail", DATA_FOLDER, f"{there} is a file, no folder.", str(folder), f"Move it away, {CHOOSE}.")]
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        what = f"Nothing can be written to {there}: {error.strerror or error}. What is said is lost at the next start."
        return [Finding("fail", DATA_FOLDER, what, str(folder), f"Give yourself the right to write there, {CHOOSE}.")]
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE_BYTES:
        what = f"Only {free // 1_000_000} MB are free on the disk of {there}."
        return [Finding("warn", DATA_FOLDER, what, str(folder), f"Make room on it, {CHOOSE}.")]
    return []


def judge_database(path: Path, found: Inspection) -> list[Finding]:
    """Return what is wrong with the database's file."""
    where = str(path)
    match found.state:
        case "damaged":
            remedy = (
                "elbowroom sets it aside as soon as it comes upon that, and begins a new one. To rescue what can be "
                f'read, stop elbowroom and run: sqlite3 "{path}" ".recover" | sqlite3 recovered.db'
            )
            return [Finding("fail", DATA_FOLDER, f"The database is damaged: {found.detail}.", where, remedy)]
        case "newer":
            what = "The database was written by a newer elbowroom; this one goes on without it."
            return [Finding("fail", DATA_FOLDER, what, where, f"Update elbowroom, {CHOOSE}.")]
        case "unfinished":
            what = f"The database is not whole: {found.detail}."
            return [Finding("fail", DATA_FOLDER, what, where, f"Let the copy come to its end, {CHOOSE}.")]
        case "unreadable":
            what = f"The database cannot be read: {found.detail}."
            return [Finding("fail", DATA_FOLDER, what, where, "Give yourself the right to read and write the file.")]
        case "unchecked":
            what = f"The database is large, and was not read to its end: {found.detail}."
            return [Finding("ok", DATA_FOLDER, what, where)]
        case "absent" | "sound":
            return _of_age(path) if found.state == "sound" else []


def _of_age(path: Path) -> list[Finding]:
    ahead = path.stat().st_mtime - time.time()
    if ahead < DAY_SECONDS:
        return []
    what = f"The database was last written {ahead / DAY_SECONDS:.0f} days in the future: the clock has been set back."
    remedy = "Set the clock right; conversations are sorted and deleted by it."
    return [Finding("warn", "clock", what, str(path), remedy)]


async def lock_is_held(subject: Subject) -> bool:
    """Tell whether a running elbowroom uses the data folder."""
    database = database_path(subject.loaded.settings.store, subject.environ)
    return database is not None and await in_thread(lambda: is_in_use(database))


async def check_port(subject: Subject) -> list[Finding]:
    """Return what is wrong with the address that elbowroom listens on."""
    server = subject.loaded.settings.server
    if server.port == 0:
        return [Finding("ok", PORT, "server.port = 0: each start takes another free port.")]
    held = await lock_is_held(subject)
    cannot_bind = await in_thread(lambda: _cannot_bind(server))
    answer = await fetch(subject.http, f"{own_address(server.host, server.port)}/health")
    return judge_port(server, answer, cannot_bind=cannot_bind, held=held)


def judge_port(server: ServerSettings, answer: Answer, *, cannot_bind: str, held: bool) -> list[Finding]:
    """Judge the port by its answer to `/health`, and by the reason why no new server can listen there.

    `held` tells that a running server uses the data folder.
    """
    where = f"server.host = {server.host!r}, server.port = {server.port}"
    if answer.table.get("status") in ("ok", "stopping") and isinstance(answer.table.get("providers"), list):
        return [
            Finding(
                "ok",
                PORT,
                f"elbowroom {answer.table.get('version')} is running at {own_address(server.host, server.port)}.",
            )
        ]
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
    """Return the settings that keep clients from reaching elbowroom."""
    server = subject.loaded.settings.server
    has_token = server.token.reveal(subject.loaded.folder, subject.environ) is not None
    findings = [*judge_hosts(server), *judge_origins(server)]
    if findings:
        return findings
    has_container = sys.platform == "linux" and await in_thread(_has_containers)
    return [Finding("ok", CLIENTS, *_reach(server, has_token=has_token, has_container=has_container))]


def judge_hosts(server: ServerSettings) -> list[Finding]:
    """Judge `allowed_hosts`: names that no Host header can match, and foreign names of a server on loopback."""
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


def judge_origins(server: ServerSettings) -> list[Finding]:
    """Judge `allowed_origins`: values that no Origin header can match, and `*`, which accepts every web page."""
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
    if not server.port:
        return "Programs reach elbowroom at the address that each start prints.", "", ""
    if not is_loopback(server.host):
        return f"Other machines reach elbowroom with the token at port {server.port}.", "", ""
    what = f"Programs on this machine reach elbowroom at {own_address(server.host, server.port)}/v1."
    if not has_container:
        return what, "", ""
    hint = (
        "Open WebUI in a container does not reach that: for it start with --host 0.0.0.0"
        f"{'' if has_token else ' and a token in ELBOWROOM_TOKEN'}."
    )
    return what, "", hint


def _has_containers() -> bool:
    """Tell whether this machine runs containers, or is one."""
    return any(os.path.exists(path) for path in CONTAINER_MARKS)


def _cannot_bind(server: ServerSettings) -> str:
    """Return why no server can listen at the address, empty if one can."""
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
