"""Whatever is sent to any route, right or wrong: elbowroom itself never fails."""

import asyncio
import warnings
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, RAW_MODEL, elbowroom_with_studio
from described_routes import description
from hypothesis import HealthCheck, Phase, given, settings
from openai_schemas import check_schema
from serving import Served

from elbowroom.demo import SimulatedModel

EXAMPLES = 150
ROUTES = sorted((path, method) for path, item in description([])["paths"].items() for method in item)


@pytest.mark.long
@pytest.mark.parametrize(("path", "method"), ROUTES, ids=[f"{method} {path}" for path, method in ROUTES])
async def test_no_route_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, method: str) -> None:
    """Requests that are made up after the description of a route, or against it, are answered in the right form."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")  # a proxy of this machine is no part of the test
    async with elbowroom_with_studio(tmp_path, model=SimulatedModel(MODEL, loaded_context_length=8192)) as (served, _):
        await asyncio.to_thread(_try, served, path, method)


def _try(served: Served, path: str, method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the library has to say about itself
        import schemathesis

        described = schemathesis.openapi.from_dict(description(["writer", RAW_MODEL]))
    operation = described[path][method.upper()]
    right = operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE)
    wrong = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=right | wrong if method == "post" else right)
    def check(case: Any) -> None:
        answer = case.call(base_url=served.url)
        assert answer.status_code != 500, answer.text
        if answer.status_code >= 400:
            check_schema("ErrorResponse", answer.json())

    check()
