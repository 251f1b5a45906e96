"""Who may call: the checks before all routes but two, cheapest first: Host, Origin, content type, token.

Host stops DNS rebinding, Origin other people's web pages, the content type forms that need no preflight.
"""

import asyncio
import hmac
import importlib
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Final

from aiohttp import hdrs, web

from elbowroom.connect.pairing import ROUTE as PAIRING
from elbowroom.errors import Forbidden, RequestError, Unauthorized, UnsupportedMediaType
from elbowroom.logs.redaction import REDACTOR
from elbowroom.server.state import SETTINGS, SHARED, Following
from elbowroom.settings.load import LoadedSettings
from elbowroom.store import TOKENS_BEGIN, Role, Token

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HEALTH, READY = "/health", "/ready"
"""What anybody may ask, under any name: monitors and load balancers do."""
DOCKER: Final = "host.docker.internal"
"""What a program in Docker calls this machine."""
ALWAYS_ALLOWED_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]", DOCKER})
ALWAYS_ALLOWED_ORIGINS = re.compile(
    r"app://obsidian\.md|capacitor://localhost|https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?"
)
METHODS_WITH_BODY = frozenset({hdrs.METH_POST, hdrs.METH_PUT, hdrs.METH_PATCH})
SITE = "Sec-Fetch-Site"
"""The header by which browsers tell that a page of another site asks; images and links have no Origin."""
HOST_FORM = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::[0-9]{1,5})?")
Answer = Callable[[web.Request], Awaitable[web.Response]]
SAME_SITE: Final = "same-origin"
PAGE: Final = "/"
PARTS: Final = "/page/"
CONVERSATION: Final = "X-Conversation-Id"
REQUEST_ID: Final = "X-Request-Id"
OPEN_WEBUI_JWT: Final = "X-OpenWebUI-User-Jwt"
"""The header in which Open WebUI proves who asks; what reads it takes a tenth of a second to load."""
ANTHROPIC: Final = "anthropic-version"
MESSAGES: Final = re.compile(r"/(?:v1/|/)*messages(?:/count_tokens)?/*")
CLAIM: Final = f"{PAIRING}/claim"
"""Needs no token, since the code that is sent there is one."""
HOLDER: Final = web.RequestKey("HOLDER", Token)
"""Whose token a request has; it is missing where that is the server's own, or nobody asks for one."""
WHERE_CODES_ARE: Final = (
    "Make a code on elbowroom's page under Connect, or with `elbowroom obsidian pair`, and type it into the settings "
    "of the plugin."
)
PREFLIGHT_SECONDS = "600"
EXPOSED = f"{hdrs.RETRY_AFTER}, {CONVERSATION}, {REQUEST_ID}"
"""Headers that web pages may read."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Which hosts, origins and token the settings accept, and the secret with which Open WebUI signs its users."""

    hosts: frozenset[str]
    origins: frozenset[str]
    token: bytes | None
    open_webui_secret: str | None

    def allows_host(self, host: str, address: str) -> bool:
        """Tell whether a Host header names this server; `address` is where the connection arrived.

        Loopback names and the address may have any port, that of a tunnel or a container: nobody can have one of them
        lead elsewhere, and a page's origin has its port.
        """
        found = HOST_FORM.fullmatch(host)
        if not found:
            return False
        name = found["name"].lower()
        return bool({name, host.lower()} & self.hosts) or name in ALWAYS_ALLOWED_HOSTS or name.strip("[]") == address

    def allows_origin(self, origin: str) -> bool:
        """Tell whether a web page from this origin may call."""
        return bool(ALWAYS_ALLOWED_ORIGINS.fullmatch(origin)) or origin in self.origins or "*" in self.origins


def rules_of(loaded: LoadedSettings, environ: Mapping[str, str]) -> AccessRules:
    """Return the rules of these settings, whose secrets no line of the log has from now on."""
    REDACTOR.follow(loaded, environ)
    server = loaded.settings.server
    token = server.token.reveal(loaded.folder, environ)
    return AccessRules(
        frozenset(host.lower() for host in server.allowed_hosts) | {f"{server.host}:{server.port}".lower()},
        frozenset(server.allowed_origins),
        token.encode() if token else None,
        secret.reveal(loaded.folder, environ) if (secret := server.open_webui_secret) is not None else None,
    )


RULES: web.AppKey[Following[AccessRules]] = web.AppKey("RULES", Following)


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check a request before its body is read; raise where it may not pass.

    Once the server stops, everything else is refused.
    """
    if request.path in (HEALTH, READY) and request.method != hdrs.METH_OPTIONS:
        return await handler(request)
    rules, leads_to_page = request.app[RULES].get(), is_page(request.path)
    _check_host(request, rules)
    if not leads_to_page or request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
        _check_origin(request, rules)
        if request.method == hdrs.METH_OPTIONS:
            return web.Response(status=204)
        if request.method in METHODS_WITH_BODY and request.content_type != "application/json":
            raise UnsupportedMediaType("The body has to be JSON: send Content-Type: application/json.")
        await _check_token(request, rules)
    if OPEN_WEBUI_JWT in request.headers and "jwt" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "jwt")
    request.app[SHARED].running.check_open()
    if not leads_to_page:
        await request.app[SETTINGS].ready()
    if HOLDER not in request:
        return await handler(request)
    with request.app[SHARED].store.people.asking(request[HOLDER]):
        return await handler(request)


def _check_host(request: web.Request, rules: AccessRules) -> None:
    if not request.raw_path.startswith(("/", "*")):
        raise RequestError("The request names its target as a whole address, as to a proxy; elbowroom is none.")
    hosts = request.headers.getall(hdrs.HOST, [])
    if len(hosts) != 1 or not rules.allows_host(hosts[0], arrival(request)[0]):
        named = ", ".join(repr(host) for host in hosts) or "nothing"
        raise Forbidden(
            f"The Host header names {named}, which is not on elbowroom's list. "
            "If you reach it under that name, add it to server.allowed_hosts."
        )


def arrival(request: web.Request) -> tuple[str, int]:
    """Return the address and the port of this computer at which a request has arrived."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return (name[0], name[1]) if isinstance(name, tuple) else ("", 0)


def _check_origin(request: web.Request, rules: AccessRules) -> None:
    origins = request.headers.getall(hdrs.ORIGIN, [])
    if origins and not all(rules.allows_origin(origin) or is_own(origin, request) for origin in origins):
        raise Forbidden(
            f"Web pages from {origins[0]!r} may not call elbowroom. "
            "If this one is yours, add its origin to server.allowed_origins."
        )
    if not origins and request.headers.get(SITE) == "cross-site" and "*" not in rules.origins:
        raise Forbidden(
            "A web page of another site asks for this without saying which it is; it may not, since how long the "
            "answer takes tells it something. Open the address by itself instead."
        )


def is_own(origin: str, request: web.Request) -> bool:
    """Tell whether this is the origin of elbowroom's own page, under the name in Host, which was checked."""
    return origin in (f"http://{request.host}", f"https://{request.host}")


def page_address(request: web.Request) -> str:
    """Return the address of elbowroom's page for a browser on the machine of the program that asks."""
    host = f"127.0.0.1{request.host.removeprefix(DOCKER)}" if request.host.startswith(DOCKER) else request.host
    return f"{request.scheme}://{host}{PAGE}"


async def _check_token(request: web.Request, rules: AccessRules) -> None:
    """Check the token, and take note of whose it is."""
    given = _token_of(request)
    if rules.token is not None and hmac.compare_digest(given.encode("utf-8", "surrogateescape"), rules.token):
        return
    people = request.app[SHARED].store.people
    if given.startswith(TOKENS_BEGIN) and (holder := await people.holder(given)) is not None:
        request[HOLDER] = holder
    elif rules.token is not None and not (request.path == CLAIM and request.method == hdrs.METH_POST):
        if given.startswith(TOKENS_BEGIN):
            raise _unknown()
        if given:
            raise Unauthorized(
                "The token that came with the request is not this elbowroom's. Give your program the one of "
                "server.token or ELBOWROOM_TOKEN as its API key."
            )
        raise Unauthorized("This elbowroom asks for its token: send it as Authorization: Bearer <token>.")


def _token_of(request: web.Request) -> str:
    scheme, _, value = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.headers.get("X-Api-Key", "")


def _unknown() -> Unauthorized:
    return Unauthorized(
        f"This program is not paired with elbowroom, or not any more. {WHERE_CODES_ARE} A person gets a token from "
        "whoever runs elbowroom."
    )


def for_own_page(answer: Answer) -> Answer:
    """Refuse requests of web pages other than elbowroom's own, and of paired programs; others name no origin and pass.

    What is answered is the person's own who asks.
    """
    return _for(answer, "owner", "member", "gateway")


def for_owner(answer: Answer) -> Answer:
    """Refuse requests as `for_own_page` does, and those of people who are no owners.

    Settings name programs to start and addresses to send keys to, so a page or a person that may chat may not change
    them, nor may a program that is paired.
    """
    return _for(answer, "owner")


def for_paired(answer: Answer) -> Answer:
    """Refuse requests as `for_owner` does, but let programs in that are paired; no page of `allowed_origins` is."""
    return _for(answer, "owner", "paired")


def for_roles(answer: Answer, *roles: Role) -> Answer:
    """Refuse requests of people and programs with other roles, from whatever page."""

    @wraps(answer)
    async def checked(request: web.Request) -> web.Response:
        _check_role(request, roles)
        return await answer(request)

    return checked


def _for(answer: Answer, *roles: Role) -> Answer:
    @wraps(answer)
    async def checked(request: web.Request) -> web.Response:
        if HOLDER not in request and _token_of(request).startswith(TOKENS_BEGIN):  # which may chat without a token
            raise _unknown()
        _check_role(request, roles)
        if "paired" in roles:
            _check_paired_page(request)
        else:
            _check_own_page(request)
        return await answer(request)

    return checked


def _check_role(request: web.Request, roles: Collection[Role]) -> None:
    holder = request.get(HOLDER)
    if holder is None or holder.role in roles:
        return
    if holder.role == "paired":
        raise Forbidden(
            f"{holder.name} is paired with elbowroom and may chat, see settings and change those of compactions. This "
            "is for elbowroom's own page.",
            code="not_for_paired",
        )
    raise Forbidden(
        f"{holder.name} is a {holder.role} here, and may chat and see what is {holder.name}'s own; settings and "
        "the rest are for owners.",
        code="not_for_members",
    )


def _check_paired_page(request: web.Request) -> None:
    """Let a paired program in from the origins that need no setting, others as elbowroom's own page."""
    origins = request.headers.getall(hdrs.ORIGIN, [])
    holder = request.get(HOLDER)
    is_paired = holder is not None and holder.role == "paired"
    may_be_paired = all(map(ALWAYS_ALLOWED_ORIGINS.fullmatch, origins))
    if not is_paired and may_be_paired and not _is_own_page(request):
        raise Forbidden(
            f"What runs at {origins[0]!r} may see and change settings once it is paired. {WHERE_CODES_ARE}",
            code="pairing_needed",
        )
    if not is_paired or not may_be_paired:
        _check_own_page(request)


def check_may_pair(request: web.Request) -> None:
    """Raise Forbidden for a web page that only `server.allowed_origins` lets in: it cannot be paired."""
    origins = request.headers.getall(hdrs.ORIGIN, [])
    if not all(ALWAYS_ALLOWED_ORIGINS.fullmatch(origin) for origin in origins):
        raise Forbidden(
            f"Web pages from {origins[0]!r} cannot be paired with elbowroom; programs such as Obsidian can."
        )


def _check_own_page(request: web.Request) -> None:
    if not _is_own_page(request):
        origins = request.headers.getall(hdrs.ORIGIN, [])
        raise Forbidden(
            f"Web pages from {origins[0]!r} may not see or change settings and logs, only elbowroom's own may. "
            "Where a proxy stands in front of it, let the proxy pass the Host header on."
        )


def _is_own_page(request: web.Request) -> bool:
    """Tell whether elbowroom's own page asks, or a program, which names no origin."""
    origins = request.headers.getall(hdrs.ORIGIN, [])
    return request.headers.get(SITE) == SAME_SITE or all(is_own(origin, request) for origin in origins)


def speaks_anthropic(request: web.Request) -> bool:
    """Tell whether a client speaks Anthropic's API: by the header that it demands, or by the path."""
    return ANTHROPIC in request.headers or MESSAGES.fullmatch(request.path) is not None


def is_page(path: str) -> bool:
    """Tell whether a path leads to the page or a part of it, which everybody may read: it holds nobody's data."""
    return path == PAGE or path.startswith(PARTS)


def person_of(request: web.Request) -> str:
    """Return the person who does something here; empty for the holder of the server's own token, or where is none."""
    holder = request.get(HOLDER)
    return holder.person if holder is not None else ""


def add_cors_headers(request: web.Request, response: web.StreamResponse, origin: str) -> None:
    """Let a web page from this origin read the answer, where the settings let it call."""
    if not request.app[RULES].get().allows_origin(origin):
        return
    response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
    response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = EXPOSED
    if request.method == hdrs.METH_OPTIONS:
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
        response.headers[hdrs.ACCESS_CONTROL_MAX_AGE] = PREFLIGHT_SECONDS
        if asked := request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = asked
