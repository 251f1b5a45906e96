"""Puts another model's name into the JSON text of an answer and leaves every other byte as it came."""

import json
import re
from typing import Any, Final

import msgspec

from elbowroom.providers.upstream import parse_upstream_json

NOT_PASSED: Final = frozenset({"event", "selected_model_id"})
"""Fields of an answer that could push events into a browser."""
TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
PLAIN_VALUE: Final = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*"|[^\s,{}\[\]"]+)')


class _Head(msgspec.Struct, gc=False):
    """The fields of an answer that do not stay as they came."""

    model: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    event: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    selected_model_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_HEAD: Final = msgspec.json.Decoder(_Head)


def renamed(text: bytes, name: bytes) -> bytes:
    """Return a JSON object whose `model`, where it has one, is `name`, which is JSON itself.

    Only an object that a client could not read, or that has fields of NOT_PASSED, is written anew. Raises ValueError
    where it is no JSON.
    """
    try:
        head = _HEAD.decode(text)
    except msgspec.MsgspecError:
        return _written_anew(text, name)
    if head.event is not msgspec.UNSET or head.selected_model_id is not msgspec.UNSET:
        return _written_anew(text, name)
    if head.model is msgspec.UNSET:
        return text
    usual = b'"model":' + bytes(head.model)
    if text.count(b'"model"') == 1 and usual in text:  # nearly always, and much faster than looking for its place
        return text.replace(usual, b'"model":' + name)
    places = _places_of_model(text)
    if len(places) != 1:
        return _written_anew(text, name)
    start, end = places[0]
    return text[:start] + name + text[end:]


def _places_of_model(text: bytes) -> list[tuple[int, int]]:
    """Return where the values of the object's own `model` begin and end; it may have objects with such a key inside."""
    places, depth = [], 0
    for token in TOKEN.finditer(text):
        if token[0] in b"{[":
            depth += 1
        elif token[0] in b"}]":
            depth -= 1
        elif depth == 1 and token[0] == b'"model"' and (value := PLAIN_VALUE.match(text, token.end())):
            places.append(value.span(1))
    return places


def _written_anew(text: bytes, name: bytes) -> bytes:
    value: dict[str, Any] = parse_upstream_json(text)
    kept = {key: item for key, item in value.items() if key not in NOT_PASSED}
    if "model" in kept:
        kept["model"] = json.loads(name)
    return json.dumps(kept, separators=(",", ":")).encode()
