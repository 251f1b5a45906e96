"""What a reply's pieces go through: they are recorded and shown, unless the client is to be shown no more."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from elbowroom.agents.answer import Answer, AnswerEvent
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.turn.stream import ReplyStream
from elbowroom.providers.base import TextDelta


class Recorder:
    """Stands for the recorder of a turn, and keeps what was said."""

    def __init__(self) -> None:
        self.text = ""

    def step_began(self) -> None: ...

    def said(self, events: Sequence[TextDelta]) -> None:
        self.text += "".join(event.text for event in events)


async def test_what_the_sink_refuses_is_not_recorded() -> None:
    """A turn that was ended from outside keeps what its client has, and nothing that came too late."""
    recorder, sent, is_over = Recorder(), list[AnswerEvent](), False

    async def send(events: Sequence[AnswerEvent]) -> None:
        sent.extend(events)

    def sink(events: Sequence[AnswerEvent]) -> asyncio.Future[None]:
        if is_over:
            raise asyncio.CancelledError
        return asyncio.ensure_future(send(events))

    stream = ReplyStream(Answer(), sink, (), lambda name: True, cast(TurnRecorder, recorder))
    stream.begin({})
    await stream.take([TextDelta("Before.")])
    is_over = True
    with pytest.raises(asyncio.CancelledError):
        await stream.take([TextDelta("After.")])
    assert recorder.text == "Before."
    assert sent == [TextDelta("Before.")]
