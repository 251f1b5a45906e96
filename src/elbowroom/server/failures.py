"""The one border where errors become HTTP responses in OpenAI's form."""

import logging
import re

from aiohttp import hdrs, web

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
from elbowroom.logs.request_facts import request_facts
from elbowroom.server.guard import Handler
from elbowroom.server.running import ServerStopping

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
