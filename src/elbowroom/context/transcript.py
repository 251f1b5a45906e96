"""A conversation as immutable groups: what belongs together is never split."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Message = Mapping[str, Any]
"""An OpenAI chat message. It is never changed: whoever needs another makes another."""

SYSTEM_ROLES = frozenset({"system", "developer"})
Kind = Literal["system", "user", "assistant", "tools"]


@dataclass(frozen=True, slots=True)
class Group:
    """An atom of a conversation: one message, or an assistant message with all its tool calls and their results."""

    messages: tuple[Message, ...]

    @property
    def kind(self) -> Kind:
        """Return what the group is: `tools` for an assistant message with calls, else by its role."""
        first = self.messages[0]
        role = first.get("role")
        if role in SYSTEM_ROLES:
            return "system"
        if role == "assistant":
            return "tools" if first.get("tool_calls") else "assistant"
        return "user"

    @property
    def text(self) -> str:
        """Return all text in the group, messages separated by line breaks."""
        return "\n".join(filter(None, (text_of(message) for message in self.messages)))


@dataclass(frozen=True, slots=True)
class Transcript:
    """A whole conversation, in order."""

    groups: tuple[Group, ...]

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "Transcript":
        """Group messages. Results follow their calls at once: `repair` sees to that."""
        groups: list[list[Message]] = []
        for message in messages:
            if message.get("role") == "tool" and groups and groups[-1][0].get("tool_calls"):
                groups[-1].append(message)
            else:
                groups.append([message])
        return cls(tuple(Group(tuple(group)) for group in groups))

    @property
    def messages(self) -> list[Message]:
        """Return the messages of all groups, in order."""
        return messages_of(self.groups)


def messages_of(groups: Sequence[Group]) -> list[Message]:
    """Return the messages of these groups, in order."""
    return [message for group in groups for message in group.messages]


def text_of(message: Message) -> str:
    """Return the text of a message: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))
