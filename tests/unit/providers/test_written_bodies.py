"""A body that is sent to an engine is the JSON of what was asked, written part by part."""

import json
from typing import Any

import pytest

from elbowroom.providers import upstream


@pytest.mark.parametrize("most", [1, 20, upstream.TURN_BYTES])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": "m"},
        {"messages": []},
        {"messages": [], "model": "m"},
        {"messages": ({"role": "user", "content": "a"},)},
        {
            "model": "m",
            "messages": [{"role": "user", "content": "é\u4e2d\U0001f600\u2028"}, {"role": "x"}],
            "seed": 2**80,
        },
        {"messages": [{"role": "user", "content": text} for text in ("a", "", "é" * 30, "\ud800", "c")]},
        {"messages": ["a word", 1, None, {"content": None}, {"content": [{"text": "b"}]}]},
        {"messages": [{"content": "\ud800"}], "top_p": 1.0, "min_p": 1e-300, "temperature": -0.0, "stop": "\udfff"},
        {"messages": "none", "n": None},
    ],
)
async def test_a_body_is_written_as_it_is(body: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers keep their form, texts every character, U+FFFD for each half of one, however it is parted."""
    monkeypatch.setattr(upstream, "TURN_BYTES", most)
    written = json.loads(b"".join(await upstream.in_parts(body)))
    whole = json.dumps(body, sort_keys=True).replace(r"\ud800", r"\ufffd").replace(r"\udfff", r"\ufffd")
    assert json.dumps(written, sort_keys=True) == whole
