"""The body of the chat request that goes upstream."""

from contextlib import nullcontext
from typing import Any

import pytest

from elbowroom.agents.prompt.body import StepRequest, relay_body, step_body, with_instructions
from elbowroom.agents.request import parse_chat_request
from elbowroom.errors import RequestError

USER = {"role": "user", "content": "Hello"}


def body_of(step: int = 1, defaults: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return the body of a step for a request with these fields."""
    request = parse_chat_request({"model": "writer", "messages": [USER], **fields})
    return step_body(request, "tiny", defaults or {}, [USER], request.tools, step=step)


def test_the_least_body() -> None:
    """A step asks for a stream with usage, for the provider's own model name."""
    assert body_of() == {
        "model": "tiny",
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_stream_and_usage_whatever_the_client_wants() -> None:
    """The engine is always asked to stream and to count: that is how it can be stopped and trusted."""
    body = body_of(stream=False, stream_options={"include_usage": False, "x": 1})
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools(tools: Any) -> None:
    """Without tools there is no list of them."""
    assert "tools" not in body_of(tools=tools)


def test_n_is_not_sent() -> None:
    """One answer is what every engine gives."""
    assert "n" not in body_of(n=1)


@pytest.mark.parametrize(
    ("defaults", "sent", "expected"),
    [
        ({"temperature": 0.7}, {}, {"temperature": 0.7}),
        ({"temperature": 0.7}, {"temperature": 0}, {"temperature": 0}),
        ({"temperature": 0.7}, {"temperature": None}, {"temperature": 0.7}),
        ({}, {"temperature": None}, {"temperature": None}),
        ({"max_tokens": 50}, {"max_completion_tokens": 60}, {"max_tokens": 60}),
        ({}, {"max_tokens": 5, "max_completion_tokens": 6}, {"max_tokens": 6}),
        ({}, {"max_tokens": 5, "max_completion_tokens": None}, {"max_tokens": 5}),
        ({}, {"max_completion_tokens": None}, {}),
    ],
)
def test_client_over_agent(defaults: dict[str, Any], sent: dict[str, Any], expected: dict[str, Any]) -> None:
    """The client's values go over the agent's defaults; null is no value; both names of the limit are one."""
    body = body_of(defaults=defaults, **sent)
    limits = {key: body[key] for key in ("temperature", "max_tokens", "max_completion_tokens") if key in body}
    assert limits == expected


@pytest.mark.parametrize(
    ("step", "choice", "kept"),
    [
        (1, "required", True),
        (1, {"type": "function", "function": {"name": "a"}}, True),
        (2, "required", False),
        (2, {"type": "function", "function": {"name": "a"}}, False),
        (2, "auto", True),
        (2, "none", True),
    ],
)
def test_forced_choice(step: int, choice: Any, kept: bool) -> None:
    """A forced choice of a tool holds for the first step."""
    tools = [{"type": "function", "function": {"name": "a"}}]
    assert ("tool_choice" in body_of(step, tools=tools, tool_choice=choice)) == kept


@pytest.mark.parametrize(("named", "offered"), [("a", ["a"]), ("b", ["b"])])
def test_named_function_is_the_only_one_on_offer(named: str, offered: list[str]) -> None:
    """Local engines refuse a choice with a name."""
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
    body = body_of(tools=tools, tool_choice={"type": "function", "function": {"name": named}})
    assert [tool["function"]["name"] for tool in body["tools"]] == offered
    assert body["tool_choice"] == "required"


def allowing(*names: str, mode: str = "auto") -> dict[str, Any]:
    """Return the choice of these tools and no others."""
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [function(name) for name in names]}}


def function(name: str) -> dict[str, Any]:
    """Return a tool with this name, which also chooses it."""
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("choice", [function("c"), allowing("c"), allowing("c", mode="required")])
def test_function_that_is_not_on_offer(step: int, choice: Any) -> None:
    """The first step is refused with the names there are: the model would call one that nobody has chosen, or none."""
    tools = [function(name) for name in ("a", "b")]
    with pytest.raises(RequestError, match=r"'c', but there is no such tool.*: a, b") if step == 1 else nullcontext():
        assert {"name": "c"} not in body_of(step, tools=tools, tool_choice=choice).get("tools", ())


@pytest.mark.parametrize("choice", [function("c"), allowing("c")])
def test_choice_without_tools(choice: Any) -> None:
    """It is refused as well, in elbowroom's words."""
    with pytest.raises(RequestError, match=r"'c', but there is no such tool\. Send it\.$"):
        body_of(tool_choice=choice)


@pytest.mark.parametrize(
    ("choice", "offered", "mode"),
    [
        (allowing("a", "c"), ["a"], "auto"),
        (allowing("a", mode="required"), ["a"], "required"),
        (allowing("own", "a"), ["own", "a"], "auto"),
        (allowing("own", mode="required"), ["own"], "required"),
        (function("own"), ["own"], "required"),
    ],
)
def test_allowed_tools(choice: Any, offered: list[str], mode: str) -> None:
    """Only those are on offer that the choice allows, of the client's tools and of the agent's, which it may name."""
    request = parse_chat_request(
        {"model": "writer", "messages": [USER], "tools": [function("a"), function("b")], "tool_choice": choice}
    )
    body = step_body(request, "tiny", {}, [USER], [function("own"), *request.tools], step=1)
    assert [tool["function"]["name"] for tool in body["tools"]] == offered
    assert body["tool_choice"] == mode


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("named", ["own", "a"])
def test_allowed_tools_in_later_steps(named: str, mode: str) -> None:
    """What the choice does not allow is allowed in no step, and nothing is forced any more."""
    sent = {"tools": [function("a")], "tool_choice": allowing(named, mode=mode)}
    request = parse_chat_request({"model": "writer", "messages": [USER], **sent})
    body = step_body(request, "tiny", {}, [USER], [function("own"), function("other"), *request.tools], step=2)
    assert [tool["function"]["name"] for tool in body["tools"]] == [named]
    assert "tool_choice" not in body


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("named", ["own", "a"])
def test_allowed_tools_are_no_others(named: str, step: int) -> None:
    """A tool that nobody has asked for is not told of where the choice does not allow it."""
    sent = {"tools": [function("a")], "tool_choice": allowing(named)}
    request = parse_chat_request({"model": "writer", "messages": [USER], **sent})
    asked = StepRequest(request, "tiny", {}, None, [function("own"), *request.tools], step)
    assert not asked.takes_more_tools


def test_an_unknown_choice_without_tools() -> None:
    """It is passed on without an empty list of tools, which engines refuse."""
    assert "tools" not in body_of(tool_choice={"type": "auto"})


@pytest.mark.parametrize(("stop", "kept"), [("", False), ("END", True), ([], True), (["", "END"], True)])
def test_empty_stop_string(stop: Any, kept: bool) -> None:
    """An empty stop string is no stop string; everything else is the client's own business."""
    assert ("stop" in body_of(stop=stop)) == kept


def test_relay_changes_the_model_only() -> None:
    """A relayed body is the client's own in every other field."""
    sent = {"model": "openai/x", "messages": [USER], "stream": True, "tools": [], "max_completion_tokens": 3, "x": None}
    assert relay_body(parse_chat_request(sent), "x") == {**sent, "model": "x"}


def test_instructions_change_nothing_of_the_clients() -> None:
    """Putting instructions in front leaves the client's own objects as they are."""
    system = {"role": "system", "content": [{"type": "text", "text": "a"}]}
    messages: list[dict[str, Any]] = [system, USER]
    merged = with_instructions(messages, "Do.")
    assert merged[0] is not system
    assert merged[1] is USER
    assert system == {"role": "system", "content": [{"type": "text", "text": "a"}]}


@pytest.mark.parametrize("instructions", [None, ""])
def test_no_instructions(instructions: str | None) -> None:
    """Without instructions the messages are as sent, a developer message too."""
    messages = [{"role": "developer", "content": "a"}, USER]
    assert with_instructions(messages, instructions) == messages


def test_bodies_of_one_step_are_apart() -> None:
    """What is changed in one body of a step is in no other; the bodies differ in their messages alone."""
    request = parse_chat_request({"model": "writer", "messages": [USER], "max_tokens": 7, "top_k": 3})
    shape = StepRequest(request, "tiny", {}, None, request.tools, step=1)
    first = shape.body([USER])
    first["max_tokens"] = 1
    first["messages"].append(USER)
    assert shape.body([USER]) == step_body(request, "tiny", {}, [USER], request.tools, step=1)
    assert (shape.max_tokens, shape.body(())["messages"]) == (7, [])
