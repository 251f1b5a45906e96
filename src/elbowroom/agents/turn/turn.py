"""Answers one client request by model calls, step after step, in the SDK's Runner or without it."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from elbowroom.agents.answer import Reply, assistant_message
from elbowroom.agents.conversations import FOLLOW_UP, STEER, Intake
from elbowroom.agents.turn.asking import Asking
from elbowroom.agents.turn.background import compacting_ahead, read_again
from elbowroom.agents.turn.last_words import messages_at_stop, say_last_words
from elbowroom.agents.turn.sending import Sending
from elbowroom.agents.turn.stream import ReplyStream
from elbowroom.context.compaction import is_of_person
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import TextDelta

log = logging.getLogger(__name__)


class Turn:
    """Answers one client request step after step, by the replies of `asking`; `answer` grows with every step.

    `intake` takes messages from the queue of the conversation; turns of one run share it.
    """

    def __init__(self, asking: Asking, intake: Intake | None = None) -> None:
        settings = asking.settings
        self.answer, self._asking, self._settings, self._sink = asking.answer, asking, settings, asking.sink
        self.intake = intake or Intake(settings.shared.queue, settings.live, asking.sink)
        self._live, self._running = settings.live, settings.running
        self._reply_before: Reply | None = None
        self._results: dict[str, str] = {}  # of this turn's calls, as the model is shown them

    async def step(
        self,
        *,
        instructions: str | None = None,
        appended: Sequence[dict[str, Any]] = (),
        own_tools: Sequence[dict[str, Any]] = (),
        is_for_client: Callable[[str], bool] = lambda name: True,
    ) -> Reply:
        """Ask the model for one reply and return it; the sink has had it by then.

        `appended` are the messages of the steps before, without those taken in from the queue; `own_tools` the
        specifications of tools that the server runs; `is_for_client` tells whether a call of this name is handed to
        the client. Messages from the queue with which the model cannot be asked go back into it. Where the step was
        only for these, the reply of the step before is returned.
        """
        manager = self._asking.manager
        await self.intake.begin_step(manager.history.messages, appended, is_first=self.answer.steps == 0)
        before, self._reply_before = self._reply_before, None
        reply: Reply | None = None
        try:
            while reply is None:
                manager.history = manager.history.extended(self.intake.merged(appended))
                try:
                    reply = await self._asking.reply(instructions, own_tools, is_for_client)
                except ElbowroomError as error:
                    if self._asking.moves_after(error):
                        continue
                    if not await self.intake.put_unread_back(error):
                        raise
                    if before is not None and not self.intake.has_unread:
                        manager.history = manager.history.extended(self.intake.merged(appended))
                        reply = before
        finally:
            self.intake.note_read(is_answered=reply is not None)
            if self._asking.place is not None:
                self._asking.place.end(is_whole=reply is not None)
        if reply.tool_calls and self._running is not None:
            self._running.phase = "tool"
        return reply

    async def continues_after(self, appended: Sequence[dict[str, Any]], reply: Reply) -> bool:
        """Take in messages that wait after a reply that would be the last; tell whether there are any to answer.

        A reply with calls is not the last. A reply that has to follow a grammar is: two of them would break it.
        """
        if reply.tool_calls or (self._asking.asked is not None and self._asking.asked[0].is_constrained):
            return False
        self._reply_before = reply
        return await self.intake.take(len(appended), STEER, FOLLOW_UP, reply=reply.as_message())

    def returned(self, call_id: str, text: str) -> None:
        """Take a tool's result, as the model is shown it, as soon as it is there."""
        self._results[call_id] = text
        if self._live is not None:
            self._live.returned(call_id, text)

    async def stop(self, appended: Sequence[dict[str, Any]], why: str) -> None:
        """End the answer with a paragraph that says why, though the model would go on after `appended`."""
        manager, message = self._asking.manager, assistant_message(why, ())
        manager.history = manager.history.extended([*self.intake.merged(appended), message])
        if self._live is not None:
            self._live.results(appended)
            self._live.step_began()
            self._live.said([TextDelta(why)])
            self._live.called(())
        await self._sink([self.answer.stop(why)])

    async def interrupted(self) -> None:
        """End the answer where a person has stopped it, with the model's last words where they are wanted."""
        used = self._asking.last.used if self._asking.last is not None else []
        if len(used) > len(self.answer.usages) - self._asking.usages_before:
            self.answer.usages.append(used[-1].as_openai())
        if (running := self._running) is not None and running.wants_last_words and (self.answer.text or self._results):
            with running.saying_last_words():
                await self._say_last_words()
        self.answer.interrupt(calls_are_out=self._asking.request.stream)

    async def _say_last_words(self) -> None:
        asking = self._asking
        if asking.asked is None:
            return
        (shape, info, stream), last = asking.asked, asking.last  # the last is None where nothing is counted
        await say_last_words(
            messages_at_stop(asking.manager.history, stream.reply.as_message(), self._results),
            asking.target.provider,
            info,
            shape,
            self._settings.shared.admission,
            lambda: ReplyStream(self.answer, self._sink, (), lambda name: False, self._live),
            last.fit.prompt if last is not None else None,
        )

    def end(self, *, is_whole: bool, is_handed_over: bool = False) -> None:
        """Keep what the next turn can use; an answer that is not whole is the part that the client has.

        After a handover another turn goes on: this one's history lacks the end, and is not kept.
        """
        asking = self._asking
        self.intake.end()
        if asking.last is None:
            return
        if restarts := asking.manager.restarts:
            self._settings.shared.observations.restarted(restarts)
        try:
            if asking.memories is not None:
                asking.memories.end(asking.recall.chain, asking.recall.keeping.answer_key(self.answer.as_message()))
            if not is_handed_over:
                self._keep(asking.last, is_whole=is_whole)
        except Exception:  # the client has its answer, which must not fail for the next one
            log.exception("What a turn of %s leaves for the next one could not be kept.", asking.target.name)

    def _keep(self, sending: Sending, *, is_whole: bool) -> None:
        """Keep the turn's compaction, and begin the next one in the background where the answer comes near to it."""
        reply, said = sending.stream.reply.as_message(), self.answer.as_message()
        background, keeping = self._settings.shared.background, self._asking.recall.keeping
        if keeping.beyond is not None:
            keeping.keep(self._asking.manager.history.followed_by(reply), keeping.beyond, said)
        if sending.stream.was_cut:
            self._asking.recall.note_unfinished(said)
        goes_on = bool(self.answer.tool_calls)  # with results that the client is about to send
        owner = self._asking.request.caller.owner
        if goes_on:
            of_one_order = sum(map(is_of_person, self._asking.request.messages)) == 1
            background.goes_on(keeping.answer_key(said), sending.pool_key, owner, of_one_order=of_one_order)
        if not is_whole or goes_on or not self._settings.compaction.background or not sending.manager.auto:
            return
        has_one_slot = sending.recovery.info.slots == 1
        is_large = sending.answered(reply) >= sending.manager.budget.window // 4
        if not (has_one_slot or is_large) or background.is_at_work(sending.pool_key, owner):
            return  # where it is at work, this was a part of that, which nobody goes on with
        fit = sending.fit.after(reply, said)
        if has_one_slot:
            background.chat_ended(sending.pool_key, partial(read_again, fit.prompt, sending))
        if is_large and (work := compacting_ahead(sending, reply, fit)) is not None:
            of = (self._live.conversation, self._live.owner) if self._live is not None else ()
            background.begin(keeping.answer_key(said), sending.pool_key, work, *of)
