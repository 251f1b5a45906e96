"""The body of the chat request that goes upstream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from elbowroom.agents.request import ChatRequest, allowed_tools, chosen_tools, limits_tools, tool_name
from elbowroom.agents.tools import ToldMemories
from elbowroom.context.compaction import naming_tool
from elbowroom.context.transcript import SYSTEM_ROLES
from elbowroom.errors import RequestError

CONSTRAINTS = ("grammar", "json_schema", "guided_json", "guided_regex", "guided_grammar", "structured_outputs")
"""Fields by which servers take a grammar besides `response_format`."""
ANSWER_FIELDS: Final = frozenset(
    {"response_format", "grammar", "json_schema", "stop", "logit_bias", "logprobs", "top_logprobs"}
    | {"max_completion_tokens", "n_predict", "continue_final_message", "add_generation_prompt"}
)
"""Fields that shape or bound an answer and leave the prompt before it as it is."""
NO_THINKING: Final[Mapping[str, Any]] = {"enable_thinking": False}


@dataclass(frozen=True)
class StepRequest:
    """All of one model step but its history, which compactions change: client request, agent and tools.

    `recalls_with` is the name of the tool that finds what was compacted away; empty where it is not offered.
    """

    request: ChatRequest
    model: str
    defaults: Mapping[str, Any]
    instructions: str | None
    tools: Sequence[Mapping[str, Any]]
    step: int
    memories: ToldMemories | None = None
    recalls_with: str = ""

    def body(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the upstream's body with these messages."""
        return {**self._fields, "messages": list(messages)}

    @cached_property
    def _fields(self) -> Mapping[str, Any]:
        """The body without messages."""
        return step_body(self.request, self.model, self.defaults, (), self.tools, step=self.step)

    def with_instructions(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the messages with the agent's instructions in front, followed by its memories."""
        remembered = self.memories.said if self.memories is not None else ""
        messages = naming_tool(messages, self.recalls_with) if self.recalls_with else messages
        told = "\n\n".join(filter(None, (self.instructions, remembered)))
        return with_instructions(messages, told) if told else list(messages)

    @property
    def takes_more_tools(self) -> bool:
        """Tell whether the model may call a tool that nobody has asked for."""
        keeps_summaries = self.request.compaction is not None  # and what they stand for is sent no more
        is_free = self._fields.get("tool_choice") in (None, "auto")
        is_free = is_free and not limits_tools(self.request.fields.get("tool_choice"))
        return is_free and not self.is_constrained and not keeps_summaries

    def offering(self, tool: dict[str, Any]) -> "StepRequest":
        """Return the same step with this tool, which finds what was compacted away."""
        return replace(self, tools=[tool, *self.tools], recalls_with=tool_name(tool) or "")

    @property
    def max_tokens(self) -> int | None:
        """Return the limit of the reply's length, None where there is none. Raises RequestError."""
        asked = self._fields.get("max_tokens")
        if isinstance(asked, float) and asked.is_integer():
            asked = int(asked)
        if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool)):
            raise RequestError(f"max_tokens has to be a whole number, not {asked!r}.", param="max_tokens")
        return asked if asked is not None and asked > 0 else None

    @property
    def is_constrained(self) -> bool:
        """Tell whether the reply has to follow a grammar: then it cannot be stopped and continued."""
        form = self._fields.get("response_format")
        kind = form.get("type") if isinstance(form, Mapping) else form
        return kind not in (None, "text") or any(map(self._fields.get, CONSTRAINTS))


def relay_body(request: ChatRequest, model: str) -> dict[str, Any]:
    """Return the client's own body with nothing but the model's name replaced."""
    return {**request.body, "model": model}


def step_body(
    request: ChatRequest,
    model: str,
    defaults: Mapping[str, Any],
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    step: int,
) -> dict[str, Any]:
    """Return the body of one model step of a managed run.

    The client's fields go over the agent's `defaults`, where null counts as not sent. After the first step a forced
    `tool_choice` has been obeyed and is left out, else the model could never answer; it has not where the model could
    only look tools up, and what it does not allow is allowed in no step. Where it names a function, that is the only
    one on offer: LM Studio and llama.cpp refuse a choice with a name. Raises RequestError where there is no such
    function: forced to call another one, the model would do what nobody has asked for.
    """
    fields = {**defaults, **request.fields}
    for name, value in defaults.items():
        if fields[name] is None:
            fields[name] = value
    for name in ("n_predict", "max_completion_tokens"):
        if (limit := fields.pop(name, None)) is not None:
            # LM Studio's documented name for the limit; with the others a reasoning model may lose its answer, or
            # llama.cpp let them win over it.
            fields["max_tokens"] = limit
    if fields.get("stop") == "":
        # Sent by habit for "none"; taken at its word it stands before the first letter of every answer.
        del fields["stop"]
    if step > 1 and not (request.by_name and len(tools) == 1) and fields.get("tool_choice") not in ("auto", "none"):
        tools = allowed_tools([*map(dict, tools)], fields.pop("tool_choice", None))
    body: dict[str, Any] = {"model": model, "messages": list(messages), **fields}
    if tools or isinstance(fields.get("tool_choice"), Mapping):
        body |= _offered(tools, fields.get("tool_choice"), request.body.get("tools") or ())
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    return body


def _offered(tools: Sequence[Mapping[str, Any]], choice: Any, sent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the tools as a field of the body, and the choice with it where that names functions.

    `sent` are all tools of the client.
    """
    if (chosen := chosen_tools(choice)) is None:
        return {"tools": list(tools)} if tools else {}
    names, mode = chosen
    if named := [tool for tool in tools if tool_name(dict(tool)) in names]:
        return {"tools": named, "tool_choice": mode}
    known = ", ".join(dict.fromkeys(filter(None, (tool_name(dict(tool)) for tool in (*tools, *sent)))))
    told = ", ".join(repr(name[:64]) for name in names) or "nothing"
    instead = f", or name one of these: {known}" if known else ""
    raise RequestError(f"tool_choice names {told}, but there is no such tool. Send it{instead}.", param="tool_choice")


def without_answer_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a conversation's body without the fields that shape its answers: the engine reads the same prompt."""
    rest = {name: value for name, value in body.items() if name not in ANSWER_FIELDS}
    if rest.get("tool_choice") not in ("auto", "none"):
        rest.pop("tool_choice", None)
    return rest


def thinking_off(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template arguments of a body, as a field for it, with the model's thinking switched off."""
    sent = body.get("chat_template_kwargs")
    return {"chat_template_kwargs": {**(sent if isinstance(sent, Mapping) else {}), **NO_THINKING}}


def with_instructions(messages: Sequence[Mapping[str, Any]], instructions: str | None) -> list[Mapping[str, Any]]:
    """Return the messages with the agent's instructions in front, in one system message with the client's own.

    Two system messages in a row break many chat templates.
    """
    if not instructions:
        return list(messages)
    first = messages[0]
    if first.get("role") not in SYSTEM_ROLES:
        return [{"role": "system", "content": instructions}, *messages]
    return [{**first, "role": "system", "content": _joined(instructions, first.get("content"))}, *messages[1:]]


def _joined(instructions: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": instructions}, *content]
    return f"{instructions}\n\n{content}" if content else instructions
