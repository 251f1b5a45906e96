"""The page at `/`, whose files are sent without what only people read, and `/api/logs`, which it shows."""

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from aiohttp import hdrs, web

from elbowroom.connect.clients import table
from elbowroom.errors import NotFound, RequestError, own_command
from elbowroom.logs.file import last_lines, log_path
from elbowroom.logs.redaction import REDACTOR
from elbowroom.server.guard import PAGE, PARTS
from elbowroom.server.state import ENVIRONMENT, SETTINGS
from elbowroom.settings.fields import data_dir
from elbowroom.settings.load import FLAG, LoadedSettings

START: Final = "index.html"
CLIENTS: Final = "clients.json"
"""The part that is not a file: the table of programs that `elbowroom connect` knows."""
WEBUI_COMMAND: Final = "{} connect open-webui --url http://127.0.0.1:8080 --key sk-...{}"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    hdrs.CACHE_CONTROL: "no-cache",
}
UNSENT: Final = re.compile(rb"^[ \t]*(?://[^\n]*\n|\n)|^[ \t]+", re.MULTILINE)
"""Blank lines, comments and indentation, which no browser needs; no text of the page goes over several lines."""
CLOSED: Final = re.compile(rb"^((?:(?!//).)*);\n(?=\})", re.MULTILINE)
"""The last statement of a block in a script, whose end is that of the block."""
FOREIGN: Final = ".min.js"
GOES_ON: Final = {
    ".js": re.compile(rb"^((?:(?!//).)*[;{,(\[])\n", re.MULTILINE),
    ".css": re.compile(rb"^(.*[;{,}])\n", re.MULTILINE),
}
"""Lines whose end no browser needs: the next one goes on after a sign, which ends no comment."""
DEFAULT_LINES = 200
MOST_LINES = 1000


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page with the ETag of its bytes, without quotes."""

    body: bytes
    content_type: str
    etag: str


FILES: web.AppKey[dict[str, PageFile]] = web.AppKey("FILES", dict)


def add_page_routes(app: web.Application) -> None:
    """Add the page and its parts."""
    command, options = own_command(), address_told(app[SETTINGS].current())
    told = {"command": command, "options": options, "webui_command": WEBUI_COMMAND.format(command, options)}
    app[FILES] = {**page_files(), CLIENTS: _read(json.dumps({**told, **table()}).encode(), "application/json")}
    app.router.add_get(PAGE, show_page)
    app.router.add_get(PARTS + "{name}", show_part)


def address_told(loaded: LoadedSettings) -> str:
    """Return the flags that the server was told its address by, each after a blank: a command finds it by them."""
    by_flag = [name for name in ("host", "port") if loaded.sources.get(("server", name), "").startswith(FLAG)]
    return "".join(f" --{name} {getattr(loaded.settings.server, name)}" for name in by_flag)


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files by their names, which are read once."""
    folder = files("elbowroom.server") / "page"
    return {
        found.name: _read(packed(found.name, found.read_bytes()), TYPES[suffix])
        for found in folder.iterdir()
        if (suffix := "." + found.name.rpartition(".")[2]) in TYPES
    }


def packed(name: str, body: bytes) -> bytes:
    """Return a file of the page as it is sent; one of somebody else is sent as it is."""
    suffix = "." + name.rpartition(".")[2]
    if name.endswith(FOREIGN):
        return body
    if suffix not in GOES_ON:
        return body
    sent = UNSENT.sub(b"", body)
    return GOES_ON[suffix].sub(rb"\1", CLOSED.sub(rb"\1", sent) if suffix == ".js" else sent)


async def show_page(request: web.Request) -> web.Response:
    """Answer with the page."""
    return _answer(request, START)


async def show_part(request: web.Request) -> web.Response:
    """Answer with a script, the style or the icon. Raises NotFound."""
    return _answer(request, request.match_info["name"])


def _answer(request: web.Request, name: str) -> web.Response:
    file = request.app[FILES].get(name)
    if file is None:
        raise NotFound(f"The page has no part {name[:80]!r}.")
    known = {tag.value for tag in request.if_none_match or ()}
    is_known = not known.isdisjoint({file.etag, "*"})
    response = web.Response(status=304) if is_known else web.Response(body=file.body)
    if not is_known:
        response.headers[hdrs.CONTENT_TYPE] = file.content_type
    response.headers.update(HEADERS)
    response.etag = file.etag
    return response


def _read(body: bytes, content_type: str) -> PageFile:
    return PageFile(body, content_type, hashlib.sha256(body).hexdigest()[:32])


async def show_logs(request: web.Request) -> web.Response:
    """Answer `{"data": [{"time", "level", "message", ...}]}`, the newest line last; `tail` says how many."""
    asked = request.query.get("tail", str(DEFAULT_LINES))
    if not (asked.isascii() and asked.isdigit() and len(asked) < 10) or int(asked) < 1:
        raise RequestError(f"tail takes a whole number from 1 to {MOST_LINES}.", param="tail")
    path = log_path(data_dir(request.app[ENVIRONMENT]))
    lines = await asyncio.to_thread(last_lines, path, min(int(asked), MOST_LINES), REDACTOR)
    return web.json_response({"data": lines})
