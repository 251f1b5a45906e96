"""Open WebUI's tasks and chats, replayed from a recording: each is told for what it is, with headers and without."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
from chatting import elbowroom_with_studio, forget
from multidict import CIMultiDict
from open_webui_recording import RECORDED_MODEL, headers_of, recorded_chats
from pair_fixtures import Pair

from elbowroom.agents.request import Caller, parse_chat_request
from elbowroom.demo import SimulatedModel
from elbowroom.server.request.caller import caller_of, named_user

INSTRUCTIONS = "Speak like a pirate."
AGENT = f'[[agents]]\nid = "{RECORDED_MODEL}"\nmodel = "tiny"\ninstructions = "{INSTRUCTIONS}"\n'
TASKS: Final = ("task ", "legacy function calling: tool selection", "own context compaction: summary")
"""How the samples begin that are requests beside a conversation."""
OWN_HEADERS = {"X-T-Task": "X-Elbowroom-Task", "X-T-Chat": "X-Conversation-Id"}
"""The recording's headers that hold `{{TASK}}` and `{{CHAT_ID}}`, and the names that elbowroom gives them."""


def is_task(request: dict[str, Any]) -> bool:
    """Tell whether the recording was made of a task."""
    return bool(request["sample"].startswith(TASKS))


def caller(request: dict[str, Any], headers: dict[str, str]) -> Caller:
    """Return who asks with the body of a recorded request and these headers."""
    named, chat = CIMultiDict(headers), parse_chat_request(request["body"])
    return caller_of(named, chat, named_user(named, chat.body))


def with_own_headers(request: dict[str, Any]) -> dict[str, str]:
    """Return its headers as they come where they are set up as the documentation says."""
    named = headers_of(request).items()
    return {OWN_HEADERS[name]: value for name, value in named if name in OWN_HEADERS}


@pytest.mark.parametrize("request_", recorded_chats())
def test_every_request_is_told_rightly(request_: dict[str, Any]) -> None:
    """With Open WebUI's own headers, with ours, and without any; so are the chats about a file."""
    for headers in (headers_of(request_), with_own_headers(request_), {}):
        assert caller(request_, headers).is_task is is_task(request_)


@pytest.mark.parametrize("request_", recorded_chats())
def test_who_asks(request_: dict[str, Any]) -> None:
    """The person and the chat are those of the forwarded headers, by token or not; the chat's header may be ours."""
    headers = headers_of(request_)
    found = caller(request_, headers)
    if "X-OpenWebUI-Chat-Id" in headers:
        assert found.chat_id == headers["X-OpenWebUI-Chat-Id"]
        assert len(found.owner) == len("3289c33a-a2f1-457f-ab94-06e6a0ebf7ee")
        assert found.owner == headers.get("X-OpenWebUI-User-Id", found.owner)
    else:
        assert found == Caller()
    if "X-T-Chat" in headers:
        assert caller(request_, with_own_headers(request_)).chat_id == found.chat_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pirate(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Run elbowroom, whose one agent speaks like a pirate, in front of a simulated LM Studio for all tests here."""
    model = SimulatedModel("tiny", type="vlm", loaded_context_length=131_072)
    async with elbowroom_with_studio(tmp_path_factory.mktemp("pirate"), agents=AGENT, model=model) as pair:
        yield pair


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("request_", recorded_chats())
async def test_only_chats_get_the_agents_instructions(pirate: Pair, request_: dict[str, Any]) -> None:
    """An order that wants JSON is not answered by a pirate; a chat is, about a file too."""
    served, studio = pirate
    forget(studio)
    async with served.http.post(served.chat_url, json=request_["body"], headers=headers_of(request_)) as response:
        assert response.status == 200
        await response.read()
    [chat] = studio.chats
    assert (INSTRUCTIONS in str(chat.body["messages"])) is not is_task(request_)
