"""A program that speaks just enough of an older MCP to be called: `mcp_plain_server.py JOURNAL`.

It needs nothing but Python, so that it begins at once. Its tools are some of the sample server's, and it writes down
what it is asked in the same words.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def note(line: str) -> None:
    """Write a line into the journal."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as journal:
        journal.write(f"{line}\n")


def append(arguments: Json) -> str:
    """Change something, and take a while for it."""
    note("appended")
    time.sleep(arguments.get("seconds", 0))
    return "appended"


def slow(arguments: Json) -> str:
    """Take a while."""
    note("slow begun")
    time.sleep(arguments["seconds"])
    return "slept"


TOOLS: dict[str, tuple[Callable[[Json], str], bool]] = {
    "append": (append, False),
    "echo": (lambda arguments: str(arguments.get("text")), True),
    "odd.name/ü": (lambda arguments: str(arguments.get("text")), True),
    "pid": (lambda _: str(os.getpid()), True),
    "slow": (slow, True),
}
"""What each does, and whether it only reads."""


def answer(method: str, parameters: Json) -> Json:
    """Return the answer to a request."""
    if method == "initialize":
        about = {"name": "plain", "version": "1"}
        version = parameters["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {}}
        tools = [
            {"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": reads}}
            for name, (_, reads) in TOOLS.items()
        ]
        return {"result": {"tools": tools}}
    if method == "tools/call":
        call, _ = TOOLS[parameters["name"]]
        return {"result": {"content": [{"type": "text", "text": call(parameters.get("arguments") or {})}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def reply(request: Json) -> None:
    """Answer a request."""
    told = {"jsonrpc": "2.0", "id": request["id"], **answer(request["method"], request.get("params", {}))}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for line in sys.stdin:
        if "id" in (request := json.loads(line)):
            threading.Thread(target=reply, args=[request], daemon=True).start()
    os._exit(0)
