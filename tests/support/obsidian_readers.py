"""How those of Obsidian's plugins read a stream that do it by hand, each with the habits of its own.

They get the stream in the pieces in which it came over the network, as the plugins do.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

BETWEEN_EVENTS = re.compile(r"(?:\r\n|\n|\r){2}")


@dataclass(slots=True)
class Shown:
    """What a plugin ends up with; `ended` is whether it noticed the end, `calls` the one call that it puts together."""

    text: str = ""
    call: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    stumbles: int = 0


def bmo_chatbot(pieces: Iterable[bytes]) -> Shown:
    """Read as BMO Chatbot does: every line that is not empty is JSON; `delta.content` is appended unseen.

    A line that is none is logged and passed over, which counts as a stumble.
    """
    shown = Shown()
    for piece in pieces:
        for line in filter(None, piece.decode().split("\n")):
            if "data: [DONE]" in line:
                break
            try:
                choice = json.loads(re.sub("^data: ", "", line))["choices"][0]
            except (ValueError, LookupError):
                shown.stumbles += 1
                continue
            if choice["finish_reason"] != "stop":
                shown.text += choice["delta"].get("content", "undefined")
    shown.ended = True  # with the connection
    return shown


def text_generator(pieces: Iterable[bytes]) -> Shown:
    """Read as Text Generator's custom provider does once its streaming is switched on: no line may be anything else.

    Raises what ends its answer: ValueError for a line that is no JSON, LookupError for a chunk without a choice.
    """
    shown = Shown()
    for piece in pieces:
        for part in piece.decode().split("\ndata: "):
            line = re.sub("^data: ", "", part).strip()
            if line and line != "[DONE]":
                shown.text += json.loads(line)["choices"][0]["delta"].get("content") or ""
    shown.ended = True
    return shown


def smart_connections(pieces: Iterable[bytes]) -> Shown:
    """Read as Smart Connections does: it waits for exactly `data: [DONE]`, and cuts every event at `data: `."""
    shown = Shown()
    for event in filter(None, map(str.strip, BETWEEN_EVENTS.split(b"".join(pieces).decode()))):
        if event == "data: [DONE]":
            shown.ended = True
            break
        delta = _first_delta(json.loads([*event.split("data: "), ""][1] or "{}"))
        shown.text += delta.get("content") or ""
        for part in delta.get("tool_calls", [])[:1]:
            function = part["function"]
            for name, value in (("id", part.get("id")), *((key, function.get(key)) for key in ("name", "arguments"))):
                shown.call[name] = shown.call.get(name, "") + (value or "")
    return shown


def _first_delta(chunk: dict[str, Any]) -> dict[str, Any]:
    choices = chunk.get("choices") or [{}]
    delta: dict[str, Any] = choices[0].get("delta") or {}
    return delta


READERS = {"BMO Chatbot": bmo_chatbot, "Text Generator": text_generator, "Smart Connections": smart_connections}
