"""A kept conversation as its client has it: the branch that was used last, and each turn as one message."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from elbowroom.agents.answer import Answer, AnswerEvent, ToolCall, assistant_message
from elbowroom.context.branch import ConversationTree
from elbowroom.context.conversation import Conversation, KeptMessage
from elbowroom.context.transcript import Message, calls_of, text_of
from elbowroom.providers.base import ReasoningDelta, TextDelta
from elbowroom.server.encode import THOUGHTS


def branch_used_last(conversation: Conversation, tree: ConversationTree) -> list[KeptMessage]:
    """Return the messages of the branch that was used last, without answers that have no end."""
    ends = [node for node in tree.nodes if not node.is_system and node.last.turn_status != "streaming"]
    if not ends:
        return [kept for kept in conversation.messages if not kept.turn]
    return tree.branch_to(max(ends, key=lambda node: node.last.number), with_unfinished=False)


def history_of(branch: Iterable[KeptMessage]) -> list[Message]:
    """Return the messages of a branch as its client has them."""
    messages: list[Message] = []
    for turn, said in groupby(branch, key=lambda kept: kept.turn):
        sent = list(said)
        messages += [_answer(sent)] if turn else [kept.message for kept in sent]
    return messages


def _answer(said: Sequence[KeptMessage]) -> Message:
    """Return a turn as the client's one message of it, with its thoughts where its calls wait for results."""
    texts = [event.text for event in events_of(said) if isinstance(event, TextDelta)]
    message = assistant_message("".join(texts), _client_calls(said))
    thoughts = [kept.reasoning for kept in said if kept.reasoning]
    return {**message, THOUGHTS: thoughts[-1]} if thoughts and "tool_calls" in message else message


def events_of(said: Sequence[KeptMessage]) -> Iterator[AnswerEvent]:
    """Yield what a client was shown of a turn, whose replies are kept as the model gave them."""
    shown = Answer()
    for kept in said:
        if kept.message.get("role") == "assistant":
            shown.begin_step()
            if kept.reasoning:
                yield shown.take(ReasoningDelta(kept.reasoning))
            if text := text_of(kept.message):
                yield shown.take(TextDelta(text))
    yield from _client_calls(said)


def _client_calls(said: Sequence[KeptMessage]) -> list[ToolCall]:
    """Return the calls that the client has to answer: those without a result in a complete turn."""
    if any(kept.status != "complete" for kept in said):
        return []
    answered = {kept.message.get("tool_call_id") for kept in said if kept.message.get("role") == "tool"}
    calls = [call for kept in said for call in calls_of(kept.message) if call.get("id") not in answered]
    return [ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
