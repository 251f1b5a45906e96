"""On which machine of a provider the requests of a turn are made, and on which one next where that fails or is full."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from elbowroom.agents.admission.admission import Admission, RoomElsewhere
from elbowroom.agents.admission.choice import Candidate, chosen
from elbowroom.agents.admission.pool import PoolKey
from elbowroom.agents.catalog import Target
from elbowroom.context.observations import Observations
from elbowroom.context.reuse import ReadPrompt, SentPrompt, SentPrompts, Talk
from elbowroom.context.transcript import Message, size_in_bytes, text_of
from elbowroom.errors import (
    ElbowroomError,
    ModelNotFound,
    StreamCut,
    TooManyRequests,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from elbowroom.providers.machines import Machine, Machines, Serving, is_fault_of_machine

log = logging.getLogger(__name__)
BYTES_OF_TOKEN: Final = 3
MANY_SLOTS: Final = 64
"""Prompts that an engine is taken to keep whose server manages the context by itself."""
MOST_ROUNDS: Final = 3
"""How often a step is tried on each machine at most; those that were gone are looked at again before each round.

What a machine has refused, or has not answered in time, is asked there once: trying again would end the same way.
"""
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A prompt on its way to a machine, from the choice to the end of its answer; `tokens` is about its size."""

    machine: Machine
    model: str
    tokens: int


@dataclass(frozen=True, slots=True)
class PromptToPlace:
    """About what is sent, and the keys by which the last prompt of its conversation is found, if it has one."""

    messages: Sequence[Message] = ()
    talk: Talk | None = None


class Places:
    """Where prompts are and go; one for each server. `admission` knows who holds what, `prompts` what is cached."""

    def __init__(self, admission: Admission, prompts: SentPrompts, observations: Observations) -> None:
        self.admission = admission
        self.prompts = prompts
        self.observations = observations
        self.claims: set[Claim] = set()
        self.asked: WeakValueDictionary[str, Machine] = WeakValueDictionary()
        """The machines that were asked, by id."""
        if not admission.servers.may_remember:
            prompts.tell = self._tell

    def _tell(self, conversation: str, prompt: ReadPrompt) -> None:
        """Let the other servers know which of several machines has read a conversation's last prompt."""
        if prompt.model.partition("/")[0] in self.asked:
            self.admission.servers.note_read(conversation, prompt)

    async def on_machine(
        self,
        target: Target,
        work: Callable[[Target], Awaitable[Done]],
        prompt: Callable[[], PromptToPlace] = PromptToPlace,
        *,
        embeds: bool = False,
        has_begun: Callable[[], bool] = lambda: False,
    ) -> Done:
        """Do the work with the machine that is chosen, and anew with another one where it fails before it has begun.

        A target whose provider is one machine is what the work gets. Raises what the last work raises.
        """
        if not isinstance(target.provider, Machines):
            return await work(target)
        placement, is_done = Placement(self, target, target.provider, embeds=embeds), False
        asked = prompt()
        try:
            while True:
                bound = await placement.choose(asked)
                try:
                    done = await work(bound)
                except ElbowroomError as error:
                    if not placement.moves_after(error, has_said=has_begun()):
                        raise
                else:
                    is_done = True
                    placement.sent({"messages": asked.messages})
                    return done
        finally:
            placement.end(is_whole=is_done)

    def failed(self, pool_key: PoolKey, failure: ElbowroomError) -> bool:
        """Leave a machine alone with a model over which it has failed, or altogether where it is gone.

        Return whether another machine may answer what has failed.
        """
        machine = self.asked.get(pool_key[0])
        if machine is None or not is_fault_of_machine(failure):
            return False
        is_gone = isinstance(failure, UpstreamUnreachable | UpstreamTimeout)
        machine.failed(failure, "" if is_gone else pool_key[1])
        self.prompts.loaded_anew("/".join(pool_key))  # its cache may be gone
        return True

    def candidate(self, serving: Serving, own: Claim | None, before: SentPrompt | ReadPrompt | None) -> Candidate:
        """Return what the choice needs to know of a machine, but for a request's own claim."""
        machine, info = serving.machine, serving.info
        pool, model = self.admission.pool((machine.id, info.id)), f"{machine.id}/{info.id}"
        others = [
            claim.tokens
            for claim in self.claims
            if claim.machine is machine and claim.model == info.id and claim is not own
        ]
        slots = info.slots or (1 if machine.provider.manages_context else MANY_SLOTS)
        return Candidate(
            machine.id,
            info.loaded_context if machine.provider.manages_context else None,
            info.slots,
            is_loaded=info.loaded_context is not None or info.state is None,
            claimed=max(sum(others), pool.claimed if pool is not None else 0),
            requests=max(len(others), pool.claims if pool is not None else 0),
            cached=self._cached(before, model, info.loaded_context, slots),
            was_last=before is not None and before.model == model,
            rate=pool.rate.tokens_per_second if pool is not None and pool.rate.is_known else None,
            prompts=self.prompts.sent_to(model),
        )

    def _cached(self, before: SentPrompt | ReadPrompt | None, model: str, window: int | None, slots: int) -> int:
        if isinstance(before, ReadPrompt):
            return before.cached(model, window, slots)
        return self.prompts.cached(before, model, window, slots) if before is not None else 0


class Placement:
    """The machine of one request or turn, chosen anew for each of its steps.

    A machine that was gone in a step is chosen again for it only when all others have failed too.
    """

    def __init__(self, places: Places, target: Target, machines: Machines, *, embeds: bool = False) -> None:
        self._places = places
        self._target = target
        self._machines = machines
        self._embeds = embeds
        self._tokens = 0
        self._talk: Talk | None = None
        self._before: SentPrompt | ReadPrompt | None = None
        self._serving: Serving | None = None
        self._next: Serving | None = None
        self._claim: Claim | None = None
        self._tried: set[Machine] = set()
        self._gone: set[Machine] = set()
        self._rounds = 1
        self._failure: ElbowroomError | None = None

    async def choose(self, prompt: PromptToPlace) -> Target:
        """Return the target on the machine that a prompt goes to.

        Raises the last failure where no other machine is left, ModelNotFound, or what listing the models raises.
        """
        if self._failure is None:
            self._answered()
        await self._measure(prompt)
        try:
            best, self._next = self._next or await self._best_of_round(), None
        except ElbowroomError as error:
            best, self._failure = None, self._failure or error
        if best is None:
            self._serving = None
            raise self._failure or ModelNotFound(f"No machine has the model {self._target.model!r}.")
        self._note_move(best)
        self._failure, self._serving = None, best
        self._places.asked[best.machine.id] = best.machine
        self._claim_on(best)
        return replace(self._target, provider=best.machine.provider)

    async def _best_of_round(self) -> Serving | None:
        """Return the best machine that was not tried; where there is none, all are looked at and may be tried again."""
        await self._machines.serving(self._target.model, embeds=self._embeds)
        best = self._best(0.0)
        if best is None and self._gone and self._rounds < MOST_ROUNDS:
            self._rounds += 1
            self._tried -= self._gone
            self._gone.clear()
            await self._machines.look_at_all()
            best = self._best(0.0)
        return best

    def _note_move(self, to: Serving) -> None:
        if self._serving is None or self._failure is None or self._serving.machine is to.machine:
            return
        before, why = self._serving.machine.id, self._failure
        name = "full" if isinstance(why, RoomElsewhere) else type(why).__name__
        self._places.observations.machine_left(before, name)
        log.info("%s is asked on %s in place of %s: %s", to.info.id, to.machine.id, before, why.message)

    def moves_after(self, failure: ElbowroomError, *, has_said: bool) -> bool:
        """Take note of a failure; tell whether `choose` may find a machine that can do what this one could not.

        It may not where something was said already.
        """
        serving, leaves = self._serving, isinstance(failure, RoomElsewhere)
        if serving is None:
            return False
        is_fault = self._places.failed((serving.machine.id, serving.info.id), failure)
        if not is_fault and not leaves and not isinstance(failure, ModelNotFound | TooManyRequests):
            return False
        if not leaves:
            self._tried.add(serving.machine)
        if isinstance(failure, UpstreamUnreachable | StreamCut):
            self._gone.add(serving.machine)
        self._failure = failure
        return not has_said

    def leaves(self, waited: float) -> bool:
        """Tell whether a request that has waited so many seconds goes to another machine, whose room it claims."""
        best = self._best(waited)
        if best is None or self._serving is None or best.machine is self._serving.machine:
            return False
        self._next = best
        self._claim_on(best)
        return True

    def sent(self, body: Mapping[str, Any]) -> None:
        """Note a prompt of the conversation that nobody counts as read by its machine's engine."""
        if self._serving is not None and self._talk is not None:
            model, window = f"{self._serving.machine.id}/{self._serving.info.id}", self._serving.info.loaded_context
            self._places.prompts.keep(self._talk, SentPrompt.of(model, window, body, {}, tokens=self._tokens))

    def end(self, *, is_whole: bool) -> None:
        """Take back the claim: the answer has ended."""
        if is_whole:
            self._answered()
        if self._claim is not None:
            self._places.claims.discard(self._claim)
            self._claim = None

    async def _measure(self, prompt: PromptToPlace) -> None:
        """Find the prompt before this one, whichever server sent it, and estimate the size of this one."""
        self._talk, before = prompt.talk, None
        if prompt.talk is not None:
            found = await self._places.admission.servers.last_read(prompt.talk.conversation)
            before = found or self._places.prompts.last_of(prompt.talk)
        new = prompt.messages if before is None else _since_last_answer(prompt.messages)
        size = sum(size_in_bytes(text_of(message)) for message in new) // BYTES_OF_TOKEN
        self._before, self._tokens = before, size + (before.tokens if before is not None else 0)

    def _answered(self) -> None:
        self._tried.clear()
        self._gone.clear()
        self._rounds = 1
        if self._serving is not None:
            self._serving.machine.answered(self._serving.info.id)

    def _best(self, waited: float) -> Serving | None:
        known = self._machines.known(self._target.model, embeds=self._embeds)
        serving = {one.machine.id: one for one in known if one.machine not in self._tried}
        if not serving:
            return None
        candidates = [self._places.candidate(one, self._claim, self._before) for one in serving.values()]
        return serving[chosen(candidates, self._tokens, waited).id]

    def _claim_on(self, serving: Serving) -> None:
        if self._claim is not None:
            self._places.claims.discard(self._claim)
        self._claim = Claim(serving.machine, serving.info.id, self._tokens)
        self._places.claims.add(self._claim)


def _since_last_answer(messages: Sequence[Message]) -> Sequence[Message]:
    """Return what has come since the last prompt: the answer to it, and what follows that."""
    places = (place for place in range(len(messages) - 1, -1, -1) if messages[place].get("role") == "assistant")
    return messages[next(places, 0) :]
