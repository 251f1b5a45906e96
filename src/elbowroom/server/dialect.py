"""One way from a request to its answer for chats, responses and messages: a dialect says how the answer is written."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.agents.answering import Begun
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.request import ChatRequest
from elbowroom.errors import RequestError
from elbowroom.server.encode import THOUGHTS
from elbowroom.server.event_stream import Encoder, EventStream, json_answer
from elbowroom.server.guard import CONVERSATION
from elbowroom.server.request import with_caller


class Answering(Protocol):
    """Hands an answer to a sink and returns it; tells which turn it is, as `answer` does."""

    def __call__(self, sink: Sink, /, begun: Begun) -> Awaitable[Answer]:
        """Begin to answer."""


class Dialect(Encoder[AnswerEvent, Answer], Protocol):
    """How one answer is written: as the frames of a stream, or as a whole once its events have been read."""

    def began(self, turn: TurnRecorder, /) -> object:
        """Take the turn that answers, before its first event, and again once its conversation is found."""

    def keep_alive(self) -> bytes:
        """Return a frame that fills a silence."""

    def whole(self, answer: Answer, /) -> dict[str, Any]:
        """Return the whole answer, of which the events have been handed to `events`."""


async def answered(
    request: web.Request, chat: ChatRequest, name: str, dialect: Dialect, run: Answering
) -> web.StreamResponse:
    """Answer in a dialect what `run` answers to a chat, as a stream or whole; the headers name the conversation.

    `name` is who answers, for the log.
    """
    stream = EventStream(request, name, dialect.keep_alive) if chat.stream else None
    headers = stream.response.headers if stream is not None else dict[str, str]()

    def begun(turn: TurnRecorder) -> None:
        dialect.began(turn)
        if turn.conversation:
            headers[CONVERSATION] = turn.conversation

    if stream is not None:
        return await stream.answer(dialect, partial(run, begun=begun))

    async def read(events: Sequence[AnswerEvent]) -> None:
        dialect.events(events)

    whole = await run(read, begun)
    return await json_answer(dialect.whole(whole), headers)


async def as_chat(request: web.Request, chat: ChatRequest, target: Target, body: Any, chat_id: str = "") -> ChatRequest:
    """Return the chat that a body of another dialect means, as it is sent on, with its caller.

    A provider that passes requests on may refuse what it does not know, such as thoughts. `chat_id` is the client's
    name for the conversation, where the headers have none.
    """
    if not target.provider.manages_context:
        plain = ({name: value for name, value in one.items() if name != THOUGHTS} for one in chat.messages)
        chat = replace(chat, messages=tuple(plain))
    caller = (await with_caller(request, replace(chat, body=body))).caller
    if chat_id and not caller.chat_id:
        caller = replace(caller, chat_id=chat_id)
    # A relayed body is sent as it is, and the upstream's stream is read whatever the client wants.
    sent = {**chat.body, "messages": list(chat.messages), "stream": True, "stream_options": {"include_usage": True}}
    return replace(chat, body=sent, caller=caller)


def text_in(value: Mapping[str, Any], name: str, where: str) -> str:
    """Return a field of a part of a request that has to be a text. Raises RequestError."""
    text = value.get(name)
    if not isinstance(text, str):
        raise RequestError(f"{where}.{name} has to be a text.", param=f"{where}.{name}")
    return text


def content_of(parts: Sequence[Mapping[str, Any]]) -> str | Sequence[Mapping[str, Any]]:
    """Return parts as the content of a chat's message: as one text where nothing but text is among them."""
    return "\n".join(part["text"] for part in parts) if all(part["type"] == "text" for part in parts) else parts
