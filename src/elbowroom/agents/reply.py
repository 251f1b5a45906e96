"""What the model says in one step, put together from its deltas."""

import re
import secrets
import string
from collections.abc import Callable, Collection

from elbowroom.agents.answer import ToolCall
from elbowroom.providers.events import ToolCallDelta

ID_LENGTH = 9
ID_LETTERS = string.ascii_letters + string.digits


def new_tool_call_id() -> str:
    """Return nine random letters and digits: the one form that Mistral's chat templates accept."""
    return "".join(secrets.choice(ID_LETTERS) for _ in range(ID_LENGTH))


class Reply:
    """One model step. A tool call counts once it is complete; the upstream's ids, which repeat, are not used.

    `offered` are the names of the tools in the request: LM Studio normalises names, which is undone here.
    """

    def __init__(self, offered: Collection[str], new_id: Callable[[], str] = new_tool_call_id) -> None:
        self._offered = offered
        self._new_id = new_id
        self._open: tuple[int, str, list[str]] | None = None
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.tool_calls: list[ToolCall] = []

    def add_call(self, delta: ToolCallDelta) -> ToolCall | None:
        """Take a piece of a tool call; return the call before it where this piece begins another."""
        if self._open is not None and self._continues(delta):
            self._open[2].append(delta.arguments)
            return None
        finished = self.close_call()
        if delta.name is not None:
            self._open = (delta.index, delta.name, [delta.arguments])
        return finished

    def close_call(self) -> ToolCall | None:
        """Return the call that was being put together, now that nothing more of it comes."""
        if self._open is None:
            return None
        _, name, arguments = self._open
        self._open = None
        call = ToolCall(self._new_id(), self._offered_name(name), "".join(arguments) or "{}")
        self.tool_calls.append(call)
        return call

    def _continues(self, delta: ToolCallDelta) -> bool:
        # Some servers repeat the name in every piece, others give each of several calls the same index.
        assert self._open is not None  # noqa: S101  # the caller has looked
        index, name, _ = self._open
        return delta.index == index and (delta.name is None or (delta.name == name and bool(delta.arguments)))

    def _offered_name(self, name: str) -> str:
        if name in self._offered:
            return name
        alike = [offered for offered in self._offered if _normal(offered) == _normal(name)]
        return alike[0] if len(alike) == 1 else name


def _normal(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
