"""The outermost middleware: it turns failures into OpenAI's error objects, and logs and counts every request."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from aiohttp import hdrs, web

from elbowroom.agents.catalog import Target
from elbowroom.agents.running import ServerStopping
from elbowroom.caches import give_back_memory
from elbowroom.errors import (
    BodyTooLarge,
    ContextOverflow,
    ConversationLocked,
    ElbowroomError,
    NotFound,
    RequestError,
    RequestTimeout,
    StoreAway,
    StoreOpening,
    TooManyAtOnce,
    TooManyRequests,
    Unauthorized,
    UpstreamBusy,
    is_panic,
)
from elbowroom.logs.formats import FIELDS
from elbowroom.logs.request_facts import RequestFacts, request_facts, requested
from elbowroom.logs.set_up import ONLY_IN_FILE
from elbowroom.server.guard import (
    REQUEST_ID,
    SAME_SITE,
    SITE,
    Handler,
    add_cors_headers,
    is_page,
    speaks_anthropic,
)
from elbowroom.server.metrics import COUNTED
from elbowroom.server.request import OPENERS, UnsupportedCoding
from elbowroom.server.state import SHARED

log = logging.getLogger(__name__)
ROUTES = (
    "POST /v1/chat/completions, /v1/responses, /v1/messages, /v1/completions and /v1/embeddings, GET /v1/models, "
    "GET /v1/conversations, GET /health and GET /ready"
)


CLIENT_LEFT: Final = 499
"""The status in log and metrics of a request whose client has left before it was answered."""
POLLED: Final = frozenset(
    {"/health", "/ready", "/metrics", "/api/live", "/api/logs", "/api/providers", "/api/saved", "/v1/conversations"}
)
"""Routes that pages and monitors ask again and again; only their failures are worth a line."""
UNKNOWN: Final = "(unknown)"
ANTHROPIC_REQUEST_ID: Final = "request-id"
"""The header in which Anthropic's clients look for the id."""
ID: Final = web.RequestKey("ID", str)
LARGE_BODY: Final = 100_000
"""From so many bytes on, what a request has taken is worth giving back."""


class LargeBodies:
    """Gives free memory back to the system, in a thread, once no large body has come for so many seconds."""

    def __init__(self, seconds: float = 2.0, give_back: Callable[[], None] = give_back_memory) -> None:
        self._seconds = seconds
        self._give_back = give_back
        self._later: asyncio.TimerHandle | None = None

    def ended(self) -> None:
        """Take note of the end of a request with a large body."""
        loop = asyncio.get_running_loop()
        if self._later is not None:
            self._later.cancel()
        self._later = loop.call_later(self._seconds, loop.run_in_executor, None, self._give_back)


LARGE_BODIES: web.AppKey[LargeBodies] = web.AppKey("LARGE_BODIES", LargeBodies)


@web.middleware
async def report_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every failure with an OpenAI error object, and log and count how the request ended.

    The request has an id, which its answer and all lines about it carry.
    """
    began, status = time.monotonic(), CLIENT_LEFT
    with requested() as facts:
        request[ID] = facts.id
        try:
            response = await handler(request)
            status = response.status
        except ConnectionResetError:
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            if (refusal := _refusal(request, error)) is None:
                status = error.status if isinstance(error, web.HTTPException) else status
                raise
            response, status = refusal, refusal.status
        finally:
            facts.quotable = ()  # the line is made of names and numbers
            _log(request, facts, status, round((time.monotonic() - began) * 1000))
            route = route_of(request)
            method = request.method if route else ""
            request.app[COUNTED].requested(route, method, status, time.monotonic() - began)
            if (request.content_length or 0) >= LARGE_BODY:
                request.app[LARGE_BODIES].ended()
        return response


def _refusal(request: web.Request, error: BaseException) -> web.Response | None:
    """Return the response that tells the client of an error; None for one of aiohttp's that is a response itself."""
    match error:
        case ElbowroomError():
            return failure_response(error, request)
        case web.HTTPNotFound():
            missing = NotFound(f"There is nothing at {request.path}. elbowroom answers {ROUTES}.")
            return failure_response(missing, request)
        case web.HTTPMethodNotAllowed():
            return _method_refusal(request, error.allowed_methods)
        case web.HTTPException():
            return None
        case _:
            return failure_response(unexpected(error), request)


def _method_refusal(request: web.Request, methods: Collection[str]) -> web.Response:
    allowed = ", ".join(sorted(methods))
    response = failure_response(
        RequestError(f"{request.path} does not take {request.method}, only {allowed}."), request
    )
    response.set_status(405)
    response.headers[hdrs.ALLOW] = allowed
    return response


def failure_response(error: ElbowroomError, request: web.Request) -> web.Response:
    """Return the response that a client reads this error from, in the form of the API that it speaks."""
    request_facts().failed(error)
    shown = error.as_anthropic() if speaks_anthropic(request) else error.as_openai()
    response = web.json_response(shown, status=error.status)
    if isinstance(error, TooManyRequests | TooManyAtOnce | ServerStopping | StoreOpening | StoreAway) or (
        isinstance(error, UpstreamBusy | ContextOverflow) and error.retry_after is not None
    ):
        response.headers[hdrs.RETRY_AFTER] = str(error.retry_after)
    if isinstance(error, Unauthorized):
        response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if isinstance(error, UnsupportedCoding):
        response.headers[hdrs.ACCEPT_ENCODING] = ", ".join(OPENERS)
    if isinstance(error, ConversationLocked):
        response.headers["x-should-retry"] = "true"  # what the clients of OpenAI and Anthropic go by
    if isinstance(error, RequestTimeout | BodyTooLarge | ServerStopping):
        response.force_close()
    return response


def unexpected(error: BaseException) -> ElbowroomError:
    """Log a mistake of elbowroom with its traceback, and return what the client may know of it."""
    log.error("An unexpected error", exc_info=error)
    return ElbowroomError("elbowroom made a mistake; its log says where. The conversation is as it was.")


async def complete_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the request's id and what web pages need to the headers of an answer, just before they are sent.

    A middleware would be too late for streams. A server that is leaving closes the connection, so that the client's
    next request goes to another server.
    """
    response.headers[hdrs.VARY] = hdrs.ORIGIN
    if (origin := request.headers.get(hdrs.ORIGIN)) is not None:
        add_cors_headers(request, response, origin)
    if request_id := request.get(ID):
        response.headers.setdefault(REQUEST_ID, request_id)
        if speaks_anthropic(request):
            response.headers.setdefault(ANTHROPIC_REQUEST_ID, request_id)
    if request.app[SHARED].running.is_leaving:
        response.headers[hdrs.CONNECTION] = "close"
        response.force_close()


def note_target(target: Target) -> None:
    """Name the agent and the model in the request's line of the log."""
    facts = request_facts()
    facts.agent = target.agent.id if target.agent else ""
    facts.model = f"{target.provider.id}/{target.model}"


def route_of(request: web.Request) -> str:
    """Return the pattern of a request's path, as the documentation writes it; empty where there is no such route."""
    resource = request.match_info.route.resource
    if resource is None:
        return ""
    return resource.canonical.replace("/{base}", "/v1/").removesuffix("{end}")


def _log(request: web.Request, facts: RequestFacts, status: int, milliseconds: int) -> None:
    route = route_of(request) or UNKNOWN
    is_asked_by_page = is_page(request.path) or request.headers.get(SITE) == SAME_SITE
    is_own_page = request.method in (hdrs.METH_GET, hdrs.METH_HEAD) and is_asked_by_page
    is_polled = status < 400 and (route in POLLED or request.method == hdrs.METH_OPTIONS or is_own_page)
    fields: dict[str, object] = {
        "event": "request",
        "method": request.method,
        "route": route,
        "agent": facts.agent or None,
        "model": facts.model or None,
        "status": status,
        "tokens_in": facts.tokens_in,
        "tokens_out": facts.tokens_out,
        "compactions": facts.compactions,
        "milliseconds": milliseconds,
    }
    for name in ("steps", "finish_reason", "error", "cache_lost"):
        if value := getattr(facts, name):
            fields[name] = value
    is_answer = facts.steps is not None or status >= 400
    log.log(
        logging.DEBUG if is_polled else logging.INFO,
        "%s",
        _in_words(request.method, route, facts, status, milliseconds),
        extra={FIELDS: fields, ONLY_IN_FILE: not is_answer},
    )


def _in_words(method: str, route: str, facts: RequestFacts, status: int, milliseconds: int) -> str:
    name = facts.agent or facts.model
    if facts.steps is None or not name:
        who = f" ({name})" if name else ""
        why = f", {facts.error}" if facts.error else ""
        return f"{method} {route}{who}: {status}{why}, {milliseconds} ms"
    tokens_in = "?" if facts.tokens_in is None else facts.tokens_in
    tokens_out = "?" if facts.tokens_out is None else facts.tokens_out
    lost = f"; {facts.cache_lost['told']}" if facts.cache_lost else ""
    return (
        f"{name}: {tokens_in} tokens in, {tokens_out} out, {facts.steps} step(s), {facts.finish_reason}, "
        f"{milliseconds / 1000:.1f} s{lost}"
    )
