"""One lock for each conversation, taken by all that changes it: by its answers together, and by a change alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from elbowroom.errors import ConversationLocked


@dataclass(slots=True, weakref_slot=True)
class _Lock:
    """How many answers hold it, and whose turn it is to change; `is_claimed` refuses all changes."""

    answers: int = 0
    is_claimed: bool = False
    change: asyncio.Lock = field(default_factory=asyncio.Lock)


class ConversationLocks:
    """The locks of all conversations, by their ids, which no two owners share.

    All branches of a conversation have one lock. Its answers hold it together; a change waits for other changes and
    is refused while there are answers, and an answer that comes meanwhile waits for the change, which is short. A lock
    is there as long as somebody has it, at least in a variable.
    """

    def __init__(self) -> None:
        self._locks = WeakValueDictionary[str, _Lock]()

    def is_changing(self, conversation: str) -> bool:
        """Tell whether a change of this conversation is under way, which an answer has to wait for."""
        lock = self._locks.get(conversation)
        return lock is not None and lock.change.locked()

    def is_claimed(self, conversation: str) -> bool:
        """Tell whether one response alone may answer this conversation now."""
        lock = self._locks.get(conversation)
        return lock is not None and lock.is_claimed

    def answering(self, conversation: str) -> Callable[[], None]:
        """Hold the lock for an answer until what this returns is called; no change may be under way."""
        lock = self._locks.setdefault(conversation, _Lock())
        lock.answers += 1
        held: _Lock | None = lock

        def release() -> None:
            nonlocal held
            if held is not None:
                held.answers -= 1
                held = None

        return release

    @asynccontextmanager
    async def beside_answers(self, conversation: str) -> AsyncIterator[None]:
        """Hold the lock for a change that no running answer minds; other changes wait, and so do new answers."""
        lock = self._locks.setdefault(conversation, _Lock())
        async with lock.change:
            yield

    async def changed(self, conversation: str) -> None:
        """Wait until no change of this conversation is under way."""
        while self.is_changing(conversation):
            lock = self._locks.setdefault(conversation, _Lock())
            async with lock.change:
                pass

    @asynccontextmanager
    async def changing(self, conversation: str) -> AsyncIterator[None]:
        """Hold the lock alone. Raises ConversationLocked where the conversation is being answered."""
        lock = self._locks.setdefault(conversation, _Lock())
        self._refuse_answered(conversation, lock)
        async with lock.change:
            self._refuse_answered(conversation, lock)  # an answer may have begun meanwhile
            yield

    @contextmanager
    def claimed(self, conversation: str) -> Iterator[None]:
        """Let one response alone answer a conversation; all changes, and other such responses, are refused.

        No change may be under way. Raises ConversationLocked where it is being answered.
        """
        lock = self._locks.setdefault(conversation, _Lock())
        self._refuse_answered(conversation, lock)
        lock.is_claimed = True
        try:
            yield
        finally:
            lock.is_claimed = False

    @staticmethod
    def _refuse_answered(conversation: str, lock: _Lock) -> None:
        if lock.answers or lock.is_claimed:
            raise ConversationLocked(conversation)
