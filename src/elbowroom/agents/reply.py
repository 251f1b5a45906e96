"""What the model says in one step, put together from its deltas."""

import json
import re
import secrets
import string
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from elbowroom.agents.answer import ToolCall, assistant_message
from elbowroom.providers.events import ToolCallDelta

ID_LENGTH = 9
ID_LETTERS = string.ascii_letters + string.digits


def new_tool_call_id() -> str:
    """Return nine random letters and digits: the one form that Mistral's chat templates accept."""
    return "".join(secrets.choice(ID_LETTERS) for _ in range(ID_LENGTH))


@dataclass(slots=True)
class _Growing:
    name: str
    pieces: list[str]

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class Reply:
    """One model step. Tool calls count once the step has ended; the upstream's ids, which repeat, are not used.

    `offered` are the names of the tools in the request: LM Studio normalises names, which is undone here.
    """

    def __init__(self, offered: Collection[str], new_id: Callable[[], str] = new_tool_call_id) -> None:
        self._offered = offered
        self._new_id = new_id
        self._growing: list[_Growing] = []
        self._latest: dict[int, _Growing] = {}
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.tool_calls: list[ToolCall] = []

    def add_call(self, delta: ToolCallDelta) -> None:
        """Take a piece of a tool call; the pieces of several calls may come mixed."""
        call = self._latest.get(delta.index)
        if call is not None and self._continues(call, delta):
            call.pieces.append(delta.arguments)
        elif call is not None and self._completes_name(call, delta.name):
            call.name += delta.name or ""
            call.pieces.append(delta.arguments)
        elif delta.name is not None:
            self._latest[delta.index] = call = _Growing(delta.name, [delta.arguments])
            self._growing.append(call)

    def drop_calls(self) -> None:
        """Forget calls that were stopped before their end: the model makes them anew."""
        self._growing.clear()
        self._latest.clear()

    def close_calls(self, *, was_cut: bool) -> list[ToolCall]:
        """Return the calls, now that nothing more of them comes; where the step `was_cut`, only whole ones."""
        self.tool_calls = [
            ToolCall(self._new_id(), self._offered_name(call.name), call.arguments or "{}")
            for call in self._growing
            if not was_cut or _is_whole(call.arguments)
        ]
        return self.tool_calls

    def as_message(self) -> dict[str, Any]:
        """Return what has been said, and called once the step was closed, as a message of the conversation."""
        return assistant_message("".join(self.text), self.tool_calls)

    def _continues(self, call: _Growing, delta: ToolCallDelta) -> bool:
        # Some servers repeat the name in every piece, others give each of several calls the same index.
        if delta.name is None:
            return True
        return delta.name == call.name and bool(delta.arguments) and not _is_whole(call.arguments)

    def _completes_name(self, call: _Growing, more: str | None) -> bool:
        if more is None or call.name in self._offered or call.arguments:
            return False
        return any(name.startswith(call.name + more) for name in self._offered)

    def _offered_name(self, name: str) -> str:
        if name in self._offered:
            return name
        for form in (name_in_lm_studio, _letters_and_digits):
            alike = [offered for offered in self._offered if form(offered) == form(name)]
            if len(alike) == 1:
                return alike[0]
        return name


def _is_whole(arguments: str) -> bool:
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def name_in_lm_studio(name: str) -> str:
    """Return a tool's name as LM Studio writes it for the model, and so in the model's calls."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)


def _letters_and_digits(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
