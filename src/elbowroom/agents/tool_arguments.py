"""What tools of the server take: declared as pydantic models, read from what a model wrote."""

import functools
import json
from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from elbowroom.errors import RequestError

LONGEST_NAME: Final = 100
"""Characters of a name that no tool has taught the model: it does not get more of it back."""


class ToolArguments(BaseModel):
    """What a tool takes. Models send null for what they leave out, and numbers as text: both are taken."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """Return the arguments that a model wrote; what does not fit is a RequestError in one sentence."""
        try:
            return cls.model_validate(written)
        except ValidationError as error:
            first: Mapping[str, Any] = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))[:LONGEST_NAME] or "the arguments"
            takes = ", ".join(cls.model_fields) or "nothing"
            raise RequestError(f"{where}: {first['msg']}. It takes: {takes}.") from error


@functools.cache
def schema_of(arguments: type[ToolArguments]) -> dict[str, Any]:
    """Return the JSON schema without what only takes room in the model's window."""
    schema = arguments.model_json_schema()
    properties = {
        name: {key: value for key, value in row.items() if key in ("type", "description", "enum")}
        for name, row in schema.get("properties", {}).items()
    }
    return {"type": "object", "properties": properties, "required": schema.get("required", [])}


def parsed_arguments(written: str) -> Mapping[str, Any] | None:
    """Return a call's arguments, None where they are no JSON object; one that was written as a text is taken too."""
    try:
        value = json.loads(written) if written.strip() else {}
        if isinstance(value, str):
            value = json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None
