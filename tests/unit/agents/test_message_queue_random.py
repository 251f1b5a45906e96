"""Whatever happens in whatever order, each message of a queue is delivered once, and in order."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from queue_journal import QueueJournal

from elbowroom.agents.conversations.queue import ANY, FOLLOW_UP, STEER, MessageQueue
from elbowroom.context.conversation import QueueMode

CONVERSATIONS = ["c1", "c2"]
CLIENTS = ["anna", "ben", "cem"]
TURNS = ["t1", "t2", "t3"]
MODES: list[QueueMode] = ["steer", "follow_up"]
Action = tuple[Any, ...]

ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(CONVERSATIONS), st.sampled_from(CLIENTS), st.sampled_from(MODES)),
    st.tuples(
        st.just("take"),
        st.sampled_from(TURNS),
        st.sampled_from([STEER, FOLLOW_UP, ANY]),
    ),
    st.tuples(st.sampled_from(["deliver", "fail"]), st.sampled_from(TURNS)),
    st.tuples(st.just("remove"), st.sampled_from(CONVERSATIONS), st.integers(0, 5)),
    st.tuples(st.just("restart")),
)


@dataclass
class World:
    """A queue in use, and what has become of each message; a turn belongs to one conversation."""

    journal: QueueJournal = field(default_factory=QueueJournal)
    added: list[tuple[str, str, QueueMode]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    held: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = MessageQueue(self.journal)

    async def do(self, action: Action) -> None:
        match action:
            case "add", conversation, client, mode:
                text = f"{conversation} {client} {len(self.added)}"
                self.added.append((text, client, mode))
                await self.queue.add(conversation, {"role": "user", "content": text}, mode)
            case "take", turn, modes:
                await self.queue.load()
                taken = self.queue.take(CONVERSATIONS[TURNS.index(turn) % 2], turn, modes)
                self.held.setdefault(turn, []).extend(item.message["content"] for item in taken)
            case "deliver", turn:
                self.queue.delivered(turn)
                self.read += self.held.pop(turn, [])
            case "fail", turn:
                self.queue.give_back(turn)
                self.held.pop(turn, None)
            case "remove", conversation, place:
                ids = [item.id for item in self.queue.waiting(conversation)[place : place + 1]]
                self.removed += [item.message["content"] for item in self.queue.remove(conversation, ids)]
            case _:
                self.queue, self.held = MessageQueue(self.journal), {}

    async def finish(self) -> None:
        """Let every turn read what it has, and one more for each conversation what is left."""
        for turn in TURNS:
            await self.do(("deliver", turn))
        for turn in TURNS[:2]:
            await self.do(("take", turn, ANY))
            await self.do(("deliver", turn))


@given(st.lists(ACTIONS, max_size=60))
def test_each_message_is_delivered_once(actions: Sequence[Action]) -> None:
    """None is lost and none is read twice, through failures, removals and restarts; in the end nothing is kept."""

    async def run() -> None:
        world = World()
        for action in actions:
            await world.do(action)
        await world.finish()
        assert sorted(world.read + world.removed) == sorted(text for text, _, _ in world.added)
        assert not set(world.read) & set(world.removed)
        assert world.journal.kept() == {}

    asyncio.run(run())


@given(st.lists(ACTIONS.filter(lambda action: action[0] != "fail" and action[-1] != "t3"), max_size=60))
def test_messages_of_a_mode_are_read_in_the_order_in_which_they_were_added(actions: Sequence[Action]) -> None:
    """A client's messages of one mode reach a conversation as they were added, where each turn reads what it takes."""

    async def run() -> None:
        world = World()
        for action in actions:
            await world.do(action)
            if action[0] == "take":
                await world.do(("deliver", action[1]))
        await world.finish()
        for conversation in CONVERSATIONS:
            for client in CLIENTS:
                for mode in MODES:
                    mine = [text for text, whose, how in world.added if (whose, how) == (client, mode)]
                    expected = [text for text in mine if text.startswith(conversation) and text in world.read]
                    assert [text for text in world.read if text in expected] == expected

    asyncio.run(run())
