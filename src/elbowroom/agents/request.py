"""Who sends a request, and a chat request as the client sent it, checked just enough to be handed on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from elbowroom.caches import HISTORIES, PLAIN
from elbowroom.context.outputs import Edit
from elbowroom.errors import BodyTooLarge, RequestError

KnownBy = Literal["name", "token", "nobody else", "nothing"]
"""How a caller is identified: by a user's name, by the server's token, as the only user there is, or not at all."""
TEMPORARY: Final = ("temporary:", "local:")
"""How the ids of chats begin that Open WebUI does not keep."""
STRANGERS: Final = "\0strangers"
"""The owner of the conversations of all callers who are not identified; no client can send this name."""
OWN_FIELDS = frozenset({"model", "messages", "stream", "stream_options", "tools", "n"})
MAX_MESSAGES: Final = 20_000
MAX_TOOLS: Final = 2_000
"""What is more than this would be worked on for minutes, and fits no window."""
ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
ROLES_WITHOUT_CONTENT = frozenset({"assistant"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, as far as it says so; what it does not say is empty.

    `owner` is a user of the client, taken at its word: it keeps the conversations of this server's users apart and
    proves nothing. `chat_id` is the client's name for a conversation, shared by its branches. Both are printable and
    of bounded length. A task is a request that the client program makes by itself, such as for a title; the program
    goes on with the chat only after a task that `is_awaited`. The messages of a task that `brings_chat` are the chat
    itself, with the order at the end of the last one; one that `wants_title` is answered with the chat's title.
    `origin` has the name of the `program`, and the `url` of the chat there.
    """

    owner: str = ""
    chat_id: str = ""
    is_task: bool = False
    is_awaited: bool = False
    brings_chat: bool = False
    wants_title: bool = False
    known_by: KnownBy = "nothing"
    is_open_webui: bool = False
    origin: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def may_wait(self) -> bool:
        """Tell whether nobody waits for the answer, so that chats go first."""
        return self.is_task and not self.is_awaited

    @property
    def is_temporary(self) -> bool:
        """Tell whether the client keeps nothing of the chat either."""
        return self.chat_id.startswith(TEMPORARY)

    @property
    def may_have_hidden(self) -> bool:
        """Tell whether this caller may have the parts of its conversations that no client has seen.

        Knowing the same words is no permission: another person who gives no name may have said them.
        """
        return bool(self.owner) or self.known_by != "nothing"

    @property
    def keeps_as(self) -> str:
        """Return the owner of its conversations and compactions, which may hold what no client has seen."""
        return self.owner if self.may_have_hidden else STRANGERS


NOBODY: Final = Caller()
"""A caller of whom nothing is known."""


@dataclass(slots=True)
class OnlyUser:
    """Whether a caller without a name is the one user of this server: until a caller has given a name."""

    is_alone: bool = True


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What a client that can keep compactions asks for; it gets each of them as an event, `Compacted`.

    A prompt of `at` tokens or more is compacted also below the trigger of the settings, which holds as well.
    `instructions` replace what the pruning agent is told to write. With `pauses` a compaction ends the answer before
    its first word.
    """

    at: int | None = None
    instructions: str = ""
    pauses: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The body of `POST /v1/chat/completions`.

    `messages` and `tools` are never changed: other requests may have the same ones. Tools that `tool_choice` does not
    allow are left out. Of those `by_name`, which are none of `tools`, the model knows only the names until it asks.
    `fields` holds whatever else was sent and goes to the model as it stands; `body` is the whole. `caller` is who asks,
    as far as that is known. `compaction` is None for a client that knows nothing of compactions; `edits` are to be
    applied to its history, in their order. `focus` is what a person who asks for a compaction wants kept or dropped.
    The answer `tells_stop` where the client is to know by which of its stop sequences it ended: no
    engine tells that, so they are looked for here.
    """

    model: str
    messages: tuple[dict[str, Any], ...]
    stream: bool
    wants_usage: bool
    tools: tuple[dict[str, Any], ...]
    fields: dict[str, Any]
    body: dict[str, Any]
    caller: Caller = NOBODY
    compaction: CompactionRequest | None = None
    edits: tuple[Edit, ...] = ()
    focus: str = ""
    tells_stop: bool = False
    by_name: tuple[dict[str, Any], ...] = ()

    @property
    def tool_names(self) -> list[str]:
        """Return the names of the client's function tools."""
        return [*filter(None, map(tool_name, (*self.tools, *self.by_name)))]


def parse_chat_request(body: Any) -> ChatRequest:
    """Check a parsed body and take it apart.

    Raises RequestError that names the field and what belongs there, BodyTooLarge for too many messages or tools.
    """
    if not isinstance(body, dict):
        raise RequestError("The body has to be a JSON object with model and messages.")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise RequestError("model is missing: name an agent or a model of GET /v1/models.", param="model")
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise RequestError(f"stream has to be true or false, not {_shown(stream)}.", param="stream")
    fields = {name: value for name, value in body.items() if name not in OWN_FIELDS}
    return ChatRequest(
        model=model,
        messages=_checked_messages(body.get("messages")),
        stream=bool(stream),
        wants_usage=_wants_usage(body.get("stream_options")),
        tools=tuple(allowed_tools(_checked_tools(body.get("tools")), fields.get("tool_choice"))),
        fields=fields,
        body=body,
    )


def allowed_tools(tools: Sequence[dict[str, Any]], choice: Any) -> Sequence[dict[str, Any]]:
    """Return only the tools that a choice of tools allows: all where it limits none."""
    if not limits_tools(choice) or (chosen := chosen_tools(choice)) is None:
        return tools
    return [tool for tool in tools if tool_name(tool) in chosen[0]]


def limits_tools(choice: Any) -> bool:
    """Tell whether a choice of tools forces none, but allows some of them and no others."""
    return isinstance(choice, dict) and "allowed_tools" in choice


def chosen_tools(choice: Any) -> tuple[list[str], str] | None:
    """Return the names of the functions that a choice of tools allows, and its mode; None where it names none."""
    match choice:
        case {"type": "function", "function": {"name": str() as name}}:
            return [name], "required"
        case {"allowed_tools": {"mode": "auto" | "required" as mode, "tools": list() as allowed}}:
            found = (tool_name(tool) for tool in allowed if isinstance(tool, dict))
            return [each for each in found if isinstance(each, str)], mode
        case _:
            return None


def own_request(model: str, messages: Sequence[dict[str, Any]]) -> ChatRequest:
    """Return a request that elbowroom makes itself."""
    return ChatRequest(model, tuple(messages), stream=True, wants_usage=False, tools=(), fields={}, body={})


def tool_name(tool: dict[str, Any]) -> str | None:
    """Return the name of a client's function tool; None for a tool of another kind."""
    function = tool.get("function")
    return function["name"] if tool.get("type", "function") == "function" and isinstance(function, dict) else None


def _checked_messages(messages: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages has to be a list with at least one message.", param="messages")
    _check_number(messages, MAX_MESSAGES, "messages")
    history = HISTORIES.of(messages)
    for index in range(len(history.known(_check_message)), len(messages)):
        message = messages[index]
        is_plain = type(message) is dict and len(message) == PLAIN and type(message.get("content")) is str
        if not is_plain or message.get("role") not in ROLES:
            _check_message(message, f"messages[{index}]")
    history.keep(_check_message, [None] * len(messages))
    return cast("tuple[dict[str, Any], ...]", history.messages)


def _check_number(items: list[Any], most: int, name: str) -> None:
    if len(items) > most:
        raise BodyTooLarge(f"The request has {len(items):,} {name}: elbowroom takes at most {most:,}.", param=name)


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, dict):
        raise RequestError(f"{where} has to be an object, not {_shown(message)}.", param=where)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise RequestError(f"{where}.role has to be a word such as user, not {_shown(role)}.", param=f"{where}.role")
    if role not in ROLES:
        known = f"{', '.join(ROLES[:-1])} or {ROLES[-1]}"
        told = f"{where}.role is {_shown(role)}, which does not exist: it has to be {known}."
        raise RequestError(told, param=f"{where}.role")
    _check_content(message, where)
    _check_id(message.get("tool_call_id"), f"{where}.tool_call_id")
    if "tool_calls" in message:
        _check_tool_calls(message["tool_calls"], f"{where}.tool_calls")


def _check_content(message: dict[str, Any], where: str) -> None:
    content = message.get("content")
    if isinstance(content, str):
        return
    if content is None and (message["role"] in ROLES_WITHOUT_CONTENT or "content" in message):
        return
    if isinstance(content, list) and all(isinstance(part, dict | str) for part in content):
        return
    raise RequestError(
        f"{where}.content has to be a text or a list of parts, not {_shown(content)}.", param=f"{where}.content"
    )


def _check_tool_calls(tool_calls: Any, where: str) -> None:
    if tool_calls is None:
        return
    if not isinstance(tool_calls, list) or not all(isinstance(call, dict) for call in tool_calls):
        raise RequestError(f"{where} has to be a list of objects, not {_shown(tool_calls)}.", param=where)
    for index, call in enumerate(tool_calls):
        _check_id(call.get("id"), f"{where}[{index}].id")


def _check_id(value: Any, where: str) -> None:
    if isinstance(value, dict | list):
        raise RequestError(f"{where} has to be a text, not {_shown(value)}.", param=where)


def _checked_tools(tools: Any) -> tuple[dict[str, Any], ...]:
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise RequestError(f"tools has to be a list, not {_shown(tools)}.", param="tools")
    _check_number(tools, MAX_TOOLS, "tools")
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise RequestError(f"{where} has to be an object, not {_shown(tool)}.", param=where)
        if tool.get("type", "function") == "function":
            function = tool.get("function")
            if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
                raise RequestError(f"{where}.function needs a name.", param=f"{where}.function")
    return tuple(tools)


def _wants_usage(options: Any) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict):
        raise RequestError(f"stream_options has to be an object, not {_shown(options)}.", param="stream_options")
    return bool(options.get("include_usage"))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
