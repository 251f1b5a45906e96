"""Agents that several servers share: they are in a database, where any server changes them and tells the others."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from elbowroom.errors import SettingsNotSaved

FIRST_LOOK_SECONDS: Final = 5.0
"""How long the first request waits for the database."""
LOOK_SECONDS: Final = 1.0
"""How long every other look may take; then the agents that were there last stay in force."""
SAVING_SECONDS: Final = 20.0
AGENTS_ELSEWHERE: Final = (
    'The agents are in the database (store.agents = "database"), once one was changed on a page; those of the settings '
    "file are shown and checked here. A running server shows the ones in force: GET /api/agents, GET /api/doctor."
)
FAILED: Final = (
    "The agents are kept in the database, which cannot be changed at the moment. Nothing was saved. Try again."
)


@dataclass(frozen=True, slots=True)
class AgentList:
    """The agents as they are in the database, and how often they have been changed.

    `rows` is None as long as nobody has changed them there: those of each server's file count until then.
    """

    revision: int
    rows: Sequence[Mapping[str, Any]] | None


class AgentTable(Protocol):
    """Where the agents are; no method raises anything."""

    async def agents(self, known: int | None) -> tuple[int, str | None] | None:
        """Return the revision and the rows as JSON; None where that is known, and where nobody can tell."""

    async def save_agents(self, known: int, rows: str) -> bool | None:
        """Put rows in place of those of a revision; tell whether it was the newest, None where that fails.

        All other servers that answer have looked at them when this returns.
        """

    def when_agents_change(self, look: Callable[[], Awaitable[None]]) -> None:
        """Call this whenever another server has saved agents, and now and then in case that was not heard."""


class SharedAgents:
    """The newest agents that this server has seen in the database, `known`; None before it was reached."""

    def __init__(self, table: AgentTable) -> None:
        self.known: AgentList | None = None
        self._table = table
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looks = 0
        self._newest = 0
        table.when_agents_change(self.look)

    async def look(self) -> None:
        """Look whether another server has changed them; where the database does not answer, nothing changes."""
        self._loop = asyncio.get_running_loop()
        self._looks += 1
        look = self._looks
        try:
            async with asyncio.timeout(LOOK_SECONDS if self.known else FIRST_LOOK_SECONDS):
                found = await self._table.agents(self.known.revision if self.known else None)
        except TimeoutError:
            return
        if found is not None and look > self._newest:  # and no later look was answered before
            self._newest = look
            self.known = AgentList(found[0], None if found[1] is None else json.loads(found[1]))

    def save(self, before: AgentList | None, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Put rows in place of these; tell whether nobody else has changed them meanwhile. Blocking, for threads.

        Raises SettingsNotSaved.
        """
        if before is None or self._loop is None:
            raise SettingsNotSaved(FAILED)
        saving = asyncio.run_coroutine_threadsafe(self._save(before, json.dumps(rows, default=str)), self._loop)
        try:
            return saving.result(SAVING_SECONDS)
        except TimeoutError:
            raise SettingsNotSaved(FAILED) from None

    async def _save(self, before: AgentList, rows: str) -> bool:
        is_saved = await self._table.save_agents(before.revision, rows)
        if is_saved is None:
            raise SettingsNotSaved(FAILED)
        await self.look()
        return is_saved
