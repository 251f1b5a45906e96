"""The errors of more than one room, and the status and type that each has for a client.

    ElbowroomError                     500 server_error
    ├── SettingsError                  500  a wrong settings file, environment variable or flag
    │   └── WrongSettings              422 invalid_settings, values that are not accepted, each with its path
    ├── SettingsNotSaved               500 settings_not_saved: the file, and what to do
    ├── RequestError                   400 invalid_request_error
    │   ├── Unauthorized               401 invalid_api_key
    │   ├── Forbidden                  403 a Host or Origin that is not on the list
    │   ├── NotFound                   404
    │   │   └── ModelNotFound          404 model_not_found, with the list of what there is
    │   ├── Conflict                   409 the request contradicts the present state
    │   ├── ConversationLocked         400 conversation_locked: its answer is still being given
    │   ├── Gone                       410 what is asked for was there, and is no more
    │   ├── TooManyTries               429 too_many_tries
    │   ├── RequestTimeout             408 headers or body came too slowly
    │   ├── BodyTooLarge               413
    │   ├── UnsupportedMediaType       415
    │   └── ContextOverflow            400 context_length_exceeded, with the numbers
    │       └── WindowTooSmall         400 window_too_small, which compacting cannot help
    ├── WindowUnknown                  503 window_unknown, so that nothing can be kept inside it
    ├── McpUnavailable                 500 a reason in words, which a tool's failure or the log tells
    ├── TooManyRequests                429 queue_full, with Retry-After
    ├── StoreOpening                   503 store_opening, with Retry-After
    ├── StoreAway                      503 store_unreachable, with Retry-After
    ├── StoreUnwritable                503 store_unwritable
    └── UpstreamError                  502 upstream_error
        ├── UpstreamUnreachable        503 no server listens at the address
        ├── UpstreamRejected           the upstream's own 4xx status, with its own words
        │   └── MediaRefused           400 the model takes no pictures, or no sounds
        ├── UpstreamBusy               429 or 503, with Retry-After where the upstream named one
        ├── UpstreamTimeout            504 it accepted the request and then sent nothing
        ├── ModelUnavailable           503 the model is not loaded, was unloaded or has crashed
        ├── StreamCut                  502 the answer ended without a finish_reason
        └── EmptyReply                 502 the answer was finished and empty

`LinkLost` stands apart: it is caught in `agents/tools/mcp/`, and no client sees it.

The server alone turns them into HTTP answers; providers turn the errors of their upstreams into them. A message says
what happened, where, and what the person can do.
"""

import os
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""The types of errors in Anthropic's API by their status, as far as they have one of their own."""


def own_command() -> str:
    """Return how the person calls the program: whoever starts it by a script has nothing else on the PATH."""
    return os.environ.get("ELBOWROOM_STARTED_AS") or "elbowroom"


def in_own_words(text: str) -> str:
    """Return a text in which commands between backticks begin as the person calls the program."""
    return re.sub(r"`elbowroom (?=[a-z])", lambda _: f"`{own_command()} ", text)


class ElbowroomError(Exception):
    """Something went wrong that a person should read about; commands in its message begin as the person calls them."""

    status: int = 500
    type: ClassVar[str] = "server_error"
    code: str | None = None
    param: str | None = None

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        message = in_own_words(message)
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if param is not None:
            self.param = param

    def as_openai(self) -> dict[str, Any]:
        """Return the OpenAI error object: `{"error": {message, type, param, code}}`."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def as_anthropic(self) -> dict[str, Any]:
        """Return the error object of Anthropic's API: `{"type": "error", "error": {type, message}}`."""
        kind = ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": self.message}}


def what_failed(error: BaseException) -> str:
    """Return what an error says, one of the system without its number, and with the file that it names."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    return f"{error.strerror} ({error.filename})" if error.filename else error.strerror


def is_panic(error: BaseException) -> bool:
    """Tell whether an error is a panic of a library written in Rust, which is no Exception."""
    return type(error).__name__ == "PanicException"


class SettingsError(ElbowroomError):
    """A setting is wrong: the message names where it stands, its key, its value and what is accepted."""

    code = "invalid_settings"


class WrongSettings(SettingsError):
    """Values that are not accepted; `fields` are pairs of a path, such as `agents[0].model`, and what is wrong.

    `doubts` are sentences about keys of the same file that are not known and ignored; `keys` are the paths in parts.
    """

    status = 422
    type = "invalid_request_error"

    def __init__(
        self,
        message: str,
        fields: Sequence[tuple[str, str]],
        doubts: Sequence[str] = (),
        keys: Sequence[tuple[str | int, ...]] = (),
    ) -> None:
        super().__init__(message, param=fields[0][0] if fields else None)
        self.fields = tuple(fields)
        self.keys = tuple(keys)
        self.doubts = tuple(doubts)

    def as_openai(self) -> dict[str, Any]:
        """Return the OpenAI error object with the fields beside it."""
        return {**super().as_openai(), "fields": [{"path": path, "message": text} for path, text in self.fields]}


class SettingsNotSaved(ElbowroomError):
    """The settings file could not be written; nothing was changed."""

    code = "settings_not_saved"


class RequestError(ElbowroomError):
    """The client asked for something that cannot be done as asked."""

    status = 400
    type = "invalid_request_error"


class Unauthorized(RequestError):
    """The server has a token and the request does not carry it."""

    status = 401
    code = "invalid_api_key"


class Forbidden(RequestError):
    """The request came under a host name or from a web page that is not on the list."""

    status = 403


class NotFound(RequestError):
    """There is nothing at this path."""

    status = 404


class ModelNotFound(NotFound):
    """No enabled agent and no model of a provider has this name."""

    code = "model_not_found"
    param = "model"


class Conflict(RequestError):
    """The request contradicts the present state; the code says how."""

    status = 409


class TokenNeeded(Conflict):
    """People are to have tokens on a server that asks nobody for one."""

    code = "token_needed"

    def __init__(self) -> None:
        super().__init__(
            "This elbowroom asks nobody for a token, so that everybody may everything. Set server.token first, which "
            "is then yours, the owner's."
        )


class ConversationLocked(RequestError):
    """The conversation is being answered, and another request would change it.

    Status and code are OpenAI's, by which the Agents SDK asks again; a header has the clients of both vendors do so.
    """

    code = "conversation_locked"
    param = "conversation"

    def __init__(self, conversation: str) -> None:
        super().__init__(
            f"The conversation {conversation!r} is being answered, and takes one request at a time. Wait for the end "
            f"of that answer, or stop it with POST /v1/conversations/{conversation}/cancel, and ask again."
        )


class Gone(RequestError):
    """What is asked for was there, and is no more."""

    status = 410


class TooManyTries(RequestError):
    """A secret was guessed wrong too often."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_tries"


class RequestTimeout(RequestError):
    """The client took too long to send its request."""

    status = 408


class BodyTooLarge(RequestError):
    """The request's body is larger than this server takes."""

    status = 413


class UnsupportedMediaType(RequestError):
    """The request's body is not plain JSON."""

    status = 415


class ContextOverflow(RequestError):
    """The prompt does not fit the model's window; the sizes are in tokens, None if unknown.

    It `is_final` where no shorter history would fit either. `retry_after` is in how many seconds it is worked out anew,
    None where it just was.
    """

    code = "context_length_exceeded"
    param = "messages"
    is_final = False
    retry_after: int | None = None

    def __init__(self, message: str, *, window: int | None = None, prompt_tokens: int | None = None) -> None:
        super().__init__(message)
        self.window = window
        self.prompt_tokens = prompt_tokens

    def as_anthropic(self) -> dict[str, Any]:
        """Return Anthropic's error object, with the words by which its clients know an overflow."""
        shown = super().as_anthropic()
        if self.window is not None and self.prompt_tokens is not None:
            known = f"prompt is too long: {self.prompt_tokens} tokens > {self.window} maximum"
            shown["error"]["message"] = f"{known}. {self.message}"
        return shown


class WindowTooSmall(ContextOverflow):
    """Not even an empty conversation fits the window: a client that made its own shorter would ask without end."""

    code = "window_too_small"
    is_final = True

    def as_anthropic(self) -> dict[str, Any]:
        """Return Anthropic's error object, without the words by which its clients know an overflow."""
        return super(ContextOverflow, self).as_anthropic()


class WindowUnknown(ElbowroomError):
    """The size of the model's window is unknown, so elbowroom cannot keep requests inside it."""

    status = 503
    code = "window_unknown"

    def __init__(self, model: str, provider: str) -> None:
        super().__init__(
            f"The window of {model!r} is not known: the provider {provider!r} does not tell the context length it runs "
            "with. Load the model first (in LM Studio, with `lms load`, or with `ollama run`), or set manage_context = "
            "false for this provider to pass requests through unchecked."
        )


class TooManyRequests(ElbowroomError):
    """The queue for the model is full; `retry_after` estimates the seconds until a request is served."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"

    def __init__(self, model: str, *, waiting: int, retry_after: int) -> None:
        super().__init__(
            f"{model!r} is busy, and as many requests wait for it as may ({waiting}). Ask again in {retry_after} s."
        )
        self.retry_after = retry_after


class TooManyAtOnce(ElbowroomError):
    """As many requests of a person are being answered as may be; `retry_after` is in seconds."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_at_once"
    retry_after = 2

    def __init__(self, most: int) -> None:
        answered = "1 of your requests is" if most == 1 else f"{most} of your requests are"
        super().__init__(
            f"{answered} being answered, as many as one person may have at a time (server.chats_at_once). Wait for the "
            "end of an answer, or stop one, and ask again."
        )


class StoreOpening(ElbowroomError):
    """What is kept cannot be told yet, for the database is being opened; `retry_after` is in seconds."""

    status = 503
    code = "store_opening"
    retry_after = 2

    def __init__(self) -> None:
        super().__init__(
            "The database of conversations is still being opened, so what is kept cannot be told yet. Ask again in "
            f"{self.retry_after} s."
        )


class StoreAway(ElbowroomError):
    """What is kept cannot be told, for the database server cannot be used; `retry_after` is in seconds."""

    status = 503
    code = "store_unreachable"
    retry_after = 2

    def __init__(self) -> None:
        super().__init__(
            "The database cannot be used now, so what is kept there cannot be told. It is not lost, and chats "
            f"go on. Ask again in {self.retry_after} s; 'elbowroom doctor' tells what is wrong."
        )


STILL_THERE: Final = (
    "The database of conversations cannot be written now. This is gone from lists, and from the database as soon as "
    "that works; if elbowroom ends before, it is there again. /health says how the store is."
)


class StoreUnwritable(ElbowroomError):
    """What was changed is not so in the database, which cannot be written."""

    status = 503
    code = "store_unwritable"

    def __init__(self, message: str = STILL_THERE) -> None:
        super().__init__(message)


class UpstreamError(ElbowroomError):
    """The server that runs the model failed."""

    status = 502
    type = "upstream_error"
    code = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """No server answers at the provider's address."""

    status = 503
    code = "upstream_unreachable"


class UpstreamRejected(UpstreamError):
    """The upstream refused the request with a 4xx status of its own."""

    code = "upstream_rejected"

    def __init__(self, message: str, *, status: int, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message, code=code, param=param)
        self.status = status


class MediaRefused(UpstreamRejected):
    """The model does not take the pictures or sounds in the messages; how long these are does not matter."""


class UpstreamBusy(UpstreamError):
    """The upstream takes no more requests just now; `retry_after` is in how many seconds to ask again."""

    code = "upstream_busy"

    def __init__(self, message: str, *, status: int = 503, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class UpstreamTimeout(UpstreamError):
    """The upstream accepted the request and then sent nothing for too long."""

    status = 504
    code = "upstream_timeout"


class ModelUnavailable(UpstreamError):
    """The provider knows the model but does not have it ready."""

    status = 503
    code = "model_not_loaded"


class StreamCut(UpstreamError):
    """The upstream's answer ended without a finish_reason, or broke off in the middle."""

    code = "upstream_cut"


class EmptyReply(UpstreamError):
    """The upstream finished its answer without any content."""

    code = "upstream_empty"


class McpUnavailable(ElbowroomError):
    """An MCP server cannot be used; the message is the end of a sentence that says why, without secrets."""


class LinkLost(Exception):
    """The connection to an MCP server has ended; `was_sent` tells whether the server may have received the request."""

    def __init__(self, *, was_sent: bool) -> None:
        super().__init__()
        self.was_sent = was_sent
