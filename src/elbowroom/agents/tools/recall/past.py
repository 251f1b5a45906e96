"""The messages of one conversation, and which of them its model no longer has."""

from collections.abc import Iterable
from dataclasses import dataclass

from elbowroom.context.ledger import is_system
from elbowroom.context.transcript import Message, called, calls_of, readable


@dataclass(frozen=True, slots=True)
class PastMessage:
    """A message as the tool shows it; `number` is its place, from 1 on, and `at` when it was said, in Unix seconds."""

    number: int
    role: str
    text: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Past:
    """All messages of a conversation but system messages; `gone` are those that the model no longer has."""

    messages: tuple[PastMessage, ...]
    gone: tuple[PastMessage, ...]

    @classmethod
    def of(cls, said: Iterable[tuple[Message, float | None]], there: Iterable[Message], tool: str) -> "Past":
        """Return the past of a conversation in which this was `said`; the model's prompt has the messages `there`.

        The calls of `tool` and their results are never gone: they only repeat what was said before.
        """
        known = {_key(*_told(message)) for message in there}
        own: set[object] = set()
        messages: list[PastMessage] = []
        gone: list[PastMessage] = []
        for message, at in said:
            if is_system(message):
                continue
            role, text = _told(message)
            messages.append(PastMessage(len(messages) + 1, role, text, at))
            if tool in (name for name, _ in called(message)):
                own.update(call.get("id") for call in calls_of(message))
            elif text and _key(role, text) not in known and message.get("tool_call_id") not in own:
                gone.append(messages[-1])
        return cls(tuple(messages), tuple(gone))


def _told(message: Message) -> tuple[str, str]:
    """Return the role of a message and its text, with the calls in it."""
    calls = [f"(calls {name} with {arguments})" for name, arguments in called(message)]
    return str(message.get("role")), "\n".join(filter(None, (readable(message), *calls)))


def _key(role: str, text: str) -> tuple[str, str]:
    """Return what is the same for a message that was put back, which may have lost white space at its end."""
    return role, text.strip()
