"""Requests as Open WebUI really sends them, from a recording beside the repository."""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from chatting import function_spec

BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data"
RECORDING = Path(os.environ.get("ELBOWROOM_TEST_DATA", BESIDE_THE_REPOSITORY)) / "openwebui" / "requests.json"
RECORDED_MODEL = "rec-model"


def recorded() -> list[Any]:
    """Return the recorded requests as test parameters, or one that is skipped where there is no recording."""
    if not RECORDING.exists():
        return [pytest.param({}, id="none", marks=pytest.mark.skip(reason=f"no recording at {RECORDING}"))]
    requests = json.loads(RECORDING.read_text(encoding="utf-8"))
    for request in requests:
        if tools := request["body"].get("tools"):
            request["body"]["tools"] = [tool for entry in tools for tool in unshortened(entry)]
    return [pytest.param(request, id=request["sample"]) for request in requests]


def recorded_chats() -> list[Any]:
    """Return those of them that are chat requests, or the one that is skipped."""
    return [parameter for parameter in recorded() if not parameter.values[0] or is_chat(parameter.values[0])]


def unshortened(entry: Any) -> list[dict[str, Any]]:
    """Return the tools that an entry of a recorded list stands for: itself, or `… 2 more: ['a', 'b']`."""
    if isinstance(entry, str):
        return [function_spec(name) for name in ast.literal_eval(entry.partition(": ")[2])]
    return [entry]


def is_chat(request: dict[str, Any]) -> bool:
    """Tell whether it is a chat request."""
    return bool(request["path"] == "/v1/chat/completions")


def headers_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the headers of a recorded request that say something about it, not about its connection."""
    own = ("host", "content-length", "accept-encoding")
    return {name: value for name, value in request["headers"].items() if name.lower() not in own}
