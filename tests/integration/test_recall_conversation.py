"""An agent finds again, word for word, what a compaction took out of its window, by a tool that it has since then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chatting import AGENT_WITHOUT_CACHE
from small_window import ask_whole, history, small_window, turns_of

from elbowroom.demo import Script, ToolCall

RECALL = "recall_conversation"
SECRET = "The harbour office keeps the spare key in locker K-4417-QX, behind the blue tarpaulin."
COMPACTION = "background = false"


def with_secret(exchanges: int) -> list[dict[str, Any]]:
    """Return a client's history in which the first answer says something that no summary keeps."""
    messages = history(exchanges)
    messages[2] = {"role": "assistant", "content": SECRET}
    return messages


def names(body: dict[str, Any]) -> list[str]:
    """Return the names of the tools that a request offers."""
    return [tool["function"]["name"] for tool in body.get("tools", ())]


class Recalls:
    """Calls the tool once with these arguments wherever it is on offer, and says its result word for word."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.results: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Script | str:
        """Answer one request."""
        last = body["messages"][-1]
        if last["role"] == "tool":
            self.results.append(last["content"])
            return f"I looked it up: {last['content']}"
        return Script(ToolCall(RECALL, self.arguments)) if RECALL in names(body) else "I do not know."


async def test_what_was_compacted_away_is_found(tmp_path: Path) -> None:
    """The turn that compacts offers the tool at once; its model finds the words and the person gets them."""
    model = Recalls(query="spare key")
    async with small_window(tmp_path, model, window=4096, compaction=COMPACTION, agents=AGENT_WITHOUT_CACHE) as (
        served,
        studio,
    ):
        _, short = await ask_whole(served, {"model": "writer", "messages": with_secret(4)})
        assert short["choices"][0]["message"]["content"] == "I do not know."
        assert not any(names(chat.body) for chat in studio.chats)
        messages = with_secret(34)
        _, answer = await ask_whole(served, {"model": "writer", "messages": messages})
    content = answer["choices"][0]["message"]["content"]
    assert SECRET in content
    assert json.dumps(SECRET) not in json.dumps(turns_of(studio)[1].body["messages"])
