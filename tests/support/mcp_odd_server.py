"""A program that speaks just enough of an older MCP to be called, and answers oddly. It needs nothing but Python.

With a number it offers so many tools, with another one each with so many arguments. With "endless" it always has
another page of them.
"""

import json
import sys
from typing import Any

RESULTS: dict[str, Any] = {
    "good": {"content": [{"type": "text", "text": "fine"}]},
    "no content": {},
    "unknown part": {"content": [{"type": "hologram", "data": "?"}]},
    "broken image": {"content": [{"type": "image"}]},
}


PAGE = 200


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    method, parameters = request["method"], request.get("params", {})
    if method == "initialize":
        about = {"name": "odd", "version": "1"}
        version = parameters["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list" and sys.argv[1:] == ["endless"]:
        first = int(parameters.get("cursor", 0))
        tools = [{"name": f"tool_{at}", "inputSchema": {}} for at in range(first, first + PAGE)]
        return {"result": {"tools": tools, "nextCursor": str(first + PAGE)}}
    if method == "tools/list" and len(sys.argv) > 1:
        names = range(int(sys.argv[2])) if len(sys.argv) > 2 else ()
        schema = (
            {"properties": {f"p{at}": {"type": "string", "description": "d" * 80} for at in names}} if names else {}
        )
        return {"result": {"tools": [{"name": f"tool_{at}", "inputSchema": schema} for at in range(int(sys.argv[1]))]}}
    if method == "tools/list":
        schemas = zip(RESULTS, ({}, {"type": "string"}, {"properties": {"x": True}}, None), strict=True)
        odd = {"outputSchema": {"type": "object", "required": ["never there"]}}
        return {"result": {"tools": [{"name": name, "inputSchema": schema, **odd} for name, schema in schemas]}}
    if method == "tools/call":
        sys.stdout.write("a line that is no message\n")
        return {"result": RESULTS[parameters["name"]]}
    return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], **answer(request)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
