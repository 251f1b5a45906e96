"""Who asks is told by headers first, then by the body; whether it is a task, by its header, then by its form."""

import base64
import json
from typing import Any

import pytest
from multidict import CIMultiDict

from elbowroom.agents.request import NOBODY, Caller, parse_chat_request
from elbowroom.server.request.caller import LONGEST_NAME, caller_of, named_user

ORDER = "### Task:\nFind a title.\n<chat_history>\nUSER: Hi\n</chat_history>"
SELECTION = {"role": "system", "content": 'Available Tools: [{"name": "get_weather"}]\n\nChoose a tool.'}


def told(headers: dict[str, str] | None = None, **body: Any) -> Caller:
    """Return who asks with these headers and this body."""
    named, chat = CIMultiDict(headers or {}), parse_chat_request({"model": "m", "messages": [user("Hello")], **body})
    return caller_of(named, chat, named_user(named, chat.body))


def user(content: Any) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": content}


def token(claims: Any) -> str:
    """Return a JSON web token with this payload and a signature of nobody."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"


def test_nobody() -> None:
    """A plain request says nothing about who asks."""
    assert told() == NOBODY == Caller("", "", is_task=False)


def test_order_of_trust_for_the_owner() -> None:
    """Open WebUI's header, its token, our own header, then the fields of the body."""
    headers = {
        "X-OpenWebUI-User-Id": "by-header",
        "X-OpenWebUI-User-Jwt": token({"id": "by-id", "sub": "by-sub"}),
        "X-Elbowroom-User": "by-ours",
    }
    body: dict[str, Any] = {"safety_identifier": "by-identifier", "user": "by-user"}
    found = []
    while headers:
        found.append(told(headers, **body).owner)
        headers.pop(next(iter(headers)))
    while body:
        found.append(told(**body).owner)
        body.pop(next(iter(body)))
    assert found == ["by-header", "by-id", "by-ours", "by-identifier", "by-user"]
    assert told({"X-OpenWebUI-User-Jwt": token({"sub": "by-sub"})}).owner == "by-sub"


def test_order_of_trust_for_the_conversation() -> None:
    """The header that an administrator sets, Open WebUI's own, then the body's metadata."""
    metadata = {"conversation_id": "in-body"}
    both = {"X-Conversation-Id": "set", "X-OpenWebUI-Chat-Id": "forwarded"}
    assert told(both, metadata=metadata).chat_id == "set"
    assert told({"x-openwebui-chat-id": "forwarded"}, metadata=metadata).chat_id == "forwarded"
    assert told(metadata=metadata).chat_id == "in-body"


@pytest.mark.parametrize("value", ["", "  ", "{{USER_ID}}", " {{ CHAT_ID }} "])
def test_a_header_that_names_nothing_is_passed_over(value: str) -> None:
    """Empty headers, and templates that the client could not fill in, leave the word to what comes next."""
    headers = dict.fromkeys(["X-OpenWebUI-User-Id", "X-Elbowroom-User", "X-Conversation-Id"], value)
    caller = told({**headers, "X-OpenWebUI-Chat-Id": "c1"}, user="ada")
    assert (caller.owner, caller.chat_id) == ("ada", "c1")


@pytest.mark.parametrize(
    "junk",
    [
        "",
        "no token",
        "a.b",
        "..",
        "e30.%%%.x",
        "e30.\u00e9.x",
        "e30.W10.x",  # []
        "e30.bnVsbA.x",  # null
        token("text"),
        token({"id": None, "sub": ["x"]}),
        token({"sub": True}),
        f"e30.{base64.urlsafe_b64encode(b'[' * 6000).decode()}.x",
        f"e30.{base64.urlsafe_b64encode(b'9' * 6000).decode()}.x",
        f"e30.{base64.urlsafe_b64encode(bytes(range(256))).decode()}.x",
    ],
)
def test_a_token_that_cannot_be_read_names_nobody(junk: str) -> None:
    """Whatever a client sends as its token, the request goes on."""
    assert told({"X-OpenWebUI-User-Jwt": junk}).owner == ""


@pytest.mark.parametrize(
    ("value", "owner"),
    [("ada", "ada"), (" ada ", "ada"), (42, "42"), (0, "0"), (True, ""), (None, ""), (1.5, ""), (["a"], ""), ({}, "")],
)
def test_values_of_the_body(value: object, owner: str) -> None:
    """Texts and whole numbers name somebody; nothing else does, and nothing fails."""
    assert told(user=value).owner == owner
    assert told(metadata={"conversation_id": value}).chat_id == owner
    assert told(metadata=value).chat_id == ""


@pytest.mark.parametrize(
    "name", ["x" * (LONGEST_NAME + 1), "a\nWARNING forged", "a\x1b[31m", "\u202eadmin", "\ud800", "a\u2028b"]
)
def test_names_can_stand_in_a_log(name: str) -> None:
    """What is too long or would spoil a log is known by its hash, which still tells one from another."""
    owner = told(user=name).owner
    assert len(owner) <= LONGEST_NAME
    assert owner.isprintable()
    assert owner == told(user=name).owner
    assert owner != told(user=f"{name}2").owner
    assert told(metadata={"conversation_id": name}).chat_id == owner


def test_a_longest_name_stays() -> None:
    """Letters of any script stay as they are, up to the longest length."""
    assert told(user="\u00fc" * LONGEST_NAME).owner == "\u00fc" * LONGEST_NAME


@pytest.mark.parametrize("stream", [False, True, None])
@pytest.mark.parametrize("text", ["Hello", ORDER])
@pytest.mark.parametrize(("value", "is_task"), [("title_generation", True), ("", False), (" ", False)])
def test_the_header_decides(value: str, is_task: bool, text: str, stream: bool | None) -> None:
    """Whatever the text says and however it is asked for: a value is a task, an empty header is a chat."""
    assert told({"X-Elbowroom-Task": value}, messages=[user(text)], stream=stream).is_task is is_task


@pytest.mark.parametrize(
    "messages",
    [
        [user(ORDER)],
        [user([{"type": "text", "text": ORDER}])],
        [user(f"{ORDER}\n<chat_history>\nUSER: ### Task:\n<context>A file.</context>\nWhy?\n</chat_history>")],
        [{"role": "system", "content": "Be brief."}, user(ORDER)],
        [SELECTION, user("Query: what is the weather?")],
        [SELECTION, user('History:\nUSER: """Hi"""\nQuery: what is the weather?')],
    ],
)
@pytest.mark.parametrize("headers", [{}, {"X-Elbowroom-Task": "{{TASK}}"}])
def test_the_form_of_a_task(messages: list[dict[str, Any]], headers: dict[str, str]) -> None:
    """Without a header that says it, an order that is not streamed and stands alone is a task; streamed, never."""
    assert told(headers, messages=messages, stream=False).is_task
    assert told(headers, messages=messages).is_task
    assert not told(headers, messages=messages, stream=True).is_task


@pytest.mark.parametrize(
    "messages",
    [
        [user("Hello")],
        [user(f"Look at this:\n{ORDER}")],
        [user("Hello"), user(ORDER)],
        [user("Hello"), {"role": "assistant", "content": "Hi"}, user(ORDER)],
        [user(ORDER), {"role": "assistant", "content": "{"}],
        [{"role": "system", "content": ORDER}, user("Hello")],
        [{"role": "assistant", "content": ORDER}],
        [{"role": "system", "content": ORDER}],
        [user("### Task:\nRespond.\n<context>\n<source>A file.</source>\n</context>\n\nWhat does it say?")],
        [user("Query: what is the weather?")],
        [SELECTION, user("What is the weather?")],
        [SELECTION, user("Query: a"), {"role": "assistant", "content": "b"}, user("Query: c")],
        [{"role": "user", "content": SELECTION["content"]}, user("Query: a")],
        [{"role": "system", "content": "Available Tools: none"}, user("Query: a")],
    ],
)
def test_the_form_of_a_chat(messages: list[dict[str, Any]]) -> None:
    """A conversation that only speaks of tasks is none."""
    assert not told(messages=messages, stream=False).is_task


@pytest.mark.parametrize(
    ("name", "is_awaited"),
    [
        ("title_generation", False),
        ("tags_generation", False),
        ("follow_up_generation", False),
        ("autocomplete_generation", False),
        ("something new", False),
        ("query_generation", True),
        ("function_calling", True),
        ("context_compaction", True),
    ],
)
def test_tasks_that_a_chat_waits_for(name: str, is_awaited: bool) -> None:
    """By their names; whatever has no name of these can wait."""
    found = told({"X-Elbowroom-Task": name}, messages=[user(ORDER)], stream=False)
    assert (found.is_task, found.is_awaited, found.may_wait) == (True, is_awaited, not is_awaited)


@pytest.mark.parametrize(
    ("messages", "is_awaited"),
    [
        ([user(ORDER)], False),
        ([user("### Task:\nAnalyze the chat history to determine the necessity of a search.")], True),
        ([user("### Task:\r\nSummarize the conversation history that will be compacted.")], True),
        ([SELECTION, user("Query: what is the weather?")], True),
    ],
)
def test_the_form_of_tasks_that_a_chat_waits_for(messages: list[dict[str, Any]], is_awaited: bool) -> None:
    """Without a name, by how the order begins; a header that says what it is decides."""
    assert told(messages=messages, stream=False).is_awaited is is_awaited
    assert not told({"X-Elbowroom-Task": "tags_generation"}, messages=messages, stream=False).is_awaited
    assert not told({"X-Elbowroom-Task": ""}, messages=messages, stream=False).is_awaited


@pytest.mark.parametrize("name", ["thread-id", "session-id", "x-session-id", "x-session-affinity"])
def test_session_of_a_coding_agent_is_a_conversation(name: str) -> None:
    """Codex, opencode and pi name their session in a header of their own; a name that is set for us goes first."""
    assert told({name: "ses_1"}).chat_id == "ses_1"
    assert told({name: "ses_1", "X-Conversation-Id": "mine"}).chat_id == "mine"
