"""`GET /api/logs`: the last lines of the log file."""

import asyncio

from aiohttp import web

from elbowroom.errors import RequestError
from elbowroom.logs.log_file import log_path
from elbowroom.logs.redaction import REDACTOR
from elbowroom.logs.tail import last_lines
from elbowroom.server.keys import ENVIRONMENT
from elbowroom.settings.paths import data_dir

DEFAULT_LINES = 200
MOST_LINES = 1000


async def show_logs(request: web.Request) -> web.Response:
    """Answer `{"data": [{"time", "level", "message", ...}]}`, the newest line last; `tail` says how many."""
    asked = request.query.get("tail", str(DEFAULT_LINES))
    if not (asked.isascii() and asked.isdigit() and len(asked) < 10) or int(asked) < 1:
        raise RequestError(f"tail takes a whole number from 1 to {MOST_LINES}.", param="tail")
    path = log_path(data_dir(request.app[ENVIRONMENT]))
    lines = await asyncio.to_thread(last_lines, path, min(int(asked), MOST_LINES), REDACTOR)
    return web.json_response({"data": lines})
