"""The branches of a conversation: who edits a question or asks again goes on from an earlier place in the tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from elbowroom.context.conversation import KeptMessage
from elbowroom.context.tool_calls import calls_of
from elbowroom.context.transcript import SYSTEM_ROLES, text_of


@dataclass(frozen=True, slots=True)
class Node:
    """A place in the tree: one message of a client, or a turn with all its messages in order.

    The key of a turn is empty until it has ended.
    """

    key: str
    parent: str
    messages: tuple[KeptMessage, ...]

    @property
    def last(self) -> KeptMessage:
        """Return the message that this place ends with."""
        return self.messages[-1]

    @property
    def is_turn(self) -> bool:
        """Tell whether this was said here, and not sent by a client."""
        return bool(self.last.turn)

    @property
    def is_system(self) -> bool:
        """Tell whether this is a system message, which hangs beside the branches."""
        return not self.is_turn and self.last.message.get("role") in SYSTEM_ROLES

    @property
    def is_unfinished(self) -> bool:
        """Tell whether this is a turn that has not come to its end, or not yet."""
        return self.is_turn and any(message.status != "complete" for message in self.messages)


@dataclass(frozen=True, slots=True)
class ConversationTree:
    """All messages of a conversation by their places; made by `of`."""

    nodes: tuple[Node, ...]
    _by_key: dict[str, Node] = field(repr=False)
    _behind: dict[str, list[Node]] = field(repr=False)

    @classmethod
    def of(cls, messages: Sequence[KeptMessage]) -> "ConversationTree":
        """Return the tree. Where a client sends an answer back as it was, the turn that gave it stands for it."""
        nodes = tuple(_nodes(messages))
        by_key = {node.key: node for node in nodes if node.key and not node.is_turn}
        by_key |= {node.key: node for node in nodes if node.key and node.is_turn}
        behind: dict[str, list[Node]] = {}
        for node in nodes:
            if node.is_turn or by_key.get(node.key, node) is node:
                behind.setdefault(node.parent, []).append(node)
        return cls(nodes, by_key, behind)

    def latest(self) -> list[KeptMessage]:
        """Return the branch that was used last, from its first message to what was said last."""
        spoken = [node for node in self.nodes if not node.is_system]
        if not spoken:
            return [message for node in self.nodes for message in node.messages]
        return self.branch_to(max(spoken, key=lambda node: node.last.number))

    def ends(self) -> list[KeptMessage]:
        """Return the last message of every branch, in the order in which they came in."""
        ends = [node for node in self.nodes if not node.is_system and self._stands_for(node) and not self._next(node)]
        return sorted((node.last for node in ends), key=attrgetter("number"))

    def branch_to(self, end: Node, *, with_unfinished: bool = True) -> list[KeptMessage]:
        """Return all messages of the branch that ends there.

        Each system message stands behind the one that it follows; of those that took each other's place, the last.
        Turns that were interrupted stand where they were begun, also where the branch went on without them, unless
        that is not wanted.
        """
        path = self._path(end)
        said = list(self._beside(path[0].parent, path[0], with_unfinished))
        for node, following in zip(path, [*path[1:], None], strict=True):
            said.extend(node.messages)
            if node.key:
                said.extend(self._beside(node.key, following, with_unfinished))
        return said

    def goes_on_behind(self, node: Node) -> bool:
        """Tell whether something was said behind a place."""
        return self._next(node)

    def _path(self, end: Node) -> list[Node]:
        """Return the places from the first to this one."""
        path = [end if end.is_turn else self._by_key.get(end.key, end)]
        seen = {path[0].key} - {""}
        while (node := self._by_key.get(path[-1].parent)) and node.key not in seen:
            seen.add(node.key)
            path.append(node)
        return path[::-1]

    def _beside(self, key: str, following: Node | None, with_unfinished: bool) -> Iterator[KeptMessage]:
        """Yield what hangs behind a place and is not the next place of the branch."""
        seen: set[str] = set()
        place = key
        while place not in seen and (systems := [node for node in self._behind.get(place, ()) if node.is_system]):
            seen.add(place)
            yield from systems[-1].messages
            place = systems[-1].key
        if following is not None and with_unfinished:
            for node in self._behind.get(key, ()):
                if node.is_unfinished and node is not following:
                    yield from node.messages

    def _next(self, node: Node) -> bool:
        """Tell whether a branch goes on behind a place."""
        return bool(node.key) and any(not other.is_system for other in self._behind.get(node.key, ()))

    def _stands_for(self, node: Node) -> bool:
        """Tell whether a place counts for itself, and no turn stands for it."""
        return node.is_turn or self._by_key.get(node.key, node) is node


def never_shown(messages: Sequence[KeptMessage]) -> frozenset[str]:
    """Return the ids of those that no client has seen: results of tools that ran here, and replies that only call such.

    Results that a client has sent are its own.
    """
    results = {(kept.turn, kept.message.get("tool_call_id")) for kept in messages if _is_result(kept)}

    def only_calls(kept: KeptMessage) -> bool:
        calls = calls_of(kept.message) if kept.turn else []
        return (
            bool(calls) and not text_of(kept.message) and all((kept.turn, call.get("id")) in results for call in calls)
        )

    return frozenset(kept.id for kept in messages if _is_result(kept) or only_calls(kept))


def _is_result(kept: KeptMessage) -> bool:
    return bool(kept.turn) and kept.message.get("role") == "tool"


def _nodes(messages: Sequence[KeptMessage]) -> Iterator[Node]:
    """Yield the places in the order in which they began."""
    places: dict[tuple[str, str], list[KeptMessage]] = {}
    for message in sorted(messages, key=attrgetter("number")):
        place = ("turn", message.turn) if message.turn else ("message", message.id)
        places.setdefault(place, []).append(message)
    for said in places.values():
        key = next((message.key for message in reversed(said) if message.key), "")
        yield Node(key, said[0].parent, tuple(said))
