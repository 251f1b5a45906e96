"""A conversation knows which program began it, where the chat is there, and is found by that and by its model."""

from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, RAW_MODEL
from serving import Served
from small_window import ask_whole, small_window

from elbowroom.server.state import SHARED

CHAT = "4f1c2a9e-1111-4222-8333-944445555666"
URL = f"http://127.0.0.1:8080/c/{CHAT}"


async def rows(served: Served, **query: str) -> list[dict[str, Any]]:
    """Return the conversations that are listed."""
    async with served.http.get(f"{served.url}/v1/conversations", params=query) as response:
        listed: dict[str, Any] = await response.json()
        return list(listed["data"])


async def say(served: Served, text: str, model: str = RAW_MODEL, **headers: str) -> None:
    """Begin a conversation."""
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    async with served.http.post(served.chat_url, json=body, headers=headers) as response:
        assert response.status == 200


async def test_conversations_of_a_program(tmp_path: Path) -> None:
    """They are listed by its name, with the address of the chat, also after a restart; others have neither."""
    async with small_window(tmp_path) as (served, _):
        await say(
            served, "One.", **{"X-Conversation-Id": CHAT, "X-Elbowroom-Message-Id": "m", "X-Elbowroom-Chat-Url": URL}
        )
        await say(served, "Two.", **{"X-Title": "Cline"})
        await say(served, "Three.", model="writer")
        await served.app[SHARED].store.conversations.settled()
        assert {(row["title"], row["program"], row["url"]) for row in await rows(served)} == {
            ("One.", "Open WebUI", URL),
            ("Two.", "Cline", None),
            ("Three.", None, None),
        }
    async with small_window(tmp_path) as (served, _):
        assert [row["title"] for row in await rows(served, program="Open WebUI")] == ["One."]
        assert [row["title"] for row in await rows(served, program="Cline")] == ["Two."]
        assert await rows(served, program='Open WebUI","url":"') == []
        assert await rows(served, program="%") == []


async def test_conversations_with_a_model(tmp_path: Path) -> None:
    """They are those for which it was asked, whoever has answered; together with an agent those of both."""
    async with small_window(tmp_path) as (served, _):
        await say(served, "One.")
        await say(served, "Two.", model="writer")
        await served.app[SHARED].store.conversations.settled()
        assert {row["title"] for row in await rows(served, model=MODEL)} == {"One.", "Two."}
        assert [row["title"] for row in await rows(served, model=MODEL, agent="writer")] == ["Two."]
        assert await rows(served, model="another") == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/c/{{CHAT_ID}}",
        "http://127.0.0.1:8080/c/",
        f"javascript:alert('{CHAT}')",
        f"http://127.0.0.1:8080/c/{CHAT} onclick=x",
        f"http://127.0.0.1:8080/{'x' * 500}/{CHAT}",
    ],
)
async def test_what_is_no_address_of_the_chat(tmp_path: Path, url: str) -> None:
    """Nothing is guessed: what does not lead to this chat is left out, and the chat is answered."""
    async with small_window(tmp_path) as (served, _):
        await say(served, "One.", **{"X-Conversation-Id": CHAT, "X-Elbowroom-Chat-Url": url})
        [row] = await rows(served)
        assert row["url"] is None
        status, _ = await ask_whole(served, {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Two."}]})
        assert status == 200
