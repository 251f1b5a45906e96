"""Compacts a conversation in the background, after an answer that has brought it near the trigger."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from elbowroom.agents.admission import Job, Work
from elbowroom.agents.ask import ReplyReader, ask
from elbowroom.agents.prompt import StepPrompt, without_answer_fields
from elbowroom.agents.turn.fit import PromptFit
from elbowroom.agents.turn.flush import cycle_of
from elbowroom.agents.turn.gauge import NEXT, note_fill
from elbowroom.agents.turn.sending import Sending
from elbowroom.caches import HISTORIES
from elbowroom.context.budget import Budget, Compact
from elbowroom.context.compaction import Compaction, is_of_person
from elbowroom.context.outputs import material_in, wholes_in
from elbowroom.context.planner import BEFORE_REQUEST
from elbowroom.context.transcript import Message, calls_of, text_of, written, written_size

log = logging.getLogger(__name__)
USUAL_TURNS: Final = (9, 10)
"""Of how many turns how many are no longer than what is expected."""


def usual_question(messages: Sequence[Message]) -> Message:
    """Return a message as long as this person's usually are, in place of the next one; at least `NEXT`."""
    asked = sorted((text_of(message) for message in messages if is_of_person(message)), key=len)
    return {**NEXT, "content": asked[len(asked) // 2]} if asked else NEXT


def expected_question(messages: Sequence[Message]) -> Message:
    """Return the usual question; material that only one message has is not expected again: it would be a short note."""
    asked = [message for message in messages if is_of_person(message)]
    plain = [message for message in asked if not (material_in(message) or wholes_in(text_of(message)))]
    return usual_question(plain if len(plain) == len(asked) - 1 else asked)


def long_turn(messages: Sequence[Message], size_of: Callable[[str], int], budget: Budget) -> Message:
    """Return a message as long as the next turn at most is nine times of ten, from a person's message to the answer.

    It takes no more than half of the room that a compaction makes: else each answer would be followed by one.
    """
    turns: list[tuple[list[int], list[Message]]] = []
    lengths = HISTORIES.of(messages).each(_length)
    for message, length in zip(messages, lengths, strict=True):
        if is_of_person(message):
            turns.append(([], []))
        if turns and (message.get("role") != "assistant" or calls_of(message)):
            turns[-1][0].append(length)
            turns[-1][1].append(message)
    turns.sort(key=lambda turn: sum(turn[0]))
    part, whole = USUAL_TURNS
    text = "\n".join(map(written, turns[-(-len(turns) * part // whole) - 1][1])) if turns else ""
    tokens, most = size_of(text), (budget.trigger - budget.target(0)) // 2
    return {**NEXT, "content": text[: len(text) * most // tokens] if tokens > most else text or NEXT["content"]}


def _length(message: Message) -> int:
    return len(written(message))


def compacting_ahead(sending: Sending, reply: Message, fit: PromptFit) -> Work | None:
    """Return the work of compacting a conversation after the reply of a step, and of having the engine read the result.

    It compacts where another turn could pass the trigger: then nobody has to wait for it. Some way below the trigger it
    lets the agent save what must last. None where plainly nothing is to do. `fit` makes room after that reply; it gets
    the prompt that something is made of, and keeps its own where a try comes to nothing.
    """
    manager, used = sending.manager, sending.reported
    budget, messages = manager.budget, manager.history.messages
    answered, flush = sending.answered(reply), sending.fit.flush()
    least = flush.due_at(messages) if flush is not None else budget.trigger

    # A turn is expected to take half of what is between target and trigger at most, which is no more than a quarter.
    may_pass = budget.occupied(min(answered + budget.trigger // 4, budget.window)) >= least
    if not (may_pass or manager.history.taken_in):
        return None
    turn = long_turn(messages, sending.fit.prompt.text, budget)
    may_pass = budget.occupied(min(answered + written_size(turn), budget.window)) >= least  # a token has a byte or more
    if not (may_pass or manager.history.taken_in):
        return None
    expected = partial(expected_question, messages)
    # Of its output only the visible text counts here, which is no more than all: thoughts are in no later prompt.
    shown, more = (
        sending.fit.prompt.text(manager.history.without_known(text_of(reply))),
        sending.fit.prompt.text(text_of(turn)),
    )
    is_full = used is not None and budget.occupied(used.prompt + min(used.output, shown) + more) >= budget.trigger
    pause = sending.shared.answers.of(sending.talk(), sending.name).pause

    async def work(job: Job) -> None:
        """Compact and warm up; at a second try only what is left to do."""
        job.usual_pause = pause
        is_news = job.outcome.done()
        if not is_news:
            compactor = sending.fit.compactor.for_job(job)
            trial = replace(fit, prompt=sending.fit.prompt.after(reply), compactor=compactor)
            outcome, is_news = await _compacted_ahead(trial, expected, turn, is_full=is_full)
            if is_news:
                fit.prompt = trial.prompt
            job.compacted(outcome)
        if is_news:
            await note_fill(fit.prompt, fit.compactor.settings)
            await read_again(fit.prompt, sending, job)

    return work


async def _compacted_ahead(
    fit: PromptFit, expected: Callable[[], Message], turn: Message, *, is_full: bool
) -> tuple[Compaction | None, bool]:
    """Compact ahead of the next message; where a plan came to nothing, none is asked for again before it is needed."""
    manager, in_vain, chain = fit.prompt.manager, fit.compactor.settings.shared.notes.in_vain, fit.recall.chain
    messages, flush = manager.history.messages, fit.flush()
    if in_vain.find(chain) == (cycle := cycle_of(messages)):
        manager.give_up_pruning()
    due_at = flush.due_at(messages) if flush is not None else None
    done = await fit.run(fit.planner.ahead(expected, turn, due_at, is_full=is_full))
    if manager.strikes and chain.keys:
        in_vain.keep(chain.keys[-1], cycle)
    return done


async def read_again(prompt: StepPrompt, sending: Sending, job: Job) -> None:
    """Ask for one token after a conversation: the engine has it in its cache then when the person writes again."""
    job.compacted(None)  # nobody waits for it
    whole = await prompt.body([*prompt.manager.history.messages, NEXT])
    body = {**without_answer_fields(whole), "max_tokens": 1}
    tokens = (await prompt.size(body)).count.at_most
    await ask(sending.question(body, tokens), ReplyReader(), sending.shared.admission, rank=job)
    sending.note_prompt({**body, "messages": body["messages"][:-1]}, tokens)
    log.info("%s has read the conversation ahead of its next message.", prompt.info.id)


async def catch_up(fit: PromptFit, job: Job) -> None:
    """Wait for a compaction that began after the last answer, where this turn needs one; else end it."""
    try:
        decision = await fit.run(fit.planner.decision(BEFORE_REQUEST))
    except Exception:  # noqa: BLE001  # the next decision meets the same error and tells it
        return
    if not isinstance(decision, Compact):
        job.cancel_unless_awaited()  # after this turn's answer the work would be done once more
        return
    chosen = fit.compactor.settings.compaction
    try:
        outcome = await fit.compactor.await_job(job, chosen.max_pruning_seconds or None)
    except TimeoutError:
        fit.prompt.manager.give_up_pruning()
        return
    if isinstance(outcome, Compaction):
        await fit.recall_compactions()
    elif outcome is not None:
        fit.prompt.manager.could_not_compact()
