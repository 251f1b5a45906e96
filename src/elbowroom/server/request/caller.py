"""Tells who sends a request: from its headers, and from the fields of its body."""

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import filterfalse, repeat
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.request import Caller, ChatRequest, KnownBy
from elbowroom.context.canonical import question_in
from elbowroom.context.ledger import is_system
from elbowroom.context.transcript import Message, is_text, parts_of, text_in, text_of
from elbowroom.errors import Unauthorized
from elbowroom.server.guard import CONVERSATION, HOLDER, OPEN_WEBUI_JWT, RULES, arrival
from elbowroom.server.request.side_requests import SIDE_REQUESTS, SideRequest
from elbowroom.server.state import SHARED
from elbowroom.store import Token

USER: Final = "X-Elbowroom-User"
TASK: Final = "X-Elbowroom-Task"
PROGRAM: Final = "X-Elbowroom-Program"
TITLE: Final = "X-Title"
"""Another header in which programs name themselves, which a router of models has made usual."""
CHAT_URL: Final = "X-Elbowroom-Chat-Url"
OPEN_WEBUI: Final = re.compile("x-openwebui-|x-elbowroom-message-id", re.IGNORECASE)
"""How the headers begin that Open WebUI sends where it is set up to, and no other client."""
OBSIDIAN: Final = ("app://obsidian.md", "capacitor://localhost", "http://localhost", "https://localhost")
"""Origins of Obsidian's plugins, on a computer, on an iPhone and on Android; they show an answer's text alone."""
OPEN_WEBUI_USER: Final = "X-OpenWebUI-User-Id"
OPEN_WEBUI_CHAT: Final = "X-OpenWebUI-Chat-Id"
TITLE_TASK: Final = "title_generation"
AWAITED_TASKS: Final = frozenset(
    {"context_compaction", "function_calling", "image_prompt_generation", "moa_response_generation", "query_generation"}
)
"""Tasks of Open WebUI for whose answers its chat or its user waits."""
TASK_PROMPT: Final = "### Task:"
CHAT_HISTORY: Final = "<chat_history>"
"""What a task has that is about a chat; a question about files begins as a task does."""
AWAITED_ORDERS: Final = ("Analyze the chat history to determine", "Summarize the conversation history")
"""How the second line of such a task begins."""
TOOL_LIST: Final = "Available Tools: ["
TOOL_QUESTIONS: Final = ("Query: ", "History:")
SESSIONS: Final = ("X-Claude-Code-Session-Id", "Thread-Id", "Session-Id", "X-Session-Id", "X-Session-Affinity")
"""Headers in which coding agents name a session."""
UNIQUE: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""The form of a key that can only be one conversation's; other keys of a prompt cache may be a whole program's."""
MOST_SEARCHED: Final = 200_000
"""Characters at the beginning of a text that are searched for a phrase."""
BRIEF: Final = frozenset({"title", "probe"})
"""Kinds of side requests that have not the messages of a chat."""
REMINDERS: Final = re.compile(r"\A(?:\s*<system-reminder>.*?</system-reminder>)*\s*", re.DOTALL)
LONGEST_NAME: Final = 128
LONGEST_URL: Final = 500
WEB_PAGE: Final = re.compile(r"https?://[^\s\"'<>\\{}]+", re.ASCII)
NO_BODY: Final[Mapping[str, Any]] = {}
UNFILLED: Final = re.compile(r"\{\{.*\}\}")
CLOCKS_DIFFER: Final = 30
"""Seconds by which the clocks of Open WebUI and of this machine may differ."""
FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via")
"""Headers that proxies add; the sender's address is then the proxy's."""


def caller_without_chat(request: web.Request) -> Caller:
    """Return the caller of a request that is no chat, from its headers."""
    owner = owner_of(request)
    return Caller(owner, _chat_id(request.headers, {}), known_by=known_by(request, owner))


def keeper_of(request: web.Request, body: Mapping[str, Any] = NO_BODY) -> str:
    """Return the owner of the caller's conversations."""
    owner = owner_of(request, body)
    return Caller(owner, known_by=known_by(request, owner)).keeps_as


def caller_of(headers: Mapping[str, str], chat: ChatRequest, owner: str, *, knows_side_requests: bool = True) -> Caller:
    """Return the caller of a chat, which is its `owner`; the mapping of `headers` ignores case.

    What a coding agent asks beside a conversation is a task only where the caller `knows_side_requests`. Other tasks
    are known by their header, or by their form where they have none; no streaming request has that.
    """
    chat_id = _chat_id(headers, chat.body)
    is_open_webui = any(map(OPEN_WEBUI.match, headers))
    caller = Caller(
        owner,
        chat_id,
        known_by="name" if owner else "nothing",
        is_open_webui=is_open_webui,
        origin=origin_of(headers, chat_id, "Open WebUI" if is_open_webui else ""),
    )
    named = headers.get(TASK)
    named = None if named is None or UNFILLED.fullmatch(named.strip()) else named.strip()
    if named is None and knows_side_requests and (known := side_request(chat)) is not None:
        is_awaited, brings_chat = known.kind == "compaction", known.kind not in BRIEF
        title = known.kind == "title"
        return replace(caller, is_task=True, is_awaited=is_awaited, brings_chat=brings_chat, wants_title=title)
    is_task = bool(named) if named is not None else not chat.stream and _has_form_of_task(chat)
    return replace(
        caller, is_task=is_task, is_awaited=is_task and _is_awaited(named, chat), wants_title=named == TITLE_TASK
    )


def origin_of(headers: Mapping[str, str], chat_id: str, known: str) -> dict[str, str]:
    """Return the name of the program that asks and the address of the chat there, as far as it says so.

    A program that is `known` may still say that it has another name.

    An address that does not lead to this chat is no address of it.
    """
    known = known or ("Obsidian" if headers.get("Origin") in OBSIDIAN else "")
    program = _first_name(headers.get(PROGRAM), headers.get(TITLE), known)
    told = {"program": program} if program else {}
    url = headers.get(CHAT_URL, "").strip()
    if url and chat_id and chat_id in url and len(url) <= LONGEST_URL and WEB_PAGE.fullmatch(url):
        told["url"] = url
    return told


def known_by(request: web.Request, owner: str) -> KnownBy:
    """Return how the caller is identified; the guard has checked its token, where one is set or it is paired."""
    only_user = request.app[SHARED].only_user
    if owner:
        only_user.is_alone = False  # for good
        return "name"
    if HOLDER in request or request.app[RULES].get().token is not None:
        return "token"
    return "nobody else" if only_user.is_alone and is_from_here(request) else "nothing"


def is_from_here(request: web.Request) -> bool:
    """Tell whether a request comes from this computer, under any of its addresses, and not through a proxy on it."""
    peer = request.remote
    if not peer or any(map(request.headers.__contains__, FORWARDED)):
        return False
    return peer == arrival(request)[0] or _is_loopback(peer)


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def conversation_name(name: str) -> str:
    """Return a client's name for a conversation in the form of `Caller.chat_id`."""
    return _first_name(name)


def owner_of(request: web.Request, body: Mapping[str, Any] = NO_BODY) -> str:
    """Return whose request this is: the person of its token, or the user whom it names where it may name one.

    A gateway speaks for others, and so does the server's own token; where there is none, everybody may. It is empty
    where nobody is named. Raises Unauthorized for a name that is to be signed and is not.
    """
    holder: Token | None = request.get(HOLDER)
    rules = request.app[RULES].get()
    if holder is not None and holder.role != "gateway" and (holder.person or rules.token is not None):
        return holder.person
    must_sign = holder is not None and rules.open_webui_secret is not None
    named = named_user(request.headers, body, rules.open_webui_secret, must_sign=must_sign)
    return named or (holder.person if holder is not None else "")


def named_user(
    headers: Mapping[str, str],
    body: Mapping[str, Any] = NO_BODY,
    secret: str | None = None,
    *,
    must_sign: bool = False,
) -> str:
    """Return the user whom a request names; empty where it names nobody.

    With a `secret` Open WebUI's users count only by its web token, signed with that; where everybody `must_sign`, no
    other name counts. Raises Unauthorized for a web token with another signature.
    """
    claims = _claims(headers[OPEN_WEBUI_JWT], secret) if OPEN_WEBUI_JWT in headers else {}
    named = _first_name(None if secret else headers.get(OPEN_WEBUI_USER), claims.get("id"), claims.get("sub"))
    if named or must_sign:
        return named
    return _first_name(headers.get(USER), body.get("safety_identifier"), body.get("user"))


def _chat_id(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata")
    named = metadata.get("conversation_id") if isinstance(metadata, dict) else None
    cache_key = body.get("prompt_cache_key")
    return _first_name(
        headers.get(CONVERSATION),
        headers.get(OPEN_WEBUI_CHAT),
        named,
        *map(headers.get, SESSIONS),
        cache_key if isinstance(cache_key, str) and UNIQUE.fullmatch(cache_key) else None,
    )


def _is_awaited(named: str | None, task: ChatRequest) -> bool:
    """Tell whether a chat waits for a task, by the task's name, or by its form where it has none."""
    if named is not None:
        return named in AWAITED_TASKS
    order = text_of(task.messages[-1])
    return not order.startswith(TASK_PROMPT) or order.removeprefix(TASK_PROMPT).strip().startswith(AWAITED_ORDERS)


def _has_form_of_task(chat: ChatRequest) -> bool:
    orders = list(map(text_of, filter(is_system, chat.messages)))
    others = list(filterfalse(is_system, chat.messages))
    if len(others) != 1 or others[0]["role"] != "user":
        return False
    asked = text_of(others[0])
    selects_tools = any(order.startswith(TOOL_LIST) for order in orders) and asked.startswith(TOOL_QUESTIONS)
    asks_about_files = question_in(asked) != asked and CHAT_HISTORY not in asked
    return selects_tools or (asked.startswith(TASK_PROMPT) and not asks_about_files)


def side_request(chat: ChatRequest) -> SideRequest | None:
    """Return which side request this is; None for a chat."""
    said = list(filterfalse(is_system, chat.messages))
    if not said or said[-1]["role"] != "user":
        return None
    is_instructed = len(said) < len(chat.messages)
    offers_tools = bool(chat.tools) and chat.fields.get("tool_choice") != "none"
    first, last = _beginnings(said[0]), _beginnings(said[-1])
    for known in SIDE_REQUESTS:
        texts = first if known.asks_first else last
        if known.asked and not any(map(str.startswith, texts, repeat(known.asked))):
            continue
        may_be = (known.may_offer_tools or not offers_tools) and (is_instructed or not known.systems)
        if may_be and _is_told(known, chat):
            return known
    return None


def _beginnings(message: Message) -> list[str]:
    """Return how the texts of a message begin, without what Claude Code reminds its model of before them."""
    content = message.get("content")
    if isinstance(content, str):
        return [REMINDERS.sub("", content[:MOST_SEARCHED])]
    return [REMINDERS.sub("", text_in(part)[:MOST_SEARCHED]) for part in parts_of(content) if is_text(part)]


def _is_told(known: SideRequest, chat: ChatRequest) -> bool:
    """Tell whether the model is told what a side request tells it; one that only probes tells it nothing else."""
    if known.kind == "probe" and not (
        len(chat.messages) == 1 and text_of(chat.messages[0]) == known.asked and chat.fields.get("max_tokens") == 1
    ):
        return False
    if not known.systems:
        return True
    systems = [text_of(message)[:MOST_SEARCHED] for message in filter(is_system, chat.messages)]
    return any(_opens_paragraph(phrase, text) for phrase in known.systems for text in systems)


def _opens_paragraph(phrase: str, text: str) -> bool:
    return phrase in text and re.search(rf"(?:^|\n)[ \t-]*{re.escape(phrase)}", text) is not None


def _claims(token: str, secret: str | None) -> dict[str, Any]:
    """Return the claims of a JSON web token; without a secret its signature is not checked.

    Raises Unauthorized where it is not signed with the secret, or has expired.
    """
    import jwt

    try:
        if secret is None:
            return jwt.decode(token, options={"verify_signature": False})
        return jwt.decode(token, secret, algorithms=["HS256"], leeway=CLOCKS_DIFFER, options={"require": ["exp"]})
    except jwt.InvalidTokenError as error:
        if secret is None:
            return {}
        raise Unauthorized(
            f"{OPEN_WEBUI_JWT} does not prove a user: {error}. Its secret has to be that of "
            "server.open_webui_secret, and the clocks of both machines right."
        ) from None


def _first_name(*values: object) -> str:
    """Return the first value that names something: a whole number, or a text that is no template left unfilled."""
    for value in values:
        name = "" if isinstance(value, bool) or not isinstance(value, str | int) else str(value).strip()
        if name and not UNFILLED.fullmatch(name):
            return _bounded(name)
    return ""


def _bounded(name: str) -> str:
    """Return a name that can stand in a log; a name that is too long or not printable is replaced by its hash.

    A cut name could be the same for two callers.
    """
    if len(name) <= LONGEST_NAME and name.isprintable():
        return name
    return f"sha256:{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
