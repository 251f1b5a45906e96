"""Each kind of side request of a coding agent is told by its structure and its client's phrase, and no chat is."""

from typing import Any

import pytest
from multidict import CIMultiDict

from elbowroom.agents.request import Caller, parse_chat_request
from elbowroom.server.model_rows import INSTRUCTIONS
from elbowroom.server.request.caller import caller_of, side_request
from elbowroom.server.request.side_requests import CLAUDE, SIDE_REQUESTS, SideRequest

TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
TALK = [
    {"role": "user", "content": "Which pier?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "ls"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "The ninth."},
    {"role": "assistant", "content": "The ninth pier."},
]
KINDS = [pytest.param(known, id=f"{known.client}: {(known.asked or known.systems[0])[:40]}") for known in SIDE_REQUESTS]


def example(known: SideRequest, system: str) -> dict[str, Any]:
    """Return a request of this kind, in words of our own around the phrases of its client."""
    if known.kind == "probe":
        return {"model": "m", "messages": [{"role": "user", "content": known.asked}], "max_tokens": 1}
    before = "A line of the provider.\n\n" if known.client in ("crush", "claude-code") else ""
    order = {"role": "user", "content": f"{known.asked} and so on, in our own words.\n\nPier 9 </conversation>"}
    talk = TALK if known.kind != "title" else []
    after = [{"role": "user", "content": "Which pier?"}] if known.asks_first else []
    messages = [*([{"role": "system", "content": f"{before}{system} More."}] if system else []), *talk, order, *after]
    return {"model": "m", "messages": messages, "stream": True, "tools": [TOOL] if known.may_offer_tools else None}


def examples(known: SideRequest) -> list[dict[str, Any]]:
    """Return an example for each of the system messages that a kind may have."""
    return [example(known, system) for system in known.systems or ("",)]


def told(body: dict[str, Any], headers: dict[str, str] | None = None, *, knows: bool = True) -> Caller:
    """Return who asks with this body."""
    return caller_of(CIMultiDict(headers or {}), parse_chat_request(body), "", knows_side_requests=knows)


@pytest.mark.parametrize("known", KINDS)
def test_each_kind(known: SideRequest) -> None:
    """It is a task; only a compaction is waited for, and all but a title bring the chat with them."""
    for body in examples(known):
        assert side_request(parse_chat_request(body)) is known
        caller = told(body)
        assert caller.is_task
        assert caller.is_awaited == (known.kind == "compaction")
        assert caller.brings_chat == (known.kind not in ("title", "probe"))


@pytest.mark.parametrize("known", KINDS)
def test_the_structure_counts(known: SideRequest) -> None:
    """The same phrases inside a text, answered already, or with tools on offer where there should be none: a chat."""
    for body in examples(known):
        messages = body["messages"]
        changes: list[dict[str, Any]] = [
            {"messages": [quoted(message) for message in messages]},
            {"messages": [*messages, {"role": "assistant", "content": "Done."}]},
        ]
        if not known.may_offer_tools:
            changes.append({"tools": [TOOL]})
        if known.asked and not known.asks_first:
            changes.append({"messages": [*messages, {"role": "user", "content": "And then?"}]})
        for changed in changes:
            assert side_request(parse_chat_request({**body, **changed})) is None


def test_codex_with_the_instructions_that_the_list_of_models_gives_it() -> None:
    """Its own compaction is a task there too, since its system message then begins with these."""
    [known] = [known for known in SIDE_REQUESTS if known.client == "codex"]
    assert side_request(parse_chat_request(example(known, INSTRUCTIONS))) is known


def test_probes() -> None:
    """Only the one word for one token is a probe: a person who types it in a client gets an answer and a chat."""
    [known] = [known for known in SIDE_REQUESTS if known.kind == "probe"]
    [body] = examples(known)
    system = {"role": "system", "content": "You are Claude Code, Anthropic's official CLI for Claude."}
    longer = [{"role": "user", "content": "quota of fish"}]
    changes: list[dict[str, Any]] = [{"max_tokens": 2}, {"max_tokens": None}, {"messages": longer}]
    changes += [{"messages": [system, *body["messages"]]}, {"messages": [*TALK, *body["messages"]]}, {"tools": [TOOL]}]
    for changed in changes:
        assert not told({**body, **changed}).is_task


@pytest.mark.parametrize("system", CLAUDE)
@pytest.mark.parametrize(
    "asked",
    [
        "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. What does the ferry cost?",
        "Your task is to create a detailed summary of the conversation so far, paying close attention to the piers.",
        "Warmup",
        "quota",
    ],
)
def test_words_of_a_person_in_claude_code(asked: str, system: str) -> None:
    """What a person types in the program itself stays a chat, though an order of the program begins alike."""
    messages = [{"role": "system", "content": system}, *TALK, {"role": "user", "content": asked}]
    assert not told({"model": "m", "messages": messages, "stream": True, "tools": [TOOL]}).is_task


def test_reminders_before_an_order() -> None:
    """Claude Code's reminders may stand before its order; a person's words before it make it a chat."""
    [known, *_] = [known for known in SIDE_REQUESTS if known.client == "claude-code" and known.kind == "compaction"]
    [body, *_] = examples(known)
    *before, order = body["messages"]
    for first, is_task in (("<system-reminder>\nA.\n</system-reminder>\n" * 2, True), ("What does this ask?\n", False)):
        asked = {**order, "content": first + order["content"]}
        assert told({**body, "messages": [*before, asked]}).is_task == is_task


def quoted(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message that speaks of another one."""
    return {**message, "content": f"They wrote: {message['content']}".replace("\n", " ")}


def test_tools_that_may_not_be_called() -> None:
    """Tools beside `tool_choice` none are no offer."""
    [body] = examples(SIDE_REQUESTS[0])
    assert told({**body, "tools": [TOOL], "tool_choice": "none"}).is_task
    assert not told({**body, "tools": [TOOL], "tool_choice": "auto"}).is_task


@pytest.mark.parametrize("known", KINDS)
def test_switched_off(known: SideRequest) -> None:
    """Without the setting, and where a header says otherwise, it is a chat like any other."""
    for body in examples(known):
        assert not told(body, knows=False).is_task
        assert not told(body, {"X-Elbowroom-Task": ""}).is_task


@pytest.mark.parametrize(
    "asked",
    [
        "Summarise this.",
        "Please summarize our conversation so far.",
        "Your task is to create a detailed summary of the conversation so far, paying close attention to the pier.",
        "Generate a title for this conversation:",
        "Write a title for this chat.",
        "<conversation>",
    ],
)
def test_words_of_a_person(asked: str) -> None:
    """What a person asks in a chat, with the system message that it had before, stays a chat."""
    for system in ("You are a helpful assistant.", "You are opencode, an interactive CLI tool."):
        messages = [{"role": "system", "content": system}, *TALK, {"role": "user", "content": asked}]
        assert not told({"model": "m", "messages": messages, "stream": True}).is_task
