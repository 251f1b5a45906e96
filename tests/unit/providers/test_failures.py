"""What an upstream's status and body mean for the person."""

import json
from typing import Any

import pytest

from elbowroom.errors import (
    ContextOverflow,
    ElbowroomError,
    MediaRefused,
    ModelUnavailable,
    UpstreamBusy,
    UpstreamError,
    UpstreamRejected,
)
from elbowroom.providers.failures import Source, error_text, failure_of, failure_of_response

KEY = "sk-lm-abcdefgh:0123456789abcdefghij"
SOURCE = Source("LM Studio", "http://127.0.0.1:1234", "Start it.", "Put a token into api_key.", KEY)


def failure(status: int, body: bytes = b"", **headers: str) -> ElbowroomError:
    """Return what a response becomes; `_` in header names stands for `-`."""
    return failure_of_response(status, body, {name.replace("_", "-"): text for name, text in headers.items()}, SOURCE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("words", "words"),
        ({"message": "words"}, "words"),
        ({"error": "words"}, "words"),
        ({"error": {"message": "words"}}, "words"),
        ({"error": {"error": {"detail": "words"}}}, "words"),
        ({"detail": "words"}, "words"),
        ({"detail": [{"loc": ["body"], "msg": "words", "input": "the whole prompt"}]}, "words"),
        ({"message": "", "error": "words"}, "words"),
        ({"message": None, "detail": "words"}, "words"),
        ({"code": 7}, '{"code": 7}'),
        ([], "[]"),
        (None, "null"),
    ],
)
def test_the_sentence_is_found_in_every_shape(value: Any, text: str) -> None:
    """A string, an object, nested objects, a validator's list; else the JSON itself."""
    assert error_text(value) == text


@pytest.mark.parametrize(
    ("status", "kind", "shown_status"),
    [
        (400, UpstreamRejected, 400),
        (401, UpstreamError, 502),
        (403, UpstreamError, 502),
        (404, UpstreamRejected, 404),
        (422, UpstreamRejected, 422),
        (429, UpstreamBusy, 429),
        (500, UpstreamError, 502),
        (502, UpstreamError, 502),
        (503, UpstreamBusy, 503),
        (504, UpstreamError, 502),
        (302, UpstreamError, 502),
        (204, UpstreamError, 502),
    ],
)
def test_each_status_has_its_meaning(status: int, kind: type[ElbowroomError], shown_status: int) -> None:
    """The client's own mistakes keep their status; a refused key is the server's trouble, not the client's 401."""
    error = failure(status, b'{"error": "words"}')
    assert type(error) is kind
    assert error.status == shown_status
    assert error.message.startswith("LM Studio")


def test_a_refused_key_names_the_remedy_and_not_the_key() -> None:
    """LM Studio repeats the token that it refuses; the message does not."""
    body = f'{{"error": {{"message": "Malformed LM Studio API token provided: {KEY}"}}}}'.encode()
    error = failure(401, body)
    assert "Put a token into api_key." in error.message
    assert "Malformed LM Studio API token provided: ***" in error.message
    for other in (failure(400, body), failure(500, KEY.encode()), failure_of(KEY, SOURCE)):
        assert KEY not in other.message
    assert KEY not in repr(SOURCE)


def test_a_redirect_is_not_followed_and_says_so() -> None:
    """The message names the address that redirects, not what the page there says."""
    error = failure(307, b"<html>login</html>", Location="https://evil.example")
    assert "http://127.0.0.1:1234" in error.message
    assert "base_url" in error.message
    assert "evil" not in error.message


@pytest.mark.parametrize("status", [400, 413, 500, 503])
def test_an_overflow_is_one_under_any_status(status: int) -> None:
    """llama.cpp says it with 500, gateways with 413; the numbers are in the words."""
    error = failure(status, b'{"error": "Input length 6009 exceeds context length 4096"}')
    assert isinstance(error, ContextOverflow)
    assert error.status == 400
    assert "4096 tokens" in error.message
    assert "6009" in error.message


@pytest.mark.parametrize(
    "text", ["Model is unloaded.", "The model has crashed", "Channel Error", "No models loaded. Please load a model"]
)
def test_a_lost_model_says_what_to_do(text: str) -> None:
    """A model that is not there is a 503 that says where to load it, under any status and inside a stream."""
    for error in (failure(400, f'{{"error": "{text}"}}'.encode()), failure_of({"message": text}, SOURCE)):
        assert isinstance(error, ModelUnavailable)
        assert text in error.message
        assert "Load it there" in error.message


@pytest.mark.parametrize(
    "text",
    [
        "Model does not support images. Please use a model that does.",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "this model does not support image input",
        "this model is missing data required for image input",
        "qwen is not a multimodal model",
        "At most 0 image(s) may be provided in one prompt.",
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_pictures_that_a_model_does_not_take_say_so(text: str, status: int) -> None:
    """It is a 400 in the engine's words with what to do, under any status and inside a stream."""
    for error in (failure(status, json.dumps({"error": text}).encode()), failure_of({"message": text}, SOURCE)):
        assert isinstance(error, MediaRefused)
        assert error.status == 400
        assert error.message.startswith("Choose a model")
        assert text in error.message


def test_retry_after_in_seconds() -> None:
    """The upstream's own word on when to come again, in either form, and an hour at most."""
    for value, seconds in (("7", 7), ("99999999", 3600), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None)):
        for status in (429, 503):
            error = failure(status, Retry_After=value)
            assert isinstance(error, UpstreamBusy)
            assert error.retry_after == seconds


def test_code_and_param_are_kept() -> None:
    """What OpenAI clients look at goes on, where it is text."""
    error = failure(400, b'{"error": {"message": "m", "code": "model_not_found", "param": "model"}}')
    assert (error.code, error.param) == ("model_not_found", "model")
    odd = failure(400, b'{"error": {"message": "m", "code": 400, "param": ["x"]}}')
    assert (odd.code, odd.param) == ("upstream_rejected", None)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", "no explanation was given"),
        (b"plain words", "plain words"),
        (b"<html><head><style>p {}</style></head><body><h1>502</h1>\n<p>Bad gateway</p></body>", "502 Bad gateway"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[" * 100_000, "[["),
        (b"null", "null"),
    ],
)
def test_a_body_that_is_no_error_object_is_shown_in_short(body: bytes, shown: str) -> None:
    """Plain text, pages without their markup, and nothing at all."""
    message = failure(500, body).message
    assert shown in message
    assert "<" not in message
    assert len(message) < 500


def test_an_endless_explanation_is_cut() -> None:
    """Some servers repeat the whole request in their refusal; it does not belong into logs and chats."""
    assert len(failure(400, b'{"error": "' + b"x" * 100_000 + b'"}').message) < 3000


def test_words_cannot_write_into_a_log() -> None:
    """Line breaks and terminal codes in an upstream's words arrive as blanks: one error is one line."""
    said = "a\nWARNING forged\r\x1b[2J\u2028\u0085\x00b"
    for error in (failure(400, b'{"error": %s}' % json.dumps(said).encode()), failure_of(said, SOURCE)):
        assert "forged" in error.message
        assert error.message.isprintable()
