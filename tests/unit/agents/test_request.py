"""A chat request as the client sent it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.agents.request import own_request, parse_chat_request, tool_name
from elbowroom.errors import RequestError

USER = {"role": "user", "content": "Hello"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("model", "messages", "stream", "stream_options", "tools", "n", "role", "content", "tool_calls", "function")


def test_the_least_request() -> None:
    """A model and one message are enough."""
    request = parse_chat_request({"model": "writer", "messages": [USER]})
    assert (request.model, request.messages, request.tools) == ("writer", (USER,), ())
    assert (request.stream, request.wants_usage, request.fields) == (False, False, {})


def test_fields_are_what_is_left() -> None:
    """Whatever is not read here is kept for the model, unknown things too."""
    body = {"model": "w", "messages": [USER], "stream": True, "n": 1, "temperature": 0, "odd": None}
    request = parse_chat_request(body)
    assert request.fields == {"temperature": 0, "odd": None}
    assert request.body is body
    assert request.stream is True


def test_messages_and_tools_are_the_clients_own_objects() -> None:
    """Nothing is copied or changed on the way in; a message that comes again is the one that came before."""
    message, tool = {**USER, "name": "only here"}, {"type": "web_search"}
    request = parse_chat_request({"model": "w", "messages": [message], "tools": [tool]})
    assert request.messages[0] is message
    assert request.tools[0] is tool
    assert parse_chat_request({"model": "w", "messages": [dict(message)]}).messages[0] is message


@pytest.mark.parametrize(
    ("options", "wants"),
    [(None, False), ({}, False), ({"include_usage": True}, True), ({"include_usage": False}, False)],
)
def test_usage(options: Any, wants: bool) -> None:
    """Usage is wanted where `include_usage` says so."""
    assert parse_chat_request({"model": "w", "messages": [USER], "stream_options": options}).wants_usage == wants


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": 7}]},
        {"role": "user", "content": None},
        {"role": "user", "content": ["a", {"type": "text", "text": "b"}]},
        {"role": "tool", "content": "a"},
        {"role": "developer", "content": ""},
    ],
)
def test_messages_that_pass(message: dict[str, Any]) -> None:
    """What real clients send is taken."""
    assert parse_chat_request({"model": "w", "messages": [message]}).messages == (message,)


def test_error_shows_what_was_sent_but_not_all_of_it() -> None:
    """A refusal quotes the wrong value, cut where it is long."""
    with pytest.raises(RequestError) as raised:
        parse_chat_request({"model": "w", "messages": "x" * 100_000})
    assert "xxx" not in raised.value.message or len(raised.value.message) < 200
    assert raised.value.param == "messages"


@given(
    st.dictionaries(
        st.sampled_from(KEYS), JSON | st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4), max_size=3)
    )
    | JSON
)
def test_any_json_is_taken_or_refused(body: Any) -> None:
    """Whatever JSON comes is a request or a RequestError with OpenAI's fields, never another exception."""
    try:
        request = parse_chat_request(body)
    except RequestError:
        return
    assert all(isinstance(message["role"], str) for message in request.messages)


@given(st.fixed_dictionaries({"type": st.just("function") | JSON, "function": JSON}))
def test_tool_names(tool: dict[str, Any]) -> None:
    """A tool that was taken has a name, or is of another kind."""
    try:
        parse_chat_request({"model": "w", "messages": [USER], "tools": [tool]})
    except RequestError:
        return
    assert tool_name(tool) or tool["type"] != "function"


def test_own_request() -> None:
    """A request of our own asks for nothing but an answer to its messages."""
    request = own_request("writer", [USER])
    assert (request.messages, request.tools, request.fields) == ((USER,), (), {})


@pytest.mark.parametrize("role", ["", None, 1, ["user"], "usr", "assistent"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_message_without_a_role_is_named_by_its_place(role: Any, place: int) -> None:
    """A role and a text are not enough where there is no such role; the error says which message it is."""
    messages: list[dict[str, Any]] = [dict(USER), dict(USER)]
    messages[place]["role"] = role
    with pytest.raises(RequestError) as error:
        parse_chat_request({"model": "w", "messages": messages})
    assert error.value.param == f"messages[{place}].role"
