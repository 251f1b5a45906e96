"""The one border where errors become HTTP responses in OpenAI's form."""

import logging
import re
import time
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web

from elbowroom.agents.answer import Answer
from elbowroom.agents.catalog import Target
from elbowroom.errors import (
    BodyTooLarge,
    ElbowroomError,
    NotFound,
    RequestError,
    RequestTimeout,
    TooManyRequests,
    Unauthorized,
    UpstreamBusy,
)
from elbowroom.logs.formats import FIELDS
from elbowroom.logs.redaction import REDACTOR
from elbowroom.logs.request_facts import RequestFacts, request_facts, requested
from elbowroom.logs.set_up import ONLY_IN_FILE
from elbowroom.server.guard import REQUEST_ID, Handler
from elbowroom.server.state import ENVIRONMENT, SETTINGS, ServerStopping

log = logging.getLogger(__name__)
RETRY_AFTER_FORMS = re.compile(r"[0-9]{1,9}|[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")
ROUTES = (
    "POST /v1/chat/completions, /v1/responses, /v1/completions and /v1/embeddings, GET /v1/models, "
    "GET /v1/conversations, GET /health"
)


@web.middleware
async def translate_failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every failure with its status and an OpenAI error object."""
    try:
        return await handler(request)
    except ElbowroomError as error:
        return failure_response(error)
    except web.HTTPNotFound:
        return failure_response(NotFound(f"There is nothing at {request.path}. elbowroom answers {ROUTES}."))
    except web.HTTPMethodNotAllowed as refusal:
        allowed = ", ".join(sorted(refusal.allowed_methods))
        response = failure_response(RequestError(f"{request.path} does not take {request.method}, only {allowed}."))
        response.set_status(405)
        response.headers[hdrs.ALLOW] = allowed
        return response
    except web.HTTPException:
        raise
    except ConnectionResetError:
        raise
    except Exception as error:  # noqa: BLE001  # the border: nothing else may reach a client
        return failure_response(unexpected(error))


def failure_response(error: ElbowroomError) -> web.Response:
    """Return the response that a client reads this error from."""
    request_facts().failed(error)
    response = web.json_response(error.as_openai(), status=error.status)
    if isinstance(error, UpstreamBusy) and error.retry_after and RETRY_AFTER_FORMS.fullmatch(error.retry_after):
        response.headers[hdrs.RETRY_AFTER] = error.retry_after
    if isinstance(error, TooManyRequests | ServerStopping):
        response.headers[hdrs.RETRY_AFTER] = str(error.retry_after)
    if isinstance(error, Unauthorized):
        response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if isinstance(error, RequestTimeout | BodyTooLarge | ServerStopping):
        response.force_close()
    return response


def unexpected(error: Exception) -> ElbowroomError:
    """Log a mistake of ours with its traceback, and return what the client may know of it."""
    log.error("An unexpected error", exc_info=error)
    return ElbowroomError("elbowroom made a mistake; its log says where. The conversation is as it was.")


CLIENT_LEFT: Final = 499
"""What is logged as the status of a request whose client has left before it was answered."""
POLLED: Final = frozenset({"/health", "/metrics", "/api/live", "/api/logs", "/api/providers", "/v1/conversations"})
"""What pages and monitors ask for again and again: only where that fails is it worth a line."""
UNKNOWN: Final = "(unknown)"
ID: Final = web.RequestKey("ID", str)


@dataclass(slots=True)
class _Ended:
    status: int = CLIENT_LEFT


@web.middleware
async def log_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give the request an id, which its answer and all lines about it carry, and log how it ended."""
    REDACTOR.follow(request.app[SETTINGS].current(), request.app[ENVIRONMENT])
    ended, began = _Ended(), time.monotonic()
    with requested() as facts:
        request[ID] = facts.id
        try:
            response = await handler(request)
            ended.status = response.status
            return response
        except web.HTTPException as answer:
            ended.status = answer.status
            raise
        finally:
            facts.words = None  # the line is made of names and numbers
            _log(request, facts, ended.status, round((time.monotonic() - began) * 1000))


async def add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    """Name the request in its answer; for when the headers are about to be sent."""
    if request_id := request.get(ID):
        response.headers.setdefault(REQUEST_ID, request_id)


def note_target(target: Target) -> None:
    """Have the request's line say who is asked."""
    facts = request_facts()
    facts.agent = target.agent.id if target.agent else ""
    facts.model = f"{target.provider.id}/{target.model}"


def note_answer(answer: Answer) -> None:
    """Have the request's line say what the answer took."""
    facts = request_facts()
    facts.take_usage(answer.usage)
    facts.steps, facts.finish_reason = answer.steps, answer.finish_reason


def route_of(request: web.Request) -> str:
    """Return the route as it is written down, without what a client has put into it."""
    resource = request.match_info.route.resource
    if resource is None:
        return UNKNOWN
    return resource.canonical.replace("/{base}", "/v1/").removesuffix("{end}")


def _log(request: web.Request, facts: RequestFacts, status: int, milliseconds: int) -> None:
    route = route_of(request)
    is_polled = status < 400 and (route in POLLED or request.method == hdrs.METH_OPTIONS)
    fields = {
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
    optional = {"steps": facts.steps, "finish_reason": facts.finish_reason, "error": facts.error}
    fields |= {name: value for name, value in optional.items() if value}
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
    return (
        f"{name}: {tokens_in} tokens in, {tokens_out} out, {facts.steps} step(s), {facts.finish_reason}, "
        f"{milliseconds / 1000:.1f} s"
    )
