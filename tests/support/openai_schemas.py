"""OpenAI's own description of what clients may be answered with: its JSON schemas, and its client's types, strictly.

scripts/openai_schemas has made JSON Schema of the description, with a type in place of `nullable`.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from openai.types import CompletionUsage, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

DOCUMENT: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "openai_schemas.json").read_text(encoding="utf-8")
)
RESPONSE: Final = DOCUMENT["components"]["schemas"]["Response"]["allOf"][2]["properties"]
RESPONSE["usage"] = {"anyOf": [RESPONSE["usage"], {"type": "null"}]}
"""OpenAI's servers, the examples of their documentation and Open Responses have null until the usage is known."""
TYPES: Final[dict[str, Any]] = {
    "CreateChatCompletionResponse": ChatCompletion,
    "CreateChatCompletionStreamResponse": ChatCompletionChunk,
    "CreateEmbeddingResponse": CreateEmbeddingResponse,
    "CompletionUsage": CompletionUsage,
    "Model": Model,
    "Response": Response,
    "ResponseStreamEvent": ResponseStreamEvent,
}
"""The types of the Python client for the schemas of these names."""


def check_schema(name: str, value: Any) -> None:
    """Fail where a value does not have the form of this name, and say where it differs."""
    problems = [
        f"{problem.json_path}: {problem.message[:300]}"
        for error in _validator(name).iter_errors(value)
        for problem in (error.context or [error])
    ]
    assert not problems, f"no {name}: {problems[:20]} in {json.dumps(value)[:600]}"
    if name in TYPES:
        _adapter(name).validate_json(json.dumps(value), strict=True)


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", **DOCUMENT})


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(TYPES[name])
