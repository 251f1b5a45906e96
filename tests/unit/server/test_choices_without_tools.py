"""A choice of tools in a request that brings none: an agent has tools of its own."""

from typing import Any

import pytest

from elbowroom.server.messages.body import parse_messages_request
from elbowroom.server.responses.body import parse_responses_request

USER = {"role": "user", "content": "Hello"}
ELSEWHERE = {"type": "web_search_20250305", "name": "web_search"}
"""A tool that nobody here runs, so that it is left out."""


@pytest.mark.parametrize("tools", [None, [], [ELSEWHERE]])
@pytest.mark.parametrize(("choice", "told"), [("none", "none"), ("auto", None), ("required", None)])
def test_responses(tools: Any, choice: str, told: str | None) -> None:
    """That no tool may be called holds for an agent's too; all else is about the client's own."""
    asked = parse_responses_request({"model": "writer", "input": "Hello", "tools": tools, "tool_choice": choice})
    assert asked.fields.get("tool_choice") == told


@pytest.mark.parametrize("tools", [None, [], [ELSEWHERE]])
@pytest.mark.parametrize(("choice", "told"), [("none", "none"), ("auto", None), ("any", None)])
def test_messages(tools: Any, choice: str, told: str | None) -> None:
    """As with the Responses API."""
    body = {"model": "writer", "max_tokens": 9, "messages": [USER], "tools": tools, "tool_choice": {"type": choice}}
    assert parse_messages_request(body).chat.fields.get("tool_choice") == told
