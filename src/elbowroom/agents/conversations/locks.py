"""One lock for each conversation, taken by all that changes it: by its answers together, and by a change alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from elbowroom.errors import ConversationLocked


@dataclass(slots=True)
class _Lock:
    """How many answers and other users hold it, and whose turn it is to change; `is_claimed` refuses all changes."""

    users: int = 0
    answers: int = 0
    is_claimed: bool = False
    change: asyncio.Lock = field(default_factory=asyncio.Lock)


class ConversationLocks:
    """The locks of all conversations, by their ids, which no two owners share.

    All branches of a conversation have one lock. Its answers hold it together; a change waits for other changes and
    is refused while there are answers, and an answer that comes meanwhile waits for the change, which is short.
    """

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}

    def is_changing(self, conversation: str) -> bool:
        """Tell whether a change of this conversation is under way, which an answer has to wait for."""
        return conversation in self._locks and self._locks[conversation].change.locked()

    def is_claimed(self, conversation: str) -> bool:
        """Tell whether one response alone may answer this conversation now."""
        return conversation in self._locks and self._locks[conversation].is_claimed

    def answering(self, conversation: str) -> Callable[[], None]:
        """Hold the lock for an answer until what this returns is called; no change may be under way."""
        lock = self._entered(conversation)
        lock.answers += 1
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                lock.answers -= 1
                self._left(conversation, lock)

        return release

    @asynccontextmanager
    async def beside_answers(self, conversation: str) -> AsyncIterator[None]:
        """Hold the lock for a change that no running answer minds; other changes wait, and so do new answers."""
        with self._used(conversation) as lock:
            async with lock.change:
                yield

    async def changed(self, conversation: str) -> None:
        """Wait until no change of this conversation is under way."""
        while self.is_changing(conversation):
            with self._used(conversation) as lock:
                async with lock.change:
                    pass

    @asynccontextmanager
    async def changing(self, conversation: str) -> AsyncIterator[None]:
        """Hold the lock alone. Raises ConversationLocked where the conversation is being answered."""
        with self._used(conversation) as lock:
            self._refuse_answered(conversation, lock)
            async with lock.change:
                self._refuse_answered(conversation, lock)  # an answer may have begun meanwhile
                yield

    @contextmanager
    def claimed(self, conversation: str) -> Iterator[None]:
        """Let one response alone answer a conversation; all changes, and other such responses, are refused.

        No change may be under way. Raises ConversationLocked where it is being answered.
        """
        with self._used(conversation) as lock:
            self._refuse_answered(conversation, lock)
            lock.is_claimed = True
            try:
                yield
            finally:
                lock.is_claimed = False

    @contextmanager
    def _used(self, conversation: str) -> Iterator[_Lock]:
        lock = self._entered(conversation)
        try:
            yield lock
        finally:
            self._left(conversation, lock)

    def _entered(self, conversation: str) -> _Lock:
        lock = self._locks.setdefault(conversation, _Lock())
        lock.users += 1
        return lock

    def _left(self, conversation: str, lock: _Lock) -> None:
        lock.users -= 1
        if not lock.users:
            del self._locks[conversation]

    @staticmethod
    def _refuse_answered(conversation: str, lock: _Lock) -> None:
        if lock.answers or lock.is_claimed:
            raise ConversationLocked(conversation)
