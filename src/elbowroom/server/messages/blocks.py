"""Turns the `system` and the `messages` of an Anthropic request into the messages of a chat."""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.errors import RequestError
from elbowroom.server.dialect import content_of, text_in
from elbowroom.server.encode import THOUGHTS

Block = Mapping[str, Any]
Part = dict[str, Any]
BILLING: Final = "x-anthropic-billing-header:"
"""How a line begins that Claude Code puts before its system prompt, and that may change with every request."""
HIDDEN_THOUGHTS: Final = "elbowroom:"
"""How the signature of a block begins that carries thoughts which the client wants to keep but not to show."""
ROLES: Final = frozenset({"user", "assistant", "system"})
SILENT: Final = frozenset({"redacted_thinking", "fallback", "container_upload", "compaction"})
"""Blocks without words for a local model; of compactions, those that stand for nothing any more."""
COMPACTION: Final = "compaction"
SEALED: Final = "encrypted_content"
OWN_CALL: Final = re.compile(r"toolu_([A-Za-z0-9]{9})")
"""The id of a call that was given out here: what other programs and templates know it by stands in it."""
FAILED: Final = "Error: "
ALREADY_FAILED: Final = ("error", "<tool_use_error>")


@dataclass(frozen=True, slots=True)
class SealedCompaction:
    """A compaction that a client has sent back: `item` as it was given out, and `where` it stands in the request.

    The message at the place `at` of the chat stands for it until it is opened.
    """

    item: Any
    where: str
    at: int


def chat_messages(system: Any, messages: Any) -> tuple[list[dict[str, Any]], SealedCompaction | None]:
    """Return the chat of a request, and the compaction in it that stands for all before it but instructions.

    Raises RequestError that names the field and what belongs there.
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages has to be a list with at least one message.", param="messages")
    chat = [{"role": "system", "content": text}] if (text := system_text(system, "system")) else []
    found = _newest_compaction(messages)
    if found is None:
        return [*chat, *_chat_from(enumerate(messages))], None
    last, place, block = found
    chat += _chat_from((index, each) for index, each in enumerate(messages[:last]) if _is_instruction(each))
    sealed = SealedCompaction(block.get(SEALED), f"messages[{last}].content[{place}].{SEALED}", len(chat))
    chat.append({"role": "user", "content": block.get("content") or ""})
    chat += _chat_from([*_after_block(messages[last], last, place), *enumerate(messages[last + 1 :], last + 1)])
    return chat, sealed if sealed.item is not None else None


def _newest_compaction(messages: Sequence[Any]) -> tuple[int, int, Block] | None:
    """Return the newest compaction that stands for what comes before it: places of its message and block, and it.

    One without its sealed item is only words: they stand for what a client no longer sends, and are left out where it
    still sends it.
    """
    for last in reversed(range(len(messages))):
        content = messages[last].get("content") if isinstance(messages[last], Mapping) else None
        blocks = content if isinstance(content, list) else []
        for place in reversed(range(len(blocks))):
            block = blocks[place]
            if not isinstance(block, Mapping) or block.get("type") != COMPACTION:
                continue
            is_first = place == 0 and all(map(_is_instruction, messages[:last]))
            said = block.get("content")
            if block.get(SEALED) is not None or (is_first and isinstance(said, str) and said):
                return last, place, block
    return None


def _after_block(message: Mapping[str, Any], index: int, place: int) -> Iterator[tuple[int, Any]]:
    """Yield what is left of a message after one of its blocks, with its number; nothing where that was its last."""
    blocks = message["content"]
    if len(blocks) > place + 1:
        yield index, {**message, "content": [*({"type": COMPACTION},) * (place + 1), *blocks[place + 1 :]]}


def _is_instruction(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") == "system"


def _chat_from(numbered: Iterable[tuple[int, Any]]) -> Iterator[dict[str, Any]]:
    """Yield messages as a chat has them. Raises RequestError, also for calls without a result in the next message."""
    called, where = set[str](), ""
    for index, message in numbered:
        chat = _chat_of(message, f"messages[{index}]")
        if called and message["role"] == "user":
            called -= {str(each.get("tool_call_id")) for each in chat}
            _check_answered(called, where)
        if calls := [call["id"] for each in chat for call in each.get("tool_calls", ())]:
            called, where = called | set(calls), f"messages[{index}]"
        yield from chat
    _check_answered(called, where)


def _check_answered(called: Collection[str], where: str) -> None:
    if called:
        named = ", ".join(f"{each:.60}" for each in sorted(called))
        raise RequestError(
            f"{where} has tool_use blocks without a tool_result in the next message: {named:.400}. Send a tool_result "
            "for each, with is_error where the tool did not run.",
            param=where,
        )


def system_text(system: Any, where: str) -> str:
    """Return a system prompt, a text or a list of text blocks, without the line that only an invoice needs."""
    texts = [system] if isinstance(system, str) else [] if system is None else _texts(system, where)
    kept = [_without_billing(text) for text in texts]
    return "\n\n".join(text for text in kept if text)


def _without_billing(text: str) -> str:
    return text.partition("\n")[2].lstrip("\n") if text.startswith(BILLING) else text


def _texts(blocks: Any, where: str) -> list[str]:
    return [text_in(block, "text", at) for at, block in _numbered(blocks, where) if _kind(block) == "text"]


def _chat_of(message: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} has to be an object.", param=where)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(f"{where}.role has to be user or assistant.", param=f"{where}.role")
    if role == "system":
        text = system_text(content, f"{where}.content")
        return [{"role": "system", "content": text}] if text else []
    if isinstance(content, str):
        _check_said(content or role == "assistant", f"{where}.content")
        return [{"role": role, "content": content}]
    blocks = list(_numbered(content, f"{where}.content"))
    _check_said(blocks or role == "assistant", f"{where}.content")
    for at, block in blocks:
        _check_said(_kind(block) != "text" or block.get("text") != "", f"{at}.text")
    return [_said(blocks)] if role == "assistant" else list(_sent(blocks))


def _check_said(is_said: object, where: str) -> None:
    if not is_said:
        raise RequestError(f"{where} is empty: a text needs at least one character, or leave it out.", param=where)


def _numbered(blocks: Any, where: str) -> Iterator[tuple[str, Block]]:
    if not isinstance(blocks, list):
        raise RequestError(f"{where} has to be a text or a list of blocks.", param=where)
    for index, block in enumerate(blocks):
        at = f"{where}[{index}]"
        if not isinstance(block, Mapping):
            raise RequestError(f"{at} has to be an object.", param=at)
        yield at, block


def _said(blocks: Sequence[tuple[str, Block]]) -> dict[str, Any]:
    """Return an assistant's blocks as one message of a chat."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for where, block in blocks:
        match _kind(block):
            case "tool_use":
                calls.append(_call(block, where))
            case "thinking":
                thoughts.append(_thought(block))
            case _:
                texts += [part["text"] for part in _parts(where, block) if part["type"] == "text"]
    said: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if calls:
        said["tool_calls"] = calls
    if whole := "".join(thoughts):
        said[THOUGHTS] = whole
    return said


def _sent(blocks: Sequence[tuple[str, Block]]) -> Iterator[dict[str, Any]]:
    """Yield a user's blocks: a message for each result of a tool, and then one for all the rest."""
    rest: list[Part] = []
    for where, block in blocks:
        if _kind(block) == "tool_result":
            yield _result(block, where)
        else:
            rest += _parts(where, block)
    if rest:
        yield {"role": "user", "content": content_of(rest)}


def _call(block: Block, where: str) -> dict[str, Any]:
    given = block.get("input")
    # Models write their arguments with a space after each colon and comma; so does this.
    arguments = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
    function = {"name": text_in(block, "name", where), "arguments": arguments}
    return {"id": _call_id(block, "id", where), "type": "function", "function": function}


def _result(block: Block, where: str) -> dict[str, Any]:
    content = block.get("content")
    parts: list[Part] = []
    if isinstance(content, str):
        parts = [{"type": "text", "text": content}]
    elif content is not None:
        for at, inner in _numbered(content, f"{where}.content"):
            parts += _parts(at, inner)
    if block.get("is_error") is True:
        parts = _marked_as_failed(parts)
    return {"role": "tool", "tool_call_id": _call_id(block, "tool_use_id", where), "content": content_of(parts)}


def tool_use_id_of(call_id: str) -> str:
    """Return the id by which the client knows a call, in the form of Anthropic's."""
    return f"toolu_{call_id}"


def _call_id(block: Block, name: str, where: str) -> str:
    """Return the id of a call as it was made here; a foreign one is left as it is."""
    given = text_in(block, name, where)
    own = OWN_CALL.fullmatch(given)
    return own[1] if own else given


def _marked_as_failed(parts: list[Part]) -> list[Part]:
    """Return the parts of a failed call's result, which say so; a chat has no other way to tell it."""
    first = parts[0].get("text", "") if parts else ""
    if first.lstrip().lower().startswith(ALREADY_FAILED):
        return parts
    if parts and parts[0]["type"] == "text":
        return [{"type": "text", "text": FAILED + first}, *parts[1:]]
    return [{"type": "text", "text": FAILED.strip()}, *parts]


def _parts(where: str, block: Block) -> list[Part]:
    """Return what a block says or shows; what no local model can read is named, so that the model knows of it."""
    match _kind(block):
        case "text":
            return [{"type": "text", "text": text_in(block, "text", where)}]
        case "image":
            return [_image(block, where)]
        case "document":
            return _document(block, where)
        case "search_result":
            return _found(block, where)
        case "tool_reference":
            return [{"type": "text", "text": f"[Tool: {block.get('tool_name')}]"}]
        case kind if kind in SILENT:
            return []
        case kind:
            return [{"type": "text", "text": f"[A block of the type {kind[:60]!r}, which is not shown here.]"}]


def _image(block: Block, where: str) -> Part:
    match block.get("source"):
        case {"type": "base64", "media_type": str() as kind, "data": str() as data}:
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        case {"type": "url", "url": str() as url}:
            return {"type": "image_url", "image_url": {"url": url}}
        case _:
            pass
    raise RequestError(
        f"{where}.source has to be an image in base64 with its media_type, or a url; elbowroom has no files to which "
        "file_id could refer.",
        param=f"{where}.source",
    )


def _document(block: Block, where: str) -> list[Part]:
    """Return the text of a document; of one in a form that no local model reads, only its name."""
    title = block.get("title") if isinstance(block.get("title"), str) else ""
    heading = [{"type": "text", "text": f"Document: {title}"}] if title else []
    match block.get("source"):
        case {"type": "text", "data": str() as text}:
            return [*heading, {"type": "text", "text": text}]
        case {"type": "content", "content": str() as text}:
            return [*heading, {"type": "text", "text": text}]
        case {"type": "content", "content": list() as blocks}:
            inner = [part for at, each in _numbered(blocks, f"{where}.source.content") for part in _parts(at, each)]
            return [*heading, *inner]
        case source:
            kind = source.get("media_type") or source.get("type") if isinstance(source, Mapping) else None
            named = f"{title!r} " if title else ""
            said = f"[The document {named}({kind or 'of an unknown kind'}) cannot be read here: ask for its text.]"
            return [{"type": "text", "text": said}]


def _found(block: Block, where: str) -> list[Part]:
    heading = f"{block.get('title') or 'Search result'} ({block.get('source') or 'no source'})"
    content = block.get("content")
    inner = [part for at, each in _numbered(content, f"{where}.content") for part in _parts(at, each)]
    return [{"type": "text", "text": heading}, *inner]


def signature_of(thoughts: str) -> str:
    """Return a signature from which `chat_messages` reads the thoughts of a block that shows none."""
    return HIDDEN_THOUGHTS + base64.b64encode(thoughts.encode("utf-8", "surrogatepass")).decode("ascii")


def _thought(block: Block) -> str:
    shown, signature = block.get("thinking"), block.get("signature")
    if isinstance(shown, str) and shown:
        return shown
    if not isinstance(signature, str) or not signature.startswith(HIDDEN_THOUGHTS):
        return ""
    try:
        return base64.b64decode(signature.removeprefix(HIDDEN_THOUGHTS), validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _kind(block: Block) -> str:
    kind = block.get("type")
    return kind if isinstance(kind, str) else "text" if "text" in block else ""
