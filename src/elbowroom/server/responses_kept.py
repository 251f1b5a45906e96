"""Responses as they are kept: the turns of conversations, each with what was said before it."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from elbowroom.agents.answer import Answer, AnswerEvent, ToolCall, assistant_message
from elbowroom.agents.shared import Shared
from elbowroom.context.conversation import Conversation, KeptMessage
from elbowroom.context.conversation_branch import ConversationTree, Node
from elbowroom.context.tool_calls import calls_of
from elbowroom.context.transcript import Message, text_of
from elbowroom.providers.events import ReasoningDelta, TextDelta
from elbowroom.server.responses_body import NOTHING_REPEATED
from elbowroom.server.responses_encode import described, response_id_of, turn_of
from elbowroom.server.responses_input import THOUGHTS
from elbowroom.server.responses_items import OutputItems


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A turn in its conversation, `node` of the `tree`; one that is running may have more to say."""

    conversation: Conversation
    tree: ConversationTree
    node: Node
    is_running: bool

    @property
    def id(self) -> str:
        """Return the id of the response."""
        return response_id_of(self.node.last.turn)

    @property
    def name(self) -> str:
        """Return the name by which the next request finds the conversation."""
        row = self.conversation.row
        return row.name or row.id

    @property
    def is_last(self) -> bool:
        """Tell whether nothing was said behind it."""
        return not self.tree.goes_on_behind(self.node)

    @property
    def is_alone(self) -> bool:
        """Tell whether its conversation has no other answer."""
        return {kept.turn for kept in self.conversation.messages} <= {"", self.node.last.turn}

    def history(self) -> list[Message]:
        """Return all that was said up to it, as the client has it, without what `instructions` were sent."""
        branch = self.tree.branch_to(self.node, with_unfinished=False)
        messages: list[Message] = []
        for turn, said in groupby(branch, key=lambda kept: kept.turn):
            sent = list(said)
            messages += [_answer(sent)] if turn else [kept.message for kept in sent if not _instructs(kept)]
        return messages

    def items(self) -> list[dict[str, Any]]:
        """Return its output items."""
        items = OutputItems(self.id)
        for event in _said(self.node.messages):
            for _ in items.take(event):
                pass
        for _ in items.close():
            pass
        return items.done

    def described(self) -> dict[str, Any]:
        """Return the response, without what only its request said."""
        first = self.node.messages[0]
        status = "in_progress" if self.is_running else "cancelled" if self.node.is_unfinished else "completed"
        known = described(self.id, first.agent, int(first.at), status, self.items())
        return {**known, **NOTHING_REPEATED, "previous_response_id": self._previous(), "store": True}

    def _previous(self) -> str | None:
        branch = self.tree.branch_to(self.node, with_unfinished=False)
        turns = [kept.turn for kept in branch if kept.turn and kept.turn != self.node.last.turn]
        return response_id_of(turns[-1]) if turns else None


async def find_response(shared: Shared, owner: str, response_id: str) -> KeptResponse | None:
    """Return one of the owner's responses that has said something, None where there is none with this id."""
    found = await find_responses(shared, owner, [response_id])
    return found[0] if found else None


async def find_responses(shared: Shared, owner: str, response_ids: Iterable[str]) -> list[KeptResponse]:
    """Return those of the owner's responses with these ids that have said something; each conversation is read once."""
    kept, found = shared.store.conversations, list[KeptResponse]()
    read: dict[str, tuple[Conversation, ConversationTree]] = {}
    for turn in map(turn_of, response_ids):
        is_running = shared.running.is_running(owner, turn)
        holder = await kept.holder(owner, turn)
        if holder is not None and holder not in read and (conversation := await kept.read(owner, holder)) is not None:
            read[holder] = conversation, await asyncio.to_thread(ConversationTree.of, conversation.messages)
        if holder is not None and holder in read:
            conversation, tree = read[holder]
            nodes = (node for node in tree.nodes if node.last.turn == turn)
            found += [KeptResponse(conversation, tree, node, is_running) for node in nodes]
    return found


def unkept(response_id: str, status: str) -> dict[str, Any]:
    """Return a response of which nothing is kept but how it stands."""
    return {**described(response_id, "", int(time.time()), status, ()), **NOTHING_REPEATED, "store": False}


def _instructs(kept: KeptMessage) -> bool:
    """Tell whether this was sent as `instructions`: a system's message of an `input` is a list of parts."""
    return kept.message.get("role") == "system" and isinstance(kept.message.get("content"), str)


def _answer(said: Sequence[KeptMessage]) -> Message:
    """Return a turn as the one message that the client has of it, with its thoughts where it waits for results."""
    texts = [event.text for event in _said(said) if isinstance(event, TextDelta)]
    message = assistant_message("".join(texts), _client_calls(said))
    thoughts = [kept.reasoning for kept in said if kept.reasoning]
    return {**message, THOUGHTS: thoughts[-1]} if thoughts and "tool_calls" in message else message


def _said(said: Sequence[KeptMessage]) -> Iterator[AnswerEvent]:
    """Yield what a client was shown of a turn: each reply is kept as the model gave it, one step of the answer."""
    answer = Answer()
    for kept in said:
        if kept.message.get("role") == "assistant":
            answer.begin_step()
            if kept.reasoning:
                yield answer.take(ReasoningDelta(kept.reasoning))
            if text := text_of(kept.message):
                yield answer.take(TextDelta(text))
    yield from _client_calls(said)


def _client_calls(said: Sequence[KeptMessage]) -> list[ToolCall]:
    """Return the calls that the client was handed: those that nothing has answered in a turn that came to its end."""
    if any(kept.status != "complete" for kept in said):
        return []
    answered = {kept.message.get("tool_call_id") for kept in said if kept.message.get("role") == "tool"}
    calls = [call for kept in said for call in calls_of(kept.message) if call.get("id") not in answered]
    return [ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
