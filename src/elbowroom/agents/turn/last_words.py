"""The last words of an answer that a person has stopped: what was done, and what was left undone."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from elbowroom.agents.admission import Admission
from elbowroom.agents.ask import Question, ask, beside
from elbowroom.agents.prompt import StepPrompt, StepRequest, without_answer_fields
from elbowroom.agents.running import GRACE_SECONDS
from elbowroom.agents.turn.stream import ReplyStream
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider

log = logging.getLogger(__name__)
MOST_TOKENS: Final = 150
NO_RESULT: Final = "No result: the user has stopped this call, or it was not run."
ORDER: Final[Message] = {
    "role": "user",
    "content": "I have stopped you here. Do not go on with the work, and call no tools. Tell me in two or three "
    "sentences what you have done so far, and what is left undone.",
}
OF_TOOLS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"})


def messages_at_stop(history: Prompt, reply: Message, results: Mapping[str, str]) -> list[Message]:
    """Return the conversation up to the place in the model's last `reply` where it was stopped, and the order.

    `results` are the results of the calls that had ended, by their ids, as the model is shown them. It reads of the
    other calls that they have no result.
    """
    whole = history.followed_by(reply).messages
    answered = {message.get("tool_call_id") for message in whole if message.get("role") == "tool"}
    calls = whole[-1].get("tool_calls") or () if whole else ()
    told = [
        {"role": "tool", "tool_call_id": call["id"], "content": results.get(call["id"], NO_RESULT)}
        for call in calls
        if call["id"] not in answered
    ]
    return [*whole, *told, ORDER]


async def say_last_words(
    messages: Sequence[Message],
    provider: Provider,
    info: ModelInfo,
    shape: StepRequest,
    admission: Admission,
    answering: Callable[[], ReplyStream],
    prompt: StepPrompt | None,
) -> None:
    """Call a model that was stopped once more, shortly and without tools; `answering` takes its words into the answer.

    `prompt` is that of the request that was stopped; it is None where the provider manages the context by itself, and
    nothing is counted. Without last words the answer ends where it was stopped: that is no failure.
    """
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            shape = replace(prompt.shape if prompt is not None else shape, tools=())
            whole = without_answer_fields(shape.body(shape.with_instructions(messages)))
            body = {name: value for name, value in whole.items() if name not in OF_TOOLS}
            most = body["max_tokens"] = min(shape.max_tokens or MOST_TOKENS, MOST_TOKENS)
            question = Question(provider, info, body)
            if prompt is not None:
                counter, window = prompt.counter, prompt.manager.budget.window
                question = await beside(
                    provider, info, window, counter, body, least=most, thinking_room=0, keeps_prefix=False
                )
            if not question.has_room:
                log.info("The window of %s has no room for the last words of an answer.", info.id)
                return
            stream = answering()
            await ask(question, stream, admission)
            stream.reply.drop_calls()
            await stream.close()
    except TimeoutError:
        log.info("%s took too long over the last words of an answer.", info.id)
    except ElbowroomError as error:
        log.info("%s has said no last words: %s", info.id, error)
