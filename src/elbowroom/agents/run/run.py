"""Runs an agent to its answer by the SDK: its Model, whose every call is a step of a turn, its tools and handoffs."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from agents import (
    Agent,
    AgentOutputSchemaBase,
    FunctionTool,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    RunConfig,
    RunContextWrapper,
    Runner,
    Tool,
)
from agents import Handoff as SdkHandoff
from agents.agent import AgentBase
from agents.exceptions import AgentsException
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
)
from openai.types.responses.response_reasoning_item import Summary

from elbowroom.agents.answer import Answer, AnswerGuard, Notice, Reply, Sink, ToolCall
from elbowroom.agents.broken_json import levels
from elbowroom.agents.conversations import HANDED_OVER
from elbowroom.agents.offered import NO_ARGUMENTS, Handoff, NamedAgent, Offered, RunAgent, offered_to
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.running import stoppable
from elbowroom.agents.tools import ServerTool, ToolCalls, call_notice, result_notice
from elbowroom.agents.tools.outputs import NOTHING, OutputKeeper
from elbowroom.agents.tools.recall import Recaller
from elbowroom.agents.turn import Asking, RunSettings, Turn
from elbowroom.context.outputs import ToolOutputRef
from elbowroom.errors import ElbowroomError, RequestError
from elbowroom.settings.model import AgentSettings
from elbowroom.store.base import retrieved
from elbowroom.tokens.files import whole_characters

for _built_late in (Response, ResponseCompletedEvent):
    _built_late.model_rebuild()  # now, in a thread: pydantic would do so at the first use, on the event loop

log = logging.getLogger(__name__)
SdkAgent: TypeAlias = Agent[None]
ENDING_SECONDS: Final = 2.0
"""How long a run that is cancelled may take to close what it has open."""
DEEPEST: Final = 128
"""Levels of nesting in a call's arguments. The SDK walks through them by recursion, which ends at some hundreds."""
STAND_IN: TResponseInputItem = {"role": "user", "content": "(the conversation, which the model has from its request)"}
"""The Runner's whole input. The client's history never passes through the Runner, which would re-key and drop
parts of it; the model puts it where this stands."""


async def run_agent(
    agent: NamedAgent, request: ChatRequest, sink: Sink, settings: RunSettings, answer: Answer | None = None
) -> Answer:
    """Answer a request with an agent, and those to which it hands the conversation over.

    Adds to the `answer`, by default a new one, and returns it; the sink has had all of it by then. Raises
    ElbowroomError. Cancelling it closes the upstream at once.
    """
    name, answer = agent.target.name, answer or Answer()
    calls = ToolCalls(name, agent.settings.max_turns, answer, settings.shared.observations)
    is_whole = False
    with ExitStack() as until_end:
        agents = SdkAgents(request, sink, settings, calls, run_agent, until_end)
        first = await agents.first(agent)
        try:
            with stoppable(settings.running):
                await _run_to_the_end(first, calls)
                is_whole = True
            if not is_whole:
                await agents.turns[-1].interrupted()
        except AgentsException as error:
            raise ElbowroomError(f"The run of {name!r} failed: {error}") from error
        finally:
            *handed_over, last = agents.turns
            for turn in handed_over:
                turn.end(is_whole=is_whole, is_handed_over=True)
            last.end(is_whole=is_whole)
    return answer


async def _run_to_the_end(first: SdkAgent, calls: ToolCalls) -> None:
    result = Runner.run_streamed(
        first,
        [STAND_IN],
        max_turns=None,  # the model itself ends a run that has come to its limits
        run_config=RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model"),
    )
    try:
        async for _ in result.stream_events():
            pass  # the sink has had it already
    finally:
        result.cancel()
        if (loop := result.run_loop_task) is not None:
            loop.add_done_callback(retrieved)
            await asyncio.wait([loop], timeout=ENDING_SECONDS)
        await calls.ended()  # for which the SDK does not wait
        vars(result).update(_sandbox_cleanup=None, run_loop_task=None)  # which know the result, with all that was said


@dataclass(slots=True)
class SdkAgents:
    """Makes the agents of a run, each when it is needed and with a turn of its own; all share `calls` and its answer.

    `run` runs agents that serve as tools; `until_end` is left when the run has ended. `turns` are those of the agents
    so far, the last of which answers now.
    """

    request: ChatRequest
    sink: Sink
    settings: RunSettings
    calls: ToolCalls
    run: RunAgent
    until_end: ExitStack
    turns: list[Turn] = field(default_factory=list)
    _refs: dict[str, ToolOutputRef] = field(default_factory=dict)

    async def first(self, agent: NamedAgent) -> SdkAgent:
        """Return the agent that was asked. Raises RequestError where the client has a tool with the name of its own."""
        offered = await offered_to(agent, self.request, self.sink, self.settings, self.run, self._refs)
        for name, taken in offered.clashes.items():
            raise RequestError(f"The tool name {name!r} is taken: the agent has its own {taken!r}.", param="tools")
        return self._made(agent, offered)

    async def next(self, agent: NamedAgent) -> SdkAgent:
        """Return an agent that goes on with the conversation, and tell the person that it does.

        A tool of the client with the name of one of its own is not offered to it, since the answer has begun already.
        """
        await self.sink([Notice("handed over", f"{agent.settings.display_name} answers now.")])
        self.until_end.enter_context(agent.answering(self.settings, self.request.caller))
        self.settings = self.settings.of(agent.target)
        offered = await offered_to(agent, self.request, self.sink, self.settings, self.run, self._refs)
        if taken := offered.clashes:
            log.warning("%s has its own %s: those of the client are left out.", agent.target.name, ", ".join(taken))
            offered = offered.without_clashes()
        return self._made(agent, offered)

    def _made(self, agent: NamedAgent, offered: Offered) -> SdkAgent:
        settings, answer = agent.settings, self.calls.answer
        if answer.guard is None and offered.own_names:
            answer.guard = AnswerGuard(self.request.messages)
        keeper, recaller, search = offered.keeper, offered.recaller, offered.search
        asking = Asking(
            agent.target, offered.request, self.sink, self.settings, answer, keeper, recaller, search=search
        )
        turn = Turn(asking, self.turns[0].intake if self.turns else None)
        self.turns.append(turn)
        own: list[Tool] = []
        for tool in [*offered.tools, *([recaller.tool] if recaller is not None else ())]:
            own.append(as_function_tool(tool, self._invoke(tool, settings, keeper, turn)))
            if tool.kind != "other":
                self.calls.kinds[tool.name] = tool.kind
        self.calls.kinds.update(settings.tool_output.over(self.settings.tool_output).kinds)
        if search is not None:
            own.append(as_function_tool(look_up := search.tool, self._looking_up(look_up, turn)))
        model = ManagedModel(turn, offered, self.calls)
        made = SdkAgent(
            name=settings.display_name,
            instructions=settings.instructions,
            model=model,
            tools=[*own, *(client_function_tools(offered.request).values() if own or offered.handoffs else ())],
            handoffs=[Handover.by(handoff, partial(self.next, handoff.agent)) for handoff in offered.handoffs],
        )
        # The SDK notes both in a context variable, which all that was begun in the run and outlives it still has.
        self.until_end.callback(vars(made).update, model=None, tools=[], handoffs=[])
        self.until_end.callback(vars(model).clear)
        return made

    def _invoke(
        self, tool: ServerTool, settings: AgentSettings, keeper: OutputKeeper | None, turn: Turn
    ) -> Callable[[ToolContext[Any], str], Awaitable[str]]:
        async def invoke(call: ToolContext[Any], written: str) -> str:
            if self.settings.tool_events:
                await self.sink([call_notice(tool, written)])
            result = await self.calls.call(tool, written, settings.tool_timeout)
            if self.settings.tool_events:
                await self.sink([result_notice(tool, written, result)])
            text = await keeper.shown(tool, result, written) if keeper else whole_characters(result.text) or NOTHING
            turn.returned(call.tool_call_id, text)
            return text

        return invoke

    def _looking_up(self, tool: ServerTool, turn: Turn) -> Callable[[ToolContext[Any], str], Awaitable[str]]:
        """Return what describes the client's tools to the model, whole, and tells nobody: no work is done by it."""

        async def look_up(call: ToolContext[Any], written: str) -> str:
            result = await self.calls.call(tool, written, seconds=None)
            turn.returned(call.tool_call_id, result.text)
            return result.text

        return look_up


class Handover(SdkHandoff[None, SdkAgent]):
    """The SDK's tool by which an agent hands the conversation over."""

    @classmethod
    def by(cls, handoff: Handoff, next_agent: Callable[[], Awaitable[SdkAgent]]) -> "Handover":
        """Return the SDK's form of a handoff; `next_agent` makes the agent that goes on."""

        async def hand_over(context: RunContextWrapper[Any], arguments: str) -> SdkAgent:
            return await next_agent()

        return cls(
            tool_name=handoff.name,
            tool_description=handoff.description,
            input_json_schema=dict(NO_ARGUMENTS),
            on_invoke_handoff=hand_over,
            agent_name=handoff.agent.settings.display_name,
            strict_json_schema=False,
        )

    def get_transfer_message(self, agent: AgentBase[Any]) -> str:
        """Return the result of the call, for the agent that goes on to read."""
        return f"{HANDED_OVER} {agent.name} answers the user from here on."


class ManagedModel(Model):
    """Answers each of the Runner's calls with a step of the turn, until `calls` says that the run has to end.

    The Runner's input begins with STAND_IN and goes on with the steps so far, those of agents before a handover
    included.
    """

    def __init__(self, turn: Turn, offered: Offered, calls: ToolCalls) -> None:
        self._turn = turn
        self._calls = calls
        self._own_tools = offered.specs
        self._recaller = offered.recaller
        self._of_client = frozenset(offered.request.tool_names)
        recalls = [offered.recaller.name] if offered.recaller is not None else []
        looks_up = [offered.search.name] if offered.search is not None else []
        self._known = self._of_client.union(offered.own_names, recalls, looks_up)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  # the SDK names it
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[SdkHandoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any = None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Ask the model, hand its words to the sink as they come, and yield one completed event.

        If the run would end with this reply and a person has said more meanwhile, the model is asked again; the Runner
        does not see that.
        """
        appended = [*map(_flat, Converter.items_to_messages([] if isinstance(input, str) else input[1:]))]
        if why := self._calls.why_stop(appended):
            await self._turn.stop(appended, why)
            yield completed_event(_saying(why), ())
            return
        ask = partial(
            self._turn.step,
            instructions=system_instructions,
            appended=appended,
            own_tools=self._own_tools,
            is_for_client=partial(_is_for_client, self._own_tools, self._recaller, self._of_client),
        )
        reply = await ask()
        while self._calls.may_go_on and await self._turn.continues_after(appended, reply):
            reply = await ask()
        # Without tools of its own the run ends here, and the client has all calls already.
        calls = reply.tool_calls if _has_own_tools(self._own_tools, self._recaller) else []
        self._calls.note_unknown(calls, self._known)
        yield completed_event(reply, calls)

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        """Fail: the SDK demands this method of a model, and calls it only in runs that are not streamed."""
        raise RuntimeError("The SDK asked for a whole reply, though agents are run with Runner.run_streamed alone.")


def _is_for_client(
    own_tools: Sequence[dict[str, Any]], recaller: Recaller | None, of_client: Collection[str], name: str
) -> bool:
    return not _has_own_tools(own_tools, recaller) or name in of_client


def _has_own_tools(own_tools: Sequence[dict[str, Any]], recaller: Recaller | None) -> bool:
    return bool(own_tools) or (recaller is not None and recaller.is_offered)


def _flat(message: Any) -> dict[str, Any]:
    """Join the text parts of a tool's result: many local chat templates accept only a string there."""
    flat: dict[str, Any] = {**message}
    if flat.get("role") == "tool" and isinstance(content := flat.get("content"), list):
        flat["content"] = "\n".join(part["text"] for part in content if part.get("type") == "text")
    return flat


def completed_event(reply: Reply, tool_calls: Sequence[ToolCall]) -> ResponseCompletedEvent:
    """Return the one event that the Runner needs of a model step, built without validation."""
    response = Response.model_construct(
        id=f"resp_{secrets.token_hex(12)}",
        created_at=time.time(),
        model="",
        object="response",
        output=_output_items(reply, tool_calls),
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
    """Return the arguments as the SDK can hash them: without lone surrogates, escaped ones too, and not too deep.

    Of arguments that are nested too deep only the beginning is left, which is not JSON: the tool says so to the model.
    """
    if levels(arguments) > DEEPEST:
        return f"{whole_characters(arguments[:DEEPEST])}..."
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return whole_characters(arguments)
    text = json.dumps(parsed, ensure_ascii=False)
    whole = whole_characters(text)
    return arguments if whole == text else whole


def _saying(text: str) -> Reply:
    reply = Reply(())
    reply.text.append(text)
    return reply


def as_function_tool(tool: ServerTool, invoke: Callable[[ToolContext[Any], str], Awaitable[str]]) -> FunctionTool:
    """Return a tool as the SDK runs it; `invoke` takes a call and its arguments and returns what the model reads."""
    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=dict(tool.parameters),
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


def client_function_tools(request: ChatRequest) -> dict[str, FunctionTool]:
    """Return the client's tools by name, in a form that ends the run instead of being executed."""
    specs = (*request.tools, *request.by_name)
    return {name: _client_tool(name, spec["function"]) for spec in specs if (name := tool_name(spec)) is not None}


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
