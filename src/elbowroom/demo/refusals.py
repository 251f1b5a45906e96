"""LM Studio's error answers: their statuses, shapes and words."""

from typing import Any

from aiohttp import web

UNLOADED = "Model is unloaded."
CRASHED = "The model has crashed without additional information. (Exit code: 6)"
JSON_OBJECT = "'response_format.type' must be 'json_schema' or 'text'"
NO_IMAGES = "Model does not support images. Please use a model that does."
NO_MODELS = "No models loaded. Please load a model in the developer page or use the 'lms load' command."
SEVERAL_MODELS = "Multiple models are loaded. Please specify a model by providing a 'model' field."
AUTH_WRONG = "Invalid LM Studio API token provided: "
_AUTHENTICATION = "Learn more at: https://lmstudio.ai/docs/developer/core/authentication."
AUTH_MISSING = (
    "An LM Studio API token is required to make requests to this server, but none was provided using the "
    "Authorization header using the 'Bearer' scheme (i.e., 'Authorization: Bearer $LM_API_TOKEN'). " + _AUTHENTICATION
)
AUTH_MALFORMED = "Malformed LM Studio API token provided: "


class RefusalError(Exception):
    """A request that gets an error answer: its HTTP status and JSON body."""

    def __init__(self, body: dict[str, Any], status: int = 400) -> None:
        super().__init__(body)
        self.body = body
        self.status = status

    def response(self) -> web.Response:
        """Return it as the HTTP answer."""
        return web.json_response(self.body, status=self.status)


def plain(message: str) -> RefusalError:
    """Return LM Studio's most frequent error: status 400, with a string instead of an error object."""
    return RefusalError({"error": message})


def no_such_model(message: str, status: int = 400) -> RefusalError:
    """Return the chat route's error for a missing or ambiguous model."""
    error = {"message": message, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    return RefusalError({"error": error}, status)


def native(message: str, status: int = 404) -> RefusalError:
    """Return the error of the routes below /api/v1 for an unknown model."""
    return RefusalError(
        {
            "error": {
                "type": "model_not_found",
                "message": message,
                "code": "model_not_found",
                "param": "model",
            }
        },
        status,
    )


def unauthorized(message: str) -> RefusalError:
    """Return the error for a missing, malformed or wrong API token."""
    return RefusalError({"error": {"type": "invalid_request", "code": "invalid_api_key", "message": message}}, 401)


def unexpected_endpoint(method: str, path: str) -> web.Response:
    """Return the answer to unknown paths: an error in words, with status 200."""
    return web.json_response({"error": f"Unexpected endpoint or method. ({method} {path})"})
