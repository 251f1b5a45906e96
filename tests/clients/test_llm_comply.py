"""The checks of `llm-comply`: answers against the schemas of OpenAI, Open Responses and Anthropic."""

import asyncio
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, elbowroom_with_studio
from llm_comply import runner
from llm_comply.config import ComplianceConfig
from llm_comply.schema import SpecLoader
from llm_comply.tests import get_tests

from elbowroom.demo import Reasoning, Script, SimulatedModel

SCHEMAS = {
    "openai-chat": "openai_chat.json",
    "open-responses": "openresponses.json",
    "anthropic": "anthropic.json",
}
CHECKS = 31
THINKER = "gpt-5-claude-4"
"""An agent's id by which the checks take it for a model that thinks, and skip none of them."""
AGENT = f'[[agents]]\nid = "{THINKER}"\nmodel = "{MODEL}"\nsampling = {{ temperature = 0.25 }}\n'


USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 12,
    "total_tokens": 42,
    "completion_tokens_details": {"reasoning_tokens": 6},
}


def thoughtful(body: dict[str, Any]) -> Script | None:
    """Answer the question that is to be thought about; None for all others, which the simulator answers by itself.

    Engines that tell how many tokens were thoughts do so in the usage.
    """
    if "15 * 37" not in str(body["messages"]):
        return None
    return Script(Reasoning("Fifteen times 37."), "It is 555.", usage=USAGE)


def test_all_are_run() -> None:
    """There are as many checks as docs/clients.md says."""
    assert sum(len(get_tests(api)) for api in SCHEMAS) == CHECKS


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver is deprecated:DeprecationWarning")
@pytest.mark.parametrize("api", SCHEMAS)
async def test_checks(tmp_path: Path, api: str) -> None:
    """Every check of an API passes, without a warning and without being skipped."""
    with as_file(files("llm_comply") / "specs" / SCHEMAS[api]) as path:
        schemas = await asyncio.to_thread(SpecLoader, str(path))
    model = SimulatedModel(MODEL, type="vlm", reasoning=True, loaded_context_length=32_768)
    async with elbowroom_with_studio(tmp_path, agents=AGENT, model=model) as (served, studio):
        studio.on_request = thoughtful
        config = ComplianceConfig(base_url=f"{served.url}/v1", api_key="none", model=THINKER)
        checks = runner.TestRunner(config, get_tests(api), schemas)
        results = (await asyncio.to_thread(checks.run_all)).results
    told = {result.id: (result.status.value, result.errors, result.warnings) for result in results}
    assert told == {name: ("passed", [], []) for name in told}


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver is deprecated:DeprecationWarning")
async def test_kept_response(tmp_path: Path) -> None:
    """A response that is asked for later has all fields too; the agent's own sampling is told, not a usual value."""
    with as_file(files("llm_comply") / "specs" / SCHEMAS["open-responses"]) as path:
        schemas = await asyncio.to_thread(SpecLoader, str(path))
    async with elbowroom_with_studio(tmp_path, agents=AGENT) as (served, _):
        asked = {"model": THINKER, "input": "Hello", "top_p": 0.5}
        async with served.http.post(f"{served.url}/v1/responses", json=asked) as response:
            made = await response.json()
        async with served.http.get(f"{served.url}/v1/responses/{made['id']}") as response:
            kept = await response.json()
    assert (made["temperature"], made["top_p"], made["presence_penalty"]) == (0.25, 0.5, 0)
    assert schemas.validate(kept, "ResponseResource") == []
