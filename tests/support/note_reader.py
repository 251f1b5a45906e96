"""An agent that reads notes by a tool of the server, and clients that keep nothing but what they were shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chatting import AGENT, elbowroom_with_studio
from own_tools import own_tool
from serving import parse_frames, text_of

from elbowroom.demo import Script, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from serving import Served

    from elbowroom.agents.catalog import Target
    from elbowroom.agents.tools.tool import ServerTool
    from elbowroom.demo import SimulatedLMStudio

Message = dict[str, Any]
SECRET = "The key lies under the seventh stone."


@own_tool
async def read_note(path: str) -> str:
    """Read a note."""
    return f"{path}: {SECRET}"


def toolbox(target: Target) -> Sequence[ServerTool]:
    """Give every agent the tool."""
    return [read_note] if target.agent else []


def reading(path: str = "a.md", said: str = "Let me look.") -> Script:
    """Return what a model says that reads a note first."""
    return (
        Script(said, ToolCall("read_note", {"path": path})) if said else Script(ToolCall("read_note", {"path": path}))
    )


def note_reader(folder: Path, **options: Any) -> AbstractAsyncContextManager[tuple[Served, SimulatedLMStudio]]:
    """Run elbowroom with this agent in front of a simulated LM Studio."""
    return elbowroom_with_studio(folder, toolbox=toolbox, **{"agents": AGENT, **options})


@dataclass(slots=True)
class Person:
    """Talks with an agent in one chat; `headers` and `fields` go with each request.

    `conversation` is the id that came with the last answer.
    """

    served: Served
    headers: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    model: str = "writer"
    history: list[Message] = field(default_factory=list)
    conversation: str = ""

    async def say(self, text: str) -> str:
        """Say something and return the answer, which is in the history then."""
        self.history.append({"role": "user", "content": text})
        return await self.ask()

    async def ask(self) -> str:
        """Send the history and take in the answer."""
        body = {"model": self.model, "messages": self.history, "stream": True, **self.fields}
        async with self.served.http.post(self.served.chat_url, json=body, headers=self.headers) as response:
            assert response.status == 200, await response.text()
            # It may be missing where a store that is still being opened has not said which conversation goes on.
            self.conversation = response.headers.get("X-Conversation-Id", self.conversation)
            said = text_of(parse_frames(await response.read()))
        self.history.append({"role": "assistant", "content": said})
        return said


def prompt_of(studio: SimulatedLMStudio, number: int = -1) -> list[Message]:
    """Return the messages of a request to the model."""
    messages: list[Message] = studio.chats[number].body["messages"]
    return messages


def knows(messages: Sequence[Message]) -> bool:
    """Tell whether a prompt holds what stands in the notes."""
    return SECRET in str(messages)
