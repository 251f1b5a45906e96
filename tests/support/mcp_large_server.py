"""A program that speaks just enough of MCP to be called, and answers with as many megabytes as it is asked for."""

import json
import sys
from typing import Any

MEGABYTE = 1024 * 1024
SCHEMA = {"type": "object", "properties": {"megabytes": {"type": "number"}, "id_comes_last": {"type": "boolean"}}}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    method, parameters = request["method"], request.get("params", {})
    if method == "initialize":
        about = {"name": "large", "version": "1"}
        version = parameters["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": "fetch", "inputSchema": SCHEMA}]}}
    if method == "tools/call":
        text = "a line of text\n" * int(parameters["arguments"]["megabytes"] * MEGABYTE / 15)
        return {"result": {"content": [{"type": "text", "text": text}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            head = {"jsonrpc": "2.0", "id": request["id"]}
            comes_last = request.get("params", {}).get("arguments", {}).get("id_comes_last")
            reply = {**answer(request), **head} if comes_last else {**head, **answer(request)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
