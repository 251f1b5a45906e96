"""Compacts a conversation in the background, after an answer that has brought it near the trigger."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from elbowroom.agents.admission import Job, Work
from elbowroom.agents.ask import Question, ReplyReader, ask
from elbowroom.agents.prompt import StepCounter, without_answer_fields
from elbowroom.agents.turn.compactor import Compactor, ConversationSource
from elbowroom.agents.turn.fit import PromptFit
from elbowroom.agents.turn.flush import MemoryFlush
from elbowroom.agents.turn.managed_step import ManagedStep
from elbowroom.agents.turn.recall import PRUNED, Written
from elbowroom.agents.turn.room import decide
from elbowroom.context.budget import Compact, Decision
from elbowroom.context.compaction import Compaction, state_of
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message, Transcript, size_in_bytes, text_of
from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
NotePrompt = Callable[[Mapping[str, Any], int], object]
"""Takes the body of a request that the engine has read, and the size of its prompt in tokens."""
NEXT: Final[Message] = {"role": "user", "content": "..."}
"""Stands for the message that the person will write: some templates leave thoughts out only before a new one."""


def usual_question(messages: Sequence[Message]) -> Message:
    """Return a message as long as this person's usually are, in place of the next one; at least `NEXT`."""
    asked = sorted((text_of(message) for message in messages if message.get("role") == "user"), key=len)
    return {**NEXT, "content": asked[len(asked) // 2]} if asked else NEXT


@dataclass(slots=True)
class BackgroundCompaction:
    """Compacts a conversation with its answer, and lets the engine read the result, before the person writes again.

    It compacts where another message of the usual length would pass the trigger: then nobody has to wait for it. Some
    way below that it lets the agent save what must last. `fit` is that of the answer's last step, `history` includes
    the answer, and `said` is the answer as the client has it. `is_full` tells that by the engine's own report another
    message passes the trigger, whatever we count. `note_prompt` takes what the engine has read.
    """

    fit: PromptFit
    counter: StepCounter
    info: ModelInfo
    history: Prompt
    said: Message
    flush: MemoryFlush | None
    is_full: bool
    note_prompt: NotePrompt

    @classmethod
    def of(cls, managed: ManagedStep, reply: Message, said: Message) -> "BackgroundCompaction | None":
        """Return the work after the reply of a step; None where plainly nothing is to do.

        `said` is the answer as the client has it.
        """
        fit, budget, used = managed.fit, managed.manager.budget, managed.reported
        question = text_of(usual_question(managed.manager.history.messages))
        answered = managed.answered(reply) + size_in_bytes(question)
        flush = fit.flush(managed.info)
        least = flush.due_at(managed.manager.history.messages) if flush is not None else budget.trigger
        if budget.occupied(min(answered, budget.window)) < least:
            return None
        # Of its output only the visible text counts here: thoughts are in no later prompt.
        more = managed.counter.text(f"{text_of(reply)}\n{question}")
        return cls(
            fit=fit,
            counter=replace(managed.counter, dress=managed.shape.with_instructions),
            info=managed.info,
            history=managed.manager.history.followed_by(reply),
            said=said,
            flush=flush.with_answer(fit.recall.answer_key(said)) if flush is not None else None,
            is_full=used is not None and budget.occupied(used.prompt + more) >= budget.trigger,
            note_prompt=managed.note_prompt,
        )

    async def __call__(self, job: Job) -> None:
        """Compact and warm up; at a second try only what is left to do."""
        compactor = self.fit.compactor.for_job(job)
        if job.outcome.done() or await self._compact(job, compactor):
            await read_again(self.fit, self.counter, self.info, self.history, self.note_prompt, job)

    async def _compact(self, job: Job, compactor: Compactor) -> bool:
        """Flush and compact; tell whether the engine has something new to read."""
        pins = await self.fit.recall.pins()  # a person may have pinned something since the answer
        self.history = self.history.pinned(pins)
        expected = self.history.expecting(usual_question(self.history.messages))
        await self._flush(job, compactor, expected)
        decision = await self._decision(expected, must_shrink=self.is_full)
        if isinstance(decision, Compact) and await self._is_pruning_enough(expected):
            job.compacted(None)
            return True
        outcome = await self._compacted(decision, compactor, expected) if isinstance(decision, Compact) else None
        job.compacted(outcome)
        return outcome is not None

    async def _decision(self, history: Prompt, *, must_shrink: bool = False) -> Decision:
        manager = AgentContextManager(self.fit.manager.budget)
        return await decide(history, self.counter, manager, must_shrink=must_shrink)

    async def _flush(self, job: Job, compactor: Compactor, expected: Prompt) -> None:
        """Flush the whole conversation, before anything of it is shortened."""
        if self.flush is None:
            return
        budget, due_at = self.fit.manager.budget, self.flush.due_at(self.history.messages)
        if not self.is_full and budget.occupied(await self.counter.prompt(expected.messages)) < due_at:
            return
        job.is_flushing = True
        try:
            await replace(self.flush, compactor=compactor).run(self.history.messages)
        finally:
            job.is_flushing = False

    async def _is_pruning_enough(self, expected: Prompt) -> bool:
        """Shorten old results; tell whether the conversation needs no compaction then."""
        messages, keeper = self.history.messages, self.fit.keeper
        shorter = keeper.pruned(messages, must_shrink=True) if keeper is not None else None
        if shorter is None:
            return False
        pruned = self.history.shortened(shorter)
        if isinstance(await self._decision(pruned.expecting(expected.messages[-1])), Compact):
            return False
        self.history = pruned
        sizes = await self.counter.prompt(messages), await self.counter.prompt(shorter)
        self._keep(Written(self.fit.manager.budget.window, *sizes, PRUNED))
        return True

    async def _compacted(self, decision: Compact, compactor: Compactor, expected: Prompt) -> Compaction | None:
        """Compact what the next turn will need by a plan, and keep the result; None where there is no plan.

        Then nothing is lost early: before the next message the pruning agent is asked again.
        """
        if not decision.asks_pruner:
            return None
        fit, messages = self.fit, self.history.messages
        removed = await compactor.removed_calls(fit.keeper, messages)
        state = state_of(Transcript.of(messages).groups[-1:])
        asked, decision = await fit.offering_recall(decision, self.counter)
        dress = asked.with_instructions
        source = ConversationSource(asked, self.info, dress, state, removed, foresees=True)
        budget = fit.manager.budget
        outcome = await compactor.compact(expected.transcript, decision, budget, self.counter, source)
        if not isinstance(outcome, Compaction) or outcome.rung in ("digest", "last messages"):
            return None
        self.history = self.history.summarised(outcome.messages, outcome.tail)
        compactor.note(outcome, len(messages))
        if self.flush is not None:
            self.flush.begin_cycle()
        self._keep(Written.by(outcome, budget))
        if compactor.job is not None and not compactor.job.waiting:
            fit.recall.note_summarised(self.said, outcome.before, outcome.after)
        if (memories := fit.shape.memories) is not None:
            await memories.refresh(fit.recall.chain, self.counter.text)
            memories.end(fit.recall.chain, fit.recall.answer_key(self.said))
        return outcome

    def _keep(self, written: Written) -> None:
        self.fit.recall.keep_with_answer(self.history, self.said, written)


async def read_again(
    fit: PromptFit, counter: StepCounter, info: ModelInfo, history: Prompt, note_prompt: NotePrompt, job: Job
) -> None:
    """Ask for one token after a conversation: the engine has it in its cache then when the person writes again."""
    job.compacted(None)  # nobody waits for it
    target, admission = fit.compactor.target, fit.compactor.settings.shared.admission
    sent = await counter.sent([*history.messages, NEXT])
    body = {**without_answer_fields(fit.shape.body(sent)), "max_tokens": 1}
    prompt = (await counter.size(body)).at_most
    question = Question(target.provider, info, body, prompt, fit.manager.budget.window)
    await ask(question, ReplyReader(), admission, rank=job)
    note_prompt({**body, "messages": sent[:-1]}, prompt)
    log.info("%s has read the conversation ahead of its next message.", info.id)


def reading_again(managed: ManagedStep, reply: Message) -> Work:
    """Return the work of having the engine read a conversation after the reply of a step."""
    counter = replace(managed.counter, dress=managed.shape.with_instructions)
    history = managed.manager.history.followed_by(reply)
    return partial(read_again, managed.fit, counter, managed.info, history, managed.note_prompt)
