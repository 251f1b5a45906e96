"""Turns the `input` of a Responses request into the messages of a chat."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from elbowroom.context.transcript import SYSTEM_ROLES, Message, calls_of, parts_of, text_of
from elbowroom.errors import RequestError
from elbowroom.server.dialect import content_of, text_in
from elbowroom.server.encode import THOUGHTS
from elbowroom.server.responses.tools import CALLS, OUTPUTS, call_of

Item = Mapping[str, Any]
TEXT_PARTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""The key under which each kind of part has its text."""
COMPACTION: Final = "compaction"
TRIGGER: Final = "compaction_trigger"
ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
BETWEEN_ANSWERS: Final = "\n\n"
NOT_SENT_ON: Final[Mapping[str, str]] = {
    "input_file": "A local model does not read files: put the file's text into an input_text part.",
    "input_audio": "Local models do not hear: put a transcript into an input_text part.",
}


def messages_of(value: Any, first: int = 0) -> list[dict[str, Any]]:
    """Return the messages of an `input`: a text, or a list of items without references and compactions.

    Texts and calls of an assistant that follow each other become one message, as in a chat. `first` is the place of the
    list's first item in the request. Raises RequestError that names the item and what belongs there.
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise RequestError("input has to be a text or a list of items.", param="input")
    chat = _Chat()
    for index, item in enumerate(value, first):
        where = f"input[{index}]"
        if not isinstance(item, Mapping):
            raise RequestError(f"{where} has to be an object.", param=where)
        chat.add(item, where)
    return chat.joined()


def without_trigger(value: Any) -> tuple[Any, bool]:
    """Return an `input` without the order to compact it, and whether it has one. Raises RequestError."""
    items = value if isinstance(value, list) else []
    orders = [place for place, item in enumerate(items) if isinstance(item, Mapping) and _kind(item) == TRIGGER]
    if orders and orders != [len(items) - 1]:
        where = f"input[{orders[0]}]"
        raise RequestError(f"{where} is a {TRIGGER}, which has to be the last item and the only one.", param=where)
    return (items[:-1], True) if orders else (value, False)


def compactions_in(value: Any) -> list[int]:
    """Return the places of the compaction items in an `input`."""
    items = value if isinstance(value, list) else []
    return [place for place, item in enumerate(items) if isinstance(item, Mapping) and _kind(item) == COMPACTION]


def beside_compaction(messages: Sequence[Message], compacted: Sequence[Message]) -> list[Message]:
    """Return those of the messages before a compaction item that stand beside what it stands for.

    Instructions do. So do a user's messages that a client has kept in place of the whole conversation, but for those
    that `compacted` has word for word; with answers or results among them they are the conversation that it replaces.
    """
    is_whole = any(message["role"] not in ("user", *SYSTEM_ROLES) for message in messages)
    return [
        message for message in messages if message["role"] in SYSTEM_ROLES or not (is_whole or message in compacted)
    ]


def items_of(message: Message, key: str) -> list[dict[str, Any]]:
    """Return a client's message of a chat as items; `key` becomes a part of their ids."""
    if message.get("role") == "tool":
        result = {"call_id": message.get("tool_call_id"), "output": text_of(message), "status": "completed"}
        return [{"id": f"fco_{key}", "type": "function_call_output", **result}]
    role, parts = message.get("role"), [part for part in parts_of(message.get("content")) if isinstance(part, Mapping)]
    said = {"role": role, "content": [_item_part(part, role) for part in parts], "status": "completed"}
    calls = [_item_of_call(call, f"{key}{number}") for number, call in enumerate(calls_of(message))]
    return [{"id": f"msg_{key}", "type": "message", **said}, *calls] if parts or not calls else calls


def _item_of_call(call: Mapping[str, Any], key: str) -> dict[str, Any]:
    function = call["function"]
    called = {"call_id": call.get("id"), "name": function["name"], "arguments": function["arguments"]}
    return {"id": f"fc_{key}", "type": "function_call", **called, "status": "completed"}


def _item_part(part: Mapping[str, Any], role: Any) -> dict[str, Any]:
    if role == "assistant":
        return {"type": "output_text", "text": str(part.get("text", "")), "annotations": [], "logprobs": []}
    if part.get("type") != "image_url":
        return {"type": "input_text", "text": str(part.get("text", ""))}
    image = part.get("image_url")
    url = image if isinstance(image, Mapping) else {"url": image}
    return {"type": "input_image", "image_url": url.get("url"), "detail": url.get("detail") or "auto"}


def references_in(value: Any) -> list[str]:
    """Return the ids that the items of an `input` refer to."""
    items = value if isinstance(value, list) else []
    ids = [item.get("id") for item in items if isinstance(item, Mapping) and _kind(item) == "item_reference"]
    return [item_id for item_id in ids if isinstance(item_id, str)]


def resolved(value: Any, known: Mapping[str, Item]) -> Any:
    """Return the `input` with the `known` items in place of references to them.

    Raises RequestError for an unknown reference, and for a second reference to the same item.
    """
    if not isinstance(value, list):
        return value
    left = dict(known)
    return [_resolved(item, known, left, f"input[{index}]") for index, item in enumerate(value)]


def _resolved(item: Any, known: Mapping[str, Item], left: dict[str, Item], where: str) -> Any:
    if not isinstance(item, Mapping) or _kind(item) != "item_reference":
        return item
    item_id = str(item.get("id"))
    if (found := left.pop(item_id, None)) is not None:
        return found
    if item_id in known:
        raise RequestError(f"{where} refers to {item_id[:80]!r} again: an item can stand in input once.", param=where)
    raise RequestError(
        f"{where} refers to an item that is not kept here: {item_id[:80]!r}. Send the item itself, or "
        "name the response before with previous_response_id.",
        param=where,
        code="item_not_found",
    )


def _kind(item: Item) -> Any:
    """Return the kind of an item; without one it is a message, or a reference if it has nothing but an id."""
    if (kind := item.get("type")) is not None:
        return kind
    return "message" if "role" in item or "id" not in item else "item_reference"


class _Chat:
    """Puts messages together item by item; an assistant's texts are joined once, at the end."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._thoughts: list[str] = []
        self._said_in = ""

    def add(self, item: Item, where: str) -> None:
        match kind := _kind(item):
            case "message":
                self._add_message(item, where)
            case str() if kind in CALLS:
                self._add_call(item, where)
            case str() if kind in OUTPUTS:
                self._add_result(item, where)
            case "reasoning":
                self._thoughts += _thoughts(item)
            case "compaction":
                pass  # a later one stands for it
            case _:
                raise RequestError(
                    f"{where} is of the type {str(kind)[:60]!r}, which elbowroom does not take. It takes message, "
                    "calls and results of tools, reasoning, compaction and item_reference: leave the others out.",
                    param=f"{where}.type",
                )

    def _add_message(self, item: Item, where: str) -> None:
        role = item.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise RequestError(
                f"{where}.role has to be user, assistant, system or developer. A tool's result is an item of the type "
                "function_call_output.",
                param=f"{where}.role",
            )
        content = item.get("content")
        if role == "assistant":
            self._say("".join(_texts(content, f"{where}.content")), item.get("id"))
            return
        self._thoughts.clear()
        parts = _parts(content, f"{where}.content")
        if role == "user" and all(part["type"] == "text" for part in parts) and len(parts) == 1:
            self.messages.append({"role": "user", "content": parts[0]["text"]})
        else:  # also a system's: `instructions` alone, which are of one request, stand as a text
            self.messages.append({"role": role, "content": parts})

    def _say(self, text: str, item_id: Any) -> None:
        said_in = answer_of_item(item_id)
        said = self._answer()["content"]
        if said and text and not (text[0].isspace() or (said_in and said_in == self._said_in)):
            said.append(BETWEEN_ANSWERS)
        if text:
            said.append(text)
        self._said_in = said_in

    def _add_call(self, item: Item, where: str) -> None:
        name, arguments = call_of(item, where)
        function = {"name": name, "arguments": arguments}
        call = {"id": _call_id(item, where), "type": "function", "function": function}
        self._answer().setdefault("tool_calls", []).append(call)

    def _add_result(self, item: Item, where: str) -> None:
        self._thoughts.clear()
        output = item.get("output")
        if output is None and item.get("type") == "apply_patch_call_output":
            output = str(item.get("status"))
        content = content_of(_parts(output, f"{where}.output"))
        self.messages.append({"role": "tool", "tool_call_id": _call_id(item, where), "content": content})

    def _answer(self) -> dict[str, Any]:
        """Return the assistant's message that is being put together; it gets the thoughts before it."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": []})
            self._said_in = ""
        answer = self.messages[-1]
        if self._thoughts:
            answer.setdefault(THOUGHTS, []).extend(self._thoughts)
            self._thoughts.clear()
        return answer

    def joined(self) -> list[dict[str, Any]]:
        """Return the messages, each text in one piece."""
        for message in self.messages:
            if message["role"] == "assistant":
                message |= {name: "".join(message[name]) for name in ("content", THOUGHTS) if name in message}
        return self.messages


def _call_id(item: Item, where: str) -> str:
    """Return the id of the call that an item makes or answers; old clients give a shell's as the id of the item."""
    if str(item.get("type")).startswith("local_shell") and "call_id" not in item:
        return text_in(item, "id", where)
    return text_in(item, "call_id", where)


def answer_of_item(item_id: Any) -> str:
    """Return the id of the response, without its prefix, that an item belongs to; empty for foreign items."""
    text = item_id if isinstance(item_id, str) else ""
    return text.split("_")[1] if text.count("_") == 2 else ""


def _thoughts(item: Item) -> list[str]:
    """Return the thoughts of a reasoning item, or else their summary; encrypted ones cannot be read."""
    for name in ("content", "summary"):
        parts = item.get(name)
        said = [part.get("text") for part in parts if isinstance(part, Mapping)] if isinstance(parts, Sequence) else []
        if texts := [text for text in said if isinstance(text, str)]:
            return texts
    return []


def _texts(content: Any, where: str) -> list[str]:
    texts = [part.get("text") for part in _parts(content, where)]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{where} has to be text: an assistant sends no images.", param=where)
    return [text for text in texts if isinstance(text, str)]


def _parts(content: Any, where: str) -> list[dict[str, Any]]:
    """Return content as the parts of a chat message."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise RequestError(f"{where} has to be a text or a list of parts.", param=where)
    return [_part(part, f"{where}[{index}]") for index, part in enumerate(content)]


def _part(part: Any, where: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind in TEXT_PARTS:
        return {"type": "text", "text": text_in(part, TEXT_PARTS[kind], where)}
    if kind == "input_image":
        return _image(part, where)
    why = NOT_SENT_ON.get(kind, "It has to be input_text or input_image.") if isinstance(kind, str) else ""
    raise RequestError(f"{where} is no part that elbowroom takes. {why or 'It has to be an object.'}", param=where)


def _image(part: Item, where: str) -> dict[str, Any]:
    url = part.get("image_url")
    if not isinstance(url, str):
        raise RequestError(
            f"{where}.image_url has to be an address or a data: URL; elbowroom has no files to which file_id could "
            "refer.",
            param=f"{where}.image_url",
        )
    detail = part.get("detail")
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if isinstance(detail, str) else {})}}
