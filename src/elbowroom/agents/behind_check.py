"""Looks behind an answer: whether the next message would find a window that is too full, so that there is work now."""

from elbowroom.agents.behind_answer import BehindAnswer, usual_question
from elbowroom.agents.managed_step import ManagedStep
from elbowroom.agents.step_counter import StepCounter
from elbowroom.agents.stream_watch import size_in_bytes
from elbowroom.context.step_usage import StepUsage
from elbowroom.context.transcript import Message, text_of


def work_behind(managed: ManagedStep, reply: Message, said: Message) -> BehindAnswer | None:
    """Return what there is to do for the conversation behind this reply; None where plainly nothing is.

    `said` is the answer as the client has it.
    """
    fitting, budget, used = managed.fitting, managed.manager.budget, _reported(managed)
    if used is not None:
        answered = max(used.total, managed.manager.prompt + used.output)
    else:
        answered = managed.manager.prompt + size_in_bytes(text_of(reply))  # a token has at least a byte
    if answered < budget.window // 4:
        return None
    question = text_of(usual_question(managed.history.messages))
    answered += size_in_bytes(question)
    flush = fitting.flush(managed.info)
    least = flush.due_at(managed.history.messages) if flush is not None else budget.trigger
    if budget.occupied(min(answered, budget.window)) < least:
        return None
    return BehindAnswer(
        shape=managed.shape,
        provider=managed.provider,
        info=managed.info,
        counter=StepCounter(managed.counter.history, managed.counter.running, managed.shape.with_instructions),
        history=managed.history.followed_by(reply),
        said=said,
        budget=budget,
        compactor=fitting.compactor,
        memory=fitting.memory,
        keeper=fitting.keeper,
        flush=flush.behind(fitting.memory.key_behind(said)) if flush is not None else None,
        is_full=_is_full_with(managed, f"{text_of(reply)}\n{question}"),
    )


def _is_full_with(managed: ManagedStep, text: str) -> bool:
    """Tell whether the engine has read so much last that with this behind it the trigger is passed.

    What it has generated is more than that where it has thought: thoughts are in no later prompt.
    """
    budget, used = managed.manager.budget, _reported(managed)
    return used is not None and budget.occupied(used.prompt + managed.counter.text(text)) >= budget.trigger


def _reported(managed: ManagedStep) -> StepUsage | None:
    """Return what the engine itself says that the last request has used."""
    return managed.used[-1] if managed.used and not managed.used[-1].is_counted else None
