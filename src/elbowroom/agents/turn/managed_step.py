"""One model step inside a window: compacts a prompt that does not fit, continues an answer that fills it up."""

import logging
from typing import Final

from elbowroom.agents.admission import Job
from elbowroom.agents.answer import Notice, Reply
from elbowroom.agents.turn.background import catch_up
from elbowroom.agents.turn.room import tell_that_it_is_tight
from elbowroom.agents.turn.sending import Sending
from elbowroom.context.budget import Refuse
from elbowroom.context.planner import BEFORE_REQUEST, IN_ANSWER
from elbowroom.errors import ContextOverflow, ElbowroomError, EmptyReply, ModelUnavailable
from elbowroom.logs.formats import FIELDS

log = logging.getLogger(__name__)
THOUGHTS_KEPT: Final = 1500  # characters
FULL: Final = "ask it to go on, or load the model with more context. Its {window:,} tokens are full."
CALL_TOO_LARGE: Final = (
    "load the model with more context, or ask for less at once. Its {window:,} tokens are full before its call of a "
    "tool ends."
)
AT_LIMIT: Final = "ask it to go on, or raise max_restarts ({most}). {freed:,} of {window:,} tokens can go."
BEGAN_ANEW: Final = "ask it to go on from its last words. It was full, and has begun the answer anew twice."


class ManagedStep:
    """Asks for one reply by the requests of `sending`, and keeps it within the window by the three checks.

    `job` is a background compaction of this very conversation that is under way since its last answer.
    """

    def __init__(self, sending: Sending, job: Job | None = None) -> None:
        self._sending, self._job = sending, job
        self._fit, self._manager, self._stream = sending.fit, sending.manager, sending.stream
        self._prompt = sending.fit.prompt
        self._recovery = sending.recovery
        self._lacks_room = self._has_insisted = False
        self._has_run_full = False
        """The last request has filled the window, so that its rest needs a smaller prompt."""

    async def run(self) -> Reply:
        """Return the whole reply; raises ContextOverflow where not even the smallest prompt fits the window."""
        if self._job is not None:
            await catch_up(self._fit, self._job)
        try:
            decision = await self._fit.run(self._fit.planner.first_decision())
        except Exception as error:  # a chat must not fail for its count: the engine may judge
            log.warning("The prompt for %s could not be counted: %s", self._recovery.info.id, error, exc_info=error)
            await self._sending.send_uncounted()
            return await self._stream.close()
        if not isinstance(decision, Refuse) and decision.is_tight and self._fit.planner.is_new:
            await tell_that_it_is_tight(self._prompt, self._sending.tell)
        fits = await self._fit.carry_out(decision, has_said=False)
        if (asked := self._prompt.shape.request.compaction) is not None:
            if not self._fit.has_handed_out:  # what it has been given before stands for what it has sent
                await self._fit.hand_out(self._fit.recall.begun_with())
            if asked.pauses and self._fit.has_handed_out:
                return await self._stream.close()
        while fits and await self._ask() and (self._lacks_room or self._manager.may_restart()):
            fits = await self._restart()
        if not fits or self._has_filled_the_window():
            await self._end_with(await self._why_it_is_cut(fits=fits))
        return await self._stream.close()

    async def _restart(self) -> bool:
        """Make room for the rest of the reply; tell whether there is some."""
        before, purpose = self._manager.filled, BEFORE_REQUEST if self._lacks_room else IN_ANSWER
        messages = self._manager.history.messages
        self._note_where_it_stopped()
        self._prompt.info = self._recovery.info
        decision = await self._fit.run(self._fit.planner.next_decision(purpose))
        fits = await self._fit.carry_out(decision, has_said=self._sending.visible > 0)
        if self._has_run_full and self._manager.history.messages == messages:
            return False
        if not self._lacks_room:
            self._log_restart(before, await self._prompt.most(self._manager.history.messages))
        return fits

    def _log_restart(self, before: int, after: int) -> None:
        restart, most = self._manager.restarts, self._manager.max_restarts
        fields = {"event": "restart", "agent": self._sending.target.name, "restart": restart, "most": most}
        log.info(
            "%s: restart %d of %d, with a prompt of %d tokens after %d.",
            self._sending.target.name,
            restart,
            most,
            after,
            before,
            extra={FIELDS: {**fields, "before": before, "after": after}},
        )

    async def _ask(self) -> bool:
        """Send the prompt and read the reply; return whether the reply has to go on in another request.

        It has to also where the prompt was not sent, since the window has become smaller.
        """
        self._lacks_room = self._has_run_full = False
        said, failure = self._sending.visible, None
        size = await self._prompt.size(await self._prompt.body(self._manager.history.messages))
        try:
            if not await self._sending.send(size):
                return True
        except ElbowroomError as error:
            failure = error.with_traceback(None)  # whose frames know this step, and it may outlive them
        has_said = self._sending.visible > said
        if failure is None or isinstance(failure, EmptyReply):
            was_truncated = await self._recovery.was_truncated(size, self._stream.usage)
            if was_truncated:
                self._sending.shared.observations.truncated(self._sending.name)
            if was_truncated and not has_said and self._manager.can_restart:
                return True
        if failure is not None:
            return await self._recovers(failure, size.count.at_most, has_said=has_said)
        return await self._set_right() if self._stream.begins_anew else self._wants_more()

    async def _recovers(self, failure: ElbowroomError, prompt: int, *, has_said: bool) -> bool:
        """Ask again after a failure before the first word: at once where the prompt fits, else when it has shrunk.

        Raises the failure where that is to be the end.
        """
        if has_said:
            watch = self._sending.watch
            self._recovery.after_words(failure, prompt + (watch.generated if watch else 0))
            raise failure
        if isinstance(failure, ModelUnavailable):  # it was unloaded or has crashed, and reads nothing any more
            self._sending.shared.admission.forget(self._sending.pool_key)
        self._fit.planner.refusal = await self._recovery.after(failure, prompt)
        if self._fit.planner.refusal is not None and not isinstance(failure, ContextOverflow):
            self._sending.shared.observations.overflowed(self._sending.name)  # it broke down over the prompt
        if self._fit.planner.refusal is None and self._recovery.fits(prompt) and self._manager.may_restart():
            self._log_restart(prompt, prompt)
            return await self._ask()
        return True

    async def _set_right(self) -> bool:
        """Ask more firmly, once, to go on with an answer that the model has begun anew; else the answer ends."""
        if self._has_insisted:
            await self._end_with(BEGAN_ANEW)
            return False
        self._has_insisted = True
        log.info("%s has begun its answer anew and is told to go on with it.", self._recovery.info.id)
        self._manager.history = self._manager.history.insisting()
        return await self._ask()

    def _wants_more(self) -> bool:
        """Tell whether the reply was stopped, or has run out of room, and the client wants more of it."""
        watch = self._sending.watch
        if watch is None or not (watch.is_stopped or self._stream.was_cut):
            return False
        self._sending.generated += watch.generated
        self._lacks_room = watch.is_stopped and watch.lacks_room
        if self._sending.left_for_client <= 0:
            self._stream.end_for_length()
            return False
        # The window may have ended it before the watch could, in one large piece for example.
        is_full = self._manager.prompt + watch.generated >= self._manager.budget.trigger
        goes_on = watch.is_stopped or (is_full and not self._sending.is_limited_by_client)
        self._has_run_full = goes_on and not self._lacks_room
        return goes_on

    def _note_where_it_stopped(self) -> None:
        """Let the answer so far stand at the end of the history, with the order to go on after it."""
        if not (said := "".join(self._stream.reply.text)):
            thoughts = "".join(self._stream.reply.reasoning)[-THOUGHTS_KEPT:]
            self._manager.history = self._manager.history.thinking_on(thoughts)
            return
        self._manager.history = self._manager.history.stopped(said)
        if self._has_insisted:
            self._manager.history = self._manager.history.insisting()

    def _has_filled_the_window(self) -> bool:
        """Tell whether the last request has gone to the very end of the window, which the person should know."""
        tokens = (self._stream.usage or {}).get("completion_tokens")
        filled = self._manager.prompt + (tokens if isinstance(tokens, int) else 0)
        return (
            self._stream.was_cut and not self._sending.is_limited_by_client and filled >= self._manager.budget.stop_at
        )

    async def _why_it_is_cut(self, *, fits: bool) -> str:
        window, most = self._manager.budget.window, self._manager.max_restarts
        if not fits or self._manager.can_restart or not self._manager.auto:
            return (CALL_TOO_LARGE if self._stream.has_calls else FULL).format(window=window)
        self._note_where_it_stopped()
        freed = await self._fit.run(self._fit.planner.could_be_freed())
        return AT_LIMIT.format(window=window, most=most, freed=freed)

    async def _end_with(self, reason: str) -> None:
        """Tell the person why the answer ends before its end, and end it."""
        text = f"The answer ends here: {reason}"
        log.warning("%s: %s", self._sending.target.name, text)
        await self._sending.tell([Notice("cut", text)])
        self._stream.end_for_length()
