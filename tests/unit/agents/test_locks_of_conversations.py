"""A lock of a conversation is there exactly as long as somebody has it."""

import gc

import pytest

from elbowroom.agents.conversations.locks import ConversationLocks
from elbowroom.errors import ConversationLocked


@pytest.mark.slow
async def test_a_change_beside_answers_lasts_to_its_end() -> None:
    """An answer that comes meanwhile sees the change, though nobody else has the lock."""
    locks = ConversationLocks()
    async with locks.beside_answers("one"):
        gc.collect()
        assert locks.is_changing("one")
    assert not locks.is_changing("one")


async def test_an_answer_lasts_until_it_is_released() -> None:
    """A change is refused meanwhile; the second release changes nothing."""
    locks = ConversationLocks()
    release, other = locks.answering("one"), locks.answering("one")
    release()
    release()
    with pytest.raises(ConversationLocked):
        async with locks.changing("one"):
            pass
    other()
    async with locks.changing("one"):
        assert locks.is_changing("one")


async def test_a_claim_lasts_to_its_end() -> None:
    """One response alone answers the conversation meanwhile."""
    locks = ConversationLocks()
    with locks.claimed("one"):
        gc.collect()
        assert locks.is_claimed("one")
        with pytest.raises(ConversationLocked), locks.claimed("one"):
            pass
    assert not locks.is_claimed("one")
