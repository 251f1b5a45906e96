"""What the runners in Python share; they take and print the same as those that js/runner.mjs describes."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Request = dict[str, Any]


class Heard:
    """What a library has handed out so far."""

    def __init__(self) -> None:
        self.text = ""
        self.chunks = 0
        self.finish: str | None = None
        self.usage: Any = None
        self.calls: list[str] = []

    def take(self, delta: Any) -> None:
        """Take a piece of text and say it."""
        if delta:
            self.text += delta
            say({"delta": delta})

    def called(self, path: str) -> str:
        """Return what the one tool gives."""
        self.calls.append(path)
        return f"The note at {path} says: pier nine."


Scenario = Callable[[str, Request, Heard], None]
"""Takes the base address and the request."""


def say(line: Request) -> None:
    """Print one line of JSON."""
    print(json.dumps(line), flush=True)  # noqa: T201  # the test reads it


def read_blocks(chunks: Any, heard: Heard) -> None:
    """Read a stream of LangChain's whose content is blocks, and take the kinds of the blocks as `calls`."""
    whole: Any = None
    for chunk in chunks:
        heard.chunks += 1
        whole = chunk if whole is None else whole + chunk
    for block in whole.content:
        heard.calls.append(block["type"])
        heard.take(block.get("text"))
    heard.finish = whole.response_metadata.get("stop_reason") or whole.response_metadata.get("status")
    heard.usage = whole.usage_metadata


def run(library: Mapping[str, Scenario]) -> None:
    """Run the scenario that the command line names."""
    base, scenario = sys.argv[1:3]
    request = json.load(sys.stdin)
    heard = Heard()
    try:
        library[scenario](base, request, heard)
    except Exception as error:  # noqa: BLE001  # what the library raises is what the test asks for
        told = {key: getattr(error, key, None) for key in ("code", "type", "param", "message")}
        status = getattr(error, "status_code", None)
        told["message"] = told["message"] or str(error)
        say({"error": {**told, "name": type(error).__name__, "status": status, "text": heard.text}})
    else:
        say({"end": vars(heard)})
