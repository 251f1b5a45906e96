"""The SDK's Model for an agent of a request: each of the Runner's calls is an upstream request, shown to the client."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, cast

from agents import AgentOutputSchemaBase, FunctionTool, Handoff, ModelResponse, ModelSettings, ModelTracing, Tool
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.models.chatcmpl_converter import Converter
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.models.interface import Model
from agents.tool_context import ToolContext
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from elbowroom.agents.answer import Answer, Reply, ToolCall
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.tools import ENDING_SECONDS, OwnTool, ToolResult, result_of
from elbowroom.agents.turn import Turn
from elbowroom.context.compaction import summary_of_calls
from elbowroom.context.outputs import one_line
from elbowroom.context.transcript import Message, Transcript, whole_characters
from elbowroom.settings.model import ToolKind


def to_messages(items: Sequence[TResponseInputItem]) -> list[dict[str, Any]]:
    """Return the chat messages for what the Runner appended: the model's own turns and the tools' results."""
    return [_flat(cast("dict[str, Any]", message)) for message in Converter.items_to_messages(items)]


def to_tool_specs(tools: Sequence[Tool], handoffs: Sequence[Handoff[Any, Any]]) -> list[dict[str, Any]]:
    """Return the server's tools and handoffs as a chat request lists them."""
    specs = [Converter.tool_to_openai(tool) for tool in tools]
    specs += [Converter.convert_handoff_tool(handoff) for handoff in handoffs]
    return [cast("dict[str, Any]", spec) for spec in specs]


def completed_event(
    reply: Reply, tool_calls: Sequence[ToolCall], model: str, usage: dict[str, Any] | None
) -> ResponseCompletedEvent:
    """Return the one event that the Runner needs of a model step; built without validation, as it is ours."""
    response = Response.model_construct(
        id=f"resp_{secrets.token_hex(12)}",
        created_at=time.time(),
        model=model,
        object="response",
        output=_output_items(reply, tool_calls),
        usage=_response_usage(usage or {}),
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
    )
    return ResponseCompletedEvent.model_construct(type="response.completed", sequence_number=0, response=response)


def _output_items(reply: Reply, tool_calls: Sequence[ToolCall]) -> list[ResponseOutputItem]:
    items: list[ResponseOutputItem] = []
    if reply.reasoning:
        summary = Summary.model_construct(type="summary_text", text="".join(reply.reasoning))
        items.append(ResponseReasoningItem.model_construct(id=FAKE_RESPONSES_ID, type="reasoning", summary=[summary]))
    if reply.text or not tool_calls:
        text = ResponseOutputText.model_construct(type="output_text", text="".join(reply.text), annotations=[])
        items.append(
            ResponseOutputMessage.model_construct(
                id=FAKE_RESPONSES_ID, type="message", role="assistant", status="completed", content=[text]
            )
        )
    items += [
        ResponseFunctionToolCall.model_construct(
            id=FAKE_RESPONSES_ID,
            type="function_call",
            call_id=call.id,
            name=whole_characters(call.name),
            arguments=_encodable(call.arguments),
        )
        for call in tool_calls
    ]
    return items


def _encodable(arguments: str) -> str:
    """Return the arguments without lone surrogates, escaped ones too: the SDK cannot encode them for its hashes."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return whole_characters(arguments)
    text = json.dumps(parsed, ensure_ascii=False)
    whole = whole_characters(text)
    return arguments if whole == text else whole


def _response_usage(usage: dict[str, Any]) -> ResponseUsage:
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return ResponseUsage.model_construct(
        input_tokens=prompt,
        output_tokens=completion,
        total_tokens=prompt + completion,
        input_tokens_details=InputTokensDetails.model_construct(cached_tokens=cached, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails.model_construct(reasoning_tokens=reasoning),
    )


def _flat(message: dict[str, Any]) -> dict[str, Any]:
    """Join the text parts of a tool's result: many local chat templates accept only a string there."""
    content = message.get("content")
    if message.get("role") != "tool" or not isinstance(content, list):
        return message
    return {**message, "content": "\n".join(part["text"] for part in content if part.get("type") == "text")}


Shown = Callable[[OwnTool, ToolResult], Awaitable[str]]
"""Takes what a tool returned and gives what the model is shown of it."""
Called = Callable[[OwnTool, str], Awaitable[ToolResult]]
"""Calls a tool with arguments as the model wrote them, as `result_of` does."""
Returned = Callable[[str, str], None]
"""Takes a call's id and what the model is shown of its result, as soon as that is there."""


def as_function_tool(
    tool: OwnTool, shown: Shown, called: Called | None = None, returned: Returned | None = None
) -> FunctionTool:
    """Return a tool as the SDK runs it; `called` stands in the place of `result_of`."""
    called = called or result_of

    async def invoke(context: ToolContext[Any], written: str) -> str:
        text = await shown(tool, await called(tool, written))
        if returned is not None:
            returned(context.tool_call_id, text)
        return text

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=dict(tool.parameters),
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


def client_function_tools(request: ChatRequest) -> dict[str, FunctionTool]:
    """Return the client's tools by name, in a form that ends the run instead of being executed."""
    named = ((tool_name(spec), spec) for spec in request.tools)
    return {name: _client_tool(name, spec["function"]) for name, spec in named if name is not None}


def _client_tool(name: str, function: dict[str, Any]) -> FunctionTool:
    async def refuse(context: Any, arguments: str) -> str:
        raise RuntimeError(f"the client's tool {name!r} was about to run on the server")

    return FunctionTool(
        name=name,
        description=function.get("description") or "",
        params_json_schema=function.get("parameters") or {"type": "object", "properties": {}},
        on_invoke_tool=refuse,
        strict_json_schema=False,
        needs_approval=True,
    )


log = logging.getLogger(__name__)
WARNED_FROM: Final = 3
LONGEST_SUMMARY: Final = 600  # characters
LONGEST_NAME: Final = 64
MOST_FAILURES: Final = 6
"""So many steps with the very same failing call, and nothing that worked in between, are the end."""


@dataclass(slots=True)
class RunLimits:
    """Watches the run of the agent `name`, which may take `max_turns` model calls; `answer` counts them.

    Calls of one step count once: the model has made them without knowing that they fail. `kinds` are those that the
    tools declare.
    """

    name: str
    max_turns: int
    answer: Answer
    kinds: dict[str, ToolKind] = field(default_factory=dict)
    _calling: set["asyncio.Task[Any]"] = field(default_factory=set)
    _failed_in: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    async def called(self, tool: OwnTool, written: str) -> ToolResult:
        """Call a tool as `result_of` does; an error that comes again and again says so."""
        if (task := asyncio.current_task()) is not None:
            self._calling.add(task)
            task.add_done_callback(self._calling.discard)
        result = await result_of(tool, written)
        if not result.is_error:
            self._failed_in.clear()
            return result
        times = self.note_failure(tool.name, written)
        if times < WARNED_FROM:
            return result
        return replace(
            result,
            text=f"{result.text}\nThis very call has failed {times} times now. Do not repeat it: call it "
            "with other arguments, find another way, or tell the user what does not work.",
        )

    async def calls_ended(self) -> None:
        """Wait until no call is under way; one that was cancelled may take a moment to put things away."""
        if self._calling:
            await asyncio.wait(self._calling, timeout=ENDING_SECONDS)

    def note_failure(self, name: str, written: str) -> int:
        """Take note of a call that has failed; return in how many steps it has since a call last succeeded."""
        steps = self._failed_in.setdefault((name, written.strip()), set())
        steps.add(self.answer.steps)
        return len(steps)

    @property
    def may_go_on(self) -> bool:
        """Tell whether the model may be asked again."""
        return not self._stuck and self.answer.steps < self.max_turns

    def why_stop(self, done: Sequence[Message]) -> str | None:
        """Return what the person is told where the model is not to be asked again; `done` is the run so far."""
        if stuck := self._stuck:
            ended = f"Stopped: the same call of {one_line(stuck[0], LONGEST_NAME)} has failed {MOST_FAILURES} times"
            remedy = "Ask me to go on, or to try another way."
        elif self.answer.steps >= self.max_turns:
            ended = f"Stopped after {_counted(self.max_turns, 'model call')} without finishing"
            remedy = f"Ask me to go on, or raise max_turns of the agent {self.name}."
        else:
            return None
        log.warning("The run of %s was ended. %s.", self.name, ended)
        told = f"[{ended}.{_done(done, self.kinds)} {remedy}]"
        return self.answer.guard.paragraph(told) if self.answer.guard is not None else told

    @property
    def _stuck(self) -> list[str]:
        """Return the names of tools whose same call has failed as often as it may."""
        return [name for (name, _), steps in self._failed_in.items() if len(steps) >= MOST_FAILURES]


def _done(messages: Sequence[Message], kinds: Mapping[str, ToolKind]) -> str:
    """Return what the calls have done, in a few words on one line."""
    told = summary_of_calls(Transcript.of(messages).groups, len, LONGEST_SUMMARY, kinds).partition("\n")[0]
    return f" Done so far: {told}." if told else ""


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


STAND_IN: TResponseInputItem = {"role": "user", "content": "(the conversation, which the model has from its request)"}
"""The Runner's whole input. The client's history never passes through the Runner, which would re-key and drop
parts of it; the model puts it where this stands."""


class ManagedModel(Model):
    """Answers each of the Runner's calls with a step of the turn, until the run has come to its `limits`.

    `client_tools` are the names of tools that the client runs itself. What the Runner hands in begins with STAND_IN
    and goes on with the steps so far, those of agents before a handover included.
    """

    def __init__(self, turn: Turn, client_tools: Collection[str], limits: RunLimits) -> None:
        self._turn = turn
        self._client_tools = client_tools
        self._limits = limits

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  # the SDK names it
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any = None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Ask the model, hand its words to the sink as they come, and yield one completed event.

        Where the run would end with that and a person has said more, the model is asked again, of which the Runner
        knows nothing.
        """
        appended = to_messages([] if isinstance(input, str) else input[1:])
        if why := self._limits.why_stop(appended):
            await self._turn.stop(appended, why)
            yield completed_event(_saying(why), (), self._turn.target.model, None)
            return
        own_tools = [tool for tool in tools if tool.name not in self._client_tools]
        has_own = bool(own_tools or handoffs)
        ask = partial(
            self._turn.step,
            instructions=system_instructions,
            appended=appended,
            own_tools=to_tool_specs(own_tools, handoffs),
            is_for_client=lambda name: not has_own or name in self._client_tools,
        )
        reply = await ask()
        while self._limits.may_go_on and await self._turn.continues_after(appended, reply):
            reply = await ask()
        # Without tools of its own the run ends here, and the client has all calls already.
        calls = reply.tool_calls if has_own else []
        known = {tool.name for tool in tools} | {handoff.tool_name for handoff in handoffs}
        for call in calls:
            if call.name not in known:
                self._limits.note_failure(call.name, call.arguments)
        usages = self._turn.answer.usages
        yield completed_event(reply, calls, self._turn.target.model, usages[-1] if usages else None)

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        """Refuse: the SDK wants this method, and calls it only in runs that are not streamed."""
        raise NotImplementedError("agents are run with Runner.run_streamed")


def _saying(text: str) -> Reply:
    reply = Reply(())
    reply.text.append(text)
    return reply
